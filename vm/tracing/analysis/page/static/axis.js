// The time axis that all charts share: the whole time, and the window, which is the part that is shown.
// While the window follows a live daemon, it moves to new records. After the user has zoomed or dragged away from the
// end, the window stays where it is, until `follow` is called.

const LEAST = 100;  // the smallest window, in nanoseconds
const FOLLOWED = 5e9;  // the first window of a live daemon, in nanoseconds

export class Axis {
  constructor() {
    [this.begin, this.end] = [0, 1];  // of the whole
    [this.from, this.to] = [0, 1];  // of the window
    this.fitted = true;  // the window is the whole
    this.follows = false;
    this.opens = true;  // the user has not moved the window yet
  }

  get length() {
    return this.to - this.from;
  }

  // The whole time has changed.
  grow(begin, end, live) {
    [this.begin, this.end] = [begin, end];
    if (live && this.opens) {
      [this.follows, this.fitted] = [true, false];
      this.#put(end - Math.min(FOLLOWED, Math.max(LEAST, end - begin)), end);
    } else if (this.fitted) this.#put(begin, end);
    else if (this.follows) this.#put(end - this.length, end);
    else this.#put(this.from, this.to);
  }

  fit() {
    this.fitted = true;
    this.follows = this.opens = false;
    [this.from, this.to] = [this.begin, this.end];
  }

  follow() {
    const length = this.fitted ? Math.min(FOLLOWED, this.length) : this.length;
    [this.follows, this.fitted] = [true, false];
    this.#put(this.end - length, this.end);
  }

  // Show `factor` times as much. The moment at the share `at` of the window stays where it is.
  zoom(factor, at = 0.5) {
    const length = Math.max(LEAST, this.length * factor);
    const fixed = this.follows ? this.to : this.from + this.length * at;
    const share = this.follows ? 1 : at;
    this.#set(fixed - length * share, fixed + length * (1 - share));
  }

  // Move by a share of the window.
  pan(share) {
    this.follows = false;
    this.#set(this.from + this.length * share, this.to + this.length * share);
  }

  // Show the time between two moments, with some room on both sides.
  show(from, to) {
    this.follows = false;
    const room = Math.max((to - from) * 0.25, LEAST / 2);
    this.#set(from - room, to + room);
  }

  window(from, to) {
    this.follows = false;
    this.#set(from, to);
  }

  // Move the window to these moments, if they are outside.
  reveal(from, to) {
    if (to < this.from || from > this.to) this.window(from - this.length / 2, from + this.length / 2);
  }

  #set(from, to) {
    this.fitted = this.opens = false;
    this.#put(from, to);
    if (this.length >= this.end - this.begin) this.fit();
  }

  #put(from, to) {
    const length = Math.min(Math.max(LEAST, to - from), Math.max(LEAST, this.end - this.begin));
    const begin = Math.min(Math.max(from, this.begin), Math.max(this.begin, this.end - length));
    [this.from, this.to] = [begin, begin + length];
  }
}

// The moments of ticks: round numbers, at least `apart` pixels from each other.
export function ticks(from, to, width, apart) {
  const least = (to - from) * apart / Math.max(1, width);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].map(part => part * power).find(size => size >= least);
  const found = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) found.push(time);
  return {step, found};
}
