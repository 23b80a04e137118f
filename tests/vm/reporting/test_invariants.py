"""The checks of the invariants: a sound engine passes them, and each check finds its corruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.device import Eviction
from tensord.vm.memory.ledger import expect
from tensord.vm.memory.making_room import gather
from tensord.vm.model.directory import Published
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.placement.views import alias
from tensord.vm.reporting.invariants import CHECKS, MAX_VIOLATIONS, violations
from tensord.vm.scheduler import fair_queue

from ..parts import Parts, copy_of


class Busy(Parts):
    """An engine in the middle of work, with objects of every kind that the checks examine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("cpu:0", "sim:0", eviction=Eviction.COST)
        monkeypatch.setattr(fair_queue, "QUEUE_DEPTH", 0)
        self.x, self.y = self.tensor(), self.tensor()
        self.residency.operand(self.x, self.at("sim:0"), Cause(self.session, 0))  # a transfer
        self.scheduler.bound.clear()
        self.hand_over()
        self.writer = self.op("writer", writes=[self.y])
        self.reader = self.op("reader", reads=[self.y])
        self.host = self.op("host", reads=[self.y], writes=[self.y], opcode=Opcode.ACCESS)
        self.chain = [self.op("link", reads=[self.x]) for _ in range(8)]
        self.waiting = self.chain[-1]  # has no room on its stream
        self.gate = self.op("gate", writes=[self.tensor()])
        self.needy = [self.op("needy", reads=[self.y], writes=[self.tensor(2, filled=False)]) for _ in range(2)]
        gather(self.at("sim:0"), self.engine.directory.storages())
        self.name = self.tensor()
        self.engine.admission.names.publish(self.session, ["name"], [Published((self.name,))])

    @property
    def cpu(self) -> Any:
        return self.at("cpu:0")


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    return Busy(monkeypatch)


def test_the_engine_that_is_corrupted_below_is_sound(busy: Busy) -> None:
    assert violations(busy.engine) == []
    assert busy.waiting.status is Status.READY
    assert busy.host.status is Status.WAITING
    assert len(busy.cpu.unreserved) == 2
    assert busy.dispatcher.backlog
    busy.drain()
    assert violations(busy.engine) == []
    assert not busy.engine.live


def late_version(busy: Busy) -> None:
    copy_of(busy.x).version += 1


def current_in_no_map(busy: Busy) -> None:
    del busy.x.storage.copies[busy.at("sim:0")]


def wrong_device(busy: Busy) -> None:
    copies = busy.x.storage.copies
    copies[busy.at("sim:0")] = copies[busy.cpu]


def view_on_the_wrong_device(busy: Busy) -> None:
    copy = busy.residency.new_copy(busy.cpu, 4, busy.x.storage.version)
    busy.x.storage.views = {(busy.cpu, (0, (1,), (8,))): copy}


def stale_in_a_map(busy: Busy) -> None:
    copy_of(busy.x).current = False


def retired_writer(busy: Busy) -> None:
    done = Instruction(999, busy.session, Opcode.CALL, "done", busy.cpu, 0)
    done.writes = (copy_of(busy.x),)
    done.status = Status.DONE
    copy_of(busy.x).writer = done


def writer_without_that_access(busy: Busy) -> None:
    copy_of(busy.x).writer = busy.writer


def reader_without_that_access(busy: Busy) -> None:
    copy_of(busy.y).readers = {busy.chain[0]: None}


def buffer_of_a_stale_copy(busy: Busy) -> None:
    copy = copy_of(busy.name)
    copy.current = False


def one_buffer_twice(busy: Busy) -> None:
    copy_of(busy.name).buffer = copy_of(busy.x).buffer


def leaked_buffer(busy: Busy) -> None:
    busy.device.allocate(64)


def reusable_twice(busy: Busy) -> None:
    busy.cpu.reusable[busy.device.compute[0]] = [copy_of(busy.x).buffer]


def order_of_unreserved(busy: Busy) -> None:
    order = list(reversed(busy.cpu.unreserved.items()))
    busy.cpu.unreserved.clear()
    busy.cpu.unreserved.update(order)


def retired_and_unreserved(busy: Busy) -> None:
    done = Instruction(999, busy.session, Opcode.CALL, "done", busy.cpu, 0)
    done.status = Status.DONE
    expect(busy.cpu, done, 8)


def scratch_of_what_does_not_run(busy: Busy) -> None:
    busy.host.scratch = 8
    busy.device.set_aside(8)


def holders_off(busy: Busy) -> None:
    busy.name.holders += 1


def holder_without_handle(busy: Busy) -> None:
    busy.engine.directory.bind("alias", Published((busy.name,)), busy.session.account)


def sharers_off(busy: Busy) -> None:
    busy.x.storage.sharers += 1


def sharer_not_counted(busy: Busy) -> None:
    other = alias(busy.x, busy.cpu)
    busy.x.storage.sharers -= 1
    busy.session.tensors[999] = other


def bytes_off(busy: Busy) -> None:
    busy.session.account.bytes -= 8


def share_off(busy: Busy) -> None:
    busy.session.account.shares[busy.cpu] = 8


def hard_off(busy: Busy) -> None:
    busy.host.hard += 1


def soft_lost(busy: Busy) -> None:
    busy.reader.soft.clear()


def failed_and_not_doomed(busy: Busy) -> None:
    busy.needy[0].error = KernelError("x")


def retired_before_its_source(busy: Busy) -> None:
    busy.reader.status = Status.DONE


def lost_ready(busy: Busy) -> None:
    queue = busy.session.queues[busy.device.compute[0]]
    queue.waiting.remove(busy.waiting)
    busy.dispatcher.backlog[busy.device.compute[0]].count -= 1


def waits_for_nothing(busy: Busy) -> None:
    queue = busy.session.queues[busy.device.compute[0]]
    queue.waiting.remove(busy.waiting)
    busy.waiting.status = Status.WAITING


def doomed_and_forgotten(busy: Busy) -> None:
    busy.waiting.error = busy.waiting.describe(ValueError("no"))


def executed_and_forgotten(busy: Busy) -> None:
    busy.gate.status = Status.EXECUTED


def stream_queued_off(busy: Busy) -> None:
    busy.device.compute[0].queued += 1


def part_of_the_stream_off(busy: Busy) -> None:
    busy.session.queues[busy.device.compute[0]].queued -= 1


def backlog_off(busy: Busy) -> None:
    busy.dispatcher.backlog[busy.device.compute[0]].count += 1


def missing_on_the_device(busy: Busy) -> None:
    del busy.cpu.live[busy.host]


def order_on_the_device(busy: Busy) -> None:
    busy.cpu.live = dict(reversed(busy.cpu.live.items()))


def missing_in_the_session(busy: Busy) -> None:
    del busy.session.live[busy.host.id]


def retired_and_listed(busy: Busy) -> None:
    busy.gate.status = Status.DONE


def one_use_too_many(busy: Busy) -> None:
    copy_of(busy.x).uses += 1


def one_use_too_few(busy: Busy) -> None:
    copy_of(busy.y).uses -= 1


def queued_off(busy: Busy) -> None:
    copy_of(busy.y).queued += 1


def no_candidate(busy: Busy) -> None:
    busy.at("sim:0").candidates.clear()


def candidate_of_another(busy: Busy) -> None:
    busy.at("sim:0").candidates[copy_of(busy.x, busy.at("sim:0"))] = busy.y.storage


CORRUPTIONS: dict[Callable[[Busy], None], str] = {
    holders_off: "holders_are_counted",
    holder_without_handle: "holders_are_counted",
    sharers_off: "sharers_are_counted",
    sharer_not_counted: "sharers_are_counted",
    stale_in_a_map: "maps_hold_current_copies",
    late_version: "maps_hold_current_copies",
    current_in_no_map: "maps_hold_current_copies",
    wrong_device: "maps_hold_current_copies",
    view_on_the_wrong_device: "maps_hold_current_copies",
    one_use_too_many: "uses_are_counted",
    one_use_too_few: "uses_are_counted",
    queued_off: "uses_are_counted",
    retired_writer: "access_lists_are_live",
    writer_without_that_access: "access_lists_are_live",
    reader_without_that_access: "access_lists_are_live",
    buffer_of_a_stale_copy: "stale_copies_without_uses_have_no_buffer",
    no_candidate: "current_copies_are_candidates",
    candidate_of_another: "current_copies_are_candidates",
    one_buffer_twice: "memory_adds_up",
    leaked_buffer: "memory_adds_up",
    reusable_twice: "memory_adds_up",
    scratch_of_what_does_not_run: "memory_adds_up",
    order_of_unreserved: "needs_are_of_live_instructions",
    retired_and_unreserved: "needs_are_of_live_instructions",
    bytes_off: "accounts_add_up",
    share_off: "shares_add_up",
    hard_off: "edges_are_counted",
    soft_lost: "edges_are_counted",
    failed_and_not_doomed: "proceeding_instructions_are_queued",
    retired_before_its_source: "edges_are_counted",
    lost_ready: "proceeding_instructions_are_queued",
    waits_for_nothing: "proceeding_instructions_are_queued",
    doomed_and_forgotten: "proceeding_instructions_are_queued",
    executed_and_forgotten: "proceeding_instructions_are_queued",
    stream_queued_off: "streams_are_counted",
    part_of_the_stream_off: "streams_are_counted",
    backlog_off: "streams_are_counted",
    missing_on_the_device: "live_instructions_are_listed",
    order_on_the_device: "live_instructions_are_listed",
    missing_in_the_session: "live_instructions_are_listed",
    retired_and_listed: "live_instructions_are_listed",
}


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda one: one.__name__)
def test_a_corruption_is_found_by_the_check_that_is_named_for_it(
    busy: Busy, corruption: Callable[[Busy], None]
) -> None:
    corruption(busy)
    found = {text.partition(":")[0] for text in violations(busy.engine)}
    assert CORRUPTIONS[corruption] in found


def test_every_check_finds_something() -> None:
    assert {check.__name__ for check in CHECKS} == set(CORRUPTIONS.values())


def test_a_violation_names_the_object(busy: Busy) -> None:
    one_use_too_many(busy)
    (text,) = violations(busy.engine)
    found = "9 accesses, 0 mappings and 0 standbys"
    assert text == f"uses_are_counted: {copy_of(busy.x)} has `uses` 10, but {found}"


def test_the_number_of_reported_violations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_: object) -> Any:
        return (f"wrong {n}" for n in range(10 * MAX_VIOLATIONS))

    monkeypatch.setattr("tensord.vm.reporting.invariants.CHECKS", (wrong,))
    assert len(violations(Parts().engine)) == MAX_VIOLATIONS
