"""The HTML page of the graph, without its data: its style and its script.

The document contains elements only for the part of the picture that is in the window. If that part is large, all
nodes of one colour are drawn as one element.
"""

from __future__ import annotations

from typing import Final

PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>tensord trace</title>
<style>
html, body { margin: 0; height: 100%; font: 13px sans-serif; overflow: hidden }
body { display: flex; flex-direction: column }
#bar { flex: none; padding: 6px 10px; line-height: 1.8; background: #f4f4f4 }
#bar input { width: 24em } #bar label { margin-left: 1em } #bar span { color: #555; margin-left: 1em }
#picture { flex: 1; min-height: 0; width: 100%; cursor: grab; background: white }
#record { position: fixed; right: 10px; bottom: 10px; width: 30em; max-height: 80%; overflow: auto; display: none;
  background: #fffffff0; border: 1px solid #999; padding: 8px; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12px monospace }
.node rect { stroke: #666 } .node text { font: 11px sans-serif; pointer-events: none }
.many rect { stroke-width: 3 }
.edge { fill: none; stroke: #555; marker-end: url(#tip) } .dim { opacity: .15 }
.elided { stroke-dasharray: 8 4 } .met { stroke: #888; stroke-dasharray: 2 4 }
.missing { stroke: #c00; stroke-width: 3px }
.critical rect { stroke: #c2410c; stroke-width: 3 } .edge.critical { stroke: #c2410c; stroke-width: 3px }
.why { font: 9px sans-serif; fill: #444; stroke: white; stroke-width: 3px; paint-order: stroke; text-anchor: middle }
.far .why { display: none }
.found rect { stroke: #cc0000; stroke-width: 3 } .near rect { stroke: #000; stroke-width: 2 }
.crowd, .crowded .edge { vector-effect: non-scaling-stroke; stroke-width: .6px } .crowd { stroke: #666 }
.crowd.critical { stroke: #c2410c; stroke-width: 1.5px } .crowd.found { stroke: #cc0000; stroke-width: 2px }
.crowd.near { stroke: #000; stroke-width: 2px } .crowded .edge { marker-end: none }
</style></head><body>
<div id="bar"><input id="search" placeholder="search: op, #id, line, span, error" autofocus><span id="hits"></span>
<label>a node for each <select id="fold"></select></label> <button id="all">show all</button>
<button id="near">text size</button>
<span>wheel zooms, drag moves, Enter goes to the next hit, a click keeps the record shown</span>
<span>@LEGEND@</span></div>
<svg id="picture" preserveAspectRatio="xMidYMin meet"><defs><marker id="tip" viewBox="0 0 8 8" refX="8"
refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>
<g id="lower"></g><g id="upper"></g></svg><div id="record"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const picture = document.getElementById("picture"), panel = document.getElementById("record");
const lower = document.getElementById("lower"), upper = document.getElementById("upper");
const fold = document.getElementById("fold"), search = document.getElementById("search");
const width = 230, height = 46, across = 250, down = 90;  // of a node, and distances to the next node
const letters = 34;  // letters that fit in a line of a node
const readable = 0.7;  // the smallest scale at which a node's text can be read
const visible = 0.2;  // the smallest scale at which a node can be seen
const described = 20;  // the most records of a node that the panel shows
const crowd = 1000;  // above so many nodes in the window, or three times as many edges, elements are drawn together
let nodes = [], edges = [], byId = new Map(), view = [0, 0, 1, 1], whole = view, pinned = false, hits = [], hit = -1;
let critical = new Set(), steps = new Set(), found = new Set();
let subject = null, neighbours = new Set();  // the node that the panel describes, and its neighbours
let inside = new Map();  // the elements in the document, by node or edge

function make(tag, attributes, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}
function placeNode([id, layer, position, fill, lines, records]) {
  return {id, x: position * across, y: layer * down, fill, lines, records};
}
function drawNode(node) {
  const text = make("text", {}, ...node.lines.map(line => make("tspan", {x: 8, dy: 13}, cut(line))));
  return make("g", {class: kindOfNode(node), transform: `translate(${node.x},${node.y})`, "data-id": node.id},
    make("rect", {width, height, rx: 5, fill: node.fill}), make("svg", {width: width - 4, height}, text));
}
function kindOfNode({id, records}) {
  const dim = search.value.trim() && !found.has(id);
  return ["node", records.length > 1 && "many", critical.has(id) && "critical", found.has(id) && "found",
    isNear(id) && "near", dim && "dim"].filter(Boolean).join(" ");
}
function isNear(id) { return subject !== null && (id === subject || neighbours.has(id)); }
function cut(line) { return line.length <= letters ? line : line.slice(0, letters - 1) + "\N{HORIZONTAL ELLIPSIS}"; }
function placeEdge([source, target, reasons, mark]) {
  const from = byId.get(source), to = byId.get(target);
  const x = from.x + width / 2, y = from.y + height, toX = to.x + width / 2, toY = to.y;
  // An edge that leads up is drawn beside the nodes; an edge that crosses a layer passes beside the node below.
  const up = toY <= y, passes = !up && toY - y > down && Math.abs(toX - x) < width;
  const aside = up ? Math.max(x, toX) + width : 0, bend = (y + toY) / 2, out = passes ? across * 0.7 : 0;
  const [first, second] = up ? [[aside, y + down], [aside, toY - down]] :
    passes ? [[x + out, y + down * 0.6], [toX + out, toY - down * 0.6]] : [[x, bend], [toX, bend]];
  const at = axis => 0.512 * [x, y][axis] + 0.384 * first[axis] + 0.096 * second[axis] + 0.008 * [toX, toY][axis];
  const xs = [x, first[0], second[0], toX], ys = [y, first[1], second[1], toY];
  return {source, target, reasons, mark, d: `M${x},${y}C${first} ${second} ${toX},${toY}`, label: [at(0), at(1) + 3],
    box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)]};
}
function drawEdge(edge) {
  const title = make("title", {}, `#${edge.source} to #${edge.target}: ${edge.reasons}`);
  const path = make("path", {class: kindOfEdge(edge), d: edge.d}, title);
  return make("g", {}, path, make("text", {class: "why", x: edge.label[0], y: edge.label[1]}, edge.reasons));
}
function kindOfEdge({source, target, mark}) {
  const dim = subject !== null && source !== subject && target !== subject;
  return "edge " + mark + (steps.has(source + ">" + target) ? " critical" : "") + (dim ? " dim" : "");
}
function draw(name) {
  critical = new Set(data.pictures[name].critical);
  steps = new Set(data.pictures[name].steps.map(([source, target]) => source + ">" + target));
  nodes = data.pictures[name].nodes.map(placeNode);
  byId = new Map(nodes.map(node => [node.id, node]));
  edges = data.pictures[name].edges.map(placeEdge);
  const most = (one, axis) => nodes.reduce((found, node) => Math.max(found, node[axis]), one);
  const right = most(0, "x"), bottom = most(0, "y");
  whole = [-10, -5, right + across, bottom + down];
  pinned = false; clear(); forget(); find();
  fit();
  if (scale() > 1 / visible) near();
}
function fit() {  // the whole picture in the window; a small one is not magnified
  view = [...whole];
  const [columns, rows] = [picture.clientWidth, picture.clientHeight];
  if (scale() < 1) view = [(whole[0] + whole[2] - columns) / 2, view[1], columns, rows];
  show();
}
function near() {  // the beginning of the critical path, or the first node, at a size at which texts can be read
  const first = nodes.find(node => critical.has(node.id)) ?? nodes[0];
  if (first) look(first, 1 / readable, 20);
}
function look(node, scaled, above) {
  view[2] = picture.clientWidth * scaled; view[3] = picture.clientHeight * scaled;
  view[0] = Math.max(-10, node.x + width / 2 - view[2] / 2); view[1] = node.y - above; show();
}
function show() {
  picture.setAttribute("viewBox", view.join(" "));
  picture.classList.toggle("far", scale() > 1.5 / readable);
  render();
}
function seen() {  // the corners of the window, in the picture's units
  const back = picture.getScreenCTM()?.inverse(), box = picture.getBoundingClientRect();
  const corner = (x, y) => { const point = new DOMPoint(x, y).matrixTransform(back); return [point.x, point.y]; };
  return [...corner(box.left, box.top), ...corner(box.right, box.bottom)];
}
function render() {
  const [left, top, right, bottom] = seen();
  const within = ([x, y, toX, toY]) => x < right && toX > left && y < bottom && toY > top;
  const shown = nodes.filter(({x, y}) => within([x, y, x + width, y + height]));
  const lines = edges.filter(edge => within(edge.box)), crowded = shown.length > crowd || lines.length > 3 * crowd;
  picture.classList.toggle("crowded", crowded);
  if (crowded) return renderCrowd(shown, lines);
  if (inCrowd()) clear();
  const wanted = new Set([...lines, ...shown]);
  for (const [one, element] of inside) if (!wanted.has(one)) { element.remove(); inside.delete(one); }
  for (const one of wanted) {
    if (inside.has(one)) continue;
    const element = one.lines ? drawNode(one) : drawEdge(one);
    (one.lines ? upper : lower).append(element);
    inside.set(one, element);
  }
}
function renderCrowd(shown, lines) {
  const paths = new Map();
  const add = (layer, kind, fill, d) => {
    const key = kind + fill;
    if (!paths.has(key)) paths.set(key, {layer, kind, fill, parts: []});
    paths.get(key).parts.push(d);
  };
  for (const edge of lines) add(lower, kindOfEdge(edge), "none", edge.d);
  const [across, down] = [Math.max(width, 2 * scale()), Math.max(height, 2 * scale())];  // two pixels at least
  for (const node of shown) {
    const box = `M${node.x},${node.y}h${across}v${down}h${-across}z`;
    add(upper, "crowd", node.fill, box);
    if (critical.has(node.id)) add(upper, "crowd critical", "none", box);
    if (found.has(node.id)) add(upper, "crowd found", "none", box);
    if (isNear(node.id)) add(upper, "crowd near", "none", box);
  }
  clear();
  for (const [key, {layer, kind, fill, parts}] of paths) {
    const element = make("path", {class: kind, fill, d: parts.join("")});
    layer.append(element);
    inside.set(key, element);
  }
}
function inCrowd() { return [...inside.keys()].some(one => typeof one === "string"); }
function clear() {
  for (const element of inside.values()) element.remove();
  inside.clear();
}
function restyle() {  // after the search or the selected node has changed
  if (inCrowd()) return render();
  for (const [one, element] of inside) {
    (one.lines ? element : element.firstChild).setAttribute("class", one.lines ? kindOfNode(one) : kindOfEdge(one));
  }
}
function scale() { return Math.max(view[2] / picture.clientWidth, view[3] / picture.clientHeight); }
picture.addEventListener("wheel", event => {
  event.preventDefault();
  const factor = event.deltaY > 0 ? 1.2 : 1 / 1.2, box = picture.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
  view[0] += view[2] * x * (1 - factor); view[1] += view[3] * y * (1 - factor);
  view[2] *= factor; view[3] *= factor; show();
}, {passive: false});
picture.addEventListener("pointermove", event => {
  if (event.buttons & 1) { view[0] -= event.movementX * scale(); view[1] -= event.movementY * scale(); show(); }
});
document.getElementById("all").addEventListener("click", fit);
document.getElementById("near").addEventListener("click", near);

function text(node) {
  const parts = node.records.slice(0, described).map(id => Object.entries(data.records[id])
    .map(([name, value]) => name + ": " + (typeof value === "string" ? value : JSON.stringify(value))).join("\\n"));
  const more = node.records.length - described;
  if (node.records.length > 1) parts.unshift(node.lines.join("\\n"));
  return parts.join("\\n\\n") + (more > 0 ? `\\n\\nand ${more} more` : "");
}
function describe(node) {
  panel.textContent = text(node); panel.style.display = "block"; panel.scrollTop = 0;
  subject = node.id;
  neighbours = new Set(edges.filter(edge => edge.source === node.id || edge.target === node.id)
    .flatMap(edge => [edge.source, edge.target]));
  restyle();
}
function forget() {
  panel.style.display = "none";
  subject = null;
  restyle();
}
function under(event) {
  const {x, y} = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  const near = inCrowd() ? 2 * scale() : 0;  // if nodes are tiny, the pointer need not hit them exactly
  const lies = (at, begin, size) => at >= begin - near && at <= begin + size + near;
  return nodes.find(node => lies(x, node.x, width) && lies(y, node.y, height));
}
picture.addEventListener("pointermove", event => {
  if (pinned || event.buttons) return;
  const node = under(event);
  if (!node) { if (panel.style.display === "block") forget(); }
  else if (node.id !== subject) describe(node);
});
picture.addEventListener("click", event => {
  const node = under(event);
  if (node) { pinned = !pinned; describe(node); }
});

const texts = {};
function matches(id, wanted) {
  if (/^#\\d+$/.test(wanted)) return "#" + id === wanted;
  texts[id] ??= ("#" + id + " " + JSON.stringify(data.records[id])).toLowerCase();
  return texts[id].includes(wanted);
}
function find() {
  const wanted = search.value.trim().toLowerCase();
  hits = wanted ? nodes.filter(node => node.records.some(id => matches(id, wanted))) : []; hit = -1;
  found = new Set(hits.map(node => node.id));
  restyle();
  document.getElementById("hits").textContent = wanted ? hits.length + " found" : "";
}
search.addEventListener("input", find);
search.addEventListener("keydown", event => {
  if (event.key !== "Enter" || !hits.length) return;
  hit = (hit + 1) % hits.length;
  look(hits[hit], 1, picture.clientHeight / 2); describe(hits[hit]);
});
for (const [name, {nodes}] of Object.entries(data.pictures)) {
  const option = document.createElement("option");
  option.value = name; option.textContent = `${name} (${nodes.length})`;
  fold.append(option);
}
fold.value = data.shown;
fold.addEventListener("change", () => draw(fold.value));
draw(data.shown);
</script></body></html>
"""
