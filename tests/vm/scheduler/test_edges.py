"""Edges between accesses: their sources, their reasons, and the removal of an access."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.memory.reservation import is_maker
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.reason import Reason
from tensord.vm.scheduler.edges import is_hard, release_accesses, touched_copies

from ..bare_engine import Bare
from ..parts import Parts, copy_of


@pytest.fixture
def parts() -> Parts:
    return Parts()


def edges_of(instruction: object) -> list[tuple[int, Reason]]:
    return [(source, reason) for source, reason, _, _ in instruction.edges]  # type: ignore[attr-defined]


class TestReasons:
    def test_a_read_waits_for_the_leading_write(self, parts: Parts) -> None:
        x = parts.tensor()
        writer, reader = parts.op(writes=[x]), parts.op(reads=[x])
        assert reader.edges == [(writer.id, Reason.RAW, copy_of(x).id, True)]
        assert not writer.edges

    def test_reads_do_not_wait_for_each_other(self, parts: Parts) -> None:
        x = parts.tensor()
        first, second = parts.op(reads=[x]), parts.op(reads=[x])
        assert first.edges == second.edges == []
        assert list(copy_of(x).readers or ()) == [first, second]

    def test_a_write_waits_for_each_read_since_the_last_write(self, parts: Parts) -> None:
        x = parts.tensor()
        readers = [parts.op(reads=[x]) for _ in range(3)]
        writer = parts.op(writes=[x])
        assert edges_of(writer) == [(reader.id, Reason.WAR) for reader in readers]

    def test_a_write_waits_for_the_write_before_it_also_without_a_read_between(self, parts: Parts) -> None:
        x = parts.tensor()
        first, second = parts.op(writes=[x]), parts.op(writes=[x])
        assert edges_of(second) == [(first.id, Reason.WAW)]

    def test_a_write_with_reads_in_front_waits_for_those_and_for_the_write(self, parts: Parts) -> None:
        x = parts.tensor()
        writer, reader, last = parts.op(writes=[x]), parts.op(reads=[x]), parts.op(writes=[x])
        assert edges_of(last) == [(writer.id, Reason.WAW), (reader.id, Reason.WAR)]

    def test_a_write_replaces_the_list(self, parts: Parts) -> None:
        x = parts.tensor()
        parts.op(writes=[x])
        parts.op(reads=[x])
        last = parts.op(writes=[x])
        assert copy_of(x).writer is last
        assert copy_of(x).readers is None
        assert edges_of(parts.op(reads=[x])) == [(last.id, Reason.RAW)]

    def test_an_update_in_place_reads_the_write_before_it(self, parts: Parts) -> None:
        x = parts.tensor()
        writer, update = parts.op(writes=[x]), parts.op(reads=[x], writes=[x])
        assert edges_of(update) == [(writer.id, Reason.RAW)]

    def test_an_update_in_place_does_not_wait_for_itself(self, parts: Parts) -> None:
        x = parts.tensor()
        update = parts.op(reads=[x], writes=[x])
        assert not update.edges
        assert not update.dependents
        parts.drain()
        assert update.status is Status.DONE

    def test_an_update_in_place_is_one_use(self, parts: Parts) -> None:
        x = parts.tensor()
        update = parts.op(reads=[x], writes=[x])
        assert (copy_of(x).uses, copy_of(x).queued) == (1, 1)
        assert touched_copies(update) == (copy_of(x),)
        parts.drain()
        assert (copy_of(x).uses, copy_of(x).queued) == (0, 0)

    def test_two_edges_between_two_instructions_count_once(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        source, target = parts.op(writes=[x, y]), parts.op(reads=[x, y])
        assert len(target.edges) == 2
        assert list(target.soft) == [source]
        assert list(source.dependents) == [target]
        parts.drain()
        assert target.status is Status.DONE


class TestHardAndSoft:
    def test_between_kernels_an_edge_is_soft(self, parts: Parts) -> None:
        x = parts.tensor()
        source, target = parts.op(writes=[x]), parts.op(reads=[x])
        assert not is_hard(source, target)
        assert (target.hard, list(target.soft)) == (0, [source])

    @pytest.mark.parametrize("host_first", [True, False])
    def test_what_the_host_sees_waits_hard_and_is_waited_for_hard(self, parts: Parts, *, host_first: bool) -> None:
        x = parts.tensor()
        held = parts.op(writes=[x])  # so that later accesses stay
        opcodes = [Opcode.ACCESS, Opcode.CALL]
        first, second = [
            parts.op(reads=[x], writes=[x], opcode=opcode) for opcode in (opcodes if host_first else reversed(opcodes))
        ]
        assert is_hard(first, second)
        assert second.hard == 1
        assert not second.soft
        assert held.status is Status.DISPATCHED
        assert second.status is Status.WAITING

    def test_who_does_not_know_its_metas_waits_hard(self, parts: Parts) -> None:
        x = parts.tensor()
        source = parts.op(writes=[x])

        def pend(instruction: object) -> None:
            instruction.pending = 1  # type: ignore[attr-defined]

        target = parts.op(reads=[x], before=pend)
        assert (target.hard, target.soft) == (1, {})
        assert is_hard(source, target)

    def test_what_reads_a_result_whose_shape_the_data_decide_waits_hard(self) -> None:
        bare = Bare(inline=False)
        client = bare.client()
        x = client.upload([3.0, 1.0, 3.0])
        number = client.signature("unique_values", (((3,), "float64"),))
        client.send([0, number, (x,), (client.new(),), 0, 1])
        unique = client.ids
        client.call("negative", unique, meta=None)
        source, target = bare.engine.live.values()
        assert is_hard(source, target)
        assert client.fetch(client.ids) == [-1.0, -3.0]

    def test_a_soft_source_without_a_stream_holds_up_its_successors(self, parts: Parts) -> None:
        x, y = parts.tensor(), parts.tensor()
        launched = parts.op(writes=[x])
        host = parts.op(reads=[x], writes=[y], opcode=Opcode.ACCESS)  # waits hard, so it is not launched
        between = parts.op(reads=[y], writes=[y])  # waits hard for it
        last = parts.op(reads=[y, x])
        assert host.status is Status.WAITING
        assert set(last.soft) == {launched, between}
        assert (between.queue, last.status) == (None, Status.WAITING)
        parts.drain()
        assert parts.ran == ["op"] * 4


class TestPoison:
    def test_a_reader_of_a_value_that_is_known_to_be_bad_is_doomed_at_admission(self, parts: Parts) -> None:
        x = parts.tensor()
        copy_of(x).poison = error = KernelError("bad")
        reader = parts.op(reads=[x])
        assert (reader.error, reader.status) == (error, Status.SKIPPED)

    def test_a_reader_behind_a_write_that_heals_is_not(self, parts: Parts) -> None:
        x = parts.tensor()
        copy_of(x).poison = KernelError("bad")
        parts.op(writes=[x])
        reader = parts.op(reads=[x])
        assert reader.error is None
        parts.drain()
        assert reader.status is Status.DONE


class TestLeaving:
    def test_a_finished_access_leaves_the_list(self, parts: Parts) -> None:
        x = parts.tensor()
        copy = copy_of(x)
        writer = parts.op(writes=[x])
        readers = [parts.op(reads=[x]) for _ in range(2)]
        parts.run()
        assert copy.writer is None
        assert list(copy.readers or ()) == readers
        assert copy.uses == 2
        parts.run(count=2)
        assert not copy.readers
        assert copy.uses == 0
        assert writer.retired

    def test_a_later_writer_stays_when_an_earlier_one_leaves(self, parts: Parts) -> None:
        x = parts.tensor()
        parts.op(writes=[x])
        last = parts.op(writes=[x])
        parts.run()
        assert copy_of(x).writer is last

    def test_leaving_looks_at_no_other_access(self, parts: Parts) -> None:
        """O(1): the other accesses are not so much as compared or hashed."""
        x = parts.tensor()
        first, *others = [parts.op(reads=[x]) for _ in range(50)]
        touched: list[int] = []

        class Watched(dict):  # type: ignore[type-arg]
            def __iter__(self):
                touched.append(len(self))
                return super().__iter__()

        copy_of(x).readers = Watched(copy_of(x).readers or {})
        release_accesses(first)
        assert not touched
        assert list(copy_of(x).readers or ()) == others

    def test_a_release_holds_no_memory_so_it_takes_no_use_away(self, parts: Parts) -> None:
        x = parts.tensor()
        copy = copy_of(x)
        parts.op(reads=[x])
        parts.release(x)
        release = copy.writer
        assert release is not None
        assert release.opcode is Opcode.RELEASE
        assert copy.uses == 1
        parts.drain()
        assert copy.uses == 0
        assert copy.buffer is None


class TestMakers:
    def test_the_first_write_of_an_empty_copy_makes_it(self, parts: Parts) -> None:
        x = parts.tensor(filled=False)
        assert is_maker(parts.op(writes=[x]), copy_of(x))

    def test_a_write_behind_another_write_or_a_read_of_its_does_not(self, parts: Parts) -> None:
        x = parts.tensor(filled=False)
        parts.op(writes=[x])
        assert not is_maker(parts.op(writes=[x]), copy_of(x))
        assert not is_maker(parts.op(reads=[x], writes=[x]), copy_of(x))

    def test_a_write_behind_reads_alone_makes_it_anew(self, parts: Parts) -> None:
        x = parts.tensor(filled=False)
        copy_of(x).poison = KernelError("so that nobody needs its buffer")
        held = parts.tensor()
        parts.op(writes=[held])
        parts.op(reads=[held, x])
        writer = parts.op(writes=[x])
        assert edges_of(writer)
        assert is_maker(writer, copy_of(x))

    def test_the_ledger_expects_the_makers_alone(self, parts: Parts) -> None:
        x = parts.tensor(filled=False)
        parts.op(writes=[parts.tensor()])
        parts.device.limit = parts.device.allocated  # no memory can be reserved
        maker = parts.op(writes=[x])
        parts.op(reads=[x], writes=[x])
        assert parts.here.unreserved == {maker: 8}
        parts.device.limit = 1 << 24
        parts.drain()
