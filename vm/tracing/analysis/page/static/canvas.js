// A canvas that fills its element, is sharp on every screen, and is redrawn when its size changes.

export class Canvas {
  constructor(element, changed) {
    this.element = element;
    this.pen = element.getContext("2d");
    new ResizeObserver(changed).observe(element.parentElement);
  }

  // Set the canvas to a size in pixels of the page, and clear it.
  prepare(width, height) {
    const dots = devicePixelRatio || 1, {element, pen} = this;
    const [across, down] = [Math.round(width * dots), Math.round(height * dots)];
    if (element.width !== across || element.height !== down) {
      [element.width, element.height] = [across, down];
      [element.style.width, element.style.height] = [`${width}px`, `${height}px`];
    }
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.textBaseline = "middle";
    return pen;
  }
}

const widths = new Map();  // of texts, by font and text; emptied when there are many

// The text, cut to the width `room`.
export function fitted(pen, text, room) {
  const key = pen.font + text;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 5000) widths.clear();
    width = pen.measureText(text).width;
    widths.set(key, width);
  }
  if (width <= room) return text;
  const letters = Math.floor(text.length * room / width) - 1;
  return letters < 2 ? "" : text.slice(0, letters) + "\u2026";
}
