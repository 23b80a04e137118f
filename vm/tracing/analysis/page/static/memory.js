// The chart of memory over time, with a lane for each device, on the time axis of the streams.

import {Canvas, fitted} from "./canvas.js";
import {byId} from "./dom.js";
import {bytes, moment} from "./format.js";
import {Gestures} from "./gestures.js";
import {GUTTER} from "./timeline.js";

const LANE = 44, TOP = 4;

export class MemoryChart {
  constructor(model, theme, hint) {
    Object.assign(this, {model, theme, hint});
    this.frame = byId("memory");
    this.canvas = new Canvas(byId("memory-chart"), () => model.tell("axis"));
    const element = this.canvas.element;
    this.gestures = new Gestures(model, element, GUTTER);
    element.addEventListener("pointermove", event => this.#point(event));
    element.addEventListener("pointerleave", () => { hint.hide(); model.hover(null); });
    model.on(["data", "axis", "theme", "hover"], () => this.draw());
  }

  draw() {
    const {memory} = this.model.store, width = this.frame.clientWidth;
    this.frame.hidden = memory.length === 0;
    if (!memory.length || !width) return;
    const pen = this.canvas.prepare(width, memory.length * LANE);
    this.room = width - GUTTER;
    memory.forEach((device, index) => this.#lane(pen, device, index * LANE));
    const {hovered, axis} = this.model;
    if (hovered !== null && hovered >= axis.from) {
      pen.fillStyle = this.theme.ink.accent;
      pen.fillRect(Math.round(GUTTER + (hovered - axis.from) / axis.length * this.room), 0, 1, memory.length * LANE);
    }
  }

  #lane(pen, {device, limit, curve}, top) {
    const {ink} = this.theme, peak = curve.reduce((most, [, used]) => Math.max(most, used), 0);
    const scale = (LANE - TOP - 2) / Math.max(1, limit && limit < peak * 4 ? Math.max(limit, peak) : peak);
    const floor = top + LANE - 1;
    pen.fillStyle = ink.line;
    pen.fillRect(0, floor, GUTTER + this.room, 1);
    pen.fillStyle = ink.text;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText(fitted(pen, device, GUTTER - 16), 8, top + 12);
    pen.fillStyle = ink.muted;
    pen.font = "11px system-ui, sans-serif";
    const of = limit ? ` of ${bytes(limit)}` : "";
    pen.fillText(fitted(pen, `peak ${bytes(peak)}${of}`, GUTTER - 16), 8, top + 29);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, top, this.room, LANE);
    pen.clip();
    this.#area(pen, curve, floor, scale, ink);
    if (limit && limit * scale <= LANE) {
      pen.strokeStyle = ink.bad;
      pen.setLineDash([5, 4]);
      pen.beginPath();
      pen.moveTo(GUTTER, floor - limit * scale + 0.5);
      pen.lineTo(GUTTER + this.room, floor - limit * scale + 0.5);
      pen.stroke();
    }
    pen.restore();
  }

  // The curve has steps: the bytes in use hold until the next point. In a column of pixels, the highest point is drawn.
  #area(pen, curve, floor, scale, ink) {
    const {from, to} = this.model.axis, across = this.room / (to - from);
    pen.beginPath();
    pen.moveTo(GUTTER, floor);
    let column = -1, level = 0, highest = 0;
    for (const [time, used] of curve) {
      if (time > to) break;
      if (time >= from) {
        const at = Math.floor((time - from) * across);
        if (at !== column) {
          if (column >= 0) this.#step(pen, column, floor - highest * scale, floor - level * scale);
          pen.lineTo(GUTTER + at, floor - level * scale);
          [column, highest] = [at, 0];
        }
        highest = Math.max(highest, used);
      } else pen.lineTo(GUTTER, floor - used * scale);
      level = used;
    }
    if (column >= 0) this.#step(pen, column, floor - highest * scale, floor - level * scale);
    pen.lineTo(GUTTER + this.room, floor - level * scale);
    pen.lineTo(GUTTER + this.room, floor);
    pen.fillStyle = ink.accent;
    pen.globalAlpha = 0.35;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.accent;
    pen.lineWidth = 1.5;
    pen.stroke();
  }

  #step(pen, column, highest, level) {
    pen.lineTo(GUTTER + column, highest);
    pen.lineTo(GUTTER + column + 1, level);
  }

  #point(event) {
    if (event.buttons || this.gestures.share(event) < 0) return this.hint.hide();
    const time = this.gestures.time(event);
    this.model.hover(time);
    const index = Math.floor((event.clientY - this.canvas.element.getBoundingClientRect().top) / LANE);
    const device = this.model.store.memory[index];
    if (!device) return this.hint.hide();
    const used = usedAt(device.curve, time);
    const share = device.limit ? `, ${Math.round(used / device.limit * 100)}% of ${bytes(device.limit)}` : "";
    this.hint.show(event, [`${device.device}: ${bytes(used)}${share}`, moment(time, this.model.axis.length / 1000)]);
    return undefined;
  }
}

function usedAt(curve, time) {
  let [low, high] = [0, curve.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curve[middle][0] <= time) low = middle + 1;
    else high = middle;
  }
  return low ? curve[low - 1][1] : 0;
}
