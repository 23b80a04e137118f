"""The scheduler: admission, completion as a work list, barriers, and the end of an instruction."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm import engine
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.scheduler import fair_queue
from tensord.vm.scheduler import scheduler as module
from tensord.vm.scheduler.fair_queue import leave

from ..parts import Parts, ToldAtDoom, ToldEnd, copy_of, fail

LENGTH = 1500


@pytest.fixture
def parts() -> Parts:
    return Parts()


def chain_on_events(length: int) -> tuple[Parts, list[Instruction]]:
    """A source on one stream and a long chain on another, which is executed and reported before the source is."""
    parts = Parts("sim:0", workers=2, events=True)
    x, y = parts.tensor(), parts.tensor()
    source = parts.op("source", writes=[x])
    other: Any = parts.device.compute[1]

    def put(instruction: Instruction) -> None:
        instruction.stream = other

    chain = [parts.op("link", reads=[x, y], writes=[y], before=put)]
    chain += [parts.op("link", reads=[y], writes=[y]) for _ in range(length - 1)]
    while len(other.executed) < length:  # `source` has its event, but is not reported
        if not source.event:
            parts.device.compute[0].execute()
        if not other.waiting:
            other.report(len(other.executed))
            parts.schedule()
            break
        other.execute()
    return parts, [source, *chain]


class TestCompletion:
    def test_a_long_chain_that_was_executed_before_its_source_completes_without_recursion(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fair_queue, "QUEUE_DEPTH", 2 * LENGTH)
        monkeypatch.setattr(fair_queue, "EXCLUSIVE_WORK", 1 << 60)
        parts, (source, *chain) = chain_on_events(LENGTH)
        stream = parts.device.compute[1]
        stream.report(len(stream.executed))
        parts.schedule()
        assert {link.status for link in chain} == {Status.EXECUTED}
        assert source.status is Status.DISPATCHED
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(300)
        try:
            parts.device.compute[0].report(1)
            parts.schedule()
        finally:
            sys.setrecursionlimit(depth)
        assert {link.status for link in (source, *chain)} == {Status.DONE}
        assert not parts.scheduler.live

    def test_a_chain_whose_source_fails_late_is_skipped_to_its_end(self) -> None:
        parts, (source, *chain) = chain_on_events(20)
        stream = parts.device.compute[1]
        stream.report(len(stream.executed))
        parts.schedule()
        source.fail(RuntimeError("late"))
        parts.device.compute[0].report(1)
        parts.schedule()
        assert source.status is Status.FAILED
        assert {link.status for link in chain} == {Status.SKIPPED}
        assert {link.error for link in chain} == {source.error}

    def test_an_exception_inside_a_completion_leaves_the_work_list_usable(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        broken, fine = parts.op(writes=[x]), parts.op(writes=[y])

        def explode(_: Instruction) -> None:
            raise ZeroDivisionError

        broken.on_end = ToldEnd(explode)
        stream = parts.device.compute[0]
        stream.execute()
        stream.execute()
        stream.report(2)
        with pytest.raises(ZeroDivisionError):
            parts.engine.schedule()
        parts.engine.fault = None  # a driver would not call the engine again
        parts.schedule()
        assert fine.status is Status.DONE
        later = parts.op(reads=[y])
        parts.drain()
        assert later.status is Status.DONE

    def test_what_its_end_leads_to_comes_before_the_next_one_retires(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op(writes=[x]), parts.op(writes=[y])
        seen: list[Status] = []
        first.on_end = ToldEnd(lambda one: seen.extend([one.status, second.status]))
        stream = parts.device.compute[0]
        stream.execute()
        stream.execute()
        stream.report(2)
        parts.scheduler.release_finished()
        assert (first.status, seen) == (Status.DONE, [])  # the scheduler makes no calls
        parts.schedule()
        assert seen == [Status.DONE, Status.DISPATCHED]
        assert second.status is Status.DONE

    def test_one_completed_while_another_is_completed_comes_after_it(self, parts: Parts) -> None:
        order: list[str] = []
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op("first", writes=[x]), parts.op("second", writes=[y])
        stream = parts.device.compute[0]
        stream.execute()
        stream.execute()

        def complete_other(_: Instruction) -> None:
            leave(second.queue, second)  # type: ignore[arg-type]
            parts.scheduler.complete(second)
            order.append("first")

        first.on_end = ToldEnd(complete_other)
        second.on_end = ToldEnd(lambda _: order.append("second"))
        stream.report(1)
        parts.schedule()
        assert order == ["first", "second"]

    def test_it_is_executed_until_its_sources_are_final(self) -> None:
        parts, (source, link) = chain_on_events(1)
        stream = parts.device.compute[1]
        stream.report(len(stream.executed))
        parts.schedule()
        assert (link.status, list(link.soft)) == (Status.EXECUTED, [source])
        assert copy_of(link.outputs[0].tensor).uses == 1
        parts.drain()
        parts.device.compute[0].report(1)
        parts.schedule()
        assert link.status is Status.DONE


class TestAdmission:
    def test_each_gets_the_next_id_and_tick_and_its_position_among_the_living(self, parts: Parts) -> None:
        made = [parts.op(writes=[parts.tensor()]) for _ in range(3)]
        assert [one.id for one in made] == [1, 2, 3]
        assert [one.admitted for one in made] == [1, 2, 3]
        assert list(parts.scheduler.live.values()) == list(parts.session.live.values()) == made
        assert list(parts.here.live) == made
        parts.drain()
        assert not parts.scheduler.live
        assert not parts.session.live
        assert not parts.here.live
        assert parts.scheduler.tick == 6
        assert parts.scheduler.retired == 3

    def test_it_notes_the_versions_that_it_was_bound_to(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        copy_of(x).version, copy_of(y).version = 4, 9
        assert parts.op(reads=[x], writes=[y]).versions == (4, 9)
        parts.drain()

    def test_its_tensors_count_as_bound(self, parts: Parts) -> None:
        x = parts.tensor()
        assert not x.bound
        parts.op(writes=[x])
        assert x.bound
        parts.drain()

    def test_who_waits_for_a_value_that_is_lost_is_told_at_admission(self, parts: Parts) -> None:
        x = parts.tensor()
        copy_of(x).poison = error = KernelError("bad")
        told: list[Any] = []

        def watch(instruction: Instruction) -> None:
            instruction.on_end = ToldAtDoom(lambda one: told.append(one.error))

        parts.op(reads=[x], before=watch)
        assert told == [error]


class TestBarriers:
    def test_it_waits_for_everything_of_its_session_and_for_no_other(self, parts: Parts) -> None:
        stranger = parts.engine.open_session(lambda *_: None)
        mine = [parts.op(writes=[parts.tensor()]) for _ in range(3)]
        other = parts.op(writes=[parts.tensor()], session=stranger)
        barrier = parts.scheduler.new_instruction(parts.session, Opcode.BARRIER, "barrier", parts.here, 0)
        parts.scheduler.admit_barrier(parts.session, barrier)
        assert [(source, reason.value) for source, reason, _, _ in barrier.edges] == [
            (one.id, "barrier") for one in mine
        ]
        parts.run(count=2)
        assert barrier.status is Status.WAITING
        parts.run()
        assert barrier.status is Status.DONE
        assert other.status is Status.DISPATCHED
        parts.drain()

    def test_the_next_one_waits_for_it_and_for_what_came_since(self, parts: Parts) -> None:
        parts.op(writes=[parts.tensor()])
        barriers = []
        for _ in range(2):
            barrier = parts.scheduler.new_instruction(parts.session, Opcode.BARRIER, "barrier", parts.here, 0)
            parts.scheduler.admit_barrier(parts.session, barrier)
            barriers.append(barrier)
            since = parts.op(writes=[parts.tensor()])
        assert [source for source, *_ in barriers[1].edges] == [barriers[0].id, since.id - 2]
        parts.drain()
        assert all(barrier.status is Status.DONE for barrier in barriers)


class TestErrors:
    def test_one_is_told_once_at_its_origin(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        failed = parts.op(writes=[x], kernel=fail)
        parts.op(reads=[x], writes=[y])
        parts.op(reads=[y])
        parts.drain()
        assert parts.errors == [failed.error]
        assert (parts.scheduler.failed, parts.session.counts.errors) == (1, 1)

    def test_a_failure_dooms_those_that_read_and_spares_those_that_overwrite(self, parts: Parts) -> None:
        x = parts.tensor()
        parts.op(writes=[x], kernel=fail)
        reader = parts.op(reads=[x])
        parts.op("heals", writes=[x])
        after = parts.op("after", reads=[x])
        parts.drain()
        assert (reader.status, after.status) == (Status.SKIPPED, Status.DONE)
        assert parts.ran == ["heals", "after"]

    def test_what_the_stream_has_not_started_is_revoked(self, parts: Parts) -> None:
        x = parts.tensor()
        op = parts.op(writes=[x])
        parts.scheduler.revoke(op, error := KernelError("stop"))
        parts.drain()
        assert not parts.ran
        assert op.error is copy_of(x).poison is error

    def test_what_the_stream_has_started_finishes_unseen(self, parts: Parts) -> None:
        x, error = parts.tensor(), CancelledError("stop")
        told: list[Any] = []

        def ask(instruction: Instruction) -> None:
            instruction.on_end = ToldAtDoom(lambda doomed: told.append(doomed.error))

        def kernel(*_: Any) -> None:  # the driving thread cancels while it runs
            parts.scheduler.revoke(op, error)
            parts.engine.admission.conclude()
            assert told == [error]

        op = parts.op(writes=[x], kernel=kernel, before=ask)
        parts.drain()
        assert told == [error]
        assert (op.status, op.error, copy_of(x).poison) == (Status.CANCELLED, error, error)


def test_nothing_that_a_retired_one_holds_refers_back_to_it(parts: Parts) -> None:
    x = parts.tensor()

    def watch(instruction: Instruction) -> None:
        instruction.on_end = ToldEnd(lambda _: None)

    op = parts.op(writes=[x], before=watch)
    parts.drain()
    assert (op.kernel, op.on_end) == (None, None)
    assert (op.arguments, op.event_sources, op.dependents) == ((), (), {})


def test_a_reply_or_a_report_that_nobody_wants_is_dropped(parts: Parts) -> None:
    module.drop_reply(1, None, None)
    engine.drop_report(parts.session, KernelError("x"))
