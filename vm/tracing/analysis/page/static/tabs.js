// The tabs at the bottom. Only the pane that is shown is rendered.

import {byId, make} from "./dom.js";

export class Tabs {
  constructor(model, panes) {
    this.panes = panes;  // name -> pane: `render(element)`, and perhaps `count`
    this.buttons = new Map();
    const list = byId("tabs");
    for (const [name, pane] of Object.entries(panes)) {
      const id = name.toLowerCase();
      const tab = make("button", {type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id,
        on: {click: () => this.show(name)}}, name);
      this.buttons.set(name, tab);
      pane.element = byId(id);
      pane.element.setAttribute("role", "tabpanel");
      pane.element.setAttribute("aria-labelledby", `tab-${id}`);
      list.append(tab);
    }
    list.addEventListener("keydown", event => this.#walk(event));
    model.on(["data", "filter", "selection", "theme"], () => this.render());
    this.show(Object.keys(panes)[0]);
  }

  show(name) {
    this.shown = name;
    for (const [each, tab] of this.buttons) {
      tab.setAttribute("aria-selected", String(each === name));
      tab.tabIndex = each === name ? 0 : -1;
      this.panes[each].element.hidden = each !== name;
    }
    this.render();
  }

  render() {
    const pane = this.panes[this.shown], focused = pane.element.contains(document.activeElement);
    const index = focused ? indexOfFocus(pane.element) : -1, {scrollTop} = pane.element;
    pane.render(pane.element);
    pane.element.scrollTop = scrollTop;
    if (index >= 0) focusRow(pane.element, index);
    for (const [name, tab] of this.buttons) {
      const {count} = this.panes[name];
      tab.textContent = count ? `${name} (${count})` : name;
      tab.classList.toggle("alarm", name === "Errors" && count > 0);
    }
  }

  #walk(event) {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const names = [...this.buttons.keys()];
    this.show(names[(names.indexOf(this.shown) + by + names.length) % names.length]);
    this.buttons.get(this.shown).focus();
  }
}

// The row that has the focus. After a pane is rendered again, the row with the same number gets the focus.
function indexOfFocus(element) {
  return [...element.querySelectorAll("tbody tr:not(.group)")].indexOf(document.activeElement);
}

function focusRow(element, index) {
  const rows = element.querySelectorAll("tbody tr:not(.group)");
  rows[Math.min(index, rows.length - 1)]?.focus({preventScroll: true});
}
