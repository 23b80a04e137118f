from __future__ import annotations

import json
from typing import Any

import pytest

from tensord.vm.tracing.analysis.sums.timeline import to_chrome
from tensord.vm.tracing.analysis.trace import Trace

from .....each_case import each_case
from ..trace_programs import random_trace, record


def events(trace: Trace, **options) -> list[dict[str, Any]]:
    return json.loads(to_chrome(trace, **options))["traceEvents"]


def of(phase: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == phase]


@pytest.fixture
def trace():
    return Trace(
        [
            record(
                1, (7, "mut"), opcode="Transfer", op="", device="sim:0", stream="sim:0/h2d", ticks=(1, 4), nbytes=64,
                received=1_000, ready=2_000, dispatched=2_000, started=3_000, finished=8_000, location="a.py:1 in f",
            ),
            record(
                2, (7, "const"), edges=[(1, "RAW", 7)], device="sim:0", ticks=(2, 5),
                received=1_500, ready=8_500, dispatched=8_500, started=9_000, finished=9_500,
            ),
            record(3, status="SKIPPED", ticks=(3, 6), received=1_600, error="KernelError: no"),
        ],
        devices=["cpu:0", "sim:0", "sim:1"],
    )  # fmt: skip


def test_processes_are_devices_and_threads_streams(trace):
    names = {(event["name"], event["args"]["name"]) for event in of("M", events(trace))}
    assert names == {
        ("process_name", "cpu:0"),
        ("process_name", "sim:0"),
        ("process_name", "sim:1"),
        ("thread_name", "h2d"),
        ("thread_name", "compute"),
    }


def test_what_ran_is_a_slice_in_microseconds_from_the_first_event(trace):
    transfer, kernel = of("X", events(trace))
    assert (transfer["name"], transfer["ts"], transfer["dur"]) == ("Transfer", 2.0, 5.0)
    assert (kernel["name"], kernel["ts"], kernel["dur"]) == ("add", 8.0, 0.5)
    assert transfer["pid"] == kernel["pid"]
    assert transfer["tid"] != kernel["tid"]
    assert kernel["args"]["edges"] == ["#1 RAW of copy 7"]
    assert (kernel["args"]["waited_us"], kernel["args"]["queued_us"]) == (7.0, 0.5)
    assert transfer["args"]["location"] == "a.py:1 in f"


def test_what_did_not_run_is_a_mark(trace):
    (mark,) = of("i", events(trace))
    assert (mark["ts"], mark["args"]["status"], mark["args"]["error"]) == (0.6, "SKIPPED", "KernelError: no")


def test_what_still_runs_reaches_to_the_end():
    found = events(Trace([record(1, started=1_000), record(2, started=2_000, finished=5_000)]))
    assert [event["dur"] for event in of("X", found)] == [4.0, 3.0]


def test_what_still_runs_reaches_to_the_time_of_recording():
    live = record(1, status="DISPATCHED", stream="compute", started=1_000)
    (running,) = of("X", events(Trace([live], taken=8_000)))
    assert (running["dur"], running["args"]["status"]) == (7.0, "RUNNING")


def test_what_was_dispatched_but_has_not_started_is_a_mark_at_the_time_of_recording():
    live = record(1, status="DISPATCHED", stream="compute", received=1_000, ready=1_000, dispatched=1_000)
    (mark,) = of("i", events(Trace([live], taken=8_000)))
    assert mark["ts"] == 7.0
    (mark,) = of("i", events(Trace([live, record(2, ticks=(4, 5), started=2_000, finished=4_000)])))
    assert mark["ts"] == 3.0


def test_edges_are_arrows_from_inside_the_source_to_the_start_of_the_target(trace):
    found = events(trace)
    (begin,), (end,) = of("s", found), of("f", found)
    assert begin["id"] == end["id"]
    assert (begin["ts"], end["ts"], end["bp"]) == (6.999, 8.0, "e")
    assert begin["name"] == "RAW"


def test_arrows_are_limited(trace):
    assert of("s", events(trace, flows=0)) == []


def test_bytes_moved_add_up_per_stream(trace):
    second = trace.records[0]._replace(id=9, admitted=9, finished=9_000)
    counters = of("C", events(Trace([*trace.records, second])))
    assert [(event["name"], event["args"]["bytes"]) for event in counters] == [
        ("bytes moved, h2d", 64),
        ("bytes moved, h2d", 128),
    ]


@each_case("seed", range(5))
def test_every_record_of_a_random_trace_is_there(seed):
    trace = random_trace(seed)
    found = events(trace)
    assert len(of("X", found)) + len(of("i", found)) == len(trace)
    assert len(of("s", found)) == len(of("f", found))
    assert all(event["ts"] >= 0 for event in found if event["ph"] != "M")
    assert all(event["dur"] >= 0 for event in of("X", found))


def test_an_empty_trace():
    assert events(Trace([])) == []


class TestFormat:
    """Every event has the fields that the Trace Event Format asks of its phase, with their types, and no other."""

    at = {"pid": int, "tid": int, "ts": float}  # noqa: RUF012 - a table
    fields: dict[str, dict[str, Any]] = {  # noqa: RUF012
        "M": {"name": str, "pid": int, "args": dict},
        "X": {"name": str, "cat": str, "dur": float, "args": dict, **at},
        "i": {"name": str, "cat": str, "s": str, "args": dict, **at},
        "C": {"name": str, "args": dict, "pid": int, "ts": float},
        "s": {"name": str, "cat": str, "id": int, **at},
        "f": {"name": str, "cat": str, "id": int, "bp": str, **at},
        "b": {"name": str, "cat": str, "id": int, "args": dict, **at},
        "e": {"name": str, "cat": str, "id": int, **at},
    }
    optional: dict[str, set[str]] = {"M": {"tid"}, "C": {"tid"}}  # noqa: RUF012

    def check(self, event: dict[str, Any]) -> None:
        phase = event["ph"]
        wanted = self.fields[phase]
        assert wanted.keys() <= event.keys() <= wanted.keys() | {"ph"} | self.optional.get(phase, set()), event
        for name, kind in wanted.items():
            assert isinstance(event[name], (int, float) if kind is float else kind), event
            assert not isinstance(event[name], bool)
        if phase == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
        if phase == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if phase == "i":
            assert event["s"] in {"g", "p", "t"}
        if phase == "f":
            assert event["bp"] == "e"

    def whole(self, trace: Trace) -> dict[str, Any]:
        found = json.loads(to_chrome(trace), parse_constant=pytest.fail)
        assert set(found) == {"traceEvents", "displayTimeUnit", "otherData"}
        assert found["displayTimeUnit"] in {"ms", "ns"}
        for event in found["traceEvents"]:
            self.check(event)
        return found

    @each_case("seed", range(5))
    def test_every_event_of_a_random_trace(self, seed):
        found = self.whole(random_trace(seed))["traceEvents"]
        named = {(event["pid"], event["tid"]) for event in found if event["name"] == "thread_name"}
        assert {(event["pid"], event["tid"]) for event in of("X", found) + of("i", found)} <= named
        slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for event in of("X", found):
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        for event in of("s", found) + of("f", found):  # an arrow belongs to the slice around its end
            around = slices[event["pid"], event["tid"]]
            assert any(begin - 1e-6 <= event["ts"] <= end + 1e-6 for begin, end in around), event

    def test_every_event_of_a_machine(self, sim_session):
        import numpy as np

        with sim_session.span("outer"), sim_session.span("inner"):
            x = sim_session.asarray(np.ones((64, 64), np.float32), device="sim:0")
            (x @ x).numpy()
        found = self.whole(sim_session.trace())["traceEvents"]
        assert {"M", "X", "C", "b", "e"} <= {event["ph"] for event in found}
        (product,) = [event for event in of("X", found) if event["name"] == "matmul"]
        assert product["args"]["of"] == "(64, 64) x (64, 64) float32"
        assert product["args"]["span"] == "outer/inner"
        assert any(event["name"] == "memory in use" for event in of("C", found))


class TestSpans:
    def test_a_span_reaches_over_all_that_was_issued_in_it(self):
        inside: dict[str, Any] = {"span": ("epoch 1", "step 2")}
        records = [
            record(1, ticks=(1, 2), received=1_000, started=2_000, finished=3_000, span=("epoch 1",)),
            record(2, ticks=(3, 4), received=4_000, started=5_000, finished=9_000, **inside),
            record(3, ticks=(5, 6), received=10_000, started=11_000, finished=12_000),
        ]
        found = events(Trace(records))
        begins, ends = of("b", found), of("e", found)
        assert [(one["name"], one["args"]["path"], one["ts"]) for one in begins] == [
            ("epoch 1", "epoch 1", 0.0),
            ("step 2", "epoch 1/step 2", 3.0),
        ]
        assert [one["ts"] for one in ends] == [8.0, 8.0]
        assert [one["id"] for one in begins] == [one["id"] for one in ends]

    def test_what_the_machine_planned_in_a_span_is_in_the_span_of_the_session_that_caused_it(self):
        times: dict[str, Any] = {"received": 1_000, "started": 2_000, "finished": 3_000, "span": ("s",)}
        moved = record(2, ticks=(3, 4), session=0, caused_by=1, opcode="Transfer", **(times | {"finished": 9_000}))
        found = events(Trace([record(1, ticks=(1, 2), **times), moved]))
        assert [event["args"] for event in of("b", found)] == [{"path": "s", "session": 1}]
        assert [event["ts"] for event in of("e", found)] == [8.0]

    def test_a_span_with_live_instructions_reaches_to_the_time_of_recording(self):
        (end,) = of("e", events(Trace([record(1, received=1_000, span=("s",))], taken=9_000)))
        assert end["ts"] == 8.0
