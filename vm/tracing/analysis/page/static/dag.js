// The pane with the DAG around the selected instruction, or around those that are running.
//
// Only nodes and edges in the window have elements. From afar, all nodes of one colour are one path, so that
// ten thousand nodes are a few elements.

import {ACROSS, DOWN, HEIGHT, WIDTH, curve, pointOf} from "./curves.js";
import {byId, svg} from "./dom.js";
import {count, cut, duration, plural} from "./format.js";
import {positionsOf} from "./layout.js";
import {around, rootsOf} from "./neighbours.js";
import {phases, titleOf} from "./store.js";
import {colourOf} from "./theme.js";
import {describe} from "./describe.js";

const READABLE = 0.55;  // the smallest scale at which a node's text can be read
const MIN_SCALE = 0.02, MAX_SCALE = 2;
const NODES = 10_000;
const LETTERS = 28, SMALL = 0.95;  // of a node's text; and the relative width of a letter of the time

export class Dag {
  constructor(model, theme, hint) {
    Object.assign(this, {model, theme, hint, roots: null, nodes: [], edges: [], drawn: {nodes: 0, edges: 0}});
    [this.x, this.y, this.scale] = [0, 0, 1];  // the point at the upper left corner, and the scale
    this.picture = byId("dag-picture");
    this.layer = byId("dag-layer");
    this.depth = byId("dag-depth");
    this.depth.addEventListener("change", () => { this.root = null; this.build(); });
    byId("dag-fit").addEventListener("click", () => this.fit());
    byId("dag-centre").addEventListener("click", () => this.centre());
    new ResizeObserver(() => this.draw()).observe(this.picture);
    this.#listen();
  }

  // Called when the tab is opened, and when the data or the selection has changed.
  render() {
    const {selected, store, paused} = this.model;
    const inside = selected !== null && this.byId?.has(selected);
    if (selected !== null && !inside) this.roots = [selected];
    const stale = this.shown !== store || this.size !== store.records.size || (store.about.live && !paused);
    if (!this.byId || stale || (selected !== null && !inside)) this.build();
    else if (selected !== this.seen && inside) this.#reveal(this.byId.get(selected));
    else this.draw();
    this.seen = selected;
  }

  // Bring a node into the window, if it is outside.
  #reveal(node) {
    const {clientWidth, clientHeight} = this.picture;
    const [across, down] = [(node.x - this.x) * this.scale, (node.y - this.y) * this.scale];
    const right = clientWidth - WIDTH * this.scale, bottom = clientHeight - HEIGHT * this.scale;
    if (across < 0 || across > right || down < 0 || down > bottom) this.#look(node);
    this.draw();
  }

  centre() {
    this.roots = this.model.selected === null ? null : [this.model.selected];
    this.root = null;
    this.build();
  }

  build() {
    const {store} = this.model;
    const roots = (this.roots ?? []).some(id => store.records.has(id)) ? this.roots : rootsOf(store);
    const depth = this.depth.value === "all" ? Infinity : Number(this.depth.value);
    const {nodes, edges, reached} = around(store, roots, depth, NODES);
    const positions = positionsOf(nodes.map(record => record.id), edges.map(({source, target}) => [source, target]));
    this.nodes = nodes.map(record => {
      const [layer, position] = positions.get(record.id);
      return {record, x: layer * ACROSS, y: position * DOWN};
    });
    const root = roots.at(-1), before = this.root === root ? this.byId?.get(root) : null;
    this.byId = new Map(this.nodes.map(node => [node.record.id, node]));
    this.edges = edges.map(edge => ({...edge, from: this.byId.get(edge.source), to: this.byId.get(edge.target)}));
    this.#labels();
    [this.shown, this.size, this.root] = [store, store.records.size, root];
    const more = reached > nodes.length ? ` of ${count(reached)}: choose a smaller depth, or another instruction` : "";
    byId("dag-size").textContent = nodes.length ? `${plural(nodes.length, "instruction")}${more}` : "nothing to draw";
    if (before) this.#stay(before, this.byId.get(root));
    else this.fit();
  }

  // Keep the root at its position on the screen, when the graph around it has changed.
  #stay(before, after) {
    this.x += after.x - before.x;
    this.y += after.y - before.y;
    this.draw();
  }

  // Put the label of an edge near the end that has fewer edges.
  #labels() {
    const into = new Map(), out = new Map();
    for (const {source, target} of this.edges) {
      out.set(source, (out.get(source) ?? 0) + 1);
      into.set(target, (into.get(target) ?? 0) + 1);
    }
    const ranks = new Map();
    for (const edge of this.edges) {
      const early = into.get(edge.target) >= out.get(edge.source);
      const end = early ? `from ${edge.source}` : `to ${edge.target}`;
      const rank = ranks.get(end) ?? 0;
      ranks.set(end, rank + 1);
      edge.labelAt = early ? 0.22 + 0.16 * (rank % 3) : 0.78 - 0.16 * (rank % 3);
    }
  }

  // Show the whole graph if its text can be read then; otherwise centre the root.
  fit() {
    const {clientWidth: width, clientHeight: height} = this.picture;
    if (!this.nodes.length || !width) return this.draw();
    const box = this.#extent(), across = box.right - box.left + 24, down = box.bottom - box.top + 24;
    const whole = Math.min(1, width / across, height / down);
    this.scale = Math.max(whole, READABLE + 0.1);
    if (whole >= this.scale) this.#put((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    else this.#look(this.byId.get(this.root) ?? this.nodes[0]);
    this.x = within(this.x, box.left - 12, box.right + 12 - width / this.scale);
    this.y = within(this.y, box.top - 12, box.bottom + 12 - height / this.scale);
    return this.draw();
  }

  #extent() {
    const found = {left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity};
    for (const {x, y} of this.nodes) {
      found.left = Math.min(found.left, x);
      found.right = Math.max(found.right, x + WIDTH);
      found.top = Math.min(found.top, y);
      found.bottom = Math.max(found.bottom, y + HEIGHT);
    }
    return found;
  }

  #look(node) {
    this.#put(node.x + WIDTH / 2, node.y + HEIGHT / 2);
  }

  #put(x, y) {
    this.x = x - this.picture.clientWidth / this.scale / 2;
    this.y = y - this.picture.clientHeight / this.scale / 2;
  }

  draw() {
    const {clientWidth: width, clientHeight: height} = this.picture;
    if (!width || !height) return;
    const [right, bottom] = [this.x + width / this.scale, this.y + height / this.scale];
    const nodes = this.nodes.filter(({x, y}) => x < right && x + WIDTH > this.x && y < bottom && y + HEIGHT > this.y);
    const edges = this.edges.filter(({from, to}) => from.x < right && to.x + WIDTH > this.x &&
      Math.min(from.y, to.y) < bottom && Math.max(from.y, to.y) + HEIGHT > this.y);
    const far = this.scale < READABLE;
    this.layer.setAttribute("transform", `scale(${this.scale}) translate(${-this.x},${-this.y})`);
    this.layer.replaceChildren(...far ? this.#afar(nodes, edges) : this.#near(nodes, edges));
    this.drawn = {nodes: nodes.length, edges: edges.length, elements: this.layer.querySelectorAll("*").length};
    byId("dag").dataset.drawn = JSON.stringify(this.drawn);
  }

  #near(nodes, edges) {
    return [...edges.map(edge => this.#edge(edge)), ...edges.map(edge => this.#reason(edge)),
      ...nodes.map(node => this.#node(node))];
  }

  #afar(nodes, edges) {
    const lines = new Map(), boxes = new Map();
    const add = (map, key, path) => map.set(key, (map.get(key) ?? "") + path);
    for (const edge of edges) add(lines, this.#kindOf(edge), curve(edge));
    for (const {record, x, y} of nodes) {
      add(boxes, this.theme.fills[colourOf(record)], `M${x},${y}h${WIDTH}v${HEIGHT}h${-WIDTH}z`);
      if (record.critical) add(boxes, this.theme.ink.critical, `M${x},${y + HEIGHT - 7}h${WIDTH}v7h${-WIDTH}z`);
      if (record.id === this.model.selected) add(boxes, this.theme.ink.text, `M${x - 6},${y - 6}h8v${HEIGHT + 12}h-8z`);
    }
    return [...[...lines].map(([kind, d]) => svg("path", {class: kind, d})),
      ...[...boxes].map(([fill, d]) => svg("path", {fill, d}))];
  }

  #kindOf({source, target, mark}) {
    const {selected, store} = this.model, touches = selected === source || selected === target;
    return `edge ${mark}${store.isStep(source, target) ? " critical" : ""}${touches ? " touches" : ""}`;
  }

  #edge(edge) {
    const {source, target, reason, mark} = edge;
    return svg("path", {class: this.#kindOf(edge), d: curve(edge), "marker-end": "url(#dag-tip)"},
      svg("title", {}, `#${source} to #${target}: ${reason} (${mark})`));
  }

  #reason(edge) {
    const [x, y] = pointOf(edge, edge.labelAt);
    return svg("text", {class: "reason", x, y: y + 3.5}, cut(edge.reason, 14));
  }

  #node({record, x, y}) {
    const {selected, store} = this.model, colour = colourOf(record);
    const classes = ["node", record.critical && "critical", record.id === selected && "selected",
      record.error && "broken"];
    const {ran, blocked} = phases(record, store.end);
    const waits = record.status === "WAITING" ? `waits ${duration(blocked ?? 0)}` : record.status;
    const time = ran === null ? waits : duration(ran), letters = Math.floor(LETTERS - 1 - time.length * SMALL);
    return svg("g", {class: classes.filter(Boolean).join(" "), transform: `translate(${x},${y})`, "data-id": record.id},
      svg("rect", {width: WIDTH, height: HEIGHT, rx: 5}),
      svg("rect", {class: "kind", width: 6, height: HEIGHT - 4, x: 2, y: 2, rx: 3, fill: this.theme.fills[colour]}),
      svg("text", {x: 13, y: HEIGHT / 2 + 4}, cut(titleOf(record), Math.max(8, letters))),
      svg("text", {class: "time", x: WIDTH - 6, y: HEIGHT / 2 + 4}, time));
  }

  #listen() {
    const {picture} = this;
    let grip = null;
    picture.addEventListener("wheel", event => {
      event.preventDefault();
      this.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY)) * 0.002), event.offsetX, event.offsetY);
    }, {passive: false});
    picture.addEventListener("pointerdown", event => {
      grip = {x: event.clientX, y: event.clientY, moved: 0};
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", event => {
      if (!grip) return this.#hover(event);
      const [across, down] = [event.clientX - grip.x, event.clientY - grip.y];
      grip = {x: event.clientX, y: event.clientY, moved: grip.moved + Math.abs(across) + Math.abs(down)};
      this.pan(-across, -down);
      return undefined;
    });
    picture.addEventListener("pointerup", event => {
      if (grip && grip.moved < 4) {
        const node = this.under(event);
        if (node) this.model.select(node.record.id);
      }
      grip = null;
    });
    picture.addEventListener("dblclick", () => this.centre());
    picture.addEventListener("pointerleave", () => this.hint.hide());
  }

  #hover(event) {
    const node = this.under(event);
    if (node) this.hint.show(event, describe(node.record, this.model.store.end));
    else this.hint.hide();
  }

  under(event) {
    const box = this.picture.getBoundingClientRect();
    const x = this.x + (event.clientX - box.left) / this.scale, y = this.y + (event.clientY - box.top) / this.scale;
    return this.nodes.find(node => x >= node.x && x <= node.x + WIDTH && y >= node.y && y <= node.y + HEIGHT);
  }

  zoom(factor, x = this.picture.clientWidth / 2, y = this.picture.clientHeight / 2) {
    const scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x += x / this.scale - x / scale;
    this.y += y / this.scale - y / scale;
    this.scale = scale;
    this.draw();
  }

  pan(across, down) {
    this.x += across / this.scale;
    this.y += down / this.scale;
    this.draw();
  }

  // Select a source, a target, or a neighbour in the layer, and bring it into the window.
  go(direction) {
    const node = this.byId?.get(this.model.selected ?? this.root);
    const next = node && this.#beside(node, direction);
    if (!next) return;
    this.model.select(next.record.id);
    this.#look(next);
    this.draw();
  }

  #beside(node, direction) {
    if (direction === "left") return this.edges.find(edge => edge.to === node)?.from;
    if (direction === "right") return this.edges.find(edge => edge.from === node)?.to;
    const layer = this.nodes.filter(one => one.x === node.x).sort((one, other) => one.y - other.y);
    return layer[layer.indexOf(node) + (direction === "up" ? -1 : 1)];
  }
}

// The number, limited to a range; the middle of the range if its limits cross.
function within(number, least, most) {
  return least > most ? (least + most) / 2 : Math.min(most, Math.max(least, number));
}
