"""Values between nodes, step by step: two engines without threads, joined by links that carry when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tensord.interpreter.errors import (
    CancelledError,
    DeviceMemoryError,
    KernelError,
    MetadataError,
    NodeLost,
    ProtocolError,
    QuotaError,
    TensordError,
)
from tensord.interpreter.wire.messages import Atomic, Restart, encode_message
from tensord.interpreter.wire.node_messages import Recv, Send
from tensord.streams.links.in_memory import InMemory, pair
from tensord.vm.reporting.invariants import violations
from tensord.vm.tracing.flat import SourceLocation
from tensord.vm.tracing.link_labels import LinkLabel, read_label

from ...each_case import each_case
from ..bare_engine import Bare, Client

NAME = bytes(range(16))
VALUES = [1.0, 2.0, 3.0, 4.0]


class Held:
    """Copies of the links, held back."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.holding = False

    def __call__(self, _nbytes: int, step: Callable[[], None]) -> None:
        if self.holding:
            self.steps.append(step)
        else:
            step()

    def run(self) -> None:
        self.holding = False
        while self.steps:
            self.steps.pop()()


class Node:
    """A machine of the two."""

    def __init__(self, links: InMemory, **limits: int) -> None:
        self.links = links
        self.bare = Bare(inline=False)
        self.bare.engine.join(links, self.sink)
        self.deaf = False  # reports of links are kept for later
        self.unheard: list[Any] = []
        self.client: Client = self.bare.client(**limits)

    def sink(self, tasks: Sequence[Any]) -> None:
        self.unheard.extend(tasks)
        if not self.deaf:
            self.hear()

    def hear(self) -> None:
        self.deaf = False
        tasks, self.unheard = self.unheard, []
        self.engine.finished.extend(tasks)

    @property
    def engine(self) -> Any:
        return self.bare.engine

    def statuses(self) -> list[str]:
        """The opcodes and statuses of the ended halves of transfers."""
        entries = self.engine.ring.records(nowhere)
        return [f"{one.opcode} {one.status}" for one in entries if one.opcode in {"Send", "Expect", "Recv"}]

    def cancel(self) -> None:
        self.engine.cancel(self.client.session)
        self.bare.schedule()


class Two:
    """Two machines, and a value at the first that goes to the second."""

    def __init__(self, **limits: int) -> None:
        self.held = Held()
        self.first, self.second = (Node(links, **limits) for links in pair(carry=self.held))
        self.link = self.first.links.exchanges["node1"]
        self.x = self.first.client.upload(VALUES)

    def send(self, id_: int = 0, transfer: bytes = NAME) -> None:
        self.first.client.send(Send(id_ or self.x, "node1", transfer, 1))
        self.first.bare.drain()

    def recv(self, transfer: bytes = NAME, shape: tuple[int, ...] = (4,)) -> int:
        y = self.second.client.new()
        self.second.client.send(Recv(y, shape, "float64", "cpu:0", "node0", transfer, 1))
        self.second.bare.drain()
        return y

    def drain(self) -> None:
        self.held.run()
        self.second.hear()
        for _ in range(3):
            self.first.bare.drain()
            self.second.bare.drain()

    def check_idle(self) -> None:
        """Check that no transfer is left, and that both machines are sound."""
        assert self.link.pending() == 0
        for node in (self.first, self.second):
            assert not node.engine.live
            assert violations(node.engine) == []


@pytest.fixture
def two() -> Two:
    return Two()


def error_of(node: Node, id_: int) -> TensordError:
    with pytest.raises(TensordError) as raised:
        node.client.fetch(id_)
    return raised.value


class TestAValue:
    @each_case("order", ["send recv", "recv send"])
    def test_arrives_whichever_half_is_admitted_first(self, order: str) -> None:
        two, y = Two(), 0
        for step in order.split():
            if step == "recv":
                y = two.recv()
            else:
                two.send()
        two.drain()
        assert two.second.client.fetch(y) == VALUES
        assert two.first.statuses() == ["Send DONE"]
        assert two.second.statuses() == ["Expect DONE", "Recv DONE"]
        two.check_idle()

    def test_is_that_of_its_position_in_the_program(self, two: Two) -> None:
        two.send()
        two.first.client.call("add", two.x, two.x, out=two.x, meta=((4,), "float64"))
        y = two.recv()
        two.drain()
        assert two.second.client.fetch(y) == VALUES
        assert two.first.client.fetch(two.x) == [2.0, 4.0, 6.0, 8.0]

    def test_of_a_released_tensor_arrives_and_its_memory_is_free_then(self, two: Two) -> None:
        two.send()
        two.first.client.release(two.x)
        assert two.first.bare.device.allocated == 32
        y = two.recv()
        two.drain()
        assert two.second.client.fetch(y) == VALUES
        assert two.first.bare.device.allocated == 0
        two.check_idle()

    def test_of_a_view_is_packed(self, two: Two) -> None:
        number = two.first.client.signature("flip", (((4,), "float64"),), {"axis": None})
        view = two.first.client.new()
        two.first.client.send([0, number, (two.x,), (view,), 0, 1])
        two.send(view)
        y = two.recv()
        two.drain()
        assert two.second.client.fetch(y) == VALUES[::-1]
        assert two.first.bare.device.allocated == 32
        two.check_idle()

    def test_may_go_from_a_node_to_itself(self, two: Two) -> None:
        client, y = two.first.client, two.first.client.new()
        client.send(Send(two.x, "node0", NAME, 1), Recv(y, (4,), "float64", "cpu:0", "node0", NAME, 1))
        assert client.fetch(y) == VALUES
        two.check_idle()

    def test_goes_in_groups(self, two: Two) -> None:
        two.first.client.send(Atomic([encode_message(Send(two.x, "node1", NAME, 1))]))
        y = two.second.client.new()
        two.second.client.send(Atomic([encode_message(Recv(y, (4,), "float64", "cpu:0", "node0", NAME, 1))]))
        two.drain()
        assert two.second.client.fetch(y) == VALUES

    def test_has_no_memory_before_it_is_offered(self, two: Two) -> None:
        two.recv()
        assert two.second.bare.device.allocated == 0
        two.held.holding = True
        two.send()
        two.second.bare.drain()
        assert two.second.bare.device.allocated == 32
        two.drain()
        two.check_idle()

    def test_that_is_awaited_holds_up_nothing(self, two: Two) -> None:
        waiting = [two.recv(bytes([number]) * 16) for number in range(20)]
        others = two.second.bare.client()
        assert others.fetch(others.call("add", *[others.upload([1.0])] * 2)) == [2.0]
        last = two.recv()
        two.send()
        two.drain()
        assert two.second.client.fetch(last) == VALUES
        for number in reversed(range(20)):
            two.send(transfer=bytes([number]) * 16)
        two.drain()
        assert all(two.second.client.fetch(id_) == VALUES for id_ in waiting)
        two.check_idle()

    def test_is_counted_and_recorded_under_one_number_at_both_nodes(self, two: Two) -> None:
        two.send()
        two.recv()
        two.drain()
        (sent,) = two.first.engine.admission.nodes.sent.items()
        (received,) = two.second.engine.admission.nodes.received.items()
        assert (sent, received) == (("node1", [1, 32]), ("node0", [1, 32]))
        ops = [one.op for node in (two.first, two.second) for one in node.engine.ring.records(nowhere)]
        number = LinkLabel.of("", "", NAME).number
        labels = [read_label(op) for op in ops]
        found = [(one.doing, one.node) for one in labels if one is not None and one.number == number]
        assert found == [("send to", "node1"), ("offer from", "node0"), ("recv from", "node0")]
        assert not any(NAME.hex() in op for op in ops)  # any session reads them, and could take a half's place


class TestAnError:
    @each_case("first", ["send", "recv"])
    def test_in_place_of_a_value_arrives_with_its_op_and_line(self, first: str) -> None:
        two = Two()
        bad = failed_tensor(two.first)
        y = two.recv() if first == "recv" else 0
        two.send(bad)
        y = y or two.recv()
        two.drain()
        there, here = error_of(two.first, bad), error_of(two.second, y)
        assert (here.message, here.op, here.location) == (there.message, there.op, there.location)
        assert two.first.statuses() == ["Send SKIPPED"]
        assert two.second.statuses() == ["Expect SKIPPED", "Recv SKIPPED"]
        assert two.second.bare.errors == []  # the error is reported where it arose
        two.check_idle()

    def test_of_a_meta_that_differs_is_one_of_both(self, two: Two) -> None:
        two.send()
        y = two.recv(shape=(3,))
        two.drain()
        assert isinstance(error_of(two.second, y), MetadataError)
        assert two.first.statuses() == ["Send FAILED"]
        two.check_idle()

    @each_case("what", ["tensor", "node", "lost", "cancelled"])
    def test_of_a_refused_send_is_told_and_reaches_the_other_node(self, what: str) -> None:
        two = Two()
        y = two.recv()
        if what == "cancelled":
            two.first.cancel()
        if what == "lost":
            two.first.links.lose("node1", "gone")
        two.first.client.send(Send(404 if what == "tensor" else two.x, "node7" if what == "node" else "node1", NAME, 1))
        two.drain()
        kinds = {"tensor": ProtocolError, "node": MetadataError, "lost": NodeLost, "cancelled": CancelledError}
        if what != "cancelled":
            assert isinstance(two.first.bare.errors[-1], kinds[what])
        if what != "node":  # otherwise the value's destination is unknown
            assert isinstance(error_of(two.second, y), kinds[what])
            two.check_idle()

    @each_case("what", ["id", "dtype", "shape", "device", "node", "quota", "bytes"])
    def test_of_a_refused_recv_is_the_tensors_and_the_senders(self, what: str) -> None:
        two = Two(**({"tensors": 1} if what == "quota" else {"bytes": 32} if what == "bytes" else {}))
        two.second.client.upload([1.0])
        two.send()
        y = 1 if what == "id" else two.second.client.new()
        shape = (2**62, 4) if what == "shape" else (4,)
        dtype, device = "float1" if what == "dtype" else "float64", "cpu:7" if what == "device" else "cpu:0"
        node = "node7" if what == "node" else "node0"
        two.second.client.send(Recv(y, shape, dtype, device, node, NAME, 1))
        two.drain()
        kind = {"id": ProtocolError, "quota": QuotaError, "bytes": QuotaError}.get(what, MetadataError)
        assert isinstance(error_of(two.second, y), kind)
        if what != "node":
            assert two.first.statuses() == ["Send SKIPPED"]
            two.check_idle()

    def test_of_a_refused_group_reaches_the_other_nodes_of_all_its_halves(self, two: Two) -> None:
        y = two.recv()
        two.send(transfer=bytes(16))
        expected = encode_message(Recv(two.first.client.new(), (4,), "float64", "cpu:0", "node1", b"r" * 16, 1))
        two.first.client.send(Atomic([encode_message(Send(two.x, "node1", NAME, 1)), expected, [404]]))
        two.second.client.send(Send(two.second.client.upload(VALUES), "node0", b"r" * 16, 1))
        two.second.client.send(Atomic([[33, 9, (4,), "float64", "cpu:0", "node0", bytes(16), "nowhere", 0]]))
        two.drain()
        assert isinstance(error_of(two.second, y), ProtocolError)
        assert two.first.statuses() == ["Send SKIPPED"]
        assert two.second.statuses() == ["Expect SKIPPED", "Recv SKIPPED", "Send SKIPPED"]
        two.check_idle()

    def test_of_a_transfer_without_a_node_is_told(self) -> None:
        bare = Bare()
        client = bare.client()
        x, y = client.upload(VALUES), client.new()
        client.send(Send(x, "node0", NAME, 1), Recv(y, (4,), "float64", "cpu:0", "node0", NAME, 1))
        with pytest.raises(MetadataError, match="this machine has no node name"):
            client.fetch(y)
        assert len(bare.errors) == 2


def failed_tensor(node: Node) -> int:
    """A tensor whose op has failed when it ran."""
    client = node.client
    number = client.signature("inv", (((2, 2), "float64"),))
    x = client.upload([[0.0, 0.0], [0.0, 0.0]])
    bad = client.new()
    client.send([0, number, (x,), (bad,), 0, 1])
    number = client.signature("reshape", (((2, 2), "float64"),), {"shape": (4,), "copy": None})
    flat = client.new()
    client.send([0, number, (bad,), (flat,), 0, 1])
    node.bare.drain()
    return flat


def nowhere(*_: object) -> SourceLocation:
    return SourceLocation("", ())


FAULTS = ("cancel first", "cancel second", "close first", "close second", "cut")
STEPS = ("nothing", "sent", "expected", "offered", "copying", "done")


def reach(two: Two, step: str) -> int:
    """Bring the transfer to a step; the id of the tensor, 0 before there is one."""
    y = 0
    if step == "sent":
        two.send()
    elif step == "expected":
        y = two.recv()
    elif step in ("offered", "copying", "done"):
        two.held.holding, two.second.deaf = step == "copying", step == "offered"
        two.send()
        y = two.second.client.new()
        two.second.client.send(Recv(y, (4,), "float64", "cpu:0", "node0", NAME, 1))
        two.second.bare.drain()
        if step == "done":
            two.drain()
    return y


def inflict(two: Two, fault: str) -> None:
    what, _, which = fault.partition(" ")
    node = two.first if which == "first" else two.second
    if what == "cut":
        two.link.cut(NodeLost("the connection broke"))
    elif what == "cancel":
        node.cancel()
    elif what == "close":
        node.engine.close(node.client.session)
    else:
        other = node.bare.client()
        other.call("add", *[other.upload([1.0])] * 2)  # the end of this op reveals the loss
        node.bare.device.lost = KernelError("the device is lost")
        node.bare.drain()
    for each in (two.first, two.second):
        each.bare.schedule()


@each_case(("step", "fault"), [(step, fault) for step in STEPS for fault in FAULTS])
def test_each_fault_at_each_step_ends_both_halves(step: str, fault: str) -> None:
    two = Two()
    y = reach(two, step)
    inflict(two, fault)
    for node in (two.first, two.second):
        if node.client.session.closed:
            node.client = node.bare.client()
            two.x = two.first.client.upload(VALUES)
        else:
            node.client.send(Restart(node.client.session.generation))
    if step in ("nothing", "expected"):
        two.send()
    if step in ("nothing", "sent"):
        y = two.recv()
    two.drain()
    two.check_idle()
    fresh = two.recv(bytes(16))
    two.send(transfer=bytes(16))
    two.drain()
    assert two.second.client.fetch(fresh) == VALUES
    two.check_idle()
    if fault != "close second":
        try:
            assert two.second.client.fetch(y) == VALUES
        except (CancelledError, NodeLost):
            assert step != "done"
            assert (step, fault) != ("nothing", "cut")


@each_case(("step", "which"), [(step, which) for step in STEPS for which in ("first", "second")])
def test_what_waits_for_a_node_fails_when_its_client_has_lost_that_node_and_what_was_offered_arrives(
    step: str, which: str
) -> None:
    two = Two()
    y = reach(two, step)
    node, lost = (two.first, "node1") if which == "first" else (two.second, "node0")
    failing = {("sent", "first"), ("expected", "second"), ("offered", "second")}  # no offer was heard of
    waiting = {*failing, ("offered", "first"), ("copying", "first")}
    withdraw = node.engine.admission.cancellation.withdraw
    assert withdraw(node.client.session, "node7") == withdraw(node.client.session, None) == 0
    assert withdraw(node.client.session, lost) == int((step, which) in waiting)
    for each in (two.first, two.second):
        each.bare.schedule()
    if step in ("nothing", "expected"):
        two.send()
    if step in ("nothing", "sent"):
        y = two.recv()
    two.drain()
    two.check_idle()
    if (step, which) in failing:
        with pytest.raises(NodeLost, match=f"node {lost} is lost: the session there has ended before it has "):
            two.second.client.fetch(y)
    elif (step, which) != ("offered", "first"):
        assert two.second.client.fetch(y) == VALUES


@each_case(("step", "which"), [(step, which) for step in STEPS for which in ("first", "second")])
def test_a_lost_device_at_each_step_ends_both_halves(step: str, which: str) -> None:
    two = Two()
    y = reach(two, step)
    inflict(two, f"lose {which}")
    if step in ("nothing", "expected"):
        two.send()
    if step in ("nothing", "sent"):
        y = two.recv()
    two.drain()
    assert two.link.pending() == 0
    assert not two.first.engine.live
    assert not two.second.engine.live
    if which == "second":
        assert "the device is lost" in str(error_of(two.second, y))
    elif step == "done":
        assert two.second.client.fetch(y) == VALUES
    elif step != "copying":
        assert "the device is lost" in str(error_of(two.second, y))


class TestTheLimit:
    def names(self, count: int) -> list[bytes]:
        return [bytes([number]) * 16 for number in range(1, count + 1)]

    def test_of_what_a_session_may_offer_fails_one_value_more_at_both_nodes(self) -> None:
        two = Two(transfers=2)
        *taken, refused, later = self.names(4)
        for name in (*taken, refused):
            two.send(transfer=name)
        y = two.recv(refused)
        assert "of 2; receive those first, or raise the quota (transfers)" in error_of(two.second, y).message
        assert [type(error) for error in two.first.bare.errors] == [QuotaError]
        assert two.first.statuses() == ["Send FAILED"]
        received = [two.recv(name) for name in taken]
        two.drain()
        two.send(transfer=later)
        received.append(two.recv(later))
        two.drain()
        assert all(two.second.client.fetch(id_) == VALUES for id_ in received)
        two.check_idle()

    def test_is_one_of_each_session(self) -> None:
        two = Two(transfers=1)
        first, refused, others = self.names(3)
        two.send(transfer=first)
        two.send(transfer=refused)
        client = two.first.bare.client(transfers=1)
        client.send(Send(client.upload(VALUES), "node1", others, 1))
        y = two.recv(others)
        two.drain()
        assert two.second.client.fetch(y) == VALUES

    def test_counts_no_value_that_waits_for_its_own_operands_or_was_withdrawn(self) -> None:
        two = Two(transfers=1)
        first, second = self.names(2)
        two.send(transfer=first)
        two.first.cancel()
        two.first.client.send(Restart(1))
        two.first.bare.schedule()
        assert not two.first.client.session.offered
        y = two.recv(second)
        two.send(two.first.client.upload(VALUES), transfer=second)
        two.drain()
        assert two.second.client.fetch(y) == VALUES


class TestMemory:
    def test_that_is_full_after_the_offer_fails_both_halves(self) -> None:
        two = Two()
        two.second.bare.device.limit = 64
        kept = two.second.client.upload([0.0] * 5)
        y = two.recv()
        two.send()
        two.drain()
        assert isinstance(error_of(two.second, y), DeviceMemoryError)
        assert two.first.statuses() == ["Send SKIPPED"]
        assert two.second.client.fetch(kept) == [0.0] * 5
        two.check_idle()

    def test_that_a_later_op_gives_up_is_waited_for_in_the_order_of_the_program(self) -> None:
        two = Two()
        client, device = two.second.client, two.second.bare.device
        device.limit = 64
        y = two.recv()
        z = client.call("add", y, y, meta=((4,), "float64"), released=3)
        two.send()
        two.drain()
        assert client.fetch(z) == [2.0, 4.0, 6.0, 8.0]
        two.check_idle()


class TestAName:
    def publish(self, two: Two) -> int:
        y = two.recv()
        two.second.client.publish("y", ids=(y,))
        return y

    def test_keeps_a_value_that_is_expected_from_a_cancellation(self, two: Two) -> None:
        self.publish(two)
        two.second.cancel()
        two.send()
        two.drain()
        other = two.second.bare.client()
        assert other.fetch(other.lookup("y")) == VALUES
        two.check_idle()

    def test_keeps_a_value_that_was_offered_when_its_session_ended(self, two: Two) -> None:
        self.publish(two)
        two.held.holding = True
        two.send()
        two.second.bare.drain()
        two.second.engine.close(two.second.client.session)
        two.drain()
        other = two.second.bare.client()
        assert other.fetch(other.lookup("y")) == VALUES
        two.check_idle()

    def test_does_not_keep_an_ended_session_waiting_for_an_offer_for_ever(self, two: Two) -> None:
        self.publish(two)
        two.second.engine.close(two.second.client.session)
        two.drain()
        assert not two.second.engine.live
        other = two.second.bare.client()
        with pytest.raises(CancelledError):
            other.fetch(other.lookup("y"))
        two.send()
        two.drain()
        assert two.first.statuses() == ["Send CANCELLED"]
        two.check_idle()
