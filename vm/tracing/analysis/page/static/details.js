// The panel about the selected instruction: why it waited, its edges with their reasons, and where its tensors are.

import {button, byId, make, put} from "./dom.js";
import {bytes, count, duration} from "./format.js";
import {phases, titleOf} from "./store.js";
import {streamOf} from "./describe.js";

const MAX_ITEMS = 40;  // the most items in a list

export class Details {
  constructor(model, source, {reveal, centre}) {
    Object.assign(this, {model, source, reveal, centre, told: new Map()});
    this.element = byId("details");
    model.on(["data", "selection"], () => this.render());
  }

  render() {
    const record = this.model.selection;
    if (!record) {
      this.shown = null;
      if (this.pinned) return;
      put(this.element, make("p", {class: "note"},
        "Click an instruction to see why it waited, its edges, and where its tensors are. ? lists the keys."));
      return;
    }
    this.pinned = null;
    if (this.shown === record) return;  // records are replaced and never changed
    this.shown = record;
    put(this.element,
      make("h2", {}, titleOf(record)),
      record.critical ? make("p", {class: "critical-note"}, "on the critical path") : null,
      record.error ? make("p", {class: "error"}, record.error) : null,
      this.#facts(record),
      this.#actions(record),
      make("h3", {}, "Why it waited"),
      make("pre", {class: "why", tabindex: 0, "aria-label": "why it waited"}, this.#why(record)),
      this.#edges("Depends on", record.edges.map(({source, ...edge}) => ({id: source, ...edge}))),
      this.#edges("Needed by", this.model.store.targets(record.id).map(({target, ...edge}) => ({id: target, ...edge}))),
      this.#tensors(record));
    byId("said").textContent = `selected ${titleOf(record)}, ${record.status}`;
  }

  // Show a tensor; a live daemon is asked where it is.
  tensor(one) {
    this.model.select(null);
    const facts = where => list([["held by", one.holder], ["of", one.of], ["bytes", bytes(one.bytes)], ["where", where],
      ["session", one.session ? String(one.session) : ""], ["made at", one.location]]);
    const show = where => put(this.element, make("h2", {}, one.name || `a tensor ${one.of}`), facts(where),
      make("div", {class: "bar"}, this.#onlyLine(one)));
    this.pinned = () => show(one.where.join(", ") || "no device");
    this.pinned();
    if (this.source.asks && this.model.store.about.live) {
      const pinned = this.pinned, say = text => { if (this.pinned === pinned) show(text); };
      this.source.tensor(one).then(({residency}) => say(Object.entries(residency)
        .map(([device, state]) => `${device} (${state})`).join(", ")), error => say(error.message));
    }
  }

  #facts(record) {
    const {blocked, queued, ran} = phases(record, this.model.store.end);
    const caused = record.causedBy !== record.session ? `, for session ${record.causedBy}` : "";
    const facts = [
      ["of", record.of], ["status", record.status], ["where", streamOf(record)], ["kind", record.kind],
      ["blocked", blocked === null ? "" : duration(blocked)], ["queued", queued === null ? "" : duration(queued)],
      ["ran", ran === null ? "" : duration(ran)], ["bytes", record.bytes ? bytes(record.bytes) : ""],
      ["session", `${record.session}${caused}`], ["span", record.span], ["line", record.location],
    ];
    return list(facts);
  }

  #actions(record) {
    return make("div", {class: "bar"},
      button("Zoom to it", () => this.model.show(record)),
      button("DAG around it", () => this.centre()),
      this.#onlyLine(record),
      record.span ? button("Only its span", () => this.model.refine({span: record.span})) : null);
  }

  #onlyLine({location}) {
    return location ? button("Only its line", () => this.model.refine({line: location})) : null;
  }

  // Why the instruction waited: the text in the view, or the answer of a live daemon.
  #why(record) {
    const known = this.model.store.why.get(record.id) ?? this.told.get(record);
    if (known !== undefined) return known;
    if (!this.source.asks) return this.#short(record);
    this.source.why(record.id).then(text => this.#tell(record, text), error => this.#tell(record, `${error.message}`));
    return "asking the daemon\u2026";
  }

  #tell(record, text) {
    if (this.model.selection?.id !== record.id) return;
    this.told = new Map([[record, text]]);  // only the shown instruction is kept
    const element = this.element.querySelector("pre.why");
    if (element) element.textContent = text;
  }

  // The explanation that the page can derive by itself.
  #short(record) {
    const {store} = this.model, ended = source => store.records.get(source)?.finished ?? null;
    const last = record.edges.filter(edge => ended(edge.source) !== null && ended(edge.source) > record.received)
      .sort((one, other) => ended(other.source) - ended(one.source))[0];
    if (!last) return "It did not wait for an instruction that is shown here.\n`tensord trace why` says more.";
    const source = store.records.get(last.source);
    return `${last.reason}: ${duration(source.finished - record.received)} for ${titleOf(source)}, which ended last ` +
      "of the instructions on which it depends.\n`tensord trace why` says more.";
  }

  #edges(title, edges) {
    if (!edges.length) return null;
    const items = edges.slice(0, MAX_ITEMS).map(({id, reason, mark}) => {
      const other = this.model.store.records.get(id);
      return make("li", {}, make("span", {class: `reason-of ${mark}`}, `${reason} (${mark})`), " ", other ?
        button(titleOf(other), () => { this.model.select(id); this.reveal(other); }, {class: "link"}) :
        make("span", {class: "note"}, `#${id}, no longer known`));
    });
    const more = edges.length - items.length;
    return make("section", {}, make("h3", {}, `${title} (${count(edges.length)})`), make("ul", {}, ...items),
      more > 0 ? make("p", {class: "note"}, `and ${count(more)} more`) : null);
  }

  // The tensors that the instruction's session made at the instruction's line.
  #tensors(record) {
    const found = record.location ? this.model.store.tensors.filter(one => one.location === record.location &&
      (!one.session || one.session === record.causedBy || one.session === record.session)) : [];
    if (!found.length) return null;
    const items = found.slice(0, MAX_ITEMS).map(one =>
      make("li", {}, `${one.name || one.of}: ${bytes(one.bytes)} on ${one.where.join(", ") || "no device"}`));
    return make("section", {}, make("h3", {}, "Tensors made at its line"), make("ul", {}, ...items));
  }
}

// A list of names with values; empty values are left out.
function list(facts) {
  const said = facts.filter(([, value]) => value);
  return make("dl", {}, ...said.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}
