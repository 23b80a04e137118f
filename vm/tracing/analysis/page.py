"""The DAG as one page of HTML that stands alone: zooms, searches, and shows a record where the pointer is.

The page holds the picture as SVG and the records as JSON. It loads nothing from anywhere. Text of users is escaped for
both; `<` cannot appear in the JSON, so no text can end its script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape

from .fold import Node, Picture
from .graph_export import FILLS, LEGEND, MARK_STYLES, arrows
from .layers import places
from .plain import as_dict
from .text import printable

_WIDTH, _HEIGHT = 230, 46  # of a node
_ACROSS, _DOWN = 250, 90  # from one node to the next
_LETTERS = 34  # of a line in a node
_RECORDS = 20  # of a folded chain that the page describes


def to_html(picture: Picture, *, legend: bool = True) -> str:
    """The page."""
    at = places(picture)
    width = max((across for _, across in at.values()), default=0) + 1
    found = {node.id: _described(node) for node in picture.nodes}
    data = json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")
    lines = [*_arrows(picture, at), *_nodes(picture, at)]
    size = f"0 0 {width * _ACROSS} {(max((down for down, _ in at.values()), default=0) + 1) * _DOWN}"
    explained = escape("; ".join(LEGEND)) if legend else ""
    parts = {
        "SIZE": size,
        "LEGEND": explained,
        "COUNT": str(len(picture.nodes)),
        "PICTURE": "\n".join(lines),
        "DATA": data,
    }
    return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _PAGE)


def _described(node: Node) -> dict[str, object]:
    """What the page shows of a node, and searches."""
    shown = [as_dict(record) for record in node.records[:_RECORDS]]
    return {"more": len(node.records) - len(shown), "records": shown}


def _nodes(picture: Picture, at: dict[int, tuple[int, int]]) -> Iterator[str]:
    devices = {device: number for number, device in enumerate(sorted({n.first.device for n in picture.nodes}))}
    for node in picture.nodes:
        down, across = at[node.id]
        fill = FILLS[devices[node.first.device] % len(FILLS)]
        lines = [_cut(printable(line)) for line in node.label(picture.until)]
        text = "".join(f'<tspan x="8" dy="13">{escape(line)}</tspan>' for line in lines[:3])
        look = 'stroke-width="3"' if len(node.records) > 1 else ""
        yield (
            f'<g class="node" data-id="{node.id}" transform="translate({across * _ACROSS},{down * _DOWN})">'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{fill}" {look}/><text>{text}</text></g>'
        )


def _arrows(picture: Picture, at: dict[int, tuple[int, int]]) -> Iterator[str]:
    for source, target, reasons, mark in arrows(picture.edges):
        (down, across), (below, aside) = at[source], at[target]
        x, y = across * _ACROSS + _WIDTH // 2, down * _DOWN + _HEIGHT
        to_x, to_y = aside * _ACROSS + _WIDTH // 2, below * _DOWN
        bend = (y + to_y) // 2
        yield (
            f'<path class="edge" data-source="{source}" data-target="{target}" {MARK_STYLES[mark]} '
            f'd="M{x},{y} C{x},{bend} {to_x},{bend} {to_x},{to_y}"><title>#{source} to #{target}: {escape(reasons)}'
            f"</title></path>"
        )


def _cut(line: str) -> str:
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>tensord trace</title>
<style>
html, body { margin: 0; height: 100%; font: 13px sans-serif; overflow: hidden }
body { display: flex; flex-direction: column }
#bar { flex: none; padding: 6px 10px; line-height: 1.6; background: #f4f4f4 }
#bar input { width: 24em } #bar span { color: #555; margin-left: 1em }
#picture { flex: 1; min-height: 0; width: 100%; cursor: grab; background: white }
#record { position: fixed; right: 10px; bottom: 10px; width: 30em; max-height: 80%; overflow: auto; display: none;
  background: #fffffff0; border: 1px solid #999; padding: 8px; white-space: pre-wrap; font: 12px monospace }
.node rect { stroke: #666 } .node text { font: 11px sans-serif; pointer-events: none }
.edge { fill: none; marker-end: url(#tip) } .dim { opacity: .15 }
.found rect { stroke: #cc0000; stroke-width: 3 } .near rect { stroke: #000; stroke-width: 2 }
</style></head><body>
<div id="bar"><input id="search" placeholder="search: op, #id, line, span, error" autofocus>
<span id="hits"></span><span>@COUNT@ nodes; wheel zooms, drag moves, Enter goes to the next hit, a click keeps the
record<span id="part" hidden>this is the beginning: <button id="all">show all</button></span></span>
<span>@LEGEND@</span></div>
<svg id="picture" viewBox="@SIZE@" preserveAspectRatio="xMidYMin meet"><defs><marker id="tip" viewBox="0 0 8 8" refX="8"
refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>
@PICTURE@
</svg><div id="record"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const picture = document.getElementById("picture"), panel = document.getElementById("record");
const nodes = [...document.querySelectorAll(".node")], edges = [...document.querySelectorAll(".edge")];
const view = picture.getAttribute("viewBox").split(" ").map(Number);
const whole = [...view], least = 0.3;  // of its size, where a node can be seen and some of its text guessed
let kept = false, hits = [], hit = -1;
function show() { picture.setAttribute("viewBox", view.join(" ")); }
function scale() { return Math.max(view[2] / picture.clientWidth, view[3] / picture.clientHeight); }
// A picture too large to be seen as a whole opens at its first node.
if (scale() > 1 / least) {
  const [x, y] = nodes[0].getAttribute("transform").match(/[\\d.]+/g).map(Number);
  view[2] = 2 * picture.clientWidth; view[3] = 2 * picture.clientHeight;
  view[0] = Math.max(0, x + 115 - view[2] / 2); view[1] = Math.max(0, y - 20); show();
  document.getElementById("part").hidden = false;
  document.getElementById("all").addEventListener("click", () => { view.splice(0, 4, ...whole); show(); });
}
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
function text(id) {
  const found = data[id];
  const parts = found.records.map(record => Object.entries(record)
    .filter(([, value]) => value !== "" && value !== 0 && !(Array.isArray(value) && !value.length))
    .map(([name, value]) => name + ": " + (typeof value === "string" ? value : JSON.stringify(value))).join("\\n"));
  return parts.join("\\n\\n") + (found.more ? "\\n\\nand " + found.more + " more" : "");
}
function describe(id) {
  panel.textContent = text(id); panel.style.display = "block";
  const near = new Set([id]);
  for (const edge of edges) {
    const touches = edge.dataset.source === id || edge.dataset.target === id;
    edge.classList.toggle("dim", !touches);
    if (touches) { near.add(edge.dataset.source); near.add(edge.dataset.target); }
  }
  for (const node of nodes) node.classList.toggle("near", near.has(node.dataset.id));
}
function forget() {
  panel.style.display = "none";
  for (const edge of edges) edge.classList.remove("dim");
  for (const node of nodes) node.classList.remove("near");
}
for (const node of nodes) {
  node.addEventListener("pointerenter", () => { if (!kept) describe(node.dataset.id); });
  node.addEventListener("pointerleave", () => { if (!kept) forget(); });
  node.addEventListener("click", () => { kept = !kept; describe(node.dataset.id); });
}
const texts = {};
for (const id of Object.keys(data)) texts[id] = ("#" + id + " " + JSON.stringify(data[id])).toLowerCase();
function matches(id, wanted) {
  if (/^#\\d+$/.test(wanted)) return data[id].records.some(record => "#" + record.id === wanted);
  return texts[id].includes(wanted);
}
const search = document.getElementById("search");
search.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  hits = wanted ? nodes.filter(node => matches(node.dataset.id, wanted)) : []; hit = -1;
  for (const node of nodes) {
    const found = hits.includes(node);
    node.classList.toggle("found", found); node.classList.toggle("dim", Boolean(wanted) && !found);
  }
  document.getElementById("hits").textContent = wanted ? hits.length + " found" : "";
});
search.addEventListener("keydown", event => {
  if (event.key !== "Enter" || !hits.length) return;
  hit = (hit + 1) % hits.length;
  const [x, y] = hits[hit].getAttribute("transform").match(/[\\d.]+/g).map(Number);
  view[2] = 1200; view[3] = 1200 * picture.clientHeight / picture.clientWidth;
  view[0] = x + 115 - view[2] / 2; view[1] = y + 23 - view[3] / 2; show(); describe(hits[hit].dataset.id);
});
</script></body></html>
"""
