// What costs time and need not, and what to do about it.

import {button, make, put} from "./dom.js";
import {duration} from "./format.js";

export class Advice {
  asked = null;  // advice on a live daemon, or why there is none
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

  // A live daemon is asked when the pane is opened, and on request: advice is about all that its ring holds.
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
    if (!this.count) element.append(make("p", {class: "note"}, "nothing that costs time and need not was found"));
  }

  #line(line) {
    return make("li", {}, button(line, () => this.model.refine({line}), {class: "link"}));
  }
}
