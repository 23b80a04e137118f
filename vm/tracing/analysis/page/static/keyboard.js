// The keys of the page, and the list of them. In a field, only Escape is a key of the page. Tables, tabs and buttons
// use the arrows themselves.

import {byId, make} from "./dom.js";

const KEYS = [
  ["\u2190 \u2192", "move through time; in the DAG: go to a source or a target"],
  ["\u2191 \u2193", "the row above or below; in the DAG: the neighbour above or below"],
  ["Shift \u2190 \u2192", "the previous or next instruction on the stream"],
  ["+ \u2212 or w s", "zoom in or out (a and d move)"],
  ["f", "fit all"],
  ["z", "zoom to the selection"],
  ["c", "the next instruction on the critical path"],
  ["e", "the next error"],
  ["l", "follow new instructions of a live daemon"],
  ["Space", "pause or go on"],
  ["/", "search"],
  ["x", "clear the filters"],
  ["1 \u2026 6", "the panes at the bottom"],
  ["m", "make the panes larger, or as before"],
  ["g", "the DAG around the selection"],
  ["t", "theme: light, dark, or that of the system"],
  ["Esc", "leave a field, close a dialog, or clear the selection"],
  ["?", "this list"],
];

// Elements that use the arrow keys themselves.
const SCROLLED = "[role=separator], #details, [role=tabpanel]:not(#dag)";

export class Keyboard {
  constructor(actions) {
    this.actions = actions;
    byId("keys").append(...KEYS.flatMap(([key, what]) => [make("dt", {}, key), make("dd", {}, what)]));
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("help-close").addEventListener("click", () => byId("help").close());
    document.addEventListener("keydown", event => this.#press(event));
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    const writes = event.target.closest?.("input, select, textarea");
    if (writes) {
      if (event.key === "Escape") writes.blur();
      return;
    }
    const name = (event.shiftKey && event.key.startsWith("Arrow") ? "Shift" : "") + event.key;
    if (event.target.closest?.("button") && ["Enter", " "].includes(event.key)) return;
    if (event.key.startsWith("Arrow") && event.target.closest?.(SCROLLED)) return;
    const inDag = event.target.closest?.("#dag") && this.actions.dag[name];
    const action = inDag || this.actions.page[name];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
