import { element, replace } from "./dom.js";

export const workers = {
  name: "workers",
  title: "Workers",
  needs: () => ({}),
  mount(room) {
    replace(room, element("p", {}, "This view is not built yet."));
    return { show() {} };
  },
};
