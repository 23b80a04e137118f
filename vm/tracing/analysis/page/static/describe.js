// Describes an instruction in a few lines of text.

import {bytes, duration} from "./format.js";
import {phases, titleOf} from "./store.js";

export function describe(record, until) {
  const {blocked, queued, ran} = phases(record, until);
  const time = (name, ns) => ns === null ? "" : `${name} ${duration(ns)}`;
  return [
    `${titleOf(record)} ${record.of}`.trim(),
    [record.status, streamOf(record), record.bytes ? bytes(record.bytes) : ""].filter(Boolean).join("  "),
    [time("blocked", blocked), time("queued", queued), time("ran", ran)].filter(Boolean).join(", "),
    record.location,
    record.span && `span ${record.span}`,
    record.error,
    record.critical ? "on the critical path" : "",
  ].filter(Boolean);
}

export function streamOf(record) {
  return record.stream && !record.stream.startsWith(record.device) ? `${record.device}/${record.stream}`
    : record.stream || record.device;
}
