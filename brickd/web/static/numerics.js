import { element, replace } from "./dom.js";

export const numerics = {
  name: "numerics",
  title: "Numerics",
  needs: () => ({}),
  mount(room) {
    replace(room, element("p", {}, "This view is not built yet."));
    return { show() {} };
  },
};
