// The geometry of the DAG: sizes of nodes, and the curve from one node to another.

export const WIDTH = 210;  // the width of a node
export const HEIGHT = 28;
export const ACROSS = 320;  // the distance from one layer to the next; `DOWN`: from one node to the next
export const DOWN = 38;

// The four control points of a curve, from the right side of a node to the left side of another.
function controls({from, to}) {
  const x = from.x + WIDTH, y = from.y + HEIGHT / 2, toX = to.x, toY = to.y + HEIGHT / 2;
  const bend = toX > x ? Math.min(ACROSS, (toX - x) / 2) : ACROSS / 2;
  return [[x, y], [x + bend, y], [toX - bend, toY], [toX, toY]];
}

export function curve(edge) {
  const [start, first, second, end] = controls(edge);
  return `M${start}C${first} ${second} ${end}`;
}

// The point of a curve at about the given share of its length.
export function pointOf(edge, part) {
  const rest = 1 - part, weights = [rest ** 3, 3 * rest ** 2 * part, 3 * rest * part ** 2, part ** 3];
  return [0, 1].map(axis => controls(edge).reduce((sum, point, number) => sum + weights[number] * point[axis], 0));
}
