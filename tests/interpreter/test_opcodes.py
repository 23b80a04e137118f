"""The opcodes' traits: the table itself, and the machine's use of each trait."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError
from tensord.interpreter.opcodes import TRAITS, Opcode, Traits, traits_of
from tensord.interpreter.wire.messages import Sync, Upload, Wait
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.tracing.analysis.sums.timeline import to_chrome
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.flat import SourceLocation
from tests.vm.bare_engine import Bare
from tests.vm.parts import Parts, copy_of, fail

from ..each_case import each_case

FIELDS = Traits._fields
# opcode -> the category, and the traits that differ from most opcodes'
EXPECTED: dict[str, tuple[str, dict[str, bool]]] = {
    "LocalCallOpKernel": ("kernel", {"computes": True}),
    "Transfer": ("transfer", {"copies": True}),
    "Copy": ("copy", {}),
    "AccessBlobByCallback": ("access", {"host_visible": True}),
    "Upload": ("access", {}),
    "HostCall": ("callback", {"host_visible": True}),
    "ReleaseTensor": (
        "release",
        {
            "on_control": True,
            "host_visible": True,
            "holds_memory": False,
            "needs_device": False,
            "cancellable": False,
        },
    ),
    "Barrier": (
        "barrier",
        {
            "on_control": True,
            "host_visible": True,
            "holds_memory": False,
            "needs_device": False,
            "cancellable": False,
            "covers_session": True,
        },
    ),
    "RunRoutine": ("routine", {"tolerant": True, "computes": True}),
    "Fence": ("fence", {"holds_memory": False, "cancellable": False}),
    "Allocate": ("collective", {}),
    "MoveChunk": ("collective", {"exchanges": True}),
    "MergeChunk": ("collective", {"exchanges": True}),
    "LaunchCollective": ("collective", {"exchanges": True}),
    "CompleteCollective": ("collective", {"on_control": True, "exchanges": True}),
    "Send": ("link", {"tolerant": True, "exchanges": True}),
    "Expect": ("link", {"exchanges": True}),
    "Recv": ("link", {"exchanges": True}),
    "Wait": ("wait", {"on_control": True, "host_visible": True, "holds_memory": False, "needs_device": False}),
}
USUAL = {
    "on_control": False,
    "host_visible": False,
    "holds_memory": True,
    "needs_device": True,
    "cancellable": True,
    "copies": False,
    "covers_session": False,
    "tolerant": False,
    "computes": False,
    "exchanges": False,
}
EXCHANGING = [Opcode.MOVE, Opcode.MERGE, Opcode.LAUNCH, Opcode.COMPLETE, Opcode.SEND, Opcode.EXPECT, Opcode.RECV]
HOST_VISIBLE = [Opcode.ACCESS, Opcode.HOST_CALL, Opcode.RELEASE, Opcode.BARRIER, Opcode.WAIT]


class TestTable:
    @each_case("opcode", Opcode)
    def test_an_opcode_has_the_traits_that_are_written_down_here(self, opcode: Opcode) -> None:
        category, unusual = EXPECTED[opcode.value]
        assert TRAITS[opcode]._asdict() == {"category": category, **USUAL, **unusual}

    def test_every_opcode_is_in_both_tables_and_nothing_else(self) -> None:
        assert set(TRAITS) == set(Opcode)
        assert set(EXPECTED) == {opcode.value for opcode in Opcode}
        assert {"category", *USUAL} == set(FIELDS)

    def test_records_find_traits_by_the_text(self) -> None:
        assert all(traits_of(opcode.value) is TRAITS[opcode] for opcode in Opcode)

    def test_an_opcode_of_another_version_is_unknown(self) -> None:
        assert traits_of("Teleport") == Traits("unknown")


@pytest.fixture
def parts() -> Parts:
    return Parts()


def fix_stream(instruction: Instruction) -> None:
    """Give the instruction a stream, which only kernels get by themselves."""
    if not instruction.on_control:
        instruction.stream = instruction.device.compute[0]


def bind_nothing(instruction: Instruction) -> None:
    """The instruction writes, as a release does, without a result of its own."""
    fix_stream(instruction)
    instruction.outputs = ()


class TestHostVisible:
    @each_case("opcode", Opcode)
    @each_case("into", [True, False])
    @each_case("late", [True, False])
    def test_no_edge_of_it_is_elided_nor_one_into_a_run_where_errors_are_late(
        self, opcode: Opcode, *, into: bool, late: bool
    ) -> None:
        parts = Parts(late=late)
        x = parts.tensor()
        first = parts.op(writes=[x], opcode=Opcode.CALL if into else opcode, before=fix_stream)
        if first.retired:  # on the driving thread, without waits
            assert opcode in HOST_VISIBLE or opcode is Opcode.COMPLETE
            return
        second = parts.op(reads=[x], writes=[x], opcode=opcode if into else Opcode.CALL, before=fix_stream)
        elided = [elided for *_, elided in second.edges]
        hard = opcode in {*HOST_VISIBLE, *EXCHANGING} or (into and late and TRAITS[opcode].tolerant)
        assert elided == [not hard]
        assert second.hard == hard
        parts.drain()
        assert second.status is Status.DONE
        assert [one for *_, one in second.edges] == elided


class TestHoldsMemory:
    @each_case("opcode", Opcode)
    def test_an_access_of_what_only_waits_or_releases_is_no_use(self, parts: Parts, opcode: Opcode) -> None:
        x, gate = parts.tensor(), parts.tensor()
        parts.op(writes=[gate])
        waiting = parts.op(reads=[gate, x], opcode=opcode, before=fix_stream)
        assert copy_of(x).uses == TRAITS[opcode].holds_memory
        assert waiting in (copy_of(x).readers or ())
        parts.drain()
        assert copy_of(x).uses == 0

    def test_a_wait_that_lasts_keeps_no_buffer(self) -> None:
        bare = Bare(inline=False)
        client = bare.client()
        x = client.upload([1.0])
        copy = next(iter(client.session.tensors[x].storage.copies.values()))
        y = client.call("negative", x)
        client.send(Wait((x, y), 7, 1))
        client.send([1, (x,)])
        assert copy.uses == 1  # the kernel's use
        bare.step(bare.device.compute[0])
        assert copy.buffer is None
        bare.drain()


class TestNeedsDevice:
    @pytest.mark.parametrize("opcode", Opcode)
    def test_what_needs_no_device_does_not_fail_with_a_lost_one(self, parts: Parts, opcode: Opcode) -> None:
        gate, other = parts.tensor(), parts.tensor()
        parts.op(writes=[other])
        parts.op(writes=[gate])
        # an access of the host in between, so that later instructions have not been dispatched
        hold = parts.op(reads=[gate], writes=[gate], opcode=Opcode.RELEASE)
        pending = parts.op(writes=[gate], opcode=opcode, before=bind_nothing)
        assert hold.status is pending.status is Status.WAITING
        parts.device.lost = RuntimeError("gone")
        parts.run()
        assert (pending.error is not None) is TRAITS[opcode].needs_device
        parts.drain()
        assert pending.status is (Status.SKIPPED if TRAITS[opcode].needs_device else Status.DONE)


class TestCancellable:
    @each_case("opcode", Opcode)
    def test_a_cancel_leaves_releases_and_barriers_alone(self, parts: Parts, opcode: Opcode) -> None:
        stranger = parts.engine.open_session(lambda *_: None)
        gate = parts.tensor()
        parts.op(writes=[gate], session=stranger)
        mine = parts.op(reads=[gate], opcode=opcode, before=fix_stream)
        parts.engine.cancel(parts.session)
        assert isinstance(mine.error, CancelledError) is TRAITS[opcode].cancellable
        parts.drain()
        assert mine.status is (Status.CANCELLED if TRAITS[opcode].cancellable else Status.DONE)


class TestCopies:
    @each_case("opcode", [Opcode.TRANSFER, Opcode.CALL, Opcode.COPY])
    def test_only_who_copies_a_version_may_be_passed_over_when_it_fails(self, parts: Parts, opcode: Opcode) -> None:
        """While it is under way, a copy that it makes is no reason to drop another of the version."""
        x = parts.tensor()
        parts.op(writes=[x], opcode=opcode, before=fix_stream)
        assert copy_of(x).is_or_will_be_valid is not TRAITS[opcode].copies
        parts.drain()
        assert copy_of(x).is_or_will_be_valid

    def test_a_failed_transfer_does_not_poison_the_version(self) -> None:
        parts = Parts("cpu:0", "sim:0")
        x = parts.tensor()
        copy = parts.residency.operand(x, parts.at("sim:0"), Cause(parts.session, 0)).copy
        parts.hand_over()
        (transfer,) = parts.scheduler.live.values()
        assert transfer.traits.copies
        transfer.kernel = fail
        parts.drain()
        assert transfer.status is Status.FAILED
        assert copy_of(x).poison is None
        assert list(x.storage.copies) == [parts.at("cpu:0")]
        assert not copy.current


class TestCoversSession:
    def test_a_barrier_waits_for_everything_of_its_session_and_its_answer_comes_then(self) -> None:
        bare = Bare(workers=2, inline=False)
        client, other = bare.client(), bare.client()
        x, y = client.upload([1.0]), other.upload([2.0])
        bare.drain()
        for _ in range(4):
            client.call("negative", x)
        other.call("negative", y)
        client.send(Sync(9, 1))
        (barrier,) = (one for one in bare.engine.live.values() if one.traits.covers_session)
        assert len(barrier.edges) == 4
        assert {source for source, *_ in barrier.edges} == {
            one.id for one in client.session.live.values() if one is not barrier
        }
        assert 9 not in client.answers
        bare.drain()
        assert client.answers[9] == (0, None)


class TestOnControl:
    @each_case("opcode", Opcode)
    def test_it_runs_on_the_driving_thread_or_on_a_stream(self, parts: Parts, opcode: Opcode) -> None:
        op = parts.op(writes=[parts.tensor()], opcode=opcode)
        assert op.on_control is TRAITS[opcode].on_control
        assert op.retired is TRAITS[opcode].on_control
        assert (op.stream is None) is TRAITS[opcode].on_control
        parts.drain()

    def test_a_handler_may_put_one_instruction_there(self) -> None:
        bare = Bare(inline=False)
        client = bare.client()
        client.send(Upload(1, (1,), "float64", "cpu:0", np.ones(1), 1))  # host memory: adopted where it is
        assert not bare.engine.live
        assert not TRAITS[Opcode.ACCESS].on_control


@pytest.mark.parametrize("opcode", Opcode)
def test_the_category_is_the_one_in_a_timeline(parts: Parts, opcode: Opcode) -> None:
    parts.op(reads=[parts.tensor()], opcode=opcode, before=fix_stream)
    parts.drain()
    trace = Trace(parts.engine.ring.records(lambda *_: SourceLocation()), devices=("cpu:0",), dropped=0)
    slices = [event for event in json.loads(to_chrome(trace))["traceEvents"] if event["ph"] == "X"]
    assert [event["cat"] for event in slices] == [EXPECTED[opcode.value][0]]
