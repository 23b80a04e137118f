// The bar between the streams and the panes, which is dragged, or moved by arrow keys.

import {byId} from "./dom.js";

const STEP = 40, LEAST = 90;

export class Splitter {
  constructor(model) {
    this.model = model;
    this.bar = byId("splitter");
    this.page = byId("page");
    this.height = 300;
    this.bar.addEventListener("pointerdown", event => this.bar.setPointerCapture(event.pointerId));
    this.bar.addEventListener("pointermove", event => {
      if (event.buttons & 1) this.set(this.page.getBoundingClientRect().bottom - event.clientY);
    });
    this.bar.addEventListener("keydown", event => {
      const by = {ArrowUp: STEP, ArrowDown: -STEP}[event.key];
      if (by) this.set(this.height + by);
    });
    this.set(this.height);
  }

  set(height) {
    this.height = Math.max(LEAST, Math.min(height, innerHeight - 260));
    this.page.style.setProperty("--panes", `${this.height}px`);
    this.bar.setAttribute("aria-valuenow", String(Math.round(this.height)));
    this.model.tell("axis");
  }

  // Make the panes large, or as they were before.
  toggle() {
    const large = innerHeight - 260;
    if (this.height < large - 1) [this.before, this.height] = [this.height, large];
    else this.height = this.before ?? 300;
    this.set(this.height);
  }
}
