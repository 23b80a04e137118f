from __future__ import annotations

import json

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.vm.tracing.trace import Trace
from tensord.vm.tracing.why import why
from tensord.vm.tracing.why_export import to_json, to_text

from .trace_programs import random_trace, record


def ran(number: int, received: int, started: int, finished: int, *edges, **fields):
    times = {"received": received, "ready": started - 1, "started": started, "finished": finished}
    return record(number, edges=edges, ticks=(number, 100 + number), **(times | fields))


@pytest.fixture
def trace():
    """#4 waits for #2 (fast) and for #3 (slow), and both for #1."""
    return Trace(
        [
            ran(1, 100, 200, 1_200, op="load", location="train.py:3 in step"),
            ran(2, 110, 1_200, 1_300, (1, "RAW", 7)),
            ran(3, 120, 1_201, 9_000, (1, "RAW", 7), op="slow", device="sim:0"),
            ran(4, 130, 9_010, 9_020, (2, "RAW", 8), (3, "RAW", 9), (3, "WAR", 8, True), location="train.py:9 in step"),
        ]
    )


def test_it_tells_what_an_instruction_waited_for_latest_first(trace):
    story = why(trace, 4).story
    assert [(wait.source, wait.waited, wait.critical) for wait in story.waits] == [(3, 8_870, True), (2, 1_170, False)]
    assert (story.blocked, story.queued, story.ran) == (8_879, 1, 10)
    assert len(story.waits[0].edges) == 2


def test_it_follows_what_that_waited_for(trace):
    slow = why(trace, 4).story.waits[0].story
    assert [wait.source for wait in slow.waits] == [1]


def test_an_instruction_is_told_once(trace):
    slow, fast = why(trace, 4).story.waits
    assert slow.story.waits[0].story.told
    assert fast.story.told
    assert fast.story.waits[0].story.told
    again = Trace([*trace.records, ran(5, 140, 9_100, 9_200, (4, "RAW", 1), (3, "RAW", 2))])
    first, second = why(again, 5).story.waits
    assert first.story.told
    assert not second.story.told


def test_the_critical_path_goes_back_to_where_it_began(trace):
    assert [one.id for one in why(trace, 4).path] == [4, 3, 1]
    assert [one.id for one in why(trace, 4, depth=0).path] == [4, 3, 1]


def test_depth_limits_the_tree(trace):
    story = why(trace, 4, depth=1).story
    assert [wait.story.told for wait in story.waits] == [False, False]


def test_a_live_source_is_the_critical_one():
    trace = Trace([ran(1, 100, 200, 300), record(2), ran(3, 120, 400, 500, (1, "RAW", 7), (2, "RAW", 8))])
    assert [one.id for one in why(trace, 3).path] == [3, 2]


def test_a_lost_source_is_named():
    trace = Trace([record(2, edges=[(1, "RAW", 7)])], dropped=1)
    assert why(trace, 2).story.waits[0].story is None
    assert "RAW of copy 7: #1, which the trace has lost" in to_text(why(trace, 2))


def test_cycles_and_long_chains_end():
    cycle = Trace([record(1, edges=[(2, "RAW", 7)]), record(2, edges=[(1, "RAW", 7)])])
    assert [one.id for one in why(cycle, 1).path] == [1, 2]
    chain = Trace([record(number, edges=[(number - 1, "RAW", 7)] if number > 1 else []) for number in range(1, 5_000)])
    explanation = why(chain, 4_999)
    assert len(explanation.path) == 4_999
    assert "more)" in to_text(explanation)


def test_an_unknown_instruction_is_an_error(trace):
    with pytest.raises(ProtocolError, match="no instruction #99"):
        why(trace, 99)


def test_the_text(trace):
    text = to_text(why(trace, 4))
    assert text.splitlines() == [
        "#4 add  cpu:0/compute  (blocked 8.88 us, queued 1 ns, ran 10 ns)",
        "called at train.py:9 in step",
        (
            "├─ RAW of copy 9, WAR of copy 8 (elided): 8.87 us for #3 slow  sim:0/compute  "
            "(blocked 1.08 us, queued 1 ns, ran 7.8 us)  <- critical"
        ),
        "│  └─ RAW of copy 7: 1.08 us for #1 load  cpu:0/compute  (blocked 99 ns, queued 1 ns, ran 1 us)  <- critical",
        "└─ RAW of copy 8: 1.17 us for #2 add  cpu:0/compute  (blocked 1.09 us, queued 1 ns, ran 100 ns)",
        "   └─ RAW of copy 7: 1.09 us for #1 load  cpu:0/compute  (blocked 99 ns, queued 1 ns, ran 1 us)",
        "",
        "critical path: #1 load -> #3 slow -> #4 add, 8.92 us in all",
    ]


def test_a_wide_barrier_is_cut():
    sources = [record(number) for number in range(1, 101)]
    barrier = record(101, edges=[(number, "barrier", 0) for number in range(1, 101)], opcode="Barrier", op="")
    text = to_text(why(Trace([*sources, barrier]), 101))
    assert "└─ and 80 more" in text
    assert len(text.splitlines()) < 30


@pytest.mark.parametrize("seed", range(5))
def test_any_instruction_can_be_explained(seed):
    trace = random_trace(seed)
    for one in trace.records:
        explanation = why(trace, one.id)
        assert to_text(explanation).startswith(f"#{one.id} ")
        assert json.loads(to_json(explanation))["critical_path"][0] == one.id
