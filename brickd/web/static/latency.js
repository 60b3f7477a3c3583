import { element, replace } from "./dom.js";

export const latency = {
  name: "latency",
  title: "Latency",
  needs: () => ({}),
  mount(room) {
    replace(room, element("p", {}, "This view is not built yet."));
    return { show() {} };
  },
};
