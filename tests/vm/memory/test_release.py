"""When a buffer is freed: stale, poisoned and client-mapped copies, and the protection by a stream's order."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.stream import StreamKind
from tensord.vm.memory.release import end_use, release, release_drained
from tensord.vm.model.tensor import Copy

from ..parts import Parts, copy_of, fail

BAD = KernelError("bad")


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def copy(parts: Parts) -> Copy:
    """An unused copy of 8 bytes."""
    return copy_of(parts.tensor())


def queued(parts: Parts, copy: Copy, uses: int, on: int) -> None:
    """Set the number of uses of the copy, `on` of which are queued on the one stream."""
    copy.uses, copy.queued = uses, on
    copy.stream = parts.device.compute[0]
    copy.stream.queued = on


class TestCurrent:
    def test_a_healthy_current_copy_keeps_its_buffer(self, copy: Copy) -> None:
        release(copy)
        assert copy.buffer is not None

    def test_the_end_of_its_last_use_changes_nothing(self, copy: Copy) -> None:
        copy.uses, copy.queued = 1, 1
        end_use(copy, 1)
        assert (copy.uses, copy.queued) == (0, 0)
        assert copy.buffer is not None


class TestStale:
    @pytest.fixture(autouse=True)
    def stale(self, copy: Copy) -> None:
        copy.current = False

    def test_without_uses_the_buffer_goes_back_to_the_device(self, parts: Parts, copy: Copy) -> None:
        release(copy)
        assert (copy.buffer, parts.device.allocated) == (None, 0)

    def test_it_goes_with_the_last_use_and_not_before(self, parts: Parts, copy: Copy) -> None:
        copy.uses = 2
        end_use(copy, 0)
        assert parts.device.allocated == 8
        end_use(copy, 0)
        assert (copy.buffer, parts.device.allocated) == (None, 0)

    def test_uses_that_are_over_do_not_count(self, parts: Parts, copy: Copy) -> None:
        copy.uses = 2
        release(copy, over=1)
        assert copy.buffer is not None
        release(copy, over=2)
        assert (copy.buffer, parts.device.allocated) == (None, 0)

    def test_with_all_uses_queued_on_one_stream_that_stream_may_have_it(self, parts: Parts, copy: Copy) -> None:
        queued(parts, copy, 2, 2)
        buffer = copy.buffer
        release(copy)
        assert copy.buffer is None
        assert parts.here.reusable == {copy.stream: [buffer]}
        assert parts.device.allocated == 8

    def test_with_a_use_that_is_queued_nowhere_it_stays(self, parts: Parts, copy: Copy) -> None:
        queued(parts, copy, 2, 1)
        release(copy)
        assert copy.buffer is not None
        assert not parts.here.reusable

    def test_with_uses_on_several_streams_it_stays(self, parts: Parts, copy: Copy) -> None:
        queued(parts, copy, 2, 2)
        copy.stream = None
        release(copy)
        assert copy.buffer is not None

    def test_a_stream_of_another_device_may_not_have_it(self) -> None:
        parts = Parts("cpu:0", "sim:0")
        copy = copy_of(parts.tensor())
        copy.current = False
        queued(parts, copy, 1, 1)
        copy.stream = parts.backends["sim:0"].copy_stream(StreamKind.H2D)
        release(copy)
        assert copy.buffer is not None

    def test_client_mapped_memory_is_not_handed_on_but_discarded_with_the_last_use(
        self, parts: Parts, copy: Copy
    ) -> None:
        queued(parts, copy, 1, 1)
        copy.client_mappings = 1
        release(copy)
        assert copy.buffer is not None
        assert not parts.here.reusable
        end_use(copy, 1)
        assert (copy.buffer, parts.device.allocated, parts.device.pool.cached) == (None, 0, 0)

    def test_on_a_drained_stream_everything_has_been_executed_so_it_is_free(self, parts: Parts, copy: Copy) -> None:
        queued(parts, copy, 1, 1)
        assert copy.stream is not None
        copy.stream.queued = 0
        release(copy)
        assert (copy.buffer, parts.device.allocated) == (None, 0)


class TestPoisoned:
    @pytest.fixture(autouse=True)
    def poisoned(self, copy: Copy) -> None:
        copy.poison = BAD

    def test_its_buffer_goes_although_it_is_current_and_it_leaves_the_plan(self, parts: Parts, copy: Copy) -> None:
        release(copy)
        assert (copy.buffer, copy.current, copy.nbytes) == (None, True, 0)
        assert (parts.here.planned, parts.device.allocated) == (0, 0)

    def test_not_while_something_dispatched_is_bound_to_it(self, parts: Parts, copy: Copy) -> None:
        copy.uses, copy.queued = 2, 1
        release(copy)
        assert copy.buffer is not None
        end_use(copy, 1)
        assert (copy.buffer, copy.uses) == (None, 1)
        assert parts.device.allocated == 0

    def test_the_next_write_makes_the_memory_anew_so_the_ledger_expects_that(self) -> None:
        parts = Parts()
        x, gate = parts.tensor(), parts.tensor()
        parts.op("busy", writes=[gate])
        parts.op("fails", writes=[x], kernel=fail)
        host = parts.op("host", reads=[gate], writes=[gate], opcode=Opcode.ACCESS)
        again = parts.op("again", reads=[gate], writes=[x])
        parts.run(count=2)
        assert host.error is None
        assert copy_of(x).poison is not None
        assert copy_of(x).buffer is None
        assert parts.here.unreserved == {again: 8}
        assert parts.here.planned == 16
        parts.drain()
        assert copy_of(x).poison is None
        assert copy_of(x).buffer is not None
        assert not parts.here.unreserved

    def test_a_release_is_a_writer_too_but_makes_nothing(self) -> None:
        parts = Parts()
        x = parts.tensor()
        parts.op("fails", writes=[x], kernel=fail)
        parts.release(x)
        parts.run()
        assert not parts.here.unreserved
        assert (parts.here.planned, parts.device.allocated) == (0, 0)

    def test_a_stale_one_has_left_the_plan_already(self, parts: Parts, copy: Copy) -> None:
        copy.current = False
        parts.here.planned = 0
        release(copy)
        assert (copy.buffer, parts.here.planned) == (None, 0)


class TestReusable:
    """The way of a buffer through a running program."""

    def program(self, parts: Parts) -> tuple[object, object]:
        x, y = parts.tensor(), parts.tensor(filled=False)
        buffer = copy_of(x).buffer
        parts.op("reads", reads=[x])
        parts.release(x)
        assert parts.here.reusable == {parts.device.compute[0]: [buffer]}
        parts.op("writes", writes=[y])
        return buffer, copy_of(y).buffer

    def test_a_later_instruction_of_the_stream_gets_the_buffer_of_an_earlier_one(self, parts: Parts) -> None:
        before, after = self.program(parts)
        assert before is after
        assert parts.device.allocated == 8
        parts.drain()
        assert parts.ran == ["reads", "writes"]

    def test_an_instruction_of_another_stream_does_not(self) -> None:
        parts = Parts(workers=2)
        before, after = self.program(parts)
        assert before is not after
        assert parts.device.allocated == 16
        parts.drain()

    def test_one_of_another_size_does_not(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor(2, filled=False)
        parts.op(reads=[x])
        parts.release(x)
        parts.op(writes=[y])
        assert parts.device.allocated == 24
        parts.drain()

    def test_when_the_stream_is_drained_they_are_free_for_all(self, parts: Parts) -> None:
        x = parts.tensor()
        parts.op(reads=[x])
        parts.release(x)
        assert parts.device.allocated == 8
        parts.run()
        assert (parts.device.allocated, parts.here.reusable) == (0, {})

    def test_only_those_of_the_drained_stream(self) -> None:
        parts = Parts(workers=2)
        one, two = parts.device.compute
        buffers = [parts.device.allocate(8) for _ in range(3)]
        assert None not in buffers
        parts.here.reusable = {one: [buffers[0]], two: [buffers[1], buffers[2]]}
        release_drained(parts.here, two)
        assert (parts.device.allocated, list(parts.here.reusable)) == (8, [one])
