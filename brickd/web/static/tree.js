import { element, replace } from "./dom.js";

export const tree = {
  name: "tree",
  title: "Tree",
  needs: () => ({}),
  mount(room) {
    replace(room, element("p", {}, "This view is not built yet."));
    return { show() {} };
  },
};
