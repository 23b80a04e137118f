// The main module, which puts the parts of the page together.

import {Advice} from "./advice.js";
import {Dag} from "./dag.js";
import {Details} from "./details.js";
import {byId} from "./dom.js";
import {Errors} from "./errors.js";
import {Filters} from "./filters.js";
import {plural} from "./format.js";
import {Hint} from "./hint.js";
import {Instructions} from "./instructions.js";
import {Keyboard} from "./keyboard.js";
import {MemoryChart} from "./memory.js";
import {Minimap} from "./minimap.js";
import {Model} from "./model.js";
import {Sessions} from "./sessions.js";
import {sourceOf} from "./source.js";
import {Splitter} from "./splitter.js";
import {isBroken} from "./store.js";
import {Tabs} from "./tabs.js";
import {Tensors} from "./tensors.js";
import {Theme} from "./theme.js";
import {Timeline} from "./timeline.js";

const model = new Model();
const theme = new Theme(model);
const hint = new Hint();
const timeline = new Timeline(model, theme, hint);
new MemoryChart(model, theme, hint);
new Minimap(model, theme, timeline);
const filters = new Filters(model);
const splitter = new Splitter(model);
const dag = new Dag(model, theme, hint);
const tabs = new Tabs(model, {
  DAG: dag, Instructions: new Instructions(model), Tensors: new Tensors(model, showTensor),
  Sessions: new Sessions(model), Errors: new Errors(model), Advice: new Advice(model, () => source),
});
const source = sourceOf(model, say);
const details = new Details(model, source, {reveal: record => timeline.reveal(record), centre});

function say(text) {
  byId("trouble").textContent = text;
}

function showTensor(tensor) {
  details.tensor(tensor);
}

function centre() {
  tabs.show("DAG");
  dag.centre();
}

// Select the next instruction for which `wanted` is true, in the order of time.
function next(wanted) {
  const time = ({started, received}) => started ?? received ?? 0;
  const found = [...model.store.records.values()].filter(wanted)
    .sort((one, other) => time(one) - time(other) || one.id - other.id);
  const record = found[(found.findIndex(one => one.id === model.selected) + 1) % Math.max(1, found.length)];
  if (!record) return;
  model.select(record.id);
  timeline.reveal(record);
}

function zoomToSelection() {
  if (model.selection) model.show(model.selection);
}

function pan(share) {
  return () => model.move(axis => axis.pan(share));
}

function zoom(factor) {
  return () => model.move(axis => axis.zoom(factor));
}

const actions = {
  page: {
    ArrowLeft: pan(-0.1), ArrowRight: pan(0.1), a: pan(-0.1), d: pan(0.1),
    ArrowUp: () => timeline.climb(-1), ArrowDown: () => timeline.climb(1),
    ShiftArrowLeft: () => timeline.step(-1), ShiftArrowRight: () => timeline.step(1),
    "+": zoom(0.7), "=": zoom(0.7), w: zoom(0.7), "-": zoom(1 / 0.7), s: zoom(1 / 0.7),
    f: () => model.move(axis => axis.fit()), z: zoomToSelection, l: () => model.move(axis => axis.follow()),
    c: () => next(record => record.critical), e: () => next(isBroken),
    " ": () => model.pause(), "/": () => byId("filter-text").focus(), x: () => filters.clear(),
    m: () => splitter.toggle(), g: centre, t: () => theme.next(), Escape: () => model.select(null),
    "?": () => byId("help").showModal(),
    ...Object.fromEntries(Object.keys(tabs.panes).map((name, index) => [String(index + 1), () => tabs.show(name)])),
  },
  dag: {
    ArrowLeft: () => dag.go("left"), ArrowRight: () => dag.go("right"), ArrowUp: () => dag.go("up"),
    ArrowDown: () => dag.go("down"), "+": () => dag.zoom(1.25), "=": () => dag.zoom(1.25), "-": () => dag.zoom(0.8),
    f: () => dag.fit(), Enter: () => dag.centre(),
  },
};
new Keyboard(actions);

byId("pause").addEventListener("click", () => model.pause());
byId("fit").addEventListener("click", actions.page.f);
byId("follow").addEventListener("click", actions.page.l);

model.on(["data", "axis", "filter", "selection"], () => {
  const {about} = model.store, {drawn} = timeline, {axis, paused, arrived} = model;
  document.title = about.source ? `${about.source} \u2013 tensord` : "tensord";
  byId("source").textContent = about.source;
  byId("pause").textContent = paused ? `Go on (${plural(arrived, "newer view")})` : "Pause";
  byId("pause").setAttribute("aria-pressed", String(paused));
  for (const name of ["pause", "follow"]) byId(name).hidden = !about.live;
  byId("follow").setAttribute("aria-pressed", String(axis.follows));
  byId("summary").dataset.summary = JSON.stringify({
    records: model.store.records.size, taken: filters.taken, ...drawn, from: axis.from, to: axis.to,
    selected: model.selected, paused, follows: axis.follows, devices: timeline.groups.map(group => group.title),
  });
});
