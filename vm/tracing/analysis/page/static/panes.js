// The panes that are tables: instructions, tensors, sessions, errors; and advice.

import {button, make, put} from "./dom.js";
import {bytes, count, duration, plural} from "./format.js";
import {isBroken, isLive, phases} from "./store.js";
import {table} from "./tables.js";
import {placeOf} from "./words.js";

const time = ns => ns === null ? "" : duration(ns);

const ORDERS = {
  "longest": (one, other) => (other.ran ?? -1) - (one.ran ?? -1),
  "waited longest": (one, other) => waited(other) - waited(one),
  "newest": (one, other) => other.record.id - one.record.id,
  "in order": (one, other) => one.record.id - other.record.id,
};

function waited({blocked, queued}) {
  return (blocked ?? 0) + (queued ?? 0);
}

function chosen(model) {
  const found = [];
  for (const record of model.store.records.values()) if (model.filter.takes(record)) found.push(record);
  return found;
}

export class Instructions {
  order = "longest";
  which = "all";

  constructor(model) {
    this.model = model;
  }

  render(element) {
    const {model} = this, {store} = model;
    const taken = {all: () => true, live: isLive, critical: record => record.critical}[this.which];
    const rows = chosen(model).filter(taken).map(record => ({record, ...phases(record, store.end)}));
    rows.sort(ORDERS[this.order]);
    put(element,
      make("div", {class: "bar"},
        select("Order", Object.keys(ORDERS), this.order, order => { this.order = order; this.render(element); }),
        select("Which", ["all", "live", "critical"], this.which, which => { this.which = which; this.render(element); })),
      table(plural(rows.length, "instruction"), [
        ["id", row => `#${row.record.id}`, "number"],
        ["op", row => row.record.name || row.record.kind],
        ["of", row => row.record.of],
        ["status", row => row.record.status],
        ["where", row => placeOf(row.record)],
        ["blocked", row => time(row.blocked), "number"],
        ["queued", row => time(row.queued), "number"],
        ["ran", row => time(row.ran), "number"],
        ["bytes", row => row.record.bytes ? bytes(row.record.bytes) : "", "number"],
        ["line", row => row.record.location],
      ], rows, {choose: row => model.select(row.record.id), selected: row => row.record.id === model.selected}));
  }
}

function select(label, options, value, change) {
  const element = make("select", {on: {change: () => change(element.value)}},
    ...options.map(option => make("option", {selected: option === value}, option)));
  return make("label", {}, label, " ", element);
}

export class Tensors {
  constructor(model, show) {
    Object.assign(this, {model, show});
  }

  get count() {
    return this.model.store.tensors.length;
  }

  render(element) {
    const {filter, store} = this.model, {session} = filter;
    const groups = new Map();
    for (const tensor of store.tensors) {
      if (session !== null && tensor.session !== session) continue;
      const holder = tensor.holder || "no holder";
      groups.set(holder, [...groups.get(holder) ?? [], tensor]);
    }
    const sums = [...groups].map(([holder, tensors]) => [holder, tensors, tensors.reduce((sum, one) => sum + one.bytes, 0)]);
    sums.sort(([, , one], [, , other]) => other - one);
    const rows = sums.flatMap(([holder, tensors, sum]) => [
      {group: `${holder}: ${plural(tensors.length, "tensor")}, ${bytes(sum)}`},
      ...[...tensors].sort((one, other) => other.bytes - one.bytes)]);
    put(element, table("Tensors by what holds them, the largest first. One that is chosen is shown at the right.", [
      ["name", one => one.name || "\u2013"],
      ["of", one => one.of],
      ["bytes", one => bytes(one.bytes), "number"],
      ["where", one => one.where.join(", ")],
      ["session", one => one.session ? String(one.session) : "", "number"],
      ["made at", one => one.location],
    ], rows, {choose: one => this.show(one), most: 1000}));
  }
}

export class Sessions {
  constructor(model) {
    this.model = model;
  }

  get count() {
    return this.model.store.sessions.length;
  }

  render(element) {
    const {model} = this;
    put(element, table("A session that is chosen filters all parts of the page.", [
      ["session", one => String(one.id), "number"],
      ["name", one => one.name ?? ""],
      ["instructions", one => count(one.records ?? 0), "number"],
      ["running", one => count(one.running ?? 0), "number"],
      ["waiting", one => count(one.waiting ?? 0), "number"],
      ["memory", one => one.bytes ? bytes(one.bytes) : "", "number"],
    ], model.store.sessions, {
      choose: one => model.refine({session: model.filter.session === one.id ? "" : String(one.id)}),
      selected: one => model.filter.session === one.id,
    }));
  }
}

export class Errors {
  constructor(model) {
    this.model = model;
  }

  get count() {
    return this.groups().length;
  }

  // Errors with the same text at the same line are one row, and what failed stands before what it took along.
  groups() {
    const {store} = this.model;
    if (this.known?.store === store && this.known.size === store.records.size && this.known.filter === this.model.filter) {
      return this.known.groups;
    }
    const found = new Map();
    for (const record of chosen(this.model)) {
      if (!record.error && !isBroken(record)) continue;
      const key = [record.status, record.error, record.location].join("\0");
      const group = found.get(key);
      if (group) group.push(record);
      else found.set(key, [record]);
    }
    const order = ["FAILED", "DONE", "CANCELLED", "SKIPPED"];
    const groups = [...found.values()].sort(([one], [other]) =>
      order.indexOf(one.status) - order.indexOf(other.status) || one.id - other.id);
    this.known = {store, size: store.records.size, filter: this.model.filter, groups};
    return groups;
  }

  render(element) {
    const {model} = this;
    put(element, table("What failed, first; then what was cancelled or skipped for it.", [
      ["status", ([one]) => one.status],
      ["instructions", group => group.length === 1 ? `#${group[0].id}` : `#${group[0].id} and ${count(group.length - 1)} more`],
      ["op", ([one]) => one.name || one.kind],
      ["error", ([one]) => one.error, "wide"],
      ["line", ([one]) => one.location],
    ], this.groups(), {choose: ([one]) => model.select(one.id), selected: group => group.some(one => one.id === model.selected)}));
  }
}

export class Advice {
  asked = null;  // advice on a live daemon, or why there is none
  trouble = "";

  constructor(model, source) {
    Object.assign(this, {model, source});
  }

  get count() {
    return this.found.length;
  }

  get found() {
    return this.asked ?? this.model.store.advice;
  }

  // A live daemon is asked when the pane is opened, and on request: advice is about all that its ring holds.
  async ask(element) {
    this.asked = this.found;
    try {
      [this.asked, this.trouble] = [await this.source().advice(), ""];
    } catch (error) {
      this.trouble = error.message;
    }
    this.render(element);
  }

  render(element) {
    const live = this.model.store.about.live && this.source().asks;
    if (live && this.asked === null) this.ask(element);
    put(element, live ? make("div", {class: "bar"}, button("Ask again", () => this.ask(element)), this.trouble) : null,
      ...this.found.map(one => make("article", {class: "advice"},
      make("h3", {}, make("span", {class: "cost"}, duration(one.cost * 1e6)), " ", one.title ?? one.rule),
      make("p", {}, one.what),
      make("p", {}, make("strong", {}, "Do: "), one.do),
      make("ul", {}, ...one.lines.map(line => make("li", {}, button(line, () => this.model.refine({line}), {class: "link"})))))));
    if (!this.count) element.append(make("p", {class: "note"}, "nothing that costs time and need not was found"));
  }
}
