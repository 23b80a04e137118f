// The state that all parts of the page share. Listeners to its changes are called once in a frame.

import {Axis} from "./axis.js";
import {Filter} from "./filter.js";
import {Store} from "./store.js";

export class Model {
  #listeners = [];
  #told = new Set();
  #waiting = false;

  constructor() {
    this.latest = new Store();  // everything that has arrived
    this.store = this.latest;  // the shown records: `latest`, or while paused a copy of it
    this.filter = new Filter();
    this.axis = new Axis();
    this.selected = null;
    this.hovered = null;  // the moment under the pointer
    this.arrived = 0;  // views that have arrived since the pause
    this.skipped = 0;  // views that the server left out since the page was slow
  }

  get paused() {
    return this.store !== this.latest;
  }

  // Call `listener` in the next frame after a change of one of these topics: data, filter, axis, selection, hover,
  // theme.
  on(topics, listener) {
    this.#listeners.push([new Set(topics), listener]);
  }

  tell(topic) {
    this.#told.add(topic);
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    const told = this.#told;
    this.#told = new Set();
    this.#waiting = false;
    for (const [topics, listener] of this.#listeners) {
      if ([...told].some(topic => topics.has(topic))) listener();
    }
  }

  add(view, skipped = 0) {
    const {run} = this.latest.about;
    this.latest.add(view);
    if (run !== undefined && run !== this.latest.about.run) this.select(null);
    this.skipped += skipped;
    if (this.paused) this.arrived += 1;
    else this.#grow();
    this.tell("data");
  }

  pause(wanted = !this.paused) {
    if (wanted === this.paused) return;
    this.store = wanted ? this.latest.still() : this.latest;
    this.arrived = 0;
    if (!wanted) this.#grow();
    this.tell("data");
  }

  #grow() {
    this.axis.grow(this.store.begin, this.store.end, this.store.about.live);
    this.tell("axis");
  }

  select(id) {
    this.selected = id !== null && this.store.records.has(id) ? id : null;
    this.tell("selection");
  }

  get selection() {
    return this.selected === null ? null : this.store.records.get(this.selected) ?? null;
  }

  hover(time) {
    if (time === this.hovered) return;
    this.hovered = time;
    this.tell("hover");
  }

  refine(fields) {
    this.filter = new Filter({...this.filter.fields, ...fields});
    this.tell("filter");
  }

  // The instructions that match the filter.
  chosen() {
    return [...this.store.records.values()].filter(record => this.filter.takes(record));
  }

  // Zoom to an instruction.
  show({started, received, finished}) {
    this.move(axis => axis.show(started ?? received ?? axis.from, finished ?? this.store.end));
  }

  move(action) {
    action(this.axis);
    this.tell("axis");
  }
}
