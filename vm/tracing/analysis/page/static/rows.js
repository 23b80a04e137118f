// The rows of the timeline: for each device a row per stream, and rows of spans; and the drawing of a row in a window.
//
// Slices narrower than a pixel are added up in a column of pixels. The column has the colour of the kind that took most
// of it, and its strength says how busy the column was. So the number of rectangles depends on the width of the window,
// not on the number of records.

import {FADED, colourOf} from "./theme.js";
import {isBroken, lastOf, natural} from "./store.js";

export const CRITICAL = 1;  // marks of a slice
export const FAILED = 2;
const NARROW = 1.5;  // pixels
const LEVELS = 4;  // how many strengths are distinguished
const SPAN_ROWS = 12, SPAN_DEPTH = 3;
const WAITING = "waiting";

// The groups [{title, rows}] of rows, in the order in which they are drawn.
export function groupsOf(store, filter) {
  const lists = new Map();
  for (const record of store.records.values()) {
    const key = keyOf(record), list = lists.get(key);
    if (list) list.push(record);
    else lists.set(key, [record]);
  }
  const groups = new Map(), spans = spanRows(store);
  const rows = spans.map(({label, records}) => new Row(null, label, records, store));
  if (rows.length) groups.set(null, {title: "spans", rows});
  for (const [[device, stream], records] of [...lists.values()].map(list => [laneOf(list[0]), list]).sort(inOrder)) {
    if (!groups.has(device)) groups.set(device, {title: device || "no device", rows: []});
    const label = stream.startsWith(device + "/") ? stream.slice(device.length + 1) : stream;
    groups.get(device).rows.push(new Row(device, label, records, store, filter));
  }
  return [...groups.values()];
}

function laneOf({device, stream, waits}) {
  return [device, waits ? WAITING : stream || WAITING];
}

// The key of a record's row: its stream, or the row "waiting" of its device.
export function keyOf(record) {
  return laneOf(record).join("\0");
}

function inOrder([[device, stream]], [[otherDevice, otherStream]]) {
  const last = (stream === WAITING) - (otherStream === WAITING);
  return natural(device, otherDevice) || last || natural(stream, otherStream);
}

class Row {
  constructor(device, label, records, store, filter) {
    Object.assign(this, {device, label, key: device === null ? label : keyOf(records[0])});
    const extent = record => extentOf(record, store.end);
    this.records = records.map(record => [extent(record), record]).sort(([[one]], [[other]]) => one - other);
    const size = this.records.length;
    this.starts = new Float64Array(size);
    this.ends = new Float64Array(size);
    this.latest = new Float64Array(size);  // the latest end of this and all earlier records
    this.colours = new Uint8Array(size);
    this.marks = new Uint8Array(size);
    let latest = -Infinity;
    this.records = this.records.map(([[start, end], record], index) => {
      latest = Math.max(latest, end);
      [this.starts[index], this.ends[index], this.latest[index]] = [start, end, latest];
      this.colours[index] = filter?.active && !filter.takes(record) ? FADED : colourOf(record);
      this.marks[index] = (record.critical ? CRITICAL : 0) | (isBroken(record) ? FAILED : 0);
      return record;
    });
  }

  // Call `slice(index, x, end)` for each record that is wide enough, and `smear(x, end, colour, strength, mark)` for
  // columns of records that are not.
  visit(from, to, width, slice, smear) {
    const scale = width / (to - from);
    const smears = new Smears(smear);
    for (let index = firstNotBefore(this.latest, from); index < this.starts.length; index += 1) {
      if (this.starts[index] > to) break;
      if (this.ends[index] < from) continue;
      const x = (this.starts[index] - from) * scale, end = (this.ends[index] - from) * scale;
      if (end - x < NARROW) smears.add(Math.max(0, x), end - x, this.colours[index], this.marks[index]);
      else {
        smears.flush();
        slice(index, Math.max(x, -2), Math.min(end, width + 2));
      }
    }
    smears.flush();
  }

  // The record at a moment, within a tolerance; the one that began last of several; null if there is none.
  at(time, tolerance) {
    const [index] = this.near(time, tolerance);
    return index === undefined ? null : this.records[index];
  }

  near(time, tolerance) {
    for (let index = firstAfter(this.starts, time + tolerance) - 1; index >= 0; index -= 1) {
      if (this.ends[index] >= time - tolerance) return [index];
      if (this.latest[index] < time - tolerance) break;
    }
    return [];
  }

  // The record that is nearest to a moment.
  nearest(time) {
    const [under] = this.near(time, 0);
    if (under !== undefined) return this.records[under];
    const after = Math.min(firstAfter(this.starts, time), this.records.length - 1), before = Math.max(0, after - 1);
    return time - this.ends[before] < this.starts[after] - time ? this.records[before] : this.records[after];
  }
}

// Adds up records that are too narrow in columns of pixels. Neighbouring columns that look alike become one rectangle.
class Smears {
  #weights = new Float64Array(32);
  #column = -1;
  #mark = 0;
  #run = null;

  constructor(smear) {
    this.smear = smear;
  }

  add(x, width, colour, mark) {
    const column = Math.floor(x);
    if (column !== this.#column) this.#close(column);
    this.#weights[colour] += Math.max(width, 0.02);
    this.#mark |= mark;
  }

  #close(next) {
    if (this.#column >= 0) {
      const busy = this.#weights.reduce((one, other) => one + other, 0);
      let colour = FADED;
      this.#weights.forEach((weight, index) => {
        if (weight && index !== FADED && (colour === FADED || weight > this.#weights[colour])) colour = index;
      });
      this.#join(this.#column, colour, Math.ceil(Math.min(1, busy) * LEVELS) / LEVELS, this.#mark);
      this.#weights.fill(0);
    }
    this.#column = next;
    this.#mark = 0;
  }

  #join(x, colour, strength, mark) {
    const run = this.#run, alike = run?.colour === colour && run.strength === strength && run.mark === mark;
    if (alike && run.end === x) run.end = x + 1;
    else {
      if (run) this.smear(run.x, run.end, run.colour, run.strength, run.mark);
      this.#run = {x, end: x + 1, colour, strength, mark};
    }
  }

  flush() {
    this.#close(-1);
    const run = this.#run;
    if (run) this.smear(run.x, run.end, run.colour, run.strength, run.mark);
    this.#run = null;
  }
}

function extentOf(record, until) {
  if (record.extent) return record.extent;
  if (record.started !== null) return [record.started, record.finished ?? until];
  const last = lastOf(record);
  return isBroken(record) ? [last, last] : [record.received ?? last, until];
}

// The rows of spans, one for each session and depth.
function spanRows(store) {
  const extents = new Map();
  for (const record of store.records.values()) {
    const names = record.span ? record.span.split("/").slice(0, SPAN_DEPTH) : [];
    const extent = extentOf(record, store.end), start = record.received ?? extent[0], end = extent[1];
    names.forEach((name, depth) => {
      const path = names.slice(0, depth + 1).join("/"), key = `${record.causedBy}\0${path}`;
      const found = extents.get(key);
      if (!found) extents.set(key, {session: record.causedBy, depth, path, name, start, end});
      else [found.start, found.end] = [Math.min(found.start, start), Math.max(found.end, end)];
    });
  }
  const rows = new Map();
  for (const {session, depth, path, name, start, end} of extents.values()) {
    const key = `session ${session}${depth ? `, depth ${depth + 1}` : ""}`;
    if (!rows.has(key)) rows.set(key, {label: key, records: []});
    const extent = [start, end];
    rows.get(key).records.push({id: null, kind: "span", name, span: path, causedBy: session, extent, status: ""});
  }
  return [...rows.values()].sort((one, other) => natural(one.label, other.label)).slice(0, SPAN_ROWS);
}

function firstNotBefore(sorted, wanted) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function firstAfter(sorted, wanted) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
