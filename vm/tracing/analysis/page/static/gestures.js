// The actions of the wheel and the pointer on the time axis, the same in every chart.
//
// The wheel zooms at the pointer; a sideways wheel, or the wheel with Shift, moves. A gesture that began as a zoom does
// not become a move half-way, or vice versa, since fingers on a touch pad never move straight. Dragging moves; dragging
// with Shift zooms to the marked range.

const CALM = 250;  // milliseconds after which a new gesture begins
const SPEED = 0.002;
const STILL = 4;  // the most pixels by which the pointer may move in a click

export class Gestures {
  #kind = "";
  #last = 0;
  #grip = null;

  // `gutter`: the width of the names at the left. `click(event)`: called after a press without a move.
  constructor(model, element, gutter, {click = () => {}, vertical = () => {}} = {}) {
    Object.assign(this, {model, element, gutter, click, vertical});
    element.addEventListener("wheel", event => this.#wheel(event), {passive: false});
    element.addEventListener("pointerdown", event => this.#press(event));
    element.addEventListener("pointermove", event => this.#drag(event));
    element.addEventListener("pointerup", event => this.#leave(event));
    element.addEventListener("pointercancel", () => { this.#grip = null; });
  }

  get width() {
    return Math.max(1, this.element.clientWidth - this.gutter);
  }

  // The position of the pointer as a share of the window.
  share(event) {
    return (event.clientX - this.element.getBoundingClientRect().left - this.gutter) / this.width;
  }

  time(event) {
    const {axis} = this.model;
    return axis.from + axis.length * this.share(event);
  }

  #wheel(event) {
    if (this.share(event) < 0) return;  // over the names, the wheel scrolls the rows
    event.preventDefault();
    const [across, down] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    if (event.timeStamp - this.#last > CALM) this.#kind = Math.abs(across) > Math.abs(down) ? "pan" : "zoom";
    this.#last = event.timeStamp;
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (this.#kind === "pan") this.model.move(axis => axis.pan(across * lines / this.width));
    else this.model.move(axis => axis.zoom(Math.exp(clamp(down * lines, 300) * SPEED), clamp01(this.share(event))));
  }

  #press(event) {
    if (event.button !== 0 || this.share(event) < 0) return;
    const {clientX: x, clientY: y} = event;
    this.#grip = {x, y, left: x, top: y, moved: false, chooses: event.shiftKey, from: this.time(event)};
    this.element.setPointerCapture(event.pointerId);
  }

  #drag(event) {
    const grip = this.#grip;
    if (!grip) return;
    if (Math.hypot(event.clientX - grip.left, event.clientY - grip.top) > STILL) grip.moved = true;
    if (!grip.moved) return;
    if (grip.chooses) this.model.hover(this.time(event));
    else {
      this.model.move(axis => axis.pan((grip.x - event.clientX) / this.width));
      this.vertical(grip.y - event.clientY);
      [grip.x, grip.y] = [event.clientX, event.clientY];
    }
  }

  #leave(event) {
    const grip = this.#grip;
    this.#grip = null;
    if (!grip) return;
    if (!grip.moved) this.click(event);
    else if (grip.chooses) {
      const [from, to] = [grip.from, this.time(event)].sort((one, other) => one - other);
      this.model.move(axis => axis.window(from, to));
    }
  }
}

function clamp(number, most) {
  return Math.min(most, Math.max(-most, number));
}

function clamp01(number) {
  return Math.min(1, Math.max(0, number));
}
