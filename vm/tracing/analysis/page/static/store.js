// The data of the page: the views that have arrived, joined, within a bounded window of time.
//
// A record is replaced, never changed, so a copy of the store does not change. Only records refer to texts, so texts are
// freed with them.
const WINDOW = 60e9;  // how much time of a live daemon is kept, in nanoseconds
const MAX_RECORDS = 200_000;  // the most records that are kept
// After so many nanoseconds, an instruction that a live daemon no longer mentions counts as finished.
const UNSEEN = 10e9;

export class Store {
  constructor() {
    this.records = new Map();
    this.about = {source: "", live: false, records: 0, dropped: 0, devices: [], sampled: {shown: 0, of: 0}};
    this.memory = [];
    this.tensors = [];
    this.sessions = [];
    this.advice = [];
    this.why = new Map();
    this.begin = 0;
    this.end = 1;
    this.streams = [];
  }

  add(view) {
    if (view.version !== 1) throw new Error(`this page reads views of version 1, not ${view.version}`);
    if (view.about.run !== this.about.run && this.about.run !== undefined) this.#restart();
    this.about = {...this.about, rate: rateOf(view.about, this.about), ...view.about};
    this.#addRecords(view);
    this.#addMemory(view.memory ?? []);
    this.tensors = view.tensors ?? this.tensors;
    this.sessions = view.sessions ?? this.sessions;
    if (view.advice?.length) this.advice = view.advice;
    for (const [id, text] of Object.entries(view.why ?? {})) this.why.set(Number(id), text);
    this.#forget();
    this.#measure();
    this.targetsOf = this.stepsTo = null;
  }

  // The daemon was restarted: its ids, sessions and times begin anew.
  #restart() {
    this.records.clear();
    this.why.clear();
    Object.assign(this, {memory: [], tensors: [], sessions: [], advice: []});
  }

  // A copy of the store, which later views do not change.
  still() {
    const copy = Object.assign(new Store(), this);
    copy.records = new Map(this.records);
    copy.why = new Map(this.why);
    return copy;
  }

  #addRecords({records, texts, streams, edges}) {
    const fresh = new Map();
    for (const row of records) {
      const record = recordOf(row, texts, streams);
      record.seen = this.about.taken;
      fresh.set(record.id, record);
    }
    for (const [target, source, reason, mark] of edges ?? []) {
      fresh.get(target)?.edges.push({source, reason: texts[reason] ?? "", mark: texts[mark] ?? ""});
    }
    for (const [id, record] of fresh) {
      this.records.delete(id);  // keeps the oldest records first
      this.records.set(id, record);
    }
  }

  #addMemory(devices) {
    const known = new Map(this.memory.map(one => [one.device, one]));
    for (const {device, limit, curve} of devices) {
      const before = known.get(device)?.curve ?? [];
      const last = before.length ? before[before.length - 1][0] : -Infinity;
      known.set(device, {device, limit, curve: [...before, ...curve.filter(([time]) => time > last)]});
    }
    this.memory = [...known.values()];
  }

  #forget() {
    const ids = this.records.keys();
    while (this.records.size > MAX_RECORDS) this.records.delete(ids.next().value);
    if (!this.about.live) return;
    let newest = 0;
    for (const record of this.records.values()) newest = Math.max(newest, lastOf(record));
    // If a view has all live instructions, an instruction that is not in it has ended.
    const {unfinished: {shown, of} = {}, taken} = this.about, all = of !== undefined && shown === of;
    const unseen = all ? taken : taken - UNSEEN;
    const oldest = newest - WINDOW;
    for (const [id, record] of this.records) {
      const gone = record.finished === null ? record.seen < unseen : record.finished < oldest;
      if (gone) this.records.delete(id);
    }
    for (const id of this.why.keys()) if (!this.records.has(id)) this.why.delete(id);
    this.memory = this.memory.map(({device, limit, curve}) => {
      const first = curve.findIndex(([time]) => time >= oldest);
      return {device, limit, curve: curve.slice(first < 0 ? -1 : Math.max(0, first - 1))};
    });
  }

  #measure() {
    let begin = Infinity, end = -Infinity;
    const streams = new Map();
    for (const record of this.records.values()) {
      begin = Math.min(begin, firstOf(record));
      end = Math.max(end, lastOf(record));
      streams.set(record.device + "\0" + record.stream, [record.device, record.stream]);
    }
    for (const {curve} of this.memory) {
      if (curve.length) end = Math.max(end, curve[curve.length - 1][0]);
      if (curve.length) begin = Math.min(begin, curve[0][0]);
    }
    this.begin = Number.isFinite(begin) ? begin : 0;
    this.end = Math.max(Number.isFinite(end) ? end : 1, this.about.taken || 0, this.begin + 1);
    this.streams = [...streams.values()].sort(byStream);
  }

  // The edges to instructions that depend on this one: [{target, reason, mark}].
  targets(id) {
    if (!this.targetsOf) {
      this.targetsOf = new Map();
      for (const record of this.records.values()) {
        for (const {source, reason, mark} of record.edges) {
          const found = this.targetsOf.get(source);
          if (found) found.push({target: record.id, reason, mark});
          else this.targetsOf.set(source, [{target: record.id, reason, mark}]);
        }
      }
    }
    return this.targetsOf.get(id) ?? [];
  }

  // Whether the critical path goes from `source` directly to `target`.
  isStep(source, target) {
    if (!this.stepsTo) {
      const path = [...this.records.values()].filter(record => record.critical)
        .sort((one, other) => (one.finished ?? Infinity) - (other.finished ?? Infinity) || one.id - other.id);
      this.stepsTo = new Map(path.slice(1).map((record, index) => [record.id, path[index].id]));
    }
    return this.stepsTo.get(target) === source;
  }
}

// How many instructions of a live daemon finish per second: `shown` of them were sent, `of` is all.
function rateOf({sampled, taken}, {taken: before}) {
  const seconds = (taken - before) / 1e9;
  return seconds > 0 ? {shown: Math.round(sampled.shown / seconds), of: Math.round(sampled.of / seconds)} : null;
}

// Make a record from a row, with texts in place of their numbers.
function recordOf(row, texts, streams) {
  const [id, session, causedBy, streamIndex, kind, name, of, status, received, ready, dispatched, started, finished,
    location, span, bytes, error, critical] = row;
  const [device, stream] = streams[streamIndex] ?? ["", ""];
  return {id, session, causedBy, device, stream, kind: texts[kind], name: texts[name], of: texts[of],
    status: texts[status], received, ready, dispatched, started, finished, location: texts[location], span: texts[span],
    bytes, error: texts[error], critical, waits: started === null, seen: 0, edges: []};
}

function firstOf(record) {
  return record.received ?? record.ready ?? record.started ?? record.finished ?? Infinity;
}

export function lastOf(record) {
  return record.finished ?? record.started ?? record.ready ?? record.received ?? -Infinity;
}

const LIVE = new Set(["WAITING", "READY", "DOOMED", "DISPATCHED", "EXECUTED", "RUNNING"]);
const BROKEN = new Set(["FAILED", "SKIPPED", "CANCELLED"]);

export function isLive({status}) {
  return LIVE.has(statusOf(status));
}

export function isBroken({status}) {
  return BROKEN.has(statusOf(status));
}

// The status without an addition: `DONE` for `DONE, compiling`.
function statusOf(status) {
  return status.split(",", 1)[0];
}

function byStream([device, stream], [otherDevice, otherStream]) {
  return natural(device, otherDevice) || natural(stream, otherStream);
}

// The order of names by their numbers: `sim:2` comes before `sim:10`.
export function natural(one, other) {
  return one.localeCompare(other, "en", {numeric: true});
}

export function titleOf(record) {
  return `#${record.id} ${record.name || record.kind}`;
}

// The lengths of a record's phases in nanoseconds: an unfinished phase counts until `end`; null if it was not reached.
export function phases(record, end) {
  const live = isLive(record);
  const spent = (from, to) => from === null || (to === null && !live) ? null : Math.max(0, (to ?? end) - from);
  return {
    blocked: spent(record.received, record.ready),
    queued: spent(record.ready, record.started),
    ran: spent(record.started, record.finished),
  };
}
