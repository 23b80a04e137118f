// The text beside the pointer.

import {byId} from "./dom.js";

export class Hint {
  #element = byId("hint");

  show(event, lines) {
    const element = this.#element;
    element.textContent = lines.join("\n");
    element.hidden = false;
    const {offsetWidth: width, offsetHeight: height} = element, aside = 14;
    const x = event.clientX + aside + width > innerWidth ? event.clientX - aside - width : event.clientX + aside;
    const y = event.clientY + aside + height > innerHeight ? event.clientY - aside - height : event.clientY + aside;
    element.style.left = `${Math.max(0, x)}px`;
    element.style.top = `${Math.max(0, y)}px`;
  }

  hide() {
    this.#element.hidden = true;
  }
}
