// The pane with tensors, grouped by their holders.

import {put} from "./dom.js";
import {bytes, plural} from "./format.js";
import {table} from "./tables.js";

export class Tensors {
  constructor(model, show) {
    Object.assign(this, {model, show});
  }

  get count() {
    return this.model.store.tensors.length;
  }

  render(element) {
    const {filter, store} = this.model, {session} = filter;
    const groups = new Map();
    for (const tensor of store.tensors) {
      if (session !== null && tensor.session !== session) continue;
      const holder = tensor.holder || "no holder";
      groups.set(holder, [...groups.get(holder) ?? [], tensor]);
    }
    const sumOf = tensors => tensors.reduce((sum, one) => sum + one.bytes, 0);
    const sums = [...groups].map(([holder, tensors]) => [holder, tensors, sumOf(tensors)]);
    sums.sort(([, , one], [, , other]) => other - one);
    const rows = sums.flatMap(([holder, tensors, sum]) => [
      {group: `${holder}: ${plural(tensors.length, "tensor")}, ${bytes(sum)}`},
      ...[...tensors].sort((one, other) => other.bytes - one.bytes)]);
    put(element, table("Tensors by what holds them, the largest first. Choose a tensor to see where it is.", [
      ["name", one => one.name || "\u2013"],
      ["of", one => one.of],
      ["bytes", one => bytes(one.bytes), "number"],
      ["where", one => one.where.join(", ")],
      ["session", one => one.session ? String(one.session) : "", "number"],
      ["made at", one => one.location],
    ], rows, {choose: one => this.show(one), most: 1000}));
  }
}
