"""Writes a trace as a timeline in Chrome's Trace Event Format, which Perfetto and chrome://tracing open.

The timeline has one process per device, one thread per stream, one slice per instruction that ran, a mark for each
that did not, arrows for edges, counters of the bytes that each stream moved and of each device's memory, and a track
per span. The slice of a timed run contains a slice for each of its calls. The slice of an instruction that was
running when the trace was taken ends at that time; an instruction that was waiting has its mark there. The slice of
an op that was launched at admission has the estimated times on the device (`device_times`). Times are in
microseconds from the first event.

The format: "Trace Event Format", Google,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from .....interpreter.opcodes import traits_of
from ...flat import COMPILING
from ...record import EdgeRecord, Record, times
from ..inside.insides import Insides, TimedCall, call_name
from ..recorded.derived import blocked, operands_text, operations, queued, ran, rate, touched
from ..recorded.device_times import on_devices
from ..recorded.records import Records
from ..recorded.stream_order import is_live
from ..recorded.text import compiles, edge_name, status, stream_name
from .memory import memory

Event = dict[str, object]

# Arrows slow viewers down far more than slices do.
FLOWS = 20_000
_NOWHERE = "(not dispatched)"


def to_chrome(trace: Records, *, flows: int = FLOWS) -> str:
    """The timeline as JSON. At most `flows` edges become arrows.

    A slice's name is only the op, and everything else is in its arguments. So Perfetto and chrome://tracing give all
    calls of an op the same colour and add them up, whatever their shapes. speedscope appends the arguments to the
    name, so each call is a separate frame there, which spoils its sums and colours. That is accepted: the viewers
    for which the format is made show lines, shapes and edges only as arguments. `trace stats` has sums.
    """
    events = _Timeline(trace).events(flows)
    note = {"tool": "tensord", "records": len(trace), "dropped": trace.dropped}
    return json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms", "otherData": note}) + "\n"


class _Timeline:
    def __init__(self, trace: Records) -> None:
        self._trace = trace = on_devices(trace)
        stamps = (time for record in trace.records for time in times(record) if time)
        self._insides = Insides(trace)
        self._end = trace.until
        self._origin = min(stamps, default=self._end)
        devices = {*trace.devices, *(record.device for record in trace.records)}
        self._processes = {name: number for number, name in enumerate(sorted(devices), 1)}
        self._threads: dict[tuple[str, str], int] = {}
        for device, stream in sorted({(record.device, record.stream) for record in trace.records}):
            self._threads[device, stream] = len(self._threads) + 1

    def events(self, flows: int) -> Iterator[Event]:
        yield from self._names()
        for record in self._trace.records:
            yield self._slice(record) if record.started else self._mark(record)
            yield from self._calls(record)
        yield from self._counters()
        yield from self._memory()
        yield from self._spans()
        for number, (source, target, reasons) in enumerate(islice(self._edges(), flows), 1):
            yield from self._arrow(number, source, target, reasons)

    def _names(self) -> Iterator[Event]:
        for device, number in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": device}}
        for (device, stream), number in self._threads.items():
            args = {"name": stream_name(device, stream) or _NOWHERE}
            yield {"ph": "M", "name": "thread_name", "pid": self._processes[device], "tid": number, "args": args}

    def _slice(self, record: Record) -> Event:
        ns = (record.finished or self._end) - record.started
        return {"ph": "X", **self._base(record, record.started), "dur": max(ns, 0) / 1000, "args": _args(record)}

    def _mark(self, record: Record) -> Event:
        """A mark, at the last time of a skipped or cancelled instruction, or at the time of the trace for a live
        one."""
        last = 0 if is_live(record) else max(times(record))
        return {"ph": "i", "s": "t", **self._base(record, last or self._end), "args": _args(record)}

    def _calls(self, record: Record) -> Iterator[Event]:
        """A slice for each call inside a timed run. Viewers draw these below the slice of the run."""
        for timed in self._insides.calls(record) if record.stamps else ():
            base = {"cat": "call", **self._at(record, timed.started)}
            steps = [f"#{record.id}/{n}" for n in timed.call.steps]
            args = {"steps": steps, **self._about(record, timed)}
            ns = timed.finished - timed.started
            yield {"ph": "X", "name": call_name(timed.call), **base, "dur": max(ns, 0) / 1000, "args": args}

    def _about(self, record: Record, timed: TimedCall) -> Event:
        """The ops and lines of a call's steps, as arguments."""
        program = None if record.part is None else self._insides.program(record.part.routine)
        if program is None:
            return {}
        steps = [program.steps[n] for n in timed.call.steps if n < len(program.steps)]
        return {"ops": [step.op for step in steps], "locations": list(dict.fromkeys(step.location for step in steps))}

    def _base(self, record: Record, time: int) -> Event:
        category = traits_of(record.opcode).category
        if compiles(record):
            category = f"{category},{COMPILING}"
        return {"name": record.op or record.opcode, "cat": category, **self._at(record, time)}

    def _at(self, record: Record, time: int) -> Event:
        thread = self._threads[record.device, record.stream]
        return {"pid": self._processes[record.device], "tid": thread, "ts": (time - self._origin) / 1000}

    def _counters(self) -> Iterator[Event]:
        moved: dict[tuple[str, str], int] = {}
        movers = [record for record in self._trace.records if record.nbytes and record.finished]
        for record in sorted(movers, key=lambda record: record.finished):
            key = (record.device, record.stream)
            moved[key] = moved.get(key, 0) + record.nbytes
            name = f"bytes moved, {stream_name(*key)}"
            yield {"ph": "C", "name": name, **self._at(record, record.finished), "args": {"bytes": moved[key]}}

    def _memory(self) -> Iterator[Event]:
        """A counter of the bytes in use for each device."""
        for device in memory(self._trace):
            for time, used in device.curve:
                at = {"pid": self._processes[device.device], "ts": max(0, time - self._origin) / 1000}
                yield {"ph": "C", "name": "memory in use", **at, "args": {"bytes": used}}

    def _spans(self) -> Iterator[Event]:
        """The spans, nested as in the program, in a separate process."""
        extents = span_extents(self._trace, self._end)
        if extents:
            process = len(self._processes) + 1
            yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "spans"}}
            for number, ((session, path), (begin, end)) in enumerate(extents.items(), 1):
                track = {"cat": "span", "name": path[-1], "id": number, "pid": process, "tid": session}
                args = {"path": "/".join(path), "session": session}
                yield {"ph": "b", **track, "ts": (begin - self._origin) / 1000, "args": args}
                yield {"ph": "e", **track, "ts": (end - self._origin) / 1000}

    def _edges(self) -> Iterator[tuple[Record, Record, str]]:
        """The edges between instructions that both ran, as source, target and reasons."""
        for target in self._trace.records:
            reasons: dict[int, dict[str, None]] = {}
            for edge in target.edges if target.started else ():
                reasons.setdefault(edge.source, {})[edge.reason] = None
            for name, several in reasons.items():
                source = self._trace.find(name)
                if source is not None and source.started and source.finished:
                    yield source, target, ", ".join(several)

    def _arrow(self, number: int, source: Record, target: Record, reasons: str) -> Iterator[Event]:
        flow = {"name": reasons, "cat": "edge", "id": number}
        # An arrow belongs to the slice that contains its time, and a slice does not contain its end.
        leaves = max(source.started, source.finished - 1)
        yield {"ph": "s", **flow, **self._at(source, leaves)}
        yield {"ph": "f", "bp": "e", **flow, **self._at(target, target.started)}


def span_extents(trace: Records, until: int) -> dict[tuple[int, tuple[str, ...]], tuple[int, int]]:
    """(session, path of a span) -> the first receipt and the last end of instructions issued in the span."""
    extents: dict[tuple[int, tuple[str, ...]], tuple[int, int]] = {}
    for record in trace.records:
        stamps = [time for time in times(record) if time] or [until]
        begin, end = min(stamps), until if is_live(record) else max(stamps)
        for depth in range(len(record.span)):
            key = (record.caused_by, record.span[: depth + 1])
            before = extents.get(key, (begin, end))
            extents[key] = (min(before[0], begin), max(before[1], end))
    return extents


def _args(record: Record) -> Event:
    return {
        "id": record.id,
        "session": record.session,
        "caused_by": record.caused_by,
        "status": status(record),
        "location": record.location,
        "of": operands_text(record),
        "work": record.work,
        "touched_bytes": touched(record),
        "gb_per_s": rate(touched(record), ran(record)),
        "gflop_per_s": rate(operations(record), ran(record)),
        "span": "/".join(record.span),
        "operands": [f"{operand.kind} {operand.copy} v{operand.version}" for operand in record.operands],
        "held": record.held,
        "edges": [_edge_text(edge) for edge in record.edges],
        "waited_us": blocked(record) / 1000,
        "queued_us": queued(record) / 1000,
        "bytes": record.nbytes,
        "error": record.error,
    }


def _edge_text(edge: EdgeRecord) -> str:
    return f"#{edge.source} {edge_name(edge.reason, edge.copy)}" + (" (elided)" if edge.elided else "")
