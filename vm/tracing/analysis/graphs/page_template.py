"""The page of the DAG without its data: how it looks, and its script."""

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
</style></head><body>
<div id="bar"><input id="search" placeholder="search: op, #id, line, span, error" autofocus><span id="hits"></span>
<label>a node for each <select id="fold"></select></label> <button id="all">show all</button>
<button id="near">text size</button>
<span>wheel zooms, drag moves, Enter goes to the next hit, a click keeps the record</span>
<span>@LEGEND@</span></div>
<svg id="picture" preserveAspectRatio="xMidYMin meet"><defs><marker id="tip" viewBox="0 0 8 8" refX="8"
refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>
</svg><div id="record"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const picture = document.getElementById("picture"), panel = document.getElementById("record");
const fold = document.getElementById("fold"), search = document.getElementById("search");
const width = 230, height = 46, across = 250, down = 90;  // of a node, and from one to the next
const letters = 34;  // of a line in a node
const readable = 0.7;  // of its size: where a node's text can still be read
const visible = 0.2;  // of its size: where a node can still be seen
const described = 20;  // records of a node that the panel shows
let nodes = [], edges = [], byId = new Map(), view = [0, 0, 1, 1], whole = view, kept = false, hits = [], hit = -1;
let critical = new Set(), steps = new Set();

function make(tag, attributes, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}
function drawNode([id, layer, place, fill, lines, records]) {
  const x = place * across, y = layer * down;
  const text = make("text", {}, ...lines.map(line => make("tspan", {x: 8, dy: 13}, cut(line))));
  const kind = "node" + (records.length > 1 ? " many" : "") + (critical.has(id) ? " critical" : "");
  const element = make("g", {class: kind, transform: `translate(${x},${y})`, "data-id": id},
    make("rect", {width, height, rx: 5, fill}), make("svg", {width: width - 4, height}, text));
  return {id, x, y, lines, records, element};
}
function cut(line) { return line.length <= letters ? line : line.slice(0, letters - 1) + "\N{HORIZONTAL ELLIPSIS}"; }
function drawEdge([source, target, reasons, mark]) {
  const from = byId.get(source), to = byId.get(target);
  const x = from.x + width / 2, y = from.y + height, toX = to.x + width / 2, toY = to.y;
  // What goes up goes up beside the nodes, and what passes layers passes beside the node right below.
  const up = toY <= y, passes = !up && toY - y > down && Math.abs(toX - x) < width;
  const aside = up ? Math.max(x, toX) + width : 0, bend = (y + toY) / 2, out = passes ? across * 0.7 : 0;
  const [first, second] = up ? [[aside, y + down], [aside, toY - down]] :
    passes ? [[x + out, y + down * 0.6], [toX + out, toY - down * 0.6]] : [[x, bend], [toX, bend]];
  const title = make("title", {}, `#${source} to #${target}: ${reasons}`);
  const kind = "edge " + mark + (steps.has(source + ">" + target) ? " critical" : "");
  const path = make("path", {class: kind, d: `M${x},${y} C${first} ${second} ${toX},${toY}`}, title);
  const at = axis => 0.512 * [x, y][axis] + 0.384 * first[axis] + 0.096 * second[axis] + 0.008 * [toX, toY][axis];
  const label = make("text", {class: "why", x: at(0), y: at(1) + 3}, reasons);
  return {source, target, element: make("g", {}, path, label)};
}
function draw(name) {
  for (const {element} of [...edges, ...nodes]) element.remove();
  critical = new Set(data.pictures[name].critical);
  steps = new Set(data.pictures[name].steps.map(([source, target]) => source + ">" + target));
  nodes = data.pictures[name].nodes.map(drawNode);
  byId = new Map(nodes.map(node => [node.id, node]));
  edges = data.pictures[name].edges.map(drawEdge);
  picture.append(...edges.map(edge => edge.element), ...nodes.map(node => node.element));
  const right = Math.max(0, ...nodes.map(node => node.x)), bottom = Math.max(0, ...nodes.map(node => node.y));
  whole = [-10, -5, right + across, bottom + down];
  kept = false; forget(); find();
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
  const near = new Set([node.id]);
  for (const {source, target, element} of edges) {
    const touches = source === node.id || target === node.id;
    element.classList.toggle("dim", !touches);
    if (touches) { near.add(source); near.add(target); }
  }
  for (const one of nodes) one.element.classList.toggle("near", near.has(one.id));
}
function forget() {
  panel.style.display = "none";
  for (const edge of edges) edge.element.classList.remove("dim");
  for (const node of nodes) node.element.classList.remove("near");
}
function under(event) {
  const element = event.target.closest(".node");
  return element && byId.get(Number(element.dataset.id));
}
picture.addEventListener("pointerover", event => {
  if (kept) return;
  const node = under(event);
  if (node) describe(node); else if (panel.style.display === "block") forget();
});
picture.addEventListener("click", event => {
  const node = under(event);
  if (node) { kept = !kept; describe(node); }
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
  const found = new Set(hits);
  for (const node of nodes) {
    node.element.classList.toggle("found", found.has(node));
    node.element.classList.toggle("dim", Boolean(wanted) && !found.has(node));
  }
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
