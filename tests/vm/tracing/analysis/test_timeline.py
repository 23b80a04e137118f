from __future__ import annotations

import json
from typing import Any

import pytest

from tensord.interpreter.opcodes import Opcode
from tensord.vm.tracing.analysis.timeline import to_chrome
from tensord.vm.tracing.analysis.trace import Trace

from .trace_programs import random_trace, record


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


def test_categories_are_words_for_people():
    opcodes = [(number, opcode) for number, opcode in enumerate(Opcode, 1)]
    found = of("X", events(Trace([record(n, opcode=o.value, started=n, finished=n + 1) for n, o in opcodes])))
    assert {event["cat"] for event in found} == {"kernel", "transfer", "copy", "access", "release", "barrier", "wait"}


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


@pytest.mark.parametrize("seed", range(5))
def test_every_record_of_a_random_trace_is_there(seed):
    trace = random_trace(seed)
    found = events(trace)
    assert len(of("X", found)) + len(of("i", found)) == len(trace)
    assert len(of("s", found)) == len(of("f", found))
    assert all(event["ts"] >= 0 for event in found if event["ph"] != "M")
    assert all(event["dur"] >= 0 for event in of("X", found))


def test_an_empty_trace():
    assert events(Trace([])) == []
