// The edges of the selected instruction as arrows over the timeline, with their reasons.

import {keyOf} from "./rows.js";

const MAX_EDGES = 40;  // edges in, and edges out
const APART = 60;  // the length in pixels from which an arrow is labelled with its reason

// `timeline`: gives the positions of instructions (`middleOf`, `x`) and the model.
export function drawArrows(pen, timeline, ink) {
  const {model, left, room} = timeline, {store, selection: record} = model;
  if (!record) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, room, 1e6);
  pen.clip();
  pen.font = "10px system-ui, sans-serif";
  for (const {source, reason, mark} of record.edges.slice(0, MAX_EDGES)) {
    arrow(pen, timeline, store.records.get(source), record, {reason, mark, colour: ink.text}, ink);
  }
  for (const {target, reason, mark} of store.targets(record.id).slice(0, MAX_EDGES)) {
    arrow(pen, timeline, record, store.records.get(target), {reason, mark, colour: ink.muted}, ink);
  }
  pen.restore();
}

function arrow(pen, timeline, from, to, {reason, mark, colour}, ink) {
  const y = from && timeline.middleOf(keyOf(from)), toY = to && timeline.middleOf(keyOf(to));
  const left = from?.finished ?? from?.started ?? null;
  if (y === undefined || toY === undefined || left === null) return;
  const x = timeline.x(left), toX = timeline.x(to.started ?? to.ready ?? to.received ?? timeline.model.axis.to);
  const bend = Math.max(16, Math.min(80, Math.abs(toX - x) / 2));
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.5;
  pen.setLineDash(mark === "elided" ? [6, 3] : mark === "met" ? [2, 3] : []);
  pen.beginPath();
  pen.moveTo(x, y);
  pen.bezierCurveTo(x + bend, y, toX - bend, toY, toX, toY);
  pen.stroke();
  pen.setLineDash([]);
  pen.beginPath();
  pen.moveTo(toX + 1, toY);
  pen.lineTo(toX - 6, toY - 4);
  pen.lineTo(toX - 6, toY + 4);
  pen.fill();
  if (Math.hypot(toX - x, toY - y) > APART) label(pen, reason, (x + toX) / 2, (y + toY) / 2, ink);
}

function label(pen, reason, x, y, ink) {
  const {width} = pen.measureText(reason);
  pen.fillStyle = ink.ground;
  pen.fillRect(x - width / 2 - 3, y - 7, width + 6, 14);
  pen.fillStyle = ink.text;
  pen.fillText(reason, x - width / 2, y + 0.5);
}
