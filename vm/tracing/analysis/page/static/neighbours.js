// Finds the part of the DAG that is drawn: instructions at most some edges away from the roots, the nearest first.

import {isLive} from "./store.js";

const RUNNING = 24;  // the most running instructions that are roots
// The roots if no instruction is selected: the running ones; else the end of the critical path; else the last end.
export function rootsOf(store) {
  let last = null, critical = null;
  const running = [];
  for (const record of store.records.values()) {
    if (isLive(record) && record.started !== null) running.push(record.id);
    if (record.critical && (!critical || record.finished >= critical.finished)) critical = record;
    if (record.kind !== "release" && (!last || (record.finished ?? 0) >= (last.finished ?? 0))) last = record;
  }
  if (running.length) return running.slice(-RUNNING);
  return critical ?? last ? [(critical ?? last).id] : [];
}

// {nodes: records, edges: [{source, target, reason, mark}], reached: how many nodes would be drawn without the limit
// `most`}. Releases are left out.
export function around(store, roots, depth, most) {
  const distance = new Map(roots.filter(id => store.records.has(id)).map(id => [id, 0]));
  const queue = [...distance.keys()];
  for (let index = 0; index < queue.length; index += 1) {
    const id = queue[index], next = distance.get(id) + 1;
    if (next > depth) continue;
    for (const other of beside(store, id)) {
      const record = store.records.get(other);
      if (!record || record.kind === "release" || distance.has(other)) continue;
      distance.set(other, next);
      queue.push(other);
    }
  }
  const chosen = new Set(queue.slice(0, most));
  const nodes = [...chosen].map(id => store.records.get(id)).sort((one, other) => one.id - other.id);
  return {nodes, edges: nodes.flatMap(record => merged(record, chosen)), reached: queue.length};
}

function* beside(store, id) {
  for (const {source} of store.records.get(id).edges) yield source;
  for (const {target} of store.targets(id)) yield target;
}

// The edges to a record, one for each source, with all reasons and the strongest mark.
const STRENGTH = ["met", "elided", "waited", "missing"];

function merged(record, chosen) {
  const found = new Map();
  for (const {source, reason, mark} of record.edges) {
    if (!chosen.has(source)) continue;
    const edge = found.get(source);
    if (!edge) found.set(source, {source, target: record.id, reasons: new Set([reason]), mark});
    else {
      edge.reasons.add(reason);
      if (STRENGTH.indexOf(mark) > STRENGTH.indexOf(edge.mark)) edge.mark = mark;
    }
  }
  return [...found.values()].map(({reasons, ...edge}) => ({...edge, reason: [...reasons].join(", ")}));
}
