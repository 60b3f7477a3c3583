import { element, replace } from "./dom.js";

export const hang = {
  name: "hang",
  title: "Hang",
  needs: () => ({}),
  mount(room) {
    replace(room, element("p", {}, "This view is not built yet."));
    return { show() {} };
  },
};
