// What the page knows: the views that came, added up within a bounded window.
//
// A record is replaced and never changed, so that a copy of the store is a still. Texts are kept by the records alone,
// and go with them.

const WINDOW = 60e9;  // nanoseconds of a live daemon that are kept
const MOST = 200_000;  // records that are kept
const UNSEEN = 10e9;  // nanoseconds after which what a live daemon no longer mentions is taken for finished

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

  // Another daemon is there, whose ids, sessions and times begin anew.
  #restart() {
    this.records.clear();
    this.why.clear();
    Object.assign(this, {memory: [], tensors: [], sessions: [], advice: []});
  }

  // A still of the store, which further views do not change.
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
      this.records.delete(id);  // so that the oldest stand first
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
    while (this.records.size > MOST) this.records.delete(ids.next().value);
    if (!this.about.live) return;
    let newest = 0;
    for (const record of this.records.values()) newest = Math.max(newest, lastOf(record));
    // A view has all that is live, if it can: what it lacks has ended unseen.
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

  // Does the critical path go from the one right to the other?
  isStep(source, target) {
    if (!this.stepsTo) {
      const path = [...this.records.values()].filter(record => record.critical)
        .sort((one, other) => (one.finished ?? Infinity) - (other.finished ?? Infinity) || one.id - other.id);
      this.stepsTo = new Map(path.slice(1).map((record, place) => [record.id, path[place].id]));
    }
    return this.stepsTo.get(target) === source;
  }
}

// Finished instructions a second, of a live daemon: those that came, and all.
function rateOf({sampled, taken}, {taken: before}) {
  const seconds = (taken - before) / 1e9;
  return seconds > 0 ? {shown: Math.round(sampled.shown / seconds), of: Math.round(sampled.of / seconds)} : null;
}

// A record of a row, with texts in the place of their numbers.
function recordOf(row, texts, streams) {
  const [id, session, causedBy, place, kind, name, of, status, received, ready, dispatched, started, finished, location,
    span, bytes, error, critical] = row;
  const [device, stream] = streams[place] ?? ["", ""];
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

// Without what is appended to it, as in `DONE, compiling`.
function statusOf(status) {
  return status.split(",", 1)[0];
}

function byStream([device, stream], [otherDevice, otherStream]) {
  return natural(device, otherDevice) || natural(stream, otherStream);
}

// `sim:2` stands before `sim:10`.
export function natural(one, other) {
  return one.localeCompare(other, "en", {numeric: true});
}

export function titleOf(record) {
  return `#${record.id} ${record.name || record.kind}`;
}

// Nanoseconds of its phases, of an unfinished one until `end`; null for one that it has not reached.
export function phases(record, end) {
  const live = isLive(record);
  const spent = (from, to) => from === null || (to === null && !live) ? null : Math.max(0, (to ?? end) - from);
  return {
    blocked: spent(record.received, record.ready),
    queued: spent(record.ready, record.started),
    ran: spent(record.started, record.finished),
  };
}
