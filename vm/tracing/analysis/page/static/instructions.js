// The pane with a table of the instructions, which has the data of the timeline as text.

import {make, put} from "./dom.js";
import {bytes, duration, plural} from "./format.js";
import {isLive, phases} from "./store.js";
import {table} from "./tables.js";
import {streamOf} from "./describe.js";

const ORDERS = {
  "longest": (one, other) => (other.ran ?? -1) - (one.ran ?? -1),
  "waited longest": (one, other) => waited(other) - waited(one),
  "newest": (one, other) => other.record.id - one.record.id,
  "in order": (one, other) => one.record.id - other.record.id,
};

function waited({blocked, queued}) {
  return (blocked ?? 0) + (queued ?? 0);
}

const WHICH = {all: () => true, live: isLive, critical: record => record.critical};

export class Instructions {
  order = "longest";
  which = "all";

  constructor(model) {
    this.model = model;
  }

  render(element) {
    const {model} = this, {store} = model;
    const rows = model.chosen().filter(WHICH[this.which]).map(record => ({record, ...phases(record, store.end)}));
    rows.sort(ORDERS[this.order]);
    put(element,
      make("div", {class: "bar"},
        select("Order", Object.keys(ORDERS), this.order, order => { this.order = order; this.render(element); }),
        select("Which", Object.keys(WHICH), this.which, which => { this.which = which; this.render(element); })),
      table(plural(rows.length, "instruction"), [
        ["id", row => `#${row.record.id}`, "number"],
        ["op", row => row.record.name || row.record.kind],
        ["of", row => row.record.of],
        ["status", row => row.record.status],
        ["where", row => streamOf(row.record)],
        ["blocked", row => time(row.blocked), "number"],
        ["queued", row => time(row.queued), "number"],
        ["ran", row => time(row.ran), "number"],
        ["bytes", row => row.record.bytes ? bytes(row.record.bytes) : "", "number"],
        ["line", row => row.record.location],
      ], rows, {choose: row => model.select(row.record.id), selected: row => row.record.id === model.selected}));
  }
}

function time(ns) {
  return ns === null ? "" : duration(ns);
}

function select(label, options, value, change) {
  const element = make("select", {on: {change: () => change(element.value)}},
    ...options.map(option => make("option", {selected: option === value}, option)));
  return make("label", {}, label, " ", element);
}
