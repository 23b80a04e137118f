// The strip on top: how busy the devices were over the whole time, and the part that the window shows. Dragging moves
// the window; dragging one of its edges changes its size.

import {Canvas} from "./canvas.js";
import {byId} from "./dom.js";
import {GUTTER} from "./timeline.js";
import {duration} from "./format.js";

const HEIGHT = 34, SIDE = 6;

export class Minimap {
  constructor(model, theme, timeline) {
    Object.assign(this, {model, theme, timeline, picture: null});
    this.frame = byId("whole");
    this.canvas = new Canvas(byId("minimap"), () => { this.picture = null; model.tell("axis"); });
    const element = this.canvas.element;
    element.addEventListener("pointerdown", event => this.#press(event));
    element.addEventListener("pointermove", event => this.#drag(event));
    element.addEventListener("pointerup", () => { this.grip = null; });
    model.on(["data", "filter", "theme"], () => { this.picture = null; });
    model.on(["data", "filter", "axis", "theme"], () => this.draw());
  }

  draw() {
    const width = this.frame.clientWidth;
    if (!width) return;
    const pen = this.canvas.prepare(width, HEIGHT), {ink} = this.theme, {axis} = this.model;
    this.room = width - GUTTER;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink.muted;
    pen.fillText(`${duration(axis.end - axis.begin)} in all`, 8, HEIGHT / 2);
    this.picture ??= this.#busy();
    this.#lanes(pen);
    const [from, to] = [this.#x(axis.from), this.#x(axis.to)];
    pen.fillStyle = ink.ground;
    pen.globalAlpha = 0.65;
    pen.fillRect(GUTTER, 0, from - GUTTER, HEIGHT);
    pen.fillRect(to, 0, GUTTER + this.room - to, HEIGHT);
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.accent;
    pen.lineWidth = 2;
    pen.strokeRect(from + 1, 1, Math.max(2, to - from - 2), HEIGHT - 2);
  }

  // For each device, the rectangles that its rows draw: [x, end, colour, strength].
  #busy() {
    const {begin, end} = this.model.axis;
    return this.timeline.groups.filter(group => group.rows.some(row => row.device !== null)).map(group => {
      const found = [];
      for (const row of group.rows) {
        row.visit(begin, end, this.room,
          (index, x, to) => found.push([x, to, row.colours[index], row.records[index].waits ? 0.2 : 1]),
          (x, to, colour, strength) => found.push([x, to, colour, strength]));
      }
      return found;
    });
  }

  #lanes(pen) {
    const height = (HEIGHT - 4) / Math.max(1, this.picture.length);
    this.picture.forEach((lane, index) => {
      for (const [x, to, colour, strength] of lane) {
        pen.globalAlpha = strength;
        pen.fillStyle = this.theme.fills[colour];
        pen.fillRect(GUTTER + x, 2 + index * height, Math.max(1, to - x), Math.max(1, height - 1));
      }
    });
    pen.globalAlpha = 1;
  }

  #x(time) {
    const {begin, end} = this.model.axis;
    return GUTTER + (time - begin) / (end - begin) * this.room;
  }

  #time(event) {
    const {begin, end} = this.model.axis;
    const x = event.clientX - this.canvas.element.getBoundingClientRect().left - GUTTER;
    return begin + x / this.room * (end - begin);
  }

  #press(event) {
    if (event.button !== 0) return;
    this.canvas.element.setPointerCapture(event.pointerId);
    const {axis} = this.model, time = this.#time(event), near = SIDE * (axis.end - axis.begin) / this.room;
    const side = Math.abs(time - axis.from) < near ? "from" : Math.abs(time - axis.to) < near ? "to" : "whole";
    if (side === "whole" && (time < axis.from || time > axis.to)) {
      this.model.move(one => one.window(time - one.length / 2, time + one.length / 2));
    }
    this.grip = {side, offset: time - axis.from};
  }

  #drag(event) {
    if (!this.grip) return;
    const time = this.#time(event), {side, offset} = this.grip;
    this.model.move(axis => {
      if (side === "whole") axis.window(time - offset, time - offset + axis.length);
      else if (side === "from") axis.window(Math.min(time, axis.to - 1), axis.to);
      else axis.window(axis.from, Math.max(time, axis.from + 1));
    });
  }
}
