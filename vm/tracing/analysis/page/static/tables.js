// Makes a table whose rows can be chosen by the pointer, or by arrow keys and Enter.

import {make} from "./dom.js";
import {count} from "./format.js";

// `columns`: [title, function from a row to its text, class]. `choose(row)`: called when a row is chosen. A row
// `{group}` is a heading of the rows below it.
export function table(caption, columns, rows, {choose = null, most = 300, selected = () => false} = {}) {
  const shown = rows.slice(0, most);
  const head = make("tr", {}, ...columns.map(([title, , kind]) => make("th", {scope: "col", class: kind}, title)));
  const body = make("tbody", {}, ...shown.map(row => row.group === undefined ?
    line(columns, row, choose, selected(row)) :
    make("tr", {class: "group"}, make("th", {scope: "rowgroup", colspan: columns.length}, row.group))));
  const first = body.querySelector("tr:not(.group)");
  if (choose && first) first.tabIndex = 0;
  if (choose) body.addEventListener("keydown", walk);
  const more = rows.length - shown.length;
  return make("div", {class: "table"},
    make("table", {}, make("caption", {}, caption), make("thead", {}, head), body),
    more > 0 ? make("p", {class: "note"}, `and ${count(more)} more: use the filters to narrow the list down`) : null,
    rows.length ? null : make("p", {class: "note"}, "none"));
}

function line(columns, row, choose, selected) {
  const cells = columns.map(([, text, kind]) => {
    const said = text(row);
    return make("td", {class: kind, title: typeof said === "string" && said.length > 24 ? said : null}, said);
  });
  const attributes = choose ? {tabindex: -1, "aria-selected": String(selected)} : {};
  return make("tr", {...attributes, class: selected ? "selected" : null, on: choose ? {
    click: () => choose(row),
    keydown: event => { if (event.key === "Enter") choose(row); },
  } : {}}, ...cells);
}

function walk(event) {
  const row = event.target.closest("tr"), rows = [...row.parentElement.querySelectorAll("tr:not(.group)")];
  const index = rows.indexOf(row);
  const next = {
    ArrowDown: rows[index + 1], ArrowUp: rows[index - 1], Home: rows[0], End: rows.at(-1),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  row.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
