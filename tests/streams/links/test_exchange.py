"""An exchange: each half of a transfer ends once, with the right error, however the other one ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensord.interpreter.errors import CancelledError, KernelError, MetadataError, NodeLost, ProtocolError, TensordError
from tensord.interpreter.types.meta import Meta
from tensord.streams.links.exchange import Exchange
from tensord.streams.links.failures import MAX_FAILURES
from tensord.streams.links.in_memory import pair
from tensord.streams.links.link import SMALL_BYTES
from tensord.streams.links.loopback import Loopback

from ...each_case import each_case

META = Meta.of((4,), np.dtype("float64"))
OTHER = Meta.of((3,), np.dtype("float64"))
NAME = bytes(range(16))
FAILED, REFUSED, LOST = KernelError("singular"), CancelledError("cancelled"), NodeLost("node 'node1' is lost")


class Halves:
    """Both halves of one transfer, with their reports in order."""

    def __init__(self, link: Exchange, name: bytes = NAME) -> None:
        self.link, self.name = link, name
        self.sent: list[TensordError | None] = []
        self.offered: list[TensordError | None] = []
        self.received: list[TensordError | None] = []
        self.source, self.target = np.arange(4.0), np.zeros(4)

    def offer(self) -> None:
        self.link.offer(self.name, META, self.source, self.sent.append)

    def expect(self, meta: Meta = META) -> None:
        self.link.expect(self.name, meta, self.offered.append)

    def receive(self) -> None:
        self.link.receive(self.name, self.target, self.received.append)

    def take(self, meta: Meta = META) -> None:
        self.link.take(self.name, meta, self.target, self.received.append)

    def merge(self) -> None:
        def merge(first: int, piece: NDArray[Any]) -> None:
            self.target[first : first + len(piece)] += piece

        self.link.take(self.name, META, merge, self.received.append)


class Held:
    """A carrier whose steps are run later."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def __call__(self, _nbytes: int, step: Callable[[], None]) -> None:
        self.steps.append(step)

    def run_all(self) -> None:
        while self.steps:
            self.steps.pop()()


@pytest.fixture
def halves() -> Halves:
    return Halves(Exchange())


class TestAValue:
    @each_case("first", ["offer", "expect"])
    def test_is_copied_once_the_receiver_has_memory_whichever_half_comes_first(self, first: str) -> None:
        halves = Halves(Exchange())
        getattr(halves, first)()
        assert halves.sent == halves.offered == []
        getattr(halves, "expect" if first == "offer" else "offer")()
        assert (halves.sent, halves.offered) == ([], [None])
        halves.receive()
        assert halves.sent == halves.received == [None]
        assert halves.target.tolist() == halves.source.tolist()
        assert halves.link.pending() == 0

    @each_case("steps", ["offer take", "take offer", "offer merge", "merge offer"])
    def test_comes_at_once_where_memory_is_there_already(self, steps: str) -> None:
        halves = Halves(Exchange(held := Held()))
        halves.target[:] = 10
        for step in steps.split():
            getattr(halves, step)()
        assert halves.sent == halves.received == []
        held.run_all()
        assert halves.sent == halves.received == [None]
        assert halves.target.tolist() == [each + 10 * ("merge" in steps) for each in halves.source.tolist()]
        assert halves.link.pending() == 0

    @each_case("half", ["expect", "take"])
    def test_of_another_meta_fails_both(self, half: str) -> None:
        halves = Halves(Exchange())
        halves.offer()
        getattr(halves, half)(OTHER)
        (error,) = halves.offered + halves.received
        assert halves.sent == [error]
        assert isinstance(error, MetadataError)
        assert halves.link.pending() == 0

    def test_that_cannot_be_copied_fails_both(self, halves: Halves) -> None:
        halves.target = np.zeros(7)
        halves.offer()
        halves.expect()
        halves.receive()
        assert isinstance(halves.sent[0], KernelError)
        assert halves.received == halves.sent

    def test_that_cannot_be_merged_fails_both(self, halves: Halves) -> None:
        halves.target = np.zeros(2)
        halves.offer()
        halves.merge()
        assert isinstance(halves.received[0], KernelError)
        assert halves.sent == halves.received

    @each_case("half", ["offer", "expect", "take"])
    def test_is_not_sent_nor_received_twice(self, half: str) -> None:
        halves, again = Halves(link := Exchange()), Halves(link)
        getattr(halves, half)()
        getattr(again, half)()
        assert isinstance((again.sent + again.offered + again.received)[0], ProtocolError)
        assert halves.sent == halves.offered == halves.received == []

    def test_that_was_not_offered_is_not_received(self, halves: Halves) -> None:
        halves.receive()
        assert isinstance(halves.received[0], ProtocolError)


class TestAFailure:
    @each_case("steps", ["fail", "offer fail", "expect fail", "offer expect fail", "expect offer fail"])
    def test_of_the_sender_is_the_receivers_error(self, steps: str) -> None:
        halves = Halves(Exchange())
        for step in steps.split():
            halves.link.fail(NAME, FAILED) if step == "fail" else getattr(halves, step)()
        told = halves.offered.count(None)
        if "expect" not in steps:
            halves.expect()
        elif told:
            halves.receive()
        assert (halves.received if told else halves.offered) == [FAILED]
        assert halves.sent == ([FAILED] if "offer" in steps else [])
        assert halves.link.pending() == 0

    @each_case("steps", ["refuse", "offer refuse", "expect refuse", "offer expect refuse", "expect offer refuse"])
    def test_of_the_receiver_is_the_senders_error(self, steps: str) -> None:
        halves = Halves(Exchange())
        for step in steps.split():
            halves.link.refuse(NAME, REFUSED) if step == "refuse" else getattr(halves, step)()
        if "offer" not in steps:
            halves.offer()
        assert halves.sent == [REFUSED]
        assert halves.offered == ([] if "expect" not in steps else [None] if "offer" in steps else [REFUSED])
        assert halves.link.pending() == 0

    def test_of_both_is_forgotten(self, halves: Halves) -> None:
        halves.link.fail(NAME, FAILED)
        halves.link.refuse(NAME, REFUSED)
        halves.offer()
        assert halves.sent == []

    def test_does_not_stop_what_is_being_copied(self) -> None:
        halves = Halves(Exchange(held := Held()))
        halves.offer()
        halves.expect()
        halves.receive()
        halves.link.fail(NAME, FAILED)
        halves.link.refuse(NAME, REFUSED)
        assert halves.sent == halves.received == []
        held.run_all()
        assert halves.sent == halves.received == [None]

    def test_is_remembered_for_a_bounded_number_of_halves(self, halves: Halves) -> None:
        for number in range(MAX_FAILURES + 1):
            halves.link.fail(number.to_bytes(16), FAILED)
        late = [Halves(halves.link, number.to_bytes(16)) for number in (0, 1, MAX_FAILURES)]
        for one in late:
            one.expect()
        assert [one.offered for one in late] == [[], [FAILED], [FAILED]]


class TestACut:
    @each_case("steps", ["offer", "expect", "offer expect"])
    def test_fails_all_that_has_begun_and_the_other_half_when_it_comes(self, steps: str) -> None:
        halves = Halves(Exchange())
        for step in steps.split():
            getattr(halves, step)()
        halves.link.cut(LOST)
        assert halves.sent == ([LOST] if "offer" in steps else [])
        if "expect" not in steps:
            halves.expect()
            assert halves.offered == [LOST]
        elif "offer" not in steps:
            assert halves.offered == [LOST]
            halves.offer()
            assert halves.sent == [LOST]
        else:
            halves.receive()
            assert halves.received == [LOST]
        assert halves.link.pending() == 0

    def test_while_bytes_are_copied_is_told_when_nothing_touches_the_arrays(self) -> None:
        halves = Halves(Exchange(held := Held()))
        halves.offer()
        halves.expect()
        halves.receive()
        halves.link.cut(LOST)
        assert halves.sent == halves.received == []
        held.run_all()
        assert halves.sent == halves.received == [LOST]

    def test_ends_no_later_transfer(self, halves: Halves) -> None:
        halves.link.cut(LOST)
        halves.offer()
        halves.expect()
        halves.receive()
        assert halves.received == [None]


STEPS = ("offer", "expect", "receive", "fail", "refuse", "cut", "run")


@each_case("seed", range(20))
def test_each_half_is_told_once_in_any_order_of_steps(seed: int) -> None:
    rnd = random.Random(seed)
    for number in range(100):
        link = Exchange(held := Held())
        halves, begun = Halves(link, number.to_bytes(16)), set[str]()
        for _ in range(12):
            step = rnd.choice(STEPS)
            ready = halves.offered == [None] and not begun & {"refuse", "receive"}
            if step in ("cut", "run"):
                held.run_all() if step == "run" else link.cut(LOST)
            elif step in begun or (step == "receive" and not ready):
                continue
            elif step in ("fail", "refuse"):
                over = halves.sent if step == "fail" else halves.received + [one for one in halves.offered if one]
                if not over:
                    begun |= {step, "offer" if step == "fail" else "expect"}
                    getattr(link, step)(halves.name, FAILED)
            else:
                begun.add(step)
                getattr(halves, step)()
        held.run_all()
        for step in ("offer", "expect"):
            if step not in begun:
                getattr(halves, step)()
        if halves.offered == [None] and not begun & {"refuse", "receive"}:
            halves.receive()
        held.run_all()
        assert link.pending() == 0
        assert max(map(len, (halves.sent, halves.offered, halves.received))) <= 1


class TestLinks:
    def test_join_two_machines_and_each_to_itself(self) -> None:
        first, second = pair()
        assert first.to("node1") is second.to("node0")
        assert len({id(link) for one in (first, second) for link in (one.to("node0"), one.to("node1"))}) == 3

    def test_to_an_unknown_node_say_which_there_are(self) -> None:
        with pytest.raises(MetadataError, match="knows no node 'node7'; it knows node0, node1"):
            pair()[0].to("node7")

    def test_to_a_lost_node_are_refused_and_what_was_pending_fails(self) -> None:
        first, _ = pair()
        halves = Halves(first.exchanges["node1"])
        halves.offer()
        first.lose("node1", "no heartbeat")
        assert isinstance(halves.sent[0], NodeLost)
        with pytest.raises(NodeLost, match="node node1 is lost: no heartbeat"):
            first.to("node1")


class TestLoopback:
    @each_case("elements", [4, 2 * SMALL_BYTES])
    def test_sends_a_machines_values_to_itself(self, elements: int) -> None:
        links = Loopback("node0")
        link, source, target = links.to("node0"), np.arange(float(elements)), np.zeros(elements)
        meta, told = Meta.of((elements,), source.dtype), list[object]()
        link.offer(NAME, meta, source, told.append)
        link.expect(NAME, meta, told.append)
        link.receive(NAME, target, told.append)
        assert links.close()
        assert told == [None, None, None]
        assert (source == target).all()
