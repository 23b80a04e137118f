// The theme, light or dark, chosen by the system or by the button; and the colours of style.css for canvases.

import {byId} from "./dom.js";

const MODES = ["auto", "light", "dark"];
const KINDS = ["kernel", "transfer", "eviction", "collective", "access", "release", "barrier", "other"];
const SHADES = 4;  // shades of kernels, so that neighbours differ

export class Theme {
  constructor(model) {
    this.model = model;
    this.mode = remembered();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.apply());
    byId("theme").addEventListener("click", () => this.next());
    this.apply();
  }

  next() {
    this.mode = MODES[(MODES.indexOf(this.mode) + 1) % MODES.length];
    remember(this.mode);
    this.apply();
  }

  apply() {
    const dark = this.mode === "dark" || (this.mode === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = `Theme: ${this.mode}`;
    const style = getComputedStyle(document.documentElement);
    const read = name => style.getPropertyValue(`--${name}`).trim();
    this.ink = Object.fromEntries(["text", "muted", "line", "ground", "raised", "accent", "critical", "bad", "band"]
      .map(name => [name, read(name)]));
    const shades = Array.from({length: SHADES}, (_, number) => read(`kernel-${number}`));
    this.fills = [...KINDS.slice(1).map(read), read("faded"), ...shades, read("span")];
    this.letters = this.fills.map(readableOn);
    this.model.tell("theme");
  }
}

export const FADED = KINDS.length - 1;  // the index of the colour of records that do not match the filter

// The index of a record's colour in `fills`.
export function colourOf(record) {
  if (record.kind === "kernel") return KINDS.length + hash(record.name) % SHADES;
  if (record.kind === "span") return KINDS.length + SHADES;
  const index = KINDS.indexOf(record.kind);
  return index < 0 ? FADED - 1 : index - 1;
}

function hash(text) {
  let found = 7;
  for (let index = 0; index < text.length; index += 1) found = (found * 31 + text.charCodeAt(index)) >>> 0;
  return found;
}

// Black or white, whichever has more contrast.
function readableOn(colour) {
  const [red, green, blue] = [1, 3, 5].map(index => (parseInt(colour.slice(index, index + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

// The stored theme. A page that is opened from a file may have no storage.
function remembered() {
  try {
    const mode = localStorage.getItem("tensord-theme");
    return MODES.includes(mode) ? mode : "auto";
  } catch {
    return "auto";
  }
}

function remember(mode) {
  try {
    localStorage.setItem("tensord-theme", mode);
  } catch {
    // without storage, the choice holds until the page is closed
  }
}
