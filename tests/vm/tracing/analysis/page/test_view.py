"""The document that the page shows."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pytest

import tensord as td
from tensord.vm.tracing.analysis.page import sums, view
from tensord.vm.tracing.analysis.page.view import DaemonState, live_view, view_of
from tensord.vm.tracing.analysis.recorded.records import Memory
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import Holding, MetaRecord

from .....each_case import each_case
from ..trace_programs import random_trace, record

FIELDS: Final = (
    *("id", "session", "caused_by", "stream", "kind", "name", "of", "status"),
    *("received", "ready", "dispatched", "started", "finished"),
    *("location", "span", "bytes", "error", "critical"),
)
TEXTS: Final = {"kind", "name", "of", "status", "location", "span", "error"}


def rows(document: Any) -> list[dict[str, Any]]:
    """The records of a document, by the names of their fields, with their texts and streams."""
    found = []
    for row in document["records"]:
        fields: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
        fields |= {name: document["texts"][fields[name]] for name in TEXTS}
        found.append(fields | {"stream": document["streams"][fields["stream"]]})
    return found


def edges(document: Any) -> set[tuple[int, int, str, str]]:
    texts = document["texts"]
    return {(target, source, texts[reason], texts[mark]) for target, source, reason, mark in document["edges"]}


def ran(number: int, begin: int, end: int, *operands: tuple[int, str], **fields: Any):
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    return record(number, *operands, ticks=(2 * number, 2 * number + 1), **(stamps | fields))


def test_a_record_is_a_row_that_says_what_it_was_in_the_tables():
    float32 = MetaRecord((2, 2), "float32")
    one = ran(
        7,
        1_000,
        1_500,
        stream="cpu:0/compute0",
        location="train.py:9 in step",
        span=("epoch 1", "step 2"),
        error="KernelError: no",
        status="FAILED",
        inputs=(float32,),
        outputs=(float32,),
        caused_by=3,
    )
    document: Any = view_of(Trace([one], taken=2_000), "run.trace")
    times = {"received": 0, "ready": 0, "dispatched": 0, "started": 0, "finished": 500}
    assert rows(document) == [
        {
            "id": 7,
            "session": 1,
            "caused_by": 3,
            "stream": ["cpu:0", "compute0"],
            "kind": "kernel",
            "name": "add",
            "of": "(2, 2) float32",
            "status": "FAILED",
            **times,
            "location": "train.py:9 in step",
            "span": "epoch 1/step 2",
            "bytes": 32,
            "error": "KernelError: no",
            "critical": 1,
        }
    ]
    about = document["about"]
    assert about["taken"] == 1_000
    assert about["sampled"] == {"shown": 1, "of": 1}
    assert not about["live"]


def test_a_stage_that_was_not_reached_has_no_time():
    waits = record(2, received=500)
    (row,) = rows(view_of(Trace([waits], taken=900), ""))
    assert [row[name] for name in ("received", "ready", "dispatched", "started", "finished")] == [0, *[None] * 4]


@each_case(
    ("fields", "kind"),
    [
        ({}, "kernel"),
        ({"opcode": "RunRoutine"}, "kernel"),
        ({"opcode": "Transfer", "op": "h2d cpu:0->sim:0"}, "transfer"),
        ({"opcode": "Transfer", "op": "evict sim:0->cpu:0"}, "eviction"),
        ({"opcode": "Transfer", "op": "return cpu:0->sim:0"}, "eviction"),
        ({"opcode": "MergeChunk"}, "collective"),
        ({"opcode": "AccessBlobByCallback", "op": "fetch"}, "access"),
        ({"opcode": "ReleaseTensor"}, "release"),
        ({"opcode": "Barrier"}, "barrier"),
        ({"opcode": "Frobnicate"}, "other"),
    ],
    ids=[
        "an op",
        "a run of a routine",
        "a transfer",
        "an eviction",
        "the way back of what was evicted",
        "a step of a collective",
        "a value that is read",
        "a release",
        "a barrier",
        "an opcode of another version",
    ],
)
def test_a_record_has_a_kind(fields: dict[str, Any], kind: str):
    (row,) = rows(view_of(Trace([ran(1, 10, 20, **fields)]), ""))
    assert row["kind"] == kind


def test_edges_have_their_reasons_and_marks():
    first, second = ran(1, 10, 20, (1, "mut")), ran(2, 20, 30, (1, "const"), edges=[(1, "RAW", 1)])
    later = ran(3, 90, 95, (1, "const"))
    document = view_of(Trace([first, second._replace(admitted=2), later], taken=100), "")
    assert edges(document) == {(2, 1, "RAW", "waited"), (3, 1, "RAW", "met")}


@pytest.mark.parametrize("seed", range(8))
def test_it_has_the_graph_and_the_explanations_of_the_trace(seed: int):
    trace = random_trace(seed, steps=80)
    document: Any = view_of(trace, "")
    graph = trace.graph()
    assert edges(document) == {(e.target, e.source, e.reason, e.mark.value) for e in graph.edges}
    assert {id_: trace.why(int(id_), depth=sums.DEPTH) for id_ in document["why"]} == document["why"]
    assert json.loads(json.dumps(document))["records"] == document["records"]


def test_a_larger_trace_is_shown_from_its_newest_records_on(monkeypatch):
    monkeypatch.setattr(view, "MAX_RECORDS", 3)
    document: Any = view_of(Trace([ran(n, n * 10, n * 10 + 5) for n in range(1, 9)]), "")
    assert [row["id"] for row in rows(document)] == [6, 7, 8]
    assert document["about"]["sampled"] == {"shown": 3, "of": 8}


def test_explanations_are_of_what_failed_what_lives_and_what_waited_longest(monkeypatch):
    monkeypatch.setattr(sums, "EXPLAINED", 2)
    slow = [ran(n, 10, 1_000 + n)._replace(started=100 * n) for n in range(1, 6)]
    failed, live = ran(8, 10, 20, error="KernelError: no", status="FAILED"), record(9, received=15)
    document: Any = view_of(Trace([*slow, failed, live], taken=5_000), "")
    assert set(document["why"]) == {"8", "9", "4", "5"}


def test_explanations_end_where_their_paths_were_long(monkeypatch):
    """A chain: each explanation has a path through all that is before it."""
    monkeypatch.setattr(sums, "STEPS", 50)
    chain = [
        ran(n, 10, 10 * n + 5, (1, "mut"), edges=[(n - 1, "WAW", 1)] if n > 1 else ())._replace(started=10 * n)
        for n in range(1, 40)
    ]
    document: Any = view_of(Trace(chain), "")
    assert len(document["why"]) == 2  # of 39 and 38 steps


def test_a_long_explanation_is_cut_and_says_so():
    text = sums.cut("x" * 10_000)
    assert len(text) < 6_100
    assert text.endswith("... `tensord trace why` shows the rest\n")
    assert sums.cut("short") == "short"


def test_a_curve_keeps_its_peak_however_many_points_it_has():
    curve = [(time, 5 if time == 7_777 else 1) for time in range(10_000)]
    found = list(sums.thinned(curve))
    assert len(found) <= sums.POINTS
    assert (7_777, 5) in found
    assert list(sums.thinned(curve[:10])) == curve[:10]


def test_a_program_has_memory_tensors_sessions_and_advice():
    with td.connect("local", devices=["cpu:0", "sim:0"]) as session:
        x = session.asarray(np.ones((64, 64), np.float32), device="sim:0")
        for _ in range(30):
            back = session.asarray(x.numpy(), device="sim:0")
        session.sync()
        document: Any = view_of(session.trace(), "a program")
        assert back.shape == (64, 64)
    memory = {one["device"]: one["curve"] for one in document["memory"]}
    assert max(used for _, used in memory["sim:0"]) >= 64 * 64 * 4
    assert {one["bytes"] for one in document["tensors"]} == {64 * 64 * 4}
    assert document["tensors"][0]["where"] == ["sim:0"]
    assert document["tensors"][0]["holder"] == f"session {document['tensors'][0]['session']}"
    (party,) = [one for one in document["sessions"] if one["id"]]
    assert party["records"] >= 60
    assert party["bytes"] == sum(one["bytes"] for one in document["tensors"])
    rules = [one["rule"] for one in document["advice"]]
    assert "through the host" in rules
    assert all(one["do"] and one["lines"] and one["cost"] > 0 for one in document["advice"])


def test_only_the_largest_tensors_are_listed():
    holdings = tuple([Holding(n, "cpu:0", n, "add", 1, "", ()) for n in range(1, 2 * sums.TENSORS)])
    document: Any = view_of(Trace([], memory=Memory({}, holdings)), "")
    sizes = [one["bytes"] for one in document["tensors"]]
    assert sizes == sorted(range(sums.TENSORS, 2 * sums.TENSORS), reverse=True)


def test_an_empty_trace_has_an_empty_document():
    document: Any = view_of(Trace([]), "empty")
    assert (document["records"], document["edges"], document["texts"]) == ([], [], [""])


# -- live --------------------------------------------------------------------------------------------------------------


def test_a_live_view_counts_time_from_the_first_one_and_keeps_edges_to_what_came_before():
    waits = record(3, received=1_050)
    second = ran(2, 1_020, 1_030, (1, "const"), edges=[(1, "RAW", 1, True)], used=4096)
    known = DaemonState(of=70, live=9, limits={"cpu:0": 1 << 20})
    trace = Trace([second, waits], taken=1_100, devices=["cpu:0"], memory=Memory({"cpu:0": 4096}))
    document: Any = live_view(trace, "ipc:///run", 1_000, known)
    assert rows(document)[0]["started"] == 20
    assert edges(document) == {(2, 1, "RAW", "elided")}
    about = document["about"]
    assert (about["sampled"], about["unfinished"]) == ({"shown": 1, "of": 70}, {"shown": 1, "of": 9})
    assert about["taken"] == 100
    assert document["memory"] == [{"device": "cpu:0", "limit": 1 << 20, "curve": [[20, 4096], [100, 4096]]}]
    assert (document["tensors"], document["sessions"]) == (None, None)  # unchanged


def test_a_live_view_shows_the_tensors_and_the_sessions_that_the_daemon_lists():
    tensors: list[dict[str, object]] = [{"session": 1, "name": "w"}]
    sessions: list[dict[str, object]] = [{"id": 4}]
    document: Any = live_view(Trace([]), "", 0, DaemonState(tensors=tensors, sessions=sessions))
    assert (document["tensors"], document["sessions"]) == (tensors, sessions)
