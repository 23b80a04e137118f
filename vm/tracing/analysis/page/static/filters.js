// The fields of the filter, and the text that says how many instructions match or are shown.

import {byId, make} from "./dom.js";
import {count, plural} from "./format.js";

const FIELDS = ["session", "span", "line", "text"];

export class Filters {
  constructor(model) {
    this.model = model;
    this.inputs = Object.fromEntries(FIELDS.map(name => [name, byId(`filter-${name}`)]));
    for (const [name, input] of Object.entries(this.inputs)) {
      input.addEventListener("input", () => model.refine({[name]: input.value}));
    }
    byId("filter-clear").addEventListener("click", () => this.clear());
    model.on(["data"], () => this.#sessions());
    model.on(["data", "filter"], () => this.#show());
  }

  clear() {
    this.model.refine(Object.fromEntries(FIELDS.map(name => [name, ""])));
  }

  // An option for each session. The list is rebuilt only when the sessions have changed.
  #sessions() {
    const {sessions} = this.model.store, select = this.inputs.session;
    const key = JSON.stringify(sessions.map(({id, name}) => [id, name]));
    if (key === this.key) return;
    this.key = key;
    select.replaceChildren(make("option", {value: ""}, "all"), ...sessions.map(({id, name}) =>
      make("option", {value: id}, name ? `${id}: ${name}` : `session ${id}`)));
    select.value = this.model.filter.fields.session;
  }

  #show() {
    const {filter, store} = this.model;
    for (const [name, input] of Object.entries(this.inputs)) {
      if (input.value !== filter.fields[name]) input.value = filter.fields[name];
    }
    let taken = 0;
    for (const record of store.records.values()) if (filter.takes(record)) taken += 1;
    this.taken = taken;
    byId("filter-clear").disabled = !filter.active;
    const all = plural(store.records.size, "instruction");
    byId("taken").textContent = filter.active ? `${count(taken)} of ${all} match` : all;
    byId("share").textContent = shareOf(store.about, this.model.skipped);
  }
}

// The shown part: `sampled: 12,000 of 204,000 per second`, and the lost records; empty if all records are shown.
function shareOf({sampled, dropped, live, rate, note}, skipped) {
  const {shown = 0, of = 0} = (live ? rate : sampled) ?? {};
  return [
    shown < of ? `sampled: ${count(shown)} of ${count(of)}${live ? " per second" : ""}` : "",
    dropped ? `${count(dropped)} older ones lost` : "",
    note,
    skipped ? `${count(skipped)} views left out` : "",
  ].filter(Boolean).join("; ");
}
