// Lays out the nodes of a DAG in layers, sources before their targets, with few crossings.
// After Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures", 1981, as in the
// pictures of `trace dag`. Edges against the order of the ids do not affect the layers.

const SWEEPS = 4;

// A map from id to [layer, position], for ids in order and edges [source, target]. Nodes of a layer are at least 1
// apart.
export function positionsOf(ids, edges) {
  const sources = new Map(ids.map(id => [id, []])), targets = new Map(ids.map(id => [id, []]));
  for (const [source, target] of edges) {
    if (source >= target) continue;
    sources.get(target).push(source);
    targets.get(source).push(target);
  }
  const layers = layersOf(ids, sources, targets);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0, order = down ? layers : [...layers].reverse();
    const at = new Map(layers.flatMap(layer => layer.map((id, index) => [id, index])));
    for (const layer of order) {
      const wanted = new Map(layer.map(id => [id, middle((down ? sources : targets).get(id), at) ?? at.get(id)]));
      layer.sort((one, other) => wanted.get(one) - wanted.get(other) || one - other);
      layer.forEach((id, index) => at.set(id, index));
    }
  }
  return positions(layers, sources, targets);
}

// A node is placed one layer after its last source, then moved to the layer before its first target.
function layersOf(ids, sources, targets) {
  const depth = new Map();
  for (const id of ids) {
    depth.set(id, sources.get(id).reduce((most, source) => Math.max(most, depth.get(source) + 1), 0));
  }
  for (const id of [...ids].reverse()) {
    const first = targets.get(id).reduce((least, target) => Math.min(least, depth.get(target)), Infinity);
    if (first !== Infinity) depth.set(id, first - 1);
  }
  const layers = [];
  for (const id of ids) (layers[depth.get(id)] ??= []).push(id);
  return Array.from(layers, layer => layer ?? []);
}

function positions(layers, sources, targets) {
  const at = new Map();
  for (const layer of layers) layer.forEach((id, index) => at.set(id, index - (layer.length - 1) / 2));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 1, order = down ? layers : [...layers].reverse();
    for (const layer of order) {
      const wanted = layer.map(id => middle((down ? sources : targets).get(id), at) ?? at.get(id));
      apart(wanted).forEach((position, index) => at.set(layer[index], position));
    }
  }
  return new Map(layers.flatMap((layer, depth) => layer.map(id => [id, [depth, at.get(id)]])));
}

function middle(neighbours, at) {
  return neighbours.length ? neighbours.reduce((sum, id) => sum + at.get(id), 0) / neighbours.length : null;
}

// Positions in the same order, at least 1 apart, as near to the wanted ones as possible: blocks that overlap move
// together.
function apart(wanted) {
  const blocks = [];
  wanted.forEach((position, index) => {
    let block = {sum: position - index, size: 1};
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).size > block.sum / block.size) {
      const before = blocks.pop();
      block = {sum: before.sum + block.sum, size: before.size + block.size};
    }
    blocks.push(block);
  });
  const found = [];
  for (const {sum, size} of blocks) {
    for (let number = 0; number < size; number += 1) found.push(sum / size + found.length);
  }
  return found;
}
