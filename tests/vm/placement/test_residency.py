"""Residency: the devices with valid copies, and the transfers that an instruction needs before it."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import KernelError, MetadataError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.types.meta import Meta
from tensord.vm.memory.planning import give_up_bytes
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Binding, Moved, VmTensor
from tensord.vm.placement.residency import VIEWS
from tensord.vm.placement.views import alias, moved, share

from ..parts import Parts, copy_of


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0", "sim:1")


def bring(parts: Parts, tensor: VmTensor, name: str) -> Binding:
    """Bind the tensor for reading on a device."""
    binding = parts.residency.operand(tensor, parts.at(name), Cause(parts.session, 0))
    parts.hand_over()
    parts.scheduler.bound.clear()
    return binding


def write(parts: Parts, tensor: VmTensor, name: str, *, partial: bool = False) -> Binding:
    """Bind the tensor for writing on a device."""
    binding = parts.residency.target(tensor, parts.at(name), partial, Cause(parts.session, 0))
    parts.hand_over()
    parts.scheduler.bound.clear()
    return binding


def transfers(parts: Parts) -> list[Instruction]:
    return [one for one in parts.scheduler.live.values() if one.traits.copies]


def half(parts: Parts, base: VmTensor) -> VmTensor:
    """The second half of a tensor of 4, as a view."""
    view = share(base, Meta.of((2,), "float64"), 16, (8,), base.home)
    parts.session.newest += 1
    parts.session.tensors[parts.session.newest] = view
    return view


def move(parts: Parts, tensor: VmTensor, name: str) -> Moved:
    """The result of `to_device`."""
    new = moved(tensor, parts.at(name), parts.session, 0)
    parts.session.newest += 1
    parts.session.tensors[parts.session.newest] = new
    parts.session.moves[new] = None
    return new


class TestReading:
    def test_where_a_copy_is_nothing_moves(self, parts: Parts) -> None:
        x = parts.tensor()
        assert bring(parts, x, "cpu:0").copy is copy_of(x)
        assert not parts.scheduler.live

    def test_elsewhere_a_transfer_is_planned_and_the_copy_is_in_the_map_at_once(self, parts: Parts) -> None:
        x = parts.tensor()
        binding = bring(parts, x, "sim:0")
        (transfer,) = transfers(parts)
        assert x.storage.copies[parts.at("sim:0")] is binding.copy
        assert transfer.label == "h2d cpu:0->sim:0"
        assert (transfer.reads, transfer.writes) == ((copy_of(x),), (binding.copy,))
        assert binding.copy.version == x.storage.version
        parts.drain()

    def test_a_second_consumer_shares_the_planned_transfer(self, parts: Parts) -> None:
        x = parts.tensor()
        first, second = bring(parts, x, "sim:0"), bring(parts, x, "sim:0")
        assert first.copy is second.copy
        assert len(transfers(parts)) == 1
        parts.drain()
        assert bring(parts, x, "sim:0").copy is first.copy
        assert parts.at("sim:0").moved == {"h2d": [1, 8]}

    def test_the_value_arrives(self, parts: Parts) -> None:
        x = parts.tensor(3)
        buffer = copy_of(x).buffer
        assert buffer is not None
        buffer.array[...] = [1.0, 2.0, 3.0]
        copy = bring(parts, x, "sim:0").copy
        parts.drain()
        assert copy.buffer is not None
        assert list(copy.buffer.array) == [1.0, 2.0, 3.0]

    def test_it_is_nobodys_but_carries_the_line_of_who_asked(self, parts: Parts) -> None:
        bring(parts, parts.tensor(), "sim:0")
        (transfer,) = transfers(parts)
        assert transfer.session is parts.scheduler.system_session
        assert transfer.author is parts.session
        parts.drain()

    def test_between_peers_it_goes_directly(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:0")
        bring(parts, x, "sim:1")
        assert [one.label for one in transfers(parts)] == ["p2p sim:0->sim:1"]
        assert set(x.storage.copies) == {parts.at("sim:0"), parts.at("sim:1")}
        parts.drain()

    def test_without_peers_it_goes_by_the_host_and_leaves_a_copy_there(self) -> None:
        parts = Parts("cpu:0", "sim:0", "sim:1", peer=False)
        x = parts.tensor(home="sim:0")
        bring(parts, x, "sim:1")
        assert [one.label for one in transfers(parts)] == ["d2h sim:0->cpu:0", "h2d cpu:0->sim:1"]
        assert len(x.storage.copies) == 3
        parts.drain()
        assert copy_of(x, parts.at("sim:1")).buffer is not None

    def test_a_copy_on_the_host_is_used_for_the_second_half_of_that_way(self) -> None:
        parts = Parts("cpu:0", "sim:0", "sim:1", peer=False)
        x = parts.tensor(home="sim:0")
        bring(parts, x, "cpu:0")
        bring(parts, x, "sim:1")
        assert [one.label for one in transfers(parts)] == ["d2h sim:0->cpu:0", "h2d cpu:0->sim:1"]
        parts.drain()

    def test_without_peers_and_host_it_is_refused_with_the_reason(self) -> None:
        parts = Parts("sim:0", "sim:1", peer=False)
        x = parts.tensor()
        with pytest.raises(MetadataError, match="sim:1 cannot reach sim:0, and there is no cpu device to go through"):
            bring(parts, x, "sim:1")
        assert list(x.storage.copies) == [parts.at("sim:0")]

    def test_a_copy_that_is_there_is_a_better_source_than_one_under_way(self, parts: Parts) -> None:
        x = parts.tensor(home="sim:0")
        bring(parts, x, "cpu:0")  # the host would be preferred, but its copy is not there yet
        assert parts.residency.routes.source(x.storage, parts.at("sim:1")) is copy_of(x)
        parts.drain()
        assert parts.residency.routes.source(x.storage, parts.at("sim:1")) is copy_of(x, parts.at("cpu:0"))


class TestFailing:
    def test_a_copy_that_a_transfer_failed_to_fill_leaves_the_map(self, parts: Parts) -> None:
        x = parts.tensor()
        copy = bring(parts, x, "sim:0").copy
        (transfer,) = transfers(parts)
        transfer.kernel = lambda *_: 1 // 0
        parts.drain()
        assert transfer.status is Status.FAILED
        assert list(x.storage.copies) == [parts.at("cpu:0")]
        assert not copy.current
        assert copy_of(x).poison is None
        assert parts.at("sim:0").moved == {}

    def test_the_next_consumer_plans_it_again(self, parts: Parts) -> None:
        x = parts.tensor()
        bring(parts, x, "sim:0")
        transfers(parts)[0].kernel = lambda *_: 1 // 0
        parts.drain()
        copy = bring(parts, x, "sim:0").copy
        parts.drain()
        assert copy.poison is None
        assert copy.buffer is not None


class TestWriting:
    def test_afterwards_the_devices_copy_is_the_only_current_one(self, parts: Parts) -> None:
        x = parts.tensor()
        old, other = copy_of(x), bring(parts, x, "sim:0").copy
        bring(parts, x, "sim:1")
        parts.drain()
        binding = write(parts, x, "sim:0")
        assert x.storage.copies == {parts.at("sim:0"): binding.copy}
        assert binding.copy is other
        assert (old.current, old.buffer) == (False, None)
        assert not any(device.candidates for device in parts.engine.devices.values())

    def test_it_is_a_version_of_its_own(self, parts: Parts) -> None:
        x = parts.tensor()
        binding = write(parts, x, "cpu:0")
        assert x.storage.version == binding.copy.version == 2

    def test_a_whole_write_elsewhere_moves_nothing(self, parts: Parts) -> None:
        x = parts.tensor()
        binding = write(parts, x, "sim:0")
        assert not transfers(parts)
        assert binding.copy.device is parts.at("sim:0")
        assert parts.at("cpu:0").planned == 0

    def test_a_partial_write_elsewhere_brings_the_old_value_first(self, parts: Parts) -> None:
        x = parts.tensor()
        old = copy_of(x)
        binding = write(parts, x, "sim:0", partial=True)
        (transfer,) = transfers(parts)
        assert transfer.writes == (binding.copy,)
        assert not old.current
        assert old.buffer is not None  # the transfer still reads it
        parts.drain()
        assert old.buffer is None

    def test_a_copy_that_never_got_memory_is_replaced(self, parts: Parts) -> None:
        x = parts.tensor(filled=False)
        old = copy_of(x)
        assert write(parts, x, "cpu:0").copy is not old
        assert not old.current
        assert parts.at("cpu:0").planned == 8

    def test_so_is_one_whose_maker_is_doomed(self, parts: Parts) -> None:
        """The maker's result has left the plan, and the write needs memory."""
        x, y = parts.tensor(filled=False), parts.tensor()
        parts.op("gate", writes=[y])
        maker = parts.op("maker", reads=[y], writes=[x], opcode=Opcode.ACCESS)
        maker.error = maker.describe(ValueError("no"))
        old = copy_of(x)
        give_up_bytes(old)
        new = write(parts, x, "cpu:0").copy
        assert new is not old
        assert new.nbytes == 8

    def test_the_copies_of_views_are_stale_too(self, parts: Parts) -> None:
        base = parts.tensor(4)
        view = half(parts, base)
        copy = bring(parts, view, "sim:0").copy
        parts.drain()
        parts.session.tensors.popitem()
        parts.residency.releasing.unshare(view)
        write(parts, base, "cpu:0")
        assert base.storage.views == {}
        assert not copy.current

    @pytest.mark.parametrize("shared", [False, True])
    @pytest.mark.parametrize("device", ["sim:0", "sim:1"])
    def test_a_target_may_not_leave_before_its_instruction_is_admitted(
        self, parts: Parts, device: str, *, shared: bool
    ) -> None:
        """The eviction would read the old value, and the write would be lost."""
        x = parts.tensor(home="sim:0")
        if shared:
            alias(x, x.home)
        target = parts.residency.target(x, parts.at(device), False, Cause(parts.session, 0))
        assert target.copy in parts.scheduler.bound


class TestSharing:
    """Values are independent: a tensor of a shared storage gets its own storage before a write."""

    @pytest.mark.parametrize("partial", [True, False])
    def test_who_writes_leaves_the_others_their_value(self, parts: Parts, *, partial: bool) -> None:
        x = parts.tensor()
        storage, copy = x.storage, copy_of(x)
        y = alias(x, x.home)
        binding = write(parts, y, "cpu:0", partial=partial)
        assert x.storage is storage
        assert y.storage is not storage
        assert (storage.sharers, storage.version) == (1, 1)
        assert binding.copy is not copy
        assert copy.current
        copies = [one for one in parts.scheduler.live.values() if one.opcode is Opcode.COPY]
        assert [(one.reads, one.writes) for one in copies] == ([((copy,), (binding.copy,))] if partial else [])
        assert [one.versions for one in copies] == ([(1, 1)] if partial else [])
        assert y.storage.version == binding.copy.version == 1 + partial
        parts.drain()

    def test_a_view_that_is_written_is_no_view_any_more(self, parts: Parts) -> None:
        base = parts.tensor(4)
        view = half(parts, base)
        write(parts, view, "cpu:0", partial=True)
        assert (view.offset, view.strides, view.storage.nbytes) == (0, None, 16)
        parts.drain()

    def test_the_last_of_several_that_leaves_takes_the_storage_along(self, parts: Parts) -> None:
        x = parts.tensor(4)
        copy = copy_of(x)
        x.strides = (8,)  # a view that is alone on its storage
        write(parts, x, "cpu:0", partial=True)
        assert copy.current
        parts.residency.releasing.drop_orphans()
        assert not copy.current
        parts.drain()
        assert copy.buffer is None
        assert parts.session.account.bytes == 32


class TestViews:
    def test_a_smaller_view_moves_its_own_bytes(self, parts: Parts) -> None:
        base = parts.tensor(4)
        view = half(parts, base)
        binding = bring(parts, view, "sim:0")
        assert (binding.copy.nbytes, binding.offset, binding.strides) == (16, 0, None)
        assert list(base.storage.copies) == [parts.at("cpu:0")]
        assert base.storage.views == {(parts.at("sim:0"), view.view_key()): binding.copy}
        parts.drain()
        assert parts.at("sim:0").moved == {"h2d": [1, 16]}

    def test_the_same_view_again_moves_nothing(self, parts: Parts) -> None:
        base = parts.tensor(4)
        first = bring(parts, half(parts, base), "sim:0")
        assert bring(parts, half(parts, base), "sim:0").copy is first.copy
        assert len(transfers(parts)) == 1
        parts.drain()

    def test_where_the_whole_is_the_view_lies_on_it(self, parts: Parts) -> None:
        base = parts.tensor(4)
        whole = bring(parts, base, "sim:0")
        binding = bring(parts, half(parts, base), "sim:0")
        assert binding.copy is whole.copy
        assert (binding.offset, binding.strides) == (16, (8,))
        parts.drain()

    def test_a_view_of_all_bytes_moves_the_whole(self, parts: Parts) -> None:
        base = parts.tensor(4)
        view = share(base, Meta.of((4,), "float64"), 24, (-8,), base.home)
        binding = bring(parts, view, "sim:0")
        assert binding.copy is base.storage.copies[parts.at("sim:0")]
        assert (binding.offset, binding.strides) == (24, (-8,))
        parts.drain()

    def test_without_peers_a_view_goes_packed_by_the_host(self) -> None:
        parts = Parts("cpu:0", "sim:0", "sim:1", peer=False)
        base = parts.tensor(4, home="sim:0")
        bring(parts, half(parts, base), "sim:1")
        assert [device.name for device, _ in base.storage.views or ()] == ["cpu:0", "sim:1"]
        parts.drain()
        assert parts.at("sim:0").moved == {"d2h": [1, 16]}


class TestStrict:
    @pytest.fixture(autouse=True)
    def strict(self, parts: Parts) -> None:
        parts.session.strict = True

    def test_an_operand_elsewhere_is_an_error_and_nothing_moves(self, parts: Parts) -> None:
        x = parts.tensor()
        with pytest.raises(MetadataError, match="the tensor is on cpu:0, not on sim:0; use to_device"):
            bring(parts, x, "sim:0")
        assert not transfers(parts)
        assert list(x.storage.copies) == [parts.at("cpu:0")]

    def test_what_the_user_moves_may_move(self, parts: Parts) -> None:
        x = move(parts, parts.tensor(), "sim:0")
        assert bring(parts, x, "sim:0").copy.nbytes == 8
        assert len(transfers(parts)) == 1
        parts.drain()

    def test_a_view_that_was_moved_may_be_read_there(self, parts: Parts) -> None:
        view = move(parts, half(parts, parts.tensor(4)), "sim:0")
        assert bring(parts, view, "sim:0").copy.nbytes == 16
        parts.drain()

    def test_so_may_a_view_of_what_was_moved_and_released(self, parts: Parts) -> None:
        whole = move(parts, parts.tensor(4), "sim:0")
        view = half(parts, whole)
        parts.residency.releasing.unshare(whole)
        assert bring(parts, view, "sim:0").copy.nbytes == 16
        parts.drain()


class TestMoving:
    """A move begins when its session sends a request, or needs any transfer."""

    def test_nothing_moves_by_itself(self, parts: Parts) -> None:
        x = parts.tensor()
        moved = move(parts, x, "sim:0")
        assert not transfers(parts)
        assert list(parts.session.moves) == [moved]

    def test_it_begins_with_any_transfer_of_its_session(self, parts: Parts) -> None:
        moved = move(parts, parts.tensor(), "sim:0")
        bring(parts, parts.tensor(), "sim:1")
        assert [one.label for one in transfers(parts)] == ["h2d cpu:0->sim:0", "h2d cpu:0->sim:1"]
        assert not parts.session.moves
        parts.drain()
        assert copy_of(moved, parts.at("sim:0")).buffer is not None

    def test_what_is_about_to_be_written_waits_for_the_next_message(self, parts: Parts) -> None:
        """The transfer would bring the value before the write, and the copy would count as the value after it."""
        target = move(parts, parts.tensor(), "sim:0")
        parts.residency.target(target, parts.at("cpu:0"), True, Cause(parts.session, 0))
        bring(parts, parts.tensor(), "sim:1")
        assert [one.label for one in transfers(parts)] == ["h2d cpu:0->sim:1"]
        assert list(parts.session.moves) == [target]
        bring(parts, parts.tensor(), "sim:1")
        assert "h2d cpu:0->sim:0" in [one.label for one in transfers(parts)]
        assert not parts.session.moves

    def test_a_tensor_whose_move_is_over_does_not_keep_its_session(self, parts: Parts) -> None:
        """The tensor may outlive the session under a name."""
        begun, view_of_begun = (move(parts, parts.tensor(4), "sim:0") for _ in range(2))
        bring(parts, parts.tensor(), "sim:1")
        late = half(parts, view_of_begun)
        parts.drain()
        assert type(late) is Moved
        assert (begun.mover, late.mover) == (None, None)
        pending = move(parts, parts.tensor(), "sim:0")
        assert pending.mover is parts.session
        parts.engine.close(parts.session)
        assert pending.mover is None
        parts.drain()

    def test_one_that_was_released_before_never_begins(self, parts: Parts) -> None:
        moved = move(parts, parts.tensor(), "sim:0")
        parts.residency.releasing.unshare(moved)
        assert parts.residency.begin_moves(parts.session) == []
        assert not transfers(parts)

    def test_a_view_of_a_move_that_was_released_moves_alone(self, parts: Parts) -> None:
        base = parts.tensor(4)
        moved = move(parts, base, "sim:0")
        half(parts, moved)
        parts.residency.releasing.unshare(moved)
        (copy,) = parts.residency.begin_moves(parts.session)
        assert copy.nbytes == 16
        assert list(base.storage.copies) == [parts.at("cpu:0")]
        parts.hand_over()
        parts.drain()

    def test_a_view_of_a_move_that_is_still_held_lies_on_the_whole(self, parts: Parts) -> None:
        moved = move(parts, parts.tensor(4), "sim:0")
        binding = bring(parts, half(parts, moved), "sim:0")
        assert binding.copy is moved.storage.copies[parts.at("sim:0")]
        assert len(transfers(parts)) == 1
        parts.drain()

    def test_what_has_begun_is_told_until_it_has_arrived(self, parts: Parts) -> None:
        move(parts, parts.tensor(), "sim:0")
        (copy,) = parts.residency.begin_moves(parts.session)
        assert parts.residency.begin_moves(parts.session) == [copy]
        parts.hand_over()
        parts.drain()
        assert parts.residency.begin_moves(parts.session) == []

    def test_a_lost_device_gets_nothing(self, parts: Parts) -> None:
        move(parts, parts.tensor(), "sim:0")
        parts.backends["sim:0"].lost = KernelError("lost")
        assert parts.residency.begin_moves(parts.session) == []
        assert not transfers(parts)

    def test_where_no_way_leads_is_known_at_once(self) -> None:
        parts = Parts("sim:0", "sim:1", peer=False)
        with pytest.raises(MetadataError, match="no cpu device"):
            parts.residency.check_route(parts.tensor(), parts.at("sim:1"))


class TestManyViews:
    def test_a_storage_keeps_the_newest_copies_of_its_views(self, parts: Parts) -> None:
        """As many copies as the storage's tensors can use, and some more: here it has two tensors at a time."""
        kept = VIEWS + 2 * len(parts.backends)
        base = parts.tensor(kept + 2)
        for row in range(kept + 2):
            view = share(base, Meta.of((1,), "float64"), 8 * row, (8,), base.home)
            bring(parts, view, "sim:0")
            parts.drain()
            parts.residency.releasing.unshare(view)
        assert base.storage.views is not None
        assert [offset for _, (offset, _, _) in base.storage.views] == [8 * row for row in range(2, kept + 2)]
        assert parts.at("sim:0").planned == parts.backends["sim:0"].allocated == 8 * kept

    def test_what_the_message_reads_is_kept(self, parts: Parts) -> None:
        """An instruction may read any number of views of one storage."""
        count = 2 * VIEWS
        base = parts.tensor(count)
        copies = []
        for row in range(count):
            view = share(base, Meta.of((1,), "float64"), 8 * row, (8,), base.home)
            copies.append(parts.residency.bring(view, parts.at("sim:0"), Cause(parts.session, 0)).copy)
            base.storage.sharers = 1  # as if the other handles had been dropped
        assert all(copy.current for copy in copies)


class TestLeaving:
    def test_the_last_tensor_takes_every_copy_along(self, parts: Parts) -> None:
        x = parts.tensor()
        bring(parts, x, "sim:0")
        parts.drain()
        y = alias(x, x.home)
        parts.residency.releasing.unshare(x)
        assert copy_of(y).current
        parts.residency.releasing.unshare(y)
        assert all(device.planned == device.backend.allocated == 0 for device in parts.engine.devices.values())
        assert parts.session.account.bytes == 0

    def test_a_copy_on_its_way_goes_when_it_has_arrived(self, parts: Parts) -> None:
        x = parts.tensor()
        copy = bring(parts, x, "sim:0").copy
        parts.residency.releasing.unshare(x)
        assert parts.at("sim:0").planned == 0
        parts.drain()
        assert copy.buffer is None
        assert parts.backends["sim:0"].allocated == parts.backends["cpu:0"].allocated == 0

    def test_a_poisoned_version_is_read_with_its_error_elsewhere_too(self, parts: Parts) -> None:
        x = parts.tensor()
        copy_of(x).poison = error = KernelError("bad")
        copy = bring(parts, x, "sim:0").copy
        parts.drain()
        assert copy_of(x).poison is error
        assert not copy.current
