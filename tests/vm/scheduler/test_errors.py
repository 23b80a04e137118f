"""Errors follow RAW edges: doomed, overwritten and unaffected instructions."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.scheduler import errors
from tensord.vm.scheduler.errors import doom, overrule, readers_of, settle_late

from ..parts import Parts, ToldAtDoom, ToldEnd, copy_of, fail

BAD = KernelError("bad")


@pytest.fixture
def parts() -> Parts:
    return Parts()


def hold(parts: Parts) -> Instruction:
    """An instruction that the host waits for: its hard readers stay pending."""
    x = parts.tensor()
    parts.op("busy", writes=[x])
    gate = parts.tensor()
    return parts.op("gate", reads=[x], writes=[gate], opcode=Opcode.ACCESS)


def pending_chain(parts: Parts, length: int) -> list[Instruction]:
    """A chain that has no stream yet, each link in a tensor of its own."""
    gate = hold(parts)
    before = gate.outputs[0].tensor
    found = []
    for n in range(length):
        after = parts.tensor()
        found.append(parts.op(f"link {n}", reads=[before], writes=[after]))
        before = after
    assert all(link.status is Status.WAITING for link in found)
    return found


class TestDoom:
    def test_it_takes_along_what_reads_the_value_however_far(self, parts: Parts) -> None:
        chain = pending_chain(parts, 5)
        assert set(doom([chain[1]], BAD)) == set(chain[1:])
        assert chain[0].error is None
        assert all(link.error is BAD for link in chain[1:])

    def test_a_chain_of_thousands_is_no_deep_recursion(self, parts: Parts) -> None:
        chain = pending_chain(parts, 2000)
        assert len(doom([chain[0]], BAD)) == 2000

    def test_who_overwrites_the_value_is_left_alone(self, parts: Parts) -> None:
        (link,) = pending_chain(parts, 1)
        target = link.outputs[0].tensor
        overwrite = parts.op(writes=[target])
        reader = parts.op(reads=[target])
        assert doom([link], BAD) == [link]
        assert overwrite.error is None
        assert reader.error is None

    def test_who_only_writes_behind_a_reader_is_left_alone(self, parts: Parts) -> None:
        (link,) = pending_chain(parts, 1)
        overwrite = parts.op(writes=[parts.tensor()])
        war = parts.op(writes=[next(t for t in parts.session.tensors.values() if copy_of(t) is link.reads[0])])
        assert (link.id, "WAR") in [(source, reason.value) for source, reason, _, _ in war.edges]
        doom([link], BAD)
        assert war.error is overwrite.error is None

    def test_an_error_that_is_there_already_stays(self, parts: Parts) -> None:
        first, second = pending_chain(parts, 2)
        second.error = earlier = KernelError("earlier")
        assert doom([first], BAD) == [first]
        assert second.error is earlier

    def test_a_dispatched_one_gets_the_error_and_is_not_returned(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        first, second = parts.op(writes=[x]), parts.op(reads=[x], writes=[y])
        assert doom([first], BAD) == []
        assert first.error is second.error is BAD
        parts.drain()
        assert not parts.ran
        assert (first.status, second.status) == (Status.SKIPPED, Status.SKIPPED)

    def test_the_doomed_leave_in_their_order_and_poison_what_they_were_to_write(self, parts: Parts) -> None:
        chain = pending_chain(parts, 2)
        parts.scheduler.doom([chain[0]], BAD)
        assert [link.status for link in chain] == [Status.DOOMED] * 2
        assert copy_of(chain[0].outputs[0].tensor).poison is None
        parts.drain()
        assert [link.status for link in chain] == [Status.SKIPPED] * 2
        assert all(copy_of(link.outputs[0].tensor).poison is BAD for link in chain)

    def test_whoever_waits_for_one_is_told_at_once_and_once(self, parts: Parts) -> None:
        told: list[str] = []
        (link,) = pending_chain(parts, 1)
        link.on_end = ToldAtDoom(lambda one: told.append(one.status.value))
        parts.scheduler.doom([link], BAD)
        parts.hand_over()
        assert told == ["DOOMED"]
        parts.drain()
        assert link.status is Status.SKIPPED
        assert told == ["DOOMED"]

    def test_whoever_only_wants_its_outcome_is_told_once_it_has_retired(self, parts: Parts) -> None:
        told: list[str] = []
        (link,) = pending_chain(parts, 1)
        link.on_end = ToldEnd(lambda one: told.append(one.status.value))
        parts.scheduler.doom([link], BAD)
        parts.hand_over()
        assert told == []
        parts.drain()
        assert told == ["SKIPPED"]


class TestOverrule:
    def test_a_dispatched_one_that_had_failed_itself_gets_the_first_cause(self, parts: Parts) -> None:
        x = parts.tensor()
        op = parts.op(writes=[x], kernel=fail)
        parts.device.compute[0].execute()
        own = op.error
        assert copy_of(x).poison is own is not None
        assert overrule(op, BAD) == (own,)
        assert (op.error, op.origin) == (BAD, False)
        assert copy_of(x).poison is BAD
        parts.drain()
        assert not parts.errors

    def test_a_result_that_had_failed_alone_is_overruled_too(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        op = parts.op(writes=[x, y], kernel=lambda *_: [1, ValueError("alone")])
        parts.device.compute[0].execute()
        alone = copy_of(y).poison
        assert overrule(op, BAD) == (alone,)
        assert op.failures is None
        assert copy_of(y).poison is BAD
        assert copy_of(x).poison is None
        parts.drain()

    def test_what_others_wrote_since_keeps_its_poison(self, parts: Parts) -> None:
        x = parts.tensor()
        op = parts.op(writes=[x], kernel=fail)
        parts.device.compute[0].execute()
        copy_of(x).poison = other = KernelError("of a later write")
        overrule(op, BAD)
        assert copy_of(x).poison is other
        parts.drain()

    def test_who_inherited_the_error_that_was_none_is_doomed_with_the_new_one(self) -> None:
        parts = Parts(late=True)
        x, y, z = (parts.tensor() for _ in range(3))
        first = parts.op("first", writes=[x])
        second = parts.op("second", reads=[x], writes=[y], kernel=fail)
        third = parts.op("third", reads=[y], writes=[z])
        for _ in range(3):
            parts.device.compute[0].execute()
        assert third.error is second.error is not None
        doom([first], BAD)
        assert first.error is second.error is third.error is BAD
        assert copy_of(y).poison is copy_of(z).poison is BAD
        parts.drain()
        assert third.status is Status.SKIPPED


class TestSettleLate:
    def failed_late(self, parts: Parts, *behind: str) -> tuple[Instruction, Instruction | None]:
        """A write that was executed, perhaps with another one behind it, and fails only when it is reported."""
        x = parts.tensor()
        op = parts.op(writes=[x])
        other = parts.op(behind[0], writes=[x]) if behind else None
        stream = parts.device.compute[0]
        while stream.can_execute():
            stream.execute()
        op.fail(RuntimeError("late"))
        assert copy_of(x).poison is None
        return op, other

    def test_it_poisons_what_it_wrote(self, parts: Parts) -> None:
        op, _ = self.failed_late(parts)
        settle_late(op)
        assert op.writes[0].poison is op.error is not None
        parts.device.compute[0].report(1)
        parts.schedule()

    def test_but_not_what_was_written_since(self, parts: Parts) -> None:
        op, other = self.failed_late(parts, "behind")
        settle_late(op)
        assert op.writes[0].poison is None
        parts.device.compute[0].report(2)
        parts.schedule()
        assert other is not None
        assert (op.status, other.status) == (Status.FAILED, Status.DONE)
        assert op.writes[0].poison is None

    @pytest.mark.parametrize("read", [False, True])
    def test_a_newest_writer_that_no_stream_has_yet_does_not_hide_one_in_between(
        self, parts: Parts, read: bool
    ) -> None:
        x, y = parts.tensor(), parts.tensor()
        op = parts.op(writes=[x], kernel=fail)
        if read:
            parts.op(reads=[x], writes=[y])
        between = parts.op(writes=[x])
        newest = parts.op(reads=[x], writes=[x], opcode=Opcode.ACCESS)
        assert (between.status, newest.status) == (Status.DISPATCHED, Status.WAITING)
        parts.run(count=3 if read else 2)
        assert (op.status, between.status) == (Status.FAILED, Status.DONE)
        assert copy_of(x).poison is None
        parts.drain()
        assert newest.status is Status.DONE

    def test_readers_that_depend_on_each_other_are_walked_once(self, parts: Parts) -> None:
        x = parts.tensor()
        op = parts.op(writes=[x])
        made = [x, x]
        for _ in range(60):  # the number of ways to the last one is a Fibonacci number
            result = parts.tensor()
            parts.op(reads=[x, made[-1], made[-2]], writes=[result])
            made.append(result)
        assert not errors.is_overwritten(op, copy_of(x))
        parts.drain()

    def test_a_writer_that_no_stream_has_yet_comes_after_the_poison(self, parts: Parts) -> None:
        x = parts.tensor()
        op = parts.op(writes=[x])
        host = parts.op(writes=[x], opcode=Opcode.ACCESS)
        parts.device.compute[0].execute()
        op.fail(RuntimeError("late"))
        settle_late(op)
        assert copy_of(x).poison is op.error
        parts.device.compute[0].report(1)
        parts.drain()
        assert host.status is Status.DONE
        assert copy_of(x).poison is None


class TestReaders:
    def test_they_are_those_with_a_raw_edge_on_one_of_the_copies(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        source = parts.op(writes=[x, y])
        reads_x, reads_y = parts.op(reads=[x]), parts.op(reads=[y])
        writes_x = parts.op(writes=[x])
        assert readers_of(source, {copy_of(x).id}) == [reads_x]
        assert readers_of(source, {copy_of(x).id, copy_of(y).id}) == [reads_x, reads_y]
        assert writes_x in source.dependents

    def test_those_that_are_doomed_already_are_left_out(self, parts: Parts) -> None:
        x = parts.tensor()
        source, reader = parts.op(writes=[x]), parts.op(reads=[x])
        reader.error = BAD
        ids = {copy_of(x).id}
        assert readers_of(source, ids) == []
        assert readers_of(source, ids, overruled=(BAD,)) == [reader]
        assert errors.is_among(BAD, (KernelError("bad"),)) is False
        reader.origin = True
        assert readers_of(source, ids) == [reader]
