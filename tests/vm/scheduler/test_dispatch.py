"""Dispatch: an instruction's stream, dispatch before its sources are done, and the instructions that wait."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.wire.message_kinds import CALL
from tensord.vm.memory.ledger import expect_late, wait_for_memory
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.reporting.invariants import violations
from tensord.vm.scheduler import fair_queue
from tensord.vm.scheduler.dispatch import choose_stream, runs_inline

from ..bare_engine import ONE, Bare
from ..parts import Parts, copy_of


def elided(instruction: Instruction) -> list[bool]:
    return [elided for _, _, _, elided in instruction.edges]


class TestChoice:
    def test_the_latest_undone_producers_stream_is_taken(self) -> None:
        parts = Parts(workers=3)
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op(writes=[x]), parts.op(writes=[y])
        one, two, _ = parts.device.compute
        assert (first.stream, second.stream) == (one, two)
        reader = parts.op(reads=[x, y])
        assert choose_stream(reader) is two
        one.execute()  # ... in any order
        one.report(1)
        parts.schedule()
        assert reader.stream is two

    def test_without_a_producer_it_is_the_least_loaded(self) -> None:
        parts = Parts(workers=3)
        x = parts.tensor()
        parts.op(writes=[x])
        parts.op(reads=[x])
        assert parts.op(writes=[parts.tensor()]).stream is parts.device.compute[1]
        assert parts.op(writes=[parts.tensor()]).stream is parts.device.compute[2]
        assert parts.op(writes=[parts.tensor()]).stream is parts.device.compute[1]

    def test_a_producer_on_another_kind_of_stream_says_nothing(self) -> None:
        parts = Parts("cpu:0", "sim:0")
        x = parts.tensor()
        bound = parts.residency.operand(x, parts.at("sim:0"), Cause(parts.session, 0))
        parts.hand_over()
        (transfer,) = parts.scheduler.live.values()
        reader = parts.scheduler.new_instruction(parts.session, Opcode.CALL, "op", parts.at("sim:0"), 0)
        reader.reads = (bound.copy,)
        parts.scheduler.admit(reader)
        assert list(reader.soft) == [transfer]
        assert choose_stream(reader) is parts.backends["sim:0"].compute[0]
        parts.drain()

    def test_what_is_for_the_driving_thread_has_no_stream(self) -> None:
        parts = Parts()
        instruction = parts.scheduler.new_instruction(parts.session, Opcode.RELEASE, "release", parts.here, 0)
        assert instruction.on_control
        assert choose_stream(instruction) is None

    def test_a_stream_fixed_at_admission_stays(self) -> None:
        parts = Parts(workers=2)
        x = parts.tensor()
        parts.op(writes=[x])
        wanted = parts.device.compute[1]

        def fix(instruction: Instruction) -> None:
            instruction.stream = wanted

        assert parts.op(reads=[x], before=fix).stream is wanted


class TestElision:
    def test_a_chain_goes_to_its_stream_as_one_batch(self) -> None:
        parts = Parts()
        x = parts.tensor()
        chain = [parts.op(str(n), reads=[x], writes=[x]) for n in range(5)]
        assert list(parts.device.compute[0].waiting) == chain
        assert [elided(instruction) for instruction in chain] == [[], [True], [True], [True], [True]]
        parts.drain()
        assert parts.ran == list("01234")

    def test_a_source_that_was_done_before_is_not_elided(self) -> None:
        parts = Parts()
        x, y = parts.tensor(), parts.tensor()
        parts.op(writes=[x])
        held = parts.op(writes=[y])
        keep = parts.op(reads=[y], writes=[y], opcode=Opcode.ACCESS)  # read by the host: later instructions wait hard
        last = parts.op(reads=[x, y])
        assert [elided for *_, elided in last.edges] == [False, False]
        parts.drain()
        assert elided(last) == [False, False]
        assert (held.retired, keep.retired, last.status) == (True, True, Status.DONE)

    def test_on_another_stream_without_events_it_waits_until_the_source_is_done(self) -> None:
        parts = Parts(workers=2)
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op(writes=[x]), parts.op(writes=[y])
        assert first.stream is not second.stream
        both = parts.op(reads=[x, y])
        assert both.status is Status.WAITING
        parts.run(first.stream)
        assert both.status is Status.DISPATCHED
        assert sorted(elided(both)) == [False, True]

    def test_with_events_it_follows_at_once_and_waits_for_the_event(self) -> None:
        parts = Parts("sim:0", workers=2, events=True)
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op("first", writes=[x]), parts.op("second", writes=[y])
        both = parts.op("both", reads=[x, y])
        assert both.status is Status.DISPATCHED
        assert both.event_sources == (first,)
        assert elided(both) == [True, True]
        stream: Any = second.stream
        stream.execute()
        assert not stream.can_execute()
        parts.drain()
        assert parts.ran == ["second", "first", "both"]

    def test_who_waits_for_something_in_the_backlog_is_not_ready(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fair_queue, "QUEUE_DEPTH", 0)
        parts = Parts()
        x = parts.tensor()
        chain = [parts.op(reads=[x], writes=[x]) for _ in range(fair_queue.GUARANTEED_INSTRUCTIONS + 2)]
        states = [instruction.status for instruction in chain[-2:]]
        assert states == [Status.READY, Status.WAITING]
        assert len(parts.dispatcher.backlog[parts.device.compute[0]]) == 1
        parts.drain()
        assert all(instruction.status is Status.DONE for instruction in chain)


class TestRoom:
    def test_what_a_session_may_not_queue_waits_in_its_order_and_follows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fair_queue, "QUEUE_DEPTH", 0)
        parts = Parts()
        made = [parts.op(str(n), writes=[parts.tensor()]) for n in range(8)]
        stream = parts.device.compute[0]
        queue = parts.session.queues[stream]
        assert (queue.queued, list(queue.waiting)) == (4, made[4:])
        assert stream.queued == 4
        parts.run()
        assert (queue.queued, list(queue.waiting)) == (4, made[5:])
        parts.drain()
        assert parts.ran == list("01234567")
        assert not parts.dispatcher.backlog
        assert not parts.dispatcher.refills

    def test_work_of_a_planned_transfer_counts_for_who_asked_for_it(self) -> None:
        parts = Parts("cpu:0", "sim:0")
        parts.residency.operand(parts.tensor(), parts.at("sim:0"), Cause(parts.session, 0))
        parts.hand_over()
        assert [queue.queued for queue in parts.session.queues.values()] == [1]
        assert not parts.scheduler.system_session.queues
        parts.drain()


class TestMemory:
    def test_what_finds_no_memory_blocks_no_stream(self) -> None:
        parts = Parts()
        x, y = parts.tensor(), parts.tensor(2, filled=False)
        parts.op("reads", reads=[x])
        parts.device.limit = parts.device.allocated + 8
        big = parts.op("big", writes=[y])
        small = parts.op("small", reads=[x], writes=[x])
        assert (big.status, small.status) == (Status.READY, Status.DISPATCHED)
        assert [instruction for _, instruction in parts.here.waiting] == [big]
        parts.device.limit = 1 << 24
        parts.drain()
        assert parts.ran == ["reads", "small", "big"]

    def test_the_oldest_that_waits_for_memory_is_tried_first(self) -> None:
        parts = Parts()
        parts.op("busy", writes=[parts.tensor()])
        parts.device.limit = parts.device.allocated
        waiting = [parts.op(str(n), writes=[parts.tensor(filled=False)]) for n in range(3)]
        parts.here.waiting.clear()
        for instruction in reversed(waiting):  # in any order
            wait_for_memory(instruction)
        parts.device.limit = 1 << 24
        parts.dispatcher.retry(parts.here)
        assert list(parts.dispatcher.ready) == [waiting[0]]
        parts.hand_over()
        assert [task.label for task in parts.device.compute[0].waiting] == ["busy", "0", "1", "2"]
        parts.drain()

    def test_one_that_has_retired_is_not_tried_again(self) -> None:
        parts = Parts()
        done = parts.op(writes=[parts.tensor()])
        parts.drain()
        wait_for_memory(done)
        parts.dispatcher.retry(parts.here)
        assert not parts.dispatcher.ready
        assert not parts.here.waiting

    def test_one_that_does_not_fit_fails_with_what_is_in_use(self) -> None:
        parts = Parts(memory=64)
        parts.tensor()
        big = parts.op("big", writes=[parts.tensor(8, filled=False)])
        parts.schedule()
        assert big.status is Status.FAILED
        assert "big: 64 bytes do not fit on cpu:0, where 8 bytes of 64 bytes are in use" in str(parts.errors[0])

    def test_one_that_is_larger_than_the_device_waits_for_nobody_and_counts_for_nobody(self) -> None:
        parts = Parts(memory=64)
        x, y, z = parts.tensor(), parts.tensor(8, filled=False), parts.tensor(100, filled=False)
        parts.op("slow", writes=[x])
        big = parts.op("big", reads=[x], writes=[y])
        huge = parts.op("huge", reads=[y], writes=[z])
        small = parts.op("small", writes=[parts.tensor(filled=False)])
        assert parts.here.planned == 16
        assert not parts.here.unreserved
        parts.schedule()
        assert small.status is Status.DISPATCHED
        parts.drain()
        assert (big.status, huge.status) == (Status.FAILED, Status.SKIPPED)
        (error,) = map(str, parts.errors)
        what = "big: 64 bytes do not fit on cpu:0 together with 8 bytes of operands"
        assert error == f"{what}: the device has 64 bytes in all; use smaller tensors"
        assert not violations(parts.engine)

    def test_what_was_expected_late_counts_in_program_order(self) -> None:
        parts = Parts()
        parts.op("busy", writes=[parts.tensor()])
        parts.device.limit = parts.device.allocated
        late, first = (parts.op(str(n), writes=[parts.tensor(filled=False)]) for n in range(2))
        parts.here.needs.take(late)
        expect_late(parts.here, late, 8)
        assert list(parts.here.unreserved) == [late, first]
        parts.device.limit = 1 << 24
        parts.drain()


class TestInline:
    def test_what_is_small_and_waits_for_nothing_runs_at_once(self) -> None:
        parts = Parts(inline=True)
        op = parts.op(writes=[parts.tensor()])
        assert (op.status, parts.ran) == (Status.DONE, ["op"])
        assert op.queue is None
        assert parts.device.compute[0].queued == 0

    def test_what_waits_for_a_stream_goes_behind_it(self) -> None:
        parts = Parts(inline=True)
        x = parts.tensor(100_000)
        parts.op(writes=[x])
        y = parts.tensor()
        parts.op(reads=[x], writes=[y])  # too large to run here
        last = parts.op(reads=[y])
        assert last.status is Status.DISPATCHED
        assert not runs_inline(last, parts.device.compute[0])
        parts.drain()

    def test_what_overtakes_a_busy_stream_leaves_it(self) -> None:
        parts = Parts(inline=True)
        parts.op("large", writes=[parts.tensor(100_000)])
        small = parts.op("small", writes=[parts.tensor()])
        assert (small.status, small.stream) == (Status.DONE, None)
        assert parts.ran == ["small"]
        parts.drain()

    def test_beside_an_idle_stream_it_keeps_the_stream_whose_memory_it_may_have(self) -> None:
        parts = Parts(inline=True)
        assert parts.op(writes=[parts.tensor()]).stream is parts.device.compute[0]

    def test_what_overtook_and_found_no_memory_is_given_its_stream_back(self) -> None:
        parts = Parts(inline=True)
        parts.op("large", writes=[parts.tensor(100_000)])
        parts.device.limit = parts.device.allocated
        small = parts.op("small", writes=[parts.tensor(filled=False)])
        assert (small.status, small.stream) == (Status.READY, parts.device.compute[0])
        parts.device.limit = 1 << 24
        parts.drain()
        assert small.status is Status.DONE


def test_a_completion_that_was_never_handed_over_is_a_bug_in_the_engine() -> None:
    parts = Parts(inline=True)
    done = parts.op(writes=[parts.tensor()])
    with pytest.raises(AssertionError, match="was reported, but no stream had it"):
        parts.dispatcher.reported(done)


def test_a_failed_binding_fails_the_instruction_and_nothing_else() -> None:
    parts = Parts()
    x, y = parts.tensor(), parts.tensor()

    def lose(instruction: Instruction) -> None:
        instruction.inputs = (instruction.outputs[0]._replace(copy=copy_of(parts.tensor(filled=False))),)

    lost, other = parts.op("lost", writes=[x], before=lose), parts.op("other", writes=[y])
    parts.drain()
    assert (lost.status, other.status) == (Status.FAILED, Status.DONE)
    assert "an operand has no memory" in str(parts.errors[0])


def test_a_stream_is_given_one_batch_per_pass() -> None:
    bare = Bare(inline=False)
    client = bare.client()
    x, number = client.upload([1.0]), client.signature("negative", (ONE,))
    stream = bare.device.compute[0]
    batches: list[int] = []
    submit = stream.submit

    def count(batch: Any) -> None:
        batches.append(len(batch))
        submit(batch)

    stream.submit = count
    client.send(*([CALL, number, (x,), (client.new(),), 0, 1] for _ in range(10)))
    assert batches == [10]
    bare.drain()
