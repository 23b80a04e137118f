// Formats numbers for people, as the command line does.

const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
const SIZES = ["TiB", "GiB", "MiB", "KiB"];

// A time in nanoseconds, with three digits and a unit.
export function duration(ns) {
  for (const [size, unit] of TIMES) {
    if (ns >= size * 0.9995) return `${digits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

export function bytes(amount) {
  let size = 1024 ** SIZES.length;
  for (const unit of SIZES) {
    if (amount >= size) return `${digits(amount / size)} ${unit}`;
    size /= 1024;
  }
  return `${Math.round(amount)} B`;
}

export function count(number) {
  return number.toLocaleString("en-US");
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

// A moment, with as many digits as are needed to tell ticks `step` nanoseconds apart.
export function moment(ns, step) {
  const [size, unit] = TIMES.find(([size]) => Math.max(Math.abs(ns), step) >= size) ?? [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(ns / size).toFixed(digits)} ${unit}`;
}

function digits(number) {
  return number >= 999.5 ? String(Math.round(number)) : String(Number(number.toPrecision(3)));
}

export function cut(text, letters) {
  return text.length <= letters ? text : text.slice(0, Math.max(0, letters - 1)) + "\u2026";
}
