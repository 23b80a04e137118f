// The pane with avoidable costs, and how to avoid them.

import {button, make, put} from "./dom.js";
import {duration} from "./format.js";

export class Advice {
  asked = null;  // advice about a live daemon; `trouble`: why it could not be had
  trouble = "";

  constructor(model, source) {
    Object.assign(this, {model, source});
  }

  get count() {
    return this.found.length;
  }

  get found() {
    return this.asked ?? this.model.store.advice;
  }

  // Ask a live daemon, when the pane is opened and on request. The advice is about everything in the daemon's ring.
  async ask(element) {
    this.asked = this.found;
    try {
      [this.asked, this.trouble] = [await this.source().advice(), ""];
    } catch (error) {
      this.trouble = error.message;
    }
    this.render(element);
  }

  render(element) {
    const live = this.model.store.about.live && this.source().asks;
    if (live && this.asked === null) this.ask(element);
    put(element, live ? make("div", {class: "bar"}, button("Ask again", () => this.ask(element)), this.trouble) : null,
      ...this.found.map(one => make("article", {class: "advice"},
      make("h3", {}, make("span", {class: "cost"}, duration(one.cost * 1e6)), " ", one.title ?? one.rule),
      make("p", {}, one.what),
      make("p", {}, make("strong", {}, "Do: "), one.do),
      make("ul", {}, ...one.lines.map(line => this.#line(line))))));
    if (!this.count) element.append(make("p", {class: "note"}, "no avoidable costs were found"));
  }

  #line(line) {
    return make("li", {}, button(line, () => this.model.refine({line}), {class: "link"}));
  }
}
