// The timeline of the streams, on a canvas that draws only slices in the window.

import {drawArrows} from "./arrows.js";
import {ticks} from "./axis.js";
import {Canvas, fitted} from "./canvas.js";
import {byId} from "./dom.js";
import {duration, moment} from "./format.js";
import {Gestures} from "./gestures.js";
import {CRITICAL, FAILED, groupsOf, keyOf} from "./rows.js";
import {describe} from "./describe.js";

export const GUTTER = 160;  // width of the names at the left, in pixels
const RULER = 24, HEAD = 20, ROW = 22, SLICE = 18;
const LABEL = 26;  // the width in pixels from which a slice is labelled

export class Timeline {
  constructor(model, theme, hint) {
    Object.assign(this, {model, theme, hint, left: GUTTER, groups: [], rowOf: new Map()});
    this.drawn = {slices: 0, merged: 0, rows: 0};
    this.scroll = byId("streams");
    this.canvas = new Canvas(byId("timeline"), () => model.tell("axis"));
    this.spacer = byId("streams-height");
    const element = this.canvas.element;
    this.gestures = new Gestures(model, element, GUTTER, {
      click: event => this.#click(event), vertical: amount => { this.scroll.scrollTop += amount; }});
    this.scroll.addEventListener("scroll", () => model.tell("axis"));
    element.addEventListener("pointermove", event => this.#point(event));
    element.addEventListener("pointerleave", () => { hint.hide(); model.hover(null); });
    model.on(["data", "filter"], () => this.#arrange());
    model.on(["data", "filter", "axis", "selection", "theme", "hover"], () => this.draw());
  }

  // Make the rows, and set each row's distance from the top.
  #arrange() {
    this.groups = groupsOf(this.model.store, this.model.filter);
    this.rowOf = new Map();  // the key of a stream -> its row
    this.rows = [];
    let top = 0;
    for (const group of this.groups) {
      group.top = top;
      top += HEAD;
      for (const row of group.rows) {
        row.top = top;
        top += ROW;
        this.rows.push(row);
        this.rowOf.set(row.key, row);
      }
    }
    this.spacer.style.height = `${Math.max(0, top + RULER + 4)}px`;
  }

  draw() {
    const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
    if (!width || !height) return;
    const pen = this.canvas.prepare(width, height), {ink} = this.theme;
    this.drawn = {slices: 0, merged: 0, rows: 0};
    this.room = width - GUTTER;
    this.#grid(pen, height, ink);
    pen.save();
    pen.beginPath();
    pen.rect(0, RULER, width, height - RULER);
    pen.clip();
    pen.translate(0, RULER - this.scroll.scrollTop);
    for (const group of this.groups) this.#group(pen, group, width, height, ink);
    drawArrows(pen, this, ink);
    pen.restore();
    this.#now(pen, height, ink);
  }

  #shows(top, height, room) {
    const y = top + RULER - this.scroll.scrollTop;
    return y + height > 0 && y < room;
  }

  #grid(pen, height, ink) {
    const {axis} = this.model, {step, found} = ticks(axis.from, axis.to, this.room, 110);
    pen.font = "11px system-ui, sans-serif";
    for (const time of found) {
      const x = Math.round(this.x(time)) + 0.5;
      pen.fillStyle = ink.line;
      pen.fillRect(x - 0.5, RULER - 6, 1, height);
      pen.fillStyle = ink.muted;
      pen.fillText(moment(time, step), x + 4, RULER / 2);
    }
  }

  #group(pen, group, width, height, ink) {
    if (this.#shows(group.top, HEAD, height)) {
      pen.fillStyle = ink.band;
      pen.fillRect(0, group.top, width, HEAD);
      pen.fillStyle = ink.text;
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(fitted(pen, group.title, GUTTER - 16), 8, group.top + HEAD / 2 + 1);
    }
    for (const row of group.rows) if (this.#shows(row.top, ROW, height)) this.#row(pen, row, ink);
  }

  #row(pen, row, ink) {
    this.drawn.rows += 1;
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink.muted;
    pen.fillText(fitted(pen, row.label, GUTTER - 28), 20, row.top + ROW / 2);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, row.top, this.room, ROW);
    pen.clip();
    pen.translate(GUTTER, row.top + (ROW - SLICE) / 2);
    const {from, to} = this.model.axis;
    row.visit(from, to, this.room,
      (index, x, end) => this.#slice(pen, row, index, x, end, ink),
      (x, end, colour, strength, mark) => this.#smear(pen, x, end, colour, strength, mark, ink));
    pen.restore();
  }

  #slice(pen, row, index, x, end, ink) {
    this.drawn.slices += 1;
    const colour = row.colours[index], mark = row.marks[index], record = row.records[index];
    pen.globalAlpha = record.waits ? 0.45 : 1;
    pen.fillStyle = this.theme.fills[colour];
    pen.fillRect(x, 0, Math.max(1.5, end - x - 0.5), SLICE);
    pen.globalAlpha = 1;
    if (record.kind === "span") {
      pen.fillStyle = ink.ground;
      pen.fillRect(x - 1, 0, 1.5, SLICE);
    }
    this.#mark(pen, x, end, mark, ink);
    if (record.id !== null && record.id === this.model.selected) {
      pen.strokeStyle = ink.text;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, 1, Math.max(1, end - x - 2.5), SLICE - 2);
    }
    const next = index + 1 < row.starts.length ? this.x(row.starts[index + 1]) - GUTTER : Infinity;
    const left = Math.max(x, 0), room = Math.min(end, next, this.room) - left - 8;
    if (room < LABEL) return;
    pen.fillStyle = record.waits ? ink.text : this.theme.letters[colour];
    pen.fillText(fitted(pen, record.name || record.kind, room), left + 4, SLICE / 2 - (mark & CRITICAL ? 1 : -0.5));
  }

  #smear(pen, x, end, colour, strength, mark, ink) {
    this.drawn.merged += 1;
    pen.globalAlpha = 0.5 + 0.5 * strength;
    pen.fillStyle = this.theme.fills[colour];
    pen.fillRect(x, 0, end - x, SLICE);
    pen.globalAlpha = 1;
    this.#mark(pen, x, end, mark, ink);
  }

  // The critical path is a bar at the bottom of its slices; a failure is a bar at the top.
  #mark(pen, x, end, mark, ink) {
    const width = Math.max(1.5, end - x - 0.5);
    if (mark & CRITICAL) {
      pen.fillStyle = ink.critical;
      pen.fillRect(x, SLICE - 4, width, 4);
    }
    if (mark & FAILED) {
      pen.fillStyle = ink.bad;
      pen.fillRect(x - 1, 0, Math.max(4, width), 4);
    }
  }

  #now(pen, height, ink) {
    const {hovered} = this.model;
    if (hovered === null) return;
    const x = this.x(hovered);
    if (x < GUTTER) return;
    pen.fillStyle = ink.accent;
    pen.fillRect(Math.round(x), RULER - 6, 1, height);
  }

  // The distance from the top of the rows to the middle of a row; undefined if there is no such row.
  middleOf(key) {
    const row = this.rowOf.get(key);
    return row && row.top + ROW / 2;
  }

  x(time) {
    const {axis} = this.model;
    return GUTTER + (time - axis.from) / axis.length * this.room;
  }

  #rowAt(event) {
    const y = event.clientY - this.canvas.element.getBoundingClientRect().top - RULER + this.scroll.scrollTop;
    return (this.rows ?? []).find(row => y >= row.top && y < row.top + ROW) ?? null;
  }

  under(event) {
    const row = this.#rowAt(event);
    return row && this.gestures.share(event) >= 0 ?
      row.at(this.gestures.time(event), this.model.axis.length / this.room * 2) : null;
  }

  #click(event) {
    const record = this.under(event);
    if (record?.kind === "span") this.model.move(axis => axis.show(...record.extent));
    else this.model.select(record ? record.id : null);
  }

  #point(event) {
    if (event.buttons) return this.hint.hide();
    const inside = this.gestures.share(event) >= 0;
    this.model.hover(inside ? this.gestures.time(event) : null);
    const record = this.under(event);
    if (!record) return this.hint.hide();
    if (record.kind === "span") this.hint.show(event, [`span ${record.span}`, `session ${record.causedBy}`,
      duration(record.extent[1] - record.extent[0])]);
    else this.hint.show(event, describe(record, this.model.store.end));
    return undefined;
  }

  // Select the instruction before or after the selected one on its stream.
  step(by) {
    const row = this.#selectedRow();
    if (!row) return;
    const index = row.records.findIndex(record => record.id === this.model.selected);
    this.#go(row.records[Math.min(row.records.length - 1, Math.max(0, index + by))]);
  }

  // Select the instruction of the next row, up or down, that is nearest in time.
  climb(by) {
    const streams = (this.rows ?? []).filter(row => row.records[0]?.id !== null);
    const row = this.#selectedRow(), {axis, selection} = this.model;
    const time = selection?.started ?? (axis.from + axis.to) / 2;
    const next = streams[Math.min(streams.length - 1, Math.max(0, streams.indexOf(row) + by))];
    if (next) this.#go(next.nearest(time));
  }

  #selectedRow() {
    const {selection} = this.model, found = selection && this.rowOf.get(keyOf(selection));
    return found || (this.rows ?? []).find(row => row.records[0]?.id !== null);
  }

  #go(record) {
    if (!record) return;
    this.model.select(record.id);
    this.reveal(record);
  }

  // Bring an instruction into the window, if it is outside.
  reveal(record) {
    const row = this.rowOf.get(keyOf(record)), from = record.started ?? record.received ?? this.model.axis.from;
    this.model.move(axis => axis.reveal(from, record.finished ?? this.model.store.end));
    if (!row) return;
    const {scrollTop, clientHeight} = this.scroll, least = row.top + ROW + RULER - clientHeight;
    if (row.top < scrollTop) this.scroll.scrollTop = row.top - HEAD;
    else if (scrollTop < least) this.scroll.scrollTop = least;
  }
}
