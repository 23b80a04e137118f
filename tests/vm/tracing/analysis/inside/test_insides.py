"""The inside of runs in a trace."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.vm.tracing.analysis.checks.verify import ProblemKind
from tensord.vm.tracing.analysis.inside.insides import Insides
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import RoutineRecord

from ....bare_engine import Bare
from ....programs import ONE
from ...test_known_routines import repeated, trace_of


def program() -> Program:
    """-x + |x|."""
    builder = Builder()
    x = builder.parameter(ONE)
    (y,) = builder.op("negative", [x])
    (z,) = builder.op("abs", [x])
    return builder.finish(builder.op("add", [y, z]))


@pytest.fixture
def trace() -> Trace:
    bare = Bare()
    bare.engine.admission.routines.segments.find_fusions = lambda _program, _terms: []
    repeated(bare.client(), program(), 3)
    return trace_of(bare)


def changed(trace: Trace, routine: RoutineRecord, stamps: tuple[int, ...] = ()) -> Trace:
    """The trace with another routine, and with these times of the calls of each segment."""
    records = [record._replace(stamps=stamps) if record.part else record for record in trace.records]
    return Trace(records, devices=trace.devices, dropped=trace.dropped, taken=trace.taken, routines=[routine])


def routine_of(trace: Trace) -> RoutineRecord:
    (found,) = trace.routines.values()
    return found


class TestVerify:
    def test_what_a_machine_has_compiled_is_as_it_should_be(self, trace):
        assert trace.verify() == []

    def test_a_wrong_segment_is_told_once_with_its_first_run(self, trace):
        known = routine_of(trace)
        (segment,) = known.segments
        wrong = known._replace(segments=(segment._replace(calls=segment.calls[1:]),))
        found = changed(trace, wrong).verify()
        first = next(record.id for record in trace.records if record.part)
        assert {(problem.kind, problem.instruction) for problem in found} == {(ProblemKind.INSIDE, first)}
        assert "step step 0 negative is never computed" not in str(found)
        assert f"step {known.digest[:12]}: step 0 negative is never computed" in str(found)

    @pytest.mark.parametrize(
        "text",
        ["", "nonsense", "tensord program 1\nparameter %0: float64[1] on d0\n%1: float64[1] = abs %0 on d0\nreturn"],
    )
    def test_another_program_than_the_compiled_one_is_a_problem(self, trace, text):
        found = changed(trace, routine_of(trace)._replace(text=text)).verify()
        assert "is not the one that was compiled" in str(found)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda times: times, ""),
            (lambda times: times[:-1], "5 times for 3 calls"),
            (lambda times: (times[1], times[0], *times[2:]), "before the one before it"),
            (lambda times: (0, *times[1:]), "before the one before it"),
            (lambda times: (*times[:-1], times[-1] + 10**12), "before the one before it"),
        ],
    )
    def test_times_of_calls_are_in_order_and_within_the_run(self, trace, change, said):
        last = [record for record in trace.records if record.part][-1]
        times = tuple(last.started + 100 * n for n in range(6))
        timed = last._replace(finished=last.started + 700, stamps=change(times))
        records = [timed if record is last else record for record in trace.records]
        found = Trace(records, dropped=trace.dropped, taken=trace.taken, routines=trace.routines.values()).verify()
        assert all(problem.kind is ProblemKind.TIMES for problem in found)
        assert (said in str(found)) if said else not found


class TestCalls:
    def test_calls_have_their_times_if_these_are_there(self, trace):
        record = next(record for record in trace.records if record.part)
        without = Insides(trace).calls(record)
        assert [(call.call.op, call.started) for call in without] == [("negative", 0), ("abs", 0), ("add", 0)]
        timed = Insides(trace).calls(record._replace(stamps=(1, 2, 3, 4, 5, 6)))
        assert [(call.started, call.finished) for call in timed] == [(1, 2), (3, 4), (5, 6)]

    def test_what_the_trace_does_not_have_is_nothing(self, trace):
        record: Any = next(record for record in trace.records if record.part)
        bare = Trace(trace.records)
        assert (Insides(bare).calls(record), Insides(bare).program(1)) == ((), None)
        assert bare.verify() == []
        assert Insides(trace).calls(trace.records[0]) == ()


class TestBlocks:
    def test_a_block_of_control_flow_is_a_routine_whose_program_is_inside_of_another_one(self):
        bare, outer = Bare(), Builder()
        x, count = outer.parameter(ONE), outer.number("int", "constant", value=3)
        inner = outer.block()
        value = inner.parameter(ONE)
        for op in ("negative", "abs", "negative"):
            (value,) = inner.op(op, [value])
        outer.construct("repeat_loop", [~count, x], [inner.finish([value])])
        (total,) = outer.op("add", [outer.newest[x], x])
        repeated(bare.client(), outer.finish([total]), 2)
        trace = trace_of(bare)
        assert [known.name for known in trace.routines.values()] == ["step", "step/repeat_loop[0]"]
        block = next(known for known in trace.routines.values() if known.name != "step")
        program = Insides(trace).program(block.number)
        assert program is not None
        assert program.digest == block.digest
        assert trace.verify() == []
        inside = [record for record in trace.records if record.part and record.part.routine == block.number]
        assert inside
        firsts = {run.first for record in inside if (run := trace.run_of(record)) is not None}
        assert firsts <= {run.first for run in trace.runs if trace.routines[run.routine].name == "step"}
