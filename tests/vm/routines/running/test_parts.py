"""Delays, faults and cancellations of a segment on its stream affect the ops that they concern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.programs.fusion import finding_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Location, Release
from tensord.streams.faults import Fault
from tensord.vm.routines.running.instruction import RunInstruction

from ...parts import Parts
from ...programs import link, run

# One of the two results depends on %3, the other does not. `square` is on the way to the first.
FORK = """\
tensord program 1
parameter %0 x: float64[2] on d0
%1: float64[2] = negative %0 on d0                              # 2
%2: float64[2] = square %1 on d0                                # 3
%3: float64[2] = add %2, %1 on d0                               # 4
%4: float64[2] = subtract %1, %0 on d0                          # 5
return %3, %4"""


class OnSim:
    """A routine on a sim device, which has run once, op by op. `fuses`: whether its elementwise ops are fused."""

    def __init__(
        self,
        text: str = FORK,
        *,
        fuses: bool = False,
        late: bool = False,
        ones: int = 0,
        passes: Sequence[str] = ("all",),
    ) -> None:
        self.parts = Parts("sim:0", "cpu:0", events=True, late=late)
        self.sim = self.parts.backends["sim:0"]
        segments = self.parts.engine.admission.routines.segments
        segments.find_fusions = lambda program, terms: finding_fusions(program, terms, 1) if fuses else []
        self.client = self.parts.client()
        self.client.send(*[Location(line, f"user.py:{line}") for line in range(2, 6)])
        self.program = Program.parse(text)
        self.inputs = [self.upload([1.0, 2.0]), *[self.upload(1.0) for _ in range(ones)]]
        self.routine = link(self.client, self.program, devices=("sim:0",), passes=passes)
        self.client.send(Release(run(self.client, self.routine, self.program, self.inputs)))
        self.parts.drain()

    def upload(self, values: Any) -> int:
        """Send a tensor to the device; its id."""
        self.client.send(self.client.upload_message(values)._replace(device="sim:0"))
        return self.client.ids

    def run(self) -> tuple[int, ...]:
        """Send a run; the ids of its results."""
        return run(self.client, self.routine, self.program, self.inputs)

    def results(self, ids: tuple[int, ...]) -> list[Any]:
        """The values, or op and line of their errors."""
        found: list[Any] = []
        for id_ in ids:
            try:
                found.append(self.client.fetch(id_))
            except KernelError as error:
                found.append((error.op, error.location))
        return found

    @property
    def segment(self) -> RunInstruction:
        """The run that is live."""
        (found,) = [each for each in self.parts.engine.live.values() if isinstance(each, RunInstruction)]
        return found

    def close(self) -> None:
        self.parts.close()
        assert not self.parts.engine.live
        assert self.sim.allocated == 0


FIRST, SECOND = [0.0, 2.0], [-2.0, -4.0]  # x^2 - x, -2x


@pytest.mark.parametrize("fuses", [False, True])
class TestFaults:
    def test_a_fault_finds_its_op_and_what_does_not_depend_on_that_has_its_value(self, *, fuses: bool) -> None:
        it = OnSim(fuses=fuses)
        it.sim.inject(Fault.of({"kind": "fail", "label": "square"}))
        assert it.results(it.run()) == [("square", "user.py:3"), SECOND]
        assert [(error.op, error.location) for error in it.parts.errors] == [("square", "user.py:3")]
        assert it.results(it.run()) == [FIRST, SECOND]
        it.close()

    def test_each_op_counts(self, *, fuses: bool) -> None:
        it = OnSim(fuses=fuses)
        it.sim.inject(Fault.of({"kind": "fail", "stream": "compute", "nth": 4}))
        assert it.results(it.run()) == [FIRST, ("subtract", "user.py:5")]
        it.close()

    def test_an_operand_that_has_failed_is_the_error_of_an_op_that_fails(self, *, fuses: bool) -> None:
        it = OnSim(fuses=fuses)
        it.sim.inject(Fault.of({"kind": "fail", "label": "negative"}))
        it.sim.inject(Fault.of({"kind": "fail", "label": "square"}))
        assert [op for op, _ in it.results(it.run())] == ["negative", "negative"]
        assert [error.op for error in it.parts.errors] == ["negative"]
        it.close()

    def test_a_device_that_is_lost_at_an_op_fails_what_follows(self, *, fuses: bool) -> None:
        it = OnSim(fuses=fuses)
        it.sim.inject(Fault.of({"kind": "lost", "label": "add"}))
        for results in (it.run(), it.run()):
            for id_ in results:
                with pytest.raises(KernelError, match="sim:0 is lost, with or before"):
                    it.client.fetch(id_)

    def test_an_error_that_surfaces_late_reaches_what_was_computed_with_the_value(self, *, fuses: bool) -> None:
        it = OnSim(fuses=fuses, late=True)
        it.sim.inject(Fault.of({"kind": "late", "label": "square"}))
        found, other = it.run()
        it.parts.drain()  # no reader is there when the run ends
        assert it.results((found, other)) == [("square", "user.py:3"), SECOND]
        assert [error.op for error in it.parts.errors] == ["square"]
        it.close()


# The result of the last step has no handle, and the step reads an operand that no other step reads.
UNUSED = """\
tensord program 1
parameter %0 x: float64[2] on d0
parameter %1 y: float64[] on d0
%2: float64[2] = relu %0 on d0                                  # 2
%3: float64[2] = square %2 on d0                                # 3
%4: bool[2] = equal %1, %3 on d0                                # 4
return %3"""


def test_an_operand_that_has_failed_reaches_no_value_through_a_result_that_nobody_has() -> None:
    """The result has no memory, and the fusion computes the value without it."""
    it = OnSim(UNUSED, fuses=True, ones=1, passes=("fusion",))
    it.sim.inject(Fault.of({"kind": "fail", "label": "upload"}))
    it.inputs[1] = it.upload(1.0)
    it.parts.drain()
    assert it.results(it.run()) == [[1.0, 4.0]]
    assert len(it.parts.errors) == 1
    it.close()


def test_a_cancellation_takes_effect_between_two_ops() -> None:
    it, passed = OnSim(), []
    it.sim.inject(Fault.of({"kind": "slow", "nth": 100}))  # a pending fault
    it.run()
    (stream,) = it.sim.compute
    intercept = stream.intercept

    def cancelling(part: Any) -> None:
        intercept(part)
        passed.append(part.label)
        if part.label == "square":
            it.parts.engine.cancel(it.client.session)

    stream.intercept = cancelling
    it.parts.drain()
    assert passed == ["negative", "square"]
    it.close()


def test_where_nothing_interferes_there_are_no_parts() -> None:
    it = OnSim()
    (stream,) = it.sim.compute
    stream.intercept = None
    assert it.results(it.run()) == [FIRST, SECOND]
    it.close()


def test_the_times_of_calls_are_those_of_its_ops() -> None:
    it = OnSim()
    it.parts.engine.ring.details.every = 1
    it.sim.inject(Fault.of({"kind": "slow", "nth": 100}))
    it.run()
    run_ = it.segment
    it.parts.drain()
    assert run_.stamps is not None
    assert len(run_.stamps.times) == 2 * 4
    assert run_.stamps.times == sorted(run_.stamps.times)
    it.close()


def test_memory_of_its_own_that_a_variable_gets_is_a_copy() -> None:
    it = OnSim(
        """\
tensord program 1
parameter %0 x: float64[2] on d0
%1: float64[2] = negative %0 on d0                              # 2
%2: float64[1] = getitem %1 {index: [0:1]} on d0                # 3
%3: float64[2] = setitem %1, %0 {index: ["..."]} into %1 on d0  # 4
%4: float64[1] = add %2, %2 on d0                               # 5
%5: float64[2] = add %3, %3 on d0                               # 5
return %4, %5"""
    )
    labels: list[str] = []
    it.sim.inject(Fault.of({"kind": "slow", "nth": 100}))
    (stream,) = it.sim.compute
    intercept = stream.intercept

    def listening(part: Any) -> None:
        labels.append(part.label)
        intercept(part)

    stream.intercept = listening
    results = it.run()
    assert it.segment
    assert it.results(results) == [[-2.0], [2.0, 4.0]]
    assert labels == ["negative", "copy", "setitem", "add", "add"]
    it.close()
