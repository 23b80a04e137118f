// The pane with the sessions. A click on a session filters by it.

import {put} from "./dom.js";
import {bytes, count} from "./format.js";
import {table} from "./tables.js";

export class Sessions {
  constructor(model) {
    this.model = model;
  }

  get count() {
    return this.model.store.sessions.length;
  }

  render(element) {
    const {model} = this;
    put(element, table("Choose a session to filter all parts of the page by it.", [
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
