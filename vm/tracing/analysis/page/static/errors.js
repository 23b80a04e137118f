// The pane with errors and their lines.

import {put} from "./dom.js";
import {count} from "./format.js";
import {isBroken} from "./store.js";
import {table} from "./tables.js";

export class Errors {
  constructor(model) {
    this.model = model;
  }

  get count() {
    return this.groups().length;
  }

  // Errors with the same text at the same line are one row. Failed instructions come before those that were cancelled
  // or skipped.
  groups() {
    const {store} = this.model;
    const {known} = this, {filter} = this.model;
    if (known?.store === store && known.size === store.records.size && known.filter === filter) return known.groups;
    const found = new Map();
    for (const record of this.model.chosen()) {
      if (!record.error && !isBroken(record)) continue;
      const key = [record.status, record.error, record.location].join("\0");
      const group = found.get(key);
      if (group) group.push(record);
      else found.set(key, [record]);
    }
    const order = ["FAILED", "DONE", "CANCELLED", "SKIPPED"];
    const groups = [...found.values()].sort(([one], [other]) =>
      order.indexOf(one.status) - order.indexOf(other.status) || one.id - other.id);
    this.known = {store, size: store.records.size, filter, groups};
    return groups;
  }

  render(element) {
    const {model} = this;
    put(element, table("Failed instructions, then those that were cancelled, or skipped because of a failure.", [
      ["status", ([one]) => one.status],
      ["instructions", ([one, ...more]) => more.length ? `#${one.id} and ${count(more.length)} more` : `#${one.id}`],
      ["op", ([one]) => one.name || one.kind],
      ["error", ([one]) => one.error, "wide"],
      ["line", ([one]) => one.location],
    ], this.groups(), {
      choose: ([one]) => model.select(one.id),
      selected: group => group.some(one => one.id === model.selected),
    }));
  }
}
