"""Segments on devices with memory of their own, and programs over several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, TensordError
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Release, ToDevice
from tensord.streams.faults import Fault
from tensord.streams.stream import StreamKind
from tensord.vm.routines.running.instruction import RunInstruction

from ..parts import Parts
from ..programs import LINE, link, run

HALVES = """\
tensord program 1
parameter %0 x: float64[8] on d0
%1: float64[8] = negative %0 on d0
%2: float64[8] = square %1 on d0
%3: float64[8] = to_device %2 on d1
%4: float64[8] = negative %3 on d1
%5: float64[8] = add %4, %3 on d1
%6: float64[8] = abs %4 on d1
return %5, %6"""
CHAIN = """\
tensord program 1
parameter %0 x: float64[8] on d0
%1: float64[8] = negative %0 on d0
%2: float64[8] = square %1 on d0
%3: float64[8] = add %2, %1 on d0
return %3"""
PAIR = """\
tensord program 1
parameter %0 x: float64[8] on d0
parameter %1 y: float64[8] on d0
%2: float64[8] = negative %0 on d0
%3: float64[8] = add %1, %1 on d0
return %2, %3"""
UPDATE = """\
tensord program 1
parameter %0 x: float64[8] on d0
%1: float64[8] = negative %0 on d0
%2: float64[8] = add %0, %1 into %0 on d0
return"""
EIGHT = 64  # bytes of a tensor of eight elements


class Linked:
    """A routine on some devices, which has run once, op by op. `memory`: of each, from then on."""

    def __init__(
        self, text: str, *devices: str, homes: Sequence[str] = ("sim:0",), memory: int = 0, **options: Any
    ) -> None:
        self.parts = Parts("cpu:0", "sim:0", "sim:1", **{"events": True, **options})
        self.parts.engine.admission.routines.segments.find_fusions = lambda _program, _terms: []
        self.client = self.parts.client()
        self.program, self.devices = Program.parse(text), devices
        self.inputs = tuple([self.upload(home) for home in homes])
        self.routine = link(self.client, self.program, devices=devices)
        self.client.send(Release(self.run()))
        self.parts.drain()
        for backend in self.parts.backends.values():
            backend.limit = memory or backend.limit

    def upload(self, home: str) -> int:
        message = self.client.upload_message(np.arange(8.0))._replace(device=home)
        self.client.send(message)
        self.parts.drain()
        return message.output

    def run(self) -> tuple[int, ...]:
        return run(self.client, self.routine, self.program, self.inputs)

    @property
    def segments(self) -> list[RunInstruction]:
        """The live segments."""
        return [each for each in self.parts.engine.live.values() if isinstance(each, RunInstruction)]

    def fetch(self, ids: Sequence[int]) -> list[list[float]]:
        return [self.client.fetch(id_) for id_ in ids]

    def error(self, id_: int) -> TensordError:
        with pytest.raises(TensordError) as caught:
            self.client.fetch(id_)
        return caught.value

    def close(self) -> None:
        self.parts.close()
        assert not self.parts.engine.live
        assert [backend.allocated for backend in self.parts.backends.values()] == [0, 0, 0]


SQUARES = [float(n * n) for n in range(8)]
DIFFERENCES = [float(n * n - n) for n in range(8)]


def execute(parts: Parts) -> list[str]:
    """Run the streams as far as they can go, without reports; returns the labels of executed tasks, in order."""
    done = []
    while busy := [stream for stream in parts.streams if stream.can_execute()]:
        done.append(busy[0].waiting[0].label)
        busy[0].execute()
    return done


class TestSeveralDevices:
    def test_pieces_and_what_moves_between_them_follow_each_other_without_the_host(self) -> None:
        it = Linked(HALVES, "sim:0", "sim:1")
        results = it.run()
        assert [each.device.name for each in it.segments] == ["sim:0", "sim:1"]
        assert execute(it.parts) == ["run", "p2p sim:0->sim:1", "run"]
        assert it.fetch(results) == [[0.0] * 8, SQUARES]
        it.close()

    def test_a_failure_on_the_way_reaches_what_depends_on_it(self) -> None:
        it = Linked(HALVES, "sim:0", "sim:1")
        it.parts.backends["sim:1"].inject(Fault.of({"kind": "fail", "stream": "p2p"}))
        first, second = it.run()
        execute(it.parts)
        assert it.error(first).op == it.error(second).op == "p2p sim:0->sim:1"
        it.close()

    def test_where_errors_surface_late_a_segment_waits_until_those_of_its_operands_are_final(self) -> None:
        it = Linked(HALVES, "sim:0", "sim:1", late=True)
        it.parts.backends["sim:0"].inject(Fault.of({"kind": "late", "label": "square"}))
        first, second = it.run()
        assert execute(it.parts) == ["run", "p2p sim:0->sim:1"]
        assert it.error(first).op == it.error(second).op == "square"
        it.close()

    def test_operands_are_brought_from_wherever_they_are(self) -> None:
        it = Linked(CHAIN, "sim:0", homes=("cpu:0",))
        other = it.upload("sim:1")
        for x in (it.inputs[0], other):
            it.inputs = (x,)
            results = it.run()
            assert [each.device.name for each in it.segments] == ["sim:0"]
            assert it.fetch(results) == [DIFFERENCES]
        it.close()

    def test_without_a_way_between_devices_it_is_the_ops_that_fail(self) -> None:
        it = Linked(CHAIN, "sim:0")
        it.inputs = (it.upload("sim:1"),)
        it.parts.residency.routes.host = None
        for name in ("sim:0", "sim:1"):
            it.parts.backends[name].reaches = lambda _other: False
        (result,) = it.run()
        assert not it.segments
        assert it.error(result).op == "negative"

    def test_a_device_that_calls_no_kernel_after_kernel_runs_the_ops_one_by_one(self) -> None:
        it = Linked(HALVES, "sim:0", "sim:1")
        it.parts.backends["sim:1"].segments = False
        results = it.run()
        assert [each.device.name for each in it.segments] == ["sim:0"]
        assert it.fetch(results) == [[0.0] * 8, SQUARES]
        it.close()

    def test_a_lost_device_takes_its_own_pieces_along_and_no_others(self) -> None:
        text = HALVES.replace("return %5, %6", "return %2, %6")
        it = Linked(text, "sim:0", "sim:1")
        it.parts.backends["sim:1"].inject(Fault.of({"kind": "lost", "stream": "compute"}))
        here, there = it.run()
        assert it.fetch([here]) == [SQUARES]
        assert isinstance(it.error(there), KernelError)
        here, there = it.run()
        assert [each.device.name for each in it.segments] == ["sim:0"]
        assert it.fetch([here]) == [SQUARES]
        assert "lost" in str(it.error(there))

    def test_a_lost_device_is_the_error_of_what_depends_on_no_operand_that_has_failed(self) -> None:
        it = Linked(PAIR, "sim:0", homes=("sim:0", "cpu:0"))
        it.parts.backends["sim:0"].inject(Fault.of({"kind": "fail", "stream": "h2d", "count": 2}))
        it.parts.backends["sim:0"].inject(Fault.of({"kind": "lost", "label": "negative"}))
        first, y = it.upload("cpu:0"), it.upload("cpu:0")
        it.inputs = (it.inputs[0], first)
        it.run()
        it.inputs = (it.inputs[0], y)
        results = it.run()
        assert [each.status.value for each in it.segments] == ["DISPATCHED"] * 2
        for _ in range(2):
            it.parts.backends["sim:0"].copy_stream(StreamKind.H2D).execute()
        execute(it.parts)
        assert ["sim:0 is lost" in str(it.error(id_)) for id_ in results] == [True, True]


class TestMemory:
    def test_the_arena_is_memory_of_the_device_as_long_as_the_run_needs_it(self) -> None:
        it = Linked(CHAIN, "sim:0")
        sim, before = it.parts.backends["sim:0"], it.parts.backends["sim:0"].allocated
        results = it.run()
        (segment,) = it.segments
        arena = segment.segment.recipe.arena
        assert arena > 0
        assert sim.allocated == before + arena + EIGHT
        it.fetch(results)
        assert sim.allocated == before + EIGHT
        it.close()

    @pytest.mark.parametrize("missing", [0, 1])
    def test_operands_that_have_to_come_need_memory_too(self, missing: int) -> None:
        it = Linked(CHAIN, "sim:0")
        it.client.release(*it.inputs)
        it.inputs = (it.upload("cpu:0"),)
        it.parts.backends["sim:0"].limit = 4 * EIGHT - missing  # x, the arena of two values, the result
        results = it.run()
        assert len(it.segments) == 1 - missing
        assert it.fetch(results) == [DIFFERENCES]  # op by op there is room: x goes before the result comes
        it.client.release(*results, *it.inputs)
        assert it.parts.backends["sim:0"].allocated == 0

    @pytest.mark.parametrize("missing", [0, 1])
    def test_what_may_not_be_overwritten_needs_memory_of_its_own(self, missing: int) -> None:
        it = Linked(UPDATE, "sim:0")
        it.client.publish("x", ids=it.inputs)
        snapshot = it.client.lookup("x", snapshot=True)
        it.parts.backends["sim:0"].limit = 3 * EIGHT - missing  # x and the snapshot of it, the arena
        it.run()
        assert len(it.segments) == 1 - missing
        it.parts.drain()
        assert [error.op for error in it.parts.errors] == ["add"] * missing
        assert it.fetch([snapshot]) == [[0.0] * 8]

    def test_a_tensor_that_is_to_move_takes_its_memory_before_the_run(self) -> None:
        it = Linked(CHAIN, "sim:0")
        it.inputs = (it.upload("cpu:0"),)
        moved = it.upload("cpu:0")
        it.client.send(ToDevice(moved, it.client.new(), "sim:0", LINE))
        it.parts.backends["sim:0"].limit = 5 * EIGHT  # the tensors there, x, the arena, the result; no more
        results = it.run()
        assert not it.segments
        assert it.fetch(results) == [DIFFERENCES]
