from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.analysis.waits.why import why
from tensord.vm.tracing.analysis.waits.why_json import to_json
from tensord.vm.tracing.analysis.waits.why_text import to_text

from .....behaviours.looking_inside import held
from .....each_case import each_case
from ..trace_programs import random_trace, record


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


def waits(trace: Trace, number: int, **options: Any) -> list[Any]:
    """The waits of an instruction; each wait here has a story."""
    return list(why(trace, number, **options).story.waits)


def test_it_tells_what_an_instruction_waited_for_latest_first(trace):
    story = why(trace, 4).story
    assert [(wait.source, wait.waited, wait.critical) for wait in story.waits] == [(3, 8_870, True), (2, 1_170, False)]
    assert (story.blocked, story.queued, story.ran) == (8_879, 1, 10)
    assert len(story.waits[0].edges) == 2


def test_it_follows_what_that_waited_for(trace):
    slow = waits(trace, 4)[0].story
    assert [wait.source for wait in slow.waits] == [1]


def test_an_instruction_is_told_once(trace):
    slow, fast = waits(trace, 4)
    assert slow.story.waits[0].story.expanded
    assert fast.story.expanded
    assert fast.story.waits[0].story.expanded
    again = Trace([*trace.records, ran(5, 140, 9_100, 9_200, (4, "RAW", 1), (3, "RAW", 2))])
    first, second = waits(again, 5)
    assert first.story.expanded
    assert not second.story.expanded


def test_the_critical_path_goes_back_to_where_it_began(trace):
    assert [one.id for one in why(trace, 4).path] == [4, 3, 1]
    assert [one.id for one in why(trace, 4, depth=0).path] == [4, 3, 1]


def test_depth_limits_the_tree(trace):
    assert [wait.story.expanded for wait in waits(trace, 4, depth=1)] == [False, False]


def test_a_live_source_is_the_critical_one():
    trace = Trace([ran(1, 100, 200, 300), record(2), ran(3, 120, 400, 500, (1, "RAW", 7), (2, "RAW", 8))])
    assert [one.id for one in why(trace, 3).path] == [3, 2]


def test_a_lost_source_is_named():
    trace = Trace([record(2, edges=[(1, "RAW", 7)])], dropped=1)
    assert why(trace, 2).story.waits[0].story is None
    assert "RAW of copy 7: #1, whose record is lost" in to_text(why(trace, 2))


def test_cycles_and_long_chains_end():
    cycle = Trace([record(1, edges=[(2, "RAW", 7)]), record(2, edges=[(1, "RAW", 7)])])
    assert [one.id for one in why(cycle, 1).path] == [1, 2]
    chain = Trace([record(number, edges=[(number - 1, "RAW", 7)] if number > 1 else []) for number in range(1, 5_000)])
    explanation = why(chain, 4_999)
    assert len(explanation.path) == 4_999
    assert "(4979 more" in to_text(explanation)


def test_an_unknown_instruction_is_an_error(trace):
    with pytest.raises(ProtocolError, match="no instruction #99"):
        why(trace, 99)


def test_the_text(trace):
    text = to_text(why(trace, 4))
    assert text.splitlines() == [
        "#4 add  cpu:0/compute  (blocked 8.88 us, queued 1 ns, ran 10 ns)",
        "called at train.py:9 in step",
        (
            "├─ RAW of copy 9, WAR of copy 8 (elided, waited on the device): 8.87 us for #3 slow  sim:0/compute  "
            "(blocked 1.08 us, queued 1 ns, ran 7.8 us)  <- critical"
        ),
        "│  └─ RAW of copy 7: 1.08 us for #1 load  cpu:0/compute  (blocked 99 ns, queued 1 ns, ran 1 us)  <- critical",
        "└─ RAW of copy 8: 1.17 us for #2 add  cpu:0/compute  (blocked 1.09 us, queued 1 ns, ran 100 ns)",
        (
            "   └─ RAW of copy 7, behind it on the stream: 1.09 us for #1 load  cpu:0/compute  "
            "(blocked 99 ns, queued 1 ns, ran 1 us)"
        ),
        "",
        "critical path, 8.89 us from received to finished:",
        "      wait        run",
        "     70 ns       1 us  #1 load  cpu:0/compute  [train.py:3 in step]",
        "      1 ns     7.8 us  #3 slow  sim:0/compute  after #1: RAW of copy 7",
        "     10 ns      10 ns  #4 add  cpu:0/compute  after #3: RAW of copy 9, WAR of copy 8  [train.py:9 in step]",
    ]


class TestLines:
    """The critical path by line."""

    @pytest.fixture
    def loop(self):
        """A chain of 60 ops of three lines, the second of which runs longest, behind a release of no line."""
        lines = [
            ("lib/nn.py:7 in linear <- train.py:3 in step", 10),
            ("train.py:4 in step", 500),
            ("train.py:5 in step", 90),
        ]
        records, end = [ran(1, 100, 150, 200, op="release", opcode=Opcode.RELEASE.value)], 200
        for n in range(60):
            line, took = lines[n % 3]
            op = ("matmul", "add", "exp", "log", "abs")[n % 5]
            records.append(ran(n + 2, 100, end + 5, end + 5 + took, (n + 1, "RAW", n), op=op, location=line))
            end += 5 + took
        return Trace(records)

    def test_each_line_has_its_sums_which_add_up(self, loop):
        explanation = why(loop, 61)
        assert [(line.location, line.count, line.gap, line.ran) for line in explanation.lines] == [
            ("train.py:4 in step", 20, 100, 10_000),
            ("train.py:5 in step", 20, 100, 1_800),
            ("lib/nn.py:7 in linear <- train.py:3 in step", 20, 100, 200),
            ("", 1, 50, 50),
        ]
        assert sum(line.gap + line.ran for line in explanation.lines) == explanation.total

    def test_people_see_them_above_the_steps_which_name_the_program_s_line(self, loop):
        lines = to_text(why(loop, 61)).splitlines()
        begin = lines.index("      wait        run   of all  steps")
        assert lines[begin + 1 : begin + 5] == [
            "    100 ns      10 us      81%     20  train.py:4 in step  add, abs, exp, ...",
            "    100 ns     1.8 us      15%     20  train.py:5 in step  exp, matmul, log, ...",
            "    100 ns     200 ns       2%     20  lib/nn.py:7 in linear <- train.py:3 in step  matmul, log, add, ...",
            "     50 ns      50 ns       1%      1  no line  release",
        ]
        steps = lines[lines.index("step by step:") + 2 :]
        assert len(steps) == 21
        assert "(41 more, " in steps[10]
        assert steps[1].endswith("[train.py:3 in step]")
        assert sum("train.py:4" in step for step in steps) == 6

    def test_many_lines_are_cut_and_programs_get_every_one_and_every_step(self, loop):
        many = Trace([one._replace(location=f"train.py:{one.id % 30}") for one in loop.records])
        assert "  20 more lines" in to_text(why(many, 61))
        found = json.loads(to_json(why(many, 61)))
        assert len(found["lines"]) == 30
        assert len(found["spans"]) == 61
        assert sum(line["gap"] + line["ran"] for line in found["lines"]) == found["total"]
        assert found["spans"][0]["location"] == "train.py:1"

    def test_where_each_line_has_one_step_there_are_no_sums(self, trace):
        assert "step by step" not in to_text(why(trace, 4))


class TestSessions:
    """An instruction of one session waits for another session's instruction, and for one planned on behalf of that."""

    @pytest.fixture
    def shared(self):
        moved = ran(2, 100, 700, 800, (1, "RAW", 3), op="evict sim:0->cpu:0", opcode=Opcode.TRANSFER.value, session=0)
        return Trace(
            [
                ran(1, 100, 110, 600, op="sum", session=2),
                moved._replace(caused_by=2, location="eval.py:4 in f"),
                ran(3, 100, 810, 900, (2, "RAW", 4), session=1),
            ]
        )

    def test_who_it_waited_for_is_named_unless_it_is_the_same_session(self, shared):
        text = to_text(why(shared, 3))
        assert "for #2 evict sim:0->cpu:0 for session 2  " in text
        assert "for #1 sum of session 2  " in text
        assert "session" not in to_text(why(shared, 1))

    def test_what_the_machine_planned_says_for_which_session(self, shared):
        assert to_text(why(shared, 2)).splitlines()[1:3] == [
            "called at eval.py:4 in f",
            "planned by the machine, for session 2",
        ]
        story = json.loads(to_json(why(shared, 2)))["story"]
        assert (story["session"], story["caused_by"]) == (0, 2)


def test_a_wide_barrier_is_cut():
    sources = [record(number) for number in range(1, 101)]
    barrier = record(101, edges=[(number, "barrier", 0) for number in range(1, 101)], opcode="Barrier", op="")
    text = to_text(why(Trace([*sources, barrier]), 101))
    assert "└─ and 80 more" in text
    assert len(text.splitlines()) < 30


class TestStreamOrder:
    """The stream alone makes #2 wait for #1, and #3 for #2."""

    @pytest.fixture
    def stream(self):
        return Trace(
            [
                ran(1, 100, 110, 600, op="sum", stream="cpu:0/compute0"),
                ran(2, 101, 610, 900, op="mul", stream="cpu:0/compute0", ready=102, dispatched=102),
                ran(3, 102, 905, 999, op="add", stream="cpu:0/compute0", ready=103, dispatched=103),
            ]
        )

    def test_an_instruction_waits_behind_the_one_before_it(self, stream):
        (wait,) = why(stream, 3).story.waits
        assert (wait.source, wait.edges, wait.behind, wait.waited, wait.critical) == (2, (), True, 798, True)
        assert "└─ behind #2 mul on cpu:0/compute0: 798 ns  (" in to_text(why(stream, 3))

    def test_the_critical_path_goes_through_it_and_adds_up(self, stream):
        explanation = why(stream, 3)
        assert [(span.record.id, span.gap, span.ran) for span in explanation.spans] == [
            (3, 5, 94), (2, 10, 290), (1, 8, 490),
        ]  # fmt: skip
        assert explanation.total == 999 - 102
        assert "after #2: behind it on the stream" in to_text(explanation)

    def test_who_had_ended_before_the_instruction_was_ready_held_nobody_up(self, stream):
        late = stream.records[2]._replace(ready=901)
        assert why(Trace([*stream.records[:2], late]), 3).story.waits == ()

    def test_another_stream_holds_nobody_up(self, stream):
        elsewhere = stream.records[2]._replace(stream="cpu:0/compute1")
        assert why(Trace([*stream.records[:2], elsewhere]), 3).story.waits == ()

    def test_the_driving_thread_is_one_stream_whatever_device_it_works_for(self):
        first = ran(1, 100, 110, 600, stream="cpu:0/control")
        second = ran(2, 101, 610, 620, stream="sim:0/control", device="sim:0", ready=102)
        explanation = why(Trace([first, second]), 2)
        assert [wait.source for wait in explanation.story.waits] == [1]
        assert "after #1: behind it on the driving thread" in to_text(explanation)

    def test_an_elided_source_was_waited_for_if_it_ran_after_the_dispatch(self):
        source = ran(1, 100, 110, 600, stream="cpu:0/compute0")
        target = ran(2, 101, 610, 620, (1, "RAW", 7, True), stream="cpu:0/compute0", ready=102, dispatched=102)
        (wait,) = why(Trace([source, target]), 2).story.waits
        assert (wait.behind, wait.waited, len(wait.edges)) == (True, 499, 1)
        assert "RAW of copy 7 (elided, waited on the device), behind it" in to_text(why(Trace([source, target]), 2))
        late = target._replace(ready=601, dispatched=601)
        assert "RAW of copy 7 (elided): 499 ns" in to_text(why(Trace([source, late]), 2))

    def test_the_path_goes_through_what_was_skipped_to_what_it_had_waited_for(self):
        slow = ran(1, 100, 110, 600, device="sim:0")
        skipped = record(2, edges=[(1, "RAW", 7)], ticks=(2, 102), status="SKIPPED", received=100)
        last = ran(3, 100, 610, 620, (2, "RAW", 8))
        assert [one.id for one in why(Trace([slow, skipped, last]), 3).path] == [3, 2, 1]

    @each_case("seed", range(4))
    def test_the_spans_of_any_path_add_up_to_the_time_from_received_to_finished(self, seed):
        trace = random_trace(seed)
        for one in trace.records:
            explanation = why(trace, one.id)
            if one.finished:
                assert explanation.total == one.finished - one.received
            elif not one.erased:
                assert explanation.total == trace.until - one.received
            assert all(span.gap >= 0 and span.ran >= 0 for span in explanation.spans)


def test_an_engine_at_work_leaves_a_path_that_adds_up():
    """Two independent ops share the only stream of a slow device."""
    with td.connect("local", devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.005}]) as session:
        x = session.asarray(np.ones((64, 64), np.float32), device="sim:0")
        session.sync()
        with held(session, "sim:0", "compute"):
            results = [x + 1, x * 2]
            session.flush()
        session.sync()
        trace = session.trace()
        assert trace.taken >= trace.records[-1].finished > 0
        del results
    first, second = (one for one in trace.records if one.opcode == Opcode.CALL)
    explanation = why(trace, second.id)
    assert [wait.source for wait in explanation.story.waits if wait.behind] == [first.id]
    assert first in explanation.path
    assert explanation.total == second.finished - second.received


class TestLive:
    @pytest.fixture
    def hung(self):
        live: dict[str, Any] = {"status": "DISPATCHED", "device": "sim:0", "stream": "sim:0/compute0"}
        return Trace(
            [
                record(1, op="hang", started=1_000, received=500, ready=600, dispatched=700, **live),
                record(2, op="mul", received=800, ready=900, dispatched=900, **live),
                record(3, edges=[(2, "RAW", 7), (1, "RAW", 8)], received=900),
            ],
            taken=5_000_001_000,
        )

    def test_what_runs_says_for_how_long(self, hung):
        text = to_text(why(hung, 1))
        assert text.startswith("#1 hang  sim:0/compute0  RUNNING for 5 s  (blocked 100 ns, queued 400 ns)\n")
        assert json.loads(to_json(why(hung, 1)))["story"]["status"] == "RUNNING"

    def test_what_was_dispatched_stands_behind_what_runs(self, hung):
        assert "└─ behind #1 hang on sim:0/compute0: 5 s  RUNNING for 5 s" in to_text(why(hung, 2))

    def test_the_path_ends_at_what_runs(self, hung):
        assert [one.id for one in why(hung, 3).path] == [3, 2, 1]
        assert "until the trace was taken, not finished" in to_text(why(hung, 3))


def test_dependences_that_had_been_met_are_listed(trace):
    done = record(1, (7, "mut"), ticks=(1, 2))
    reader = record(2, (7, "const"), ticks=(3, 4))
    text = to_text(why(Trace([done, reader]), 2))
    assert "waited for no other instruction\nmet at admission: #1 RAW of copy 7, already done\n" in text
    assert json.loads(to_json(why(Trace([done, reader]), 2)))["met"] == [{"source": 1, "reason": "RAW", "copy": 7}]
    assert why(trace, 4).met == ()


@each_case("seed", range(3))
def test_any_instruction_can_be_explained(seed):
    trace = random_trace(seed)
    for one in trace.records:
        explanation = why(trace, one.id)
        assert to_text(explanation).startswith(f"#{one.id} ")
        assert json.loads(to_json(explanation))["critical_path"][0] == one.id


def test_it_tells_which_evictions_an_instruction_waited_for_and_for_which_line() -> None:
    """#5 was ready at 300 and had its memory at 900; #1 was over before, and #4 makes room elsewhere."""
    moves: dict[str, Any] = {"opcode": "Transfer", "stream": "sim:0/d2h", "device": "cpu:0"}
    trace = Trace(
        [
            ran(1, 100, 110, 200, op="evict sim:0->cpu:0", location="train.py:1 in step", **moves),
            ran(2, 100, 210, 600, op="evict sim:0->cpu:0", location="train.py:2 in step", **moves),
            ran(3, 100, 610, 850, op="replan sim:0->cpu:0", **moves),
            ran(4, 100, 210, 700, op="evict sim:1->cpu:0", location="train.py:2 in step", **moves),
            ran(5, 100, 910, 950, op="add", device="sim:0", ready=300, dispatched=900, held="memory"),
            ran(6, 100, 960, 990, op="add", device="sim:0", ready=300, dispatched=900),
        ]
    )
    found = why(trace, 5)
    assert [one.id for one in found.evictions] == [3, 2]
    text = to_text(found)
    assert "waited for memory, until 2 evictions had made room:\n   #3 replan sim:0->cpu:0" in text
    assert "   #2 evict sim:0->cpu:0  DONE  for train.py:2 in step" in text
    assert [one["id"] for one in json.loads(to_json(found))["evictions"]] == [3, 2]
    assert why(trace, 6).evictions == ()


def test_an_instruction_that_waited_for_an_eviction_says_so_live(make_session) -> None:
    device = {"name": "sim:0", "memory": 4096, "latency": 0.02}
    s = make_session(devices=["cpu:0", device])
    kept = [s.asarray(np.ones(256, np.float32), device="sim:0").wait() for _ in range(4)]
    y = kept[0] + 1.0
    y.wait()
    trace = s.trace()
    added = next(one for one in trace.records if one.op == "add")
    (gone,) = why(trace, added.id).evictions
    assert gone.op == "evict sim:0->cpu:0"
    assert "test_why.py" in gone.location
    assert gone.location == added.location
