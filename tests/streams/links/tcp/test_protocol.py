"""One link as a state machine, without sockets: two of them, and every order of calls, frames and breaks."""

from __future__ import annotations

import struct
from collections import deque
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import KernelError, MetadataError, NodeLost, ProtocolError, TensordError
from tensord.interpreter.types.meta import Meta
from tensord.streams.links import failures
from tensord.streams.links.link import SMALL_BYTES
from tensord.streams.links.tcp import frames, receiver, sender
from tensord.streams.links.tcp.frames import HEADER, Frame, HeaderKind
from tensord.streams.links.tcp.halves import Violation
from tensord.streams.links.tcp.protocol import Protocol
from tensord.streams.links.tcp.sender import WINDOW_BYTES, cost

from ....each_case import each_case

BROKEN = NodeLost("broken")
LARGE = SMALL_BYTES + 1
T = [struct.pack(">QQ", 7, number) for number in range(2000)]


class Ear:
    """A callback that records its calls."""

    def __init__(self, then: Any = None) -> None:
        self.heard: list[TensordError | None] = []
        self.then = then

    def __call__(self, error: TensordError | None) -> None:
        self.heard.append(error)
        if self.then is not None and error is None:
            self.then()

    @property
    def error(self) -> TensordError | None:
        (error,) = self.heard
        return error


class End:
    """A protocol, its written frames that the other end has not read, and the frame that it reads now."""

    def __init__(self, piece: int = 1003) -> None:
        self.protocol = Protocol(piece)
        self.wire: deque[tuple[bytes, Any]] = deque()
        self.busy: Any = None

    def make(self, calls: Any) -> None:
        for told, error in calls:
            told(error)

    def write(self) -> bool:
        """Write a frame; False if there is none."""
        if self.busy is not None:
            out, self.busy = self.busy, None
            self.make(self.protocol.written(out.half))
            return True
        out = self.protocol.next()
        if out is None:
            return False
        data = b"".join(bytes(one) for one in out.buffers)
        while data:
            head = Frame.of(data[: HEADER.size])
            end = HEADER.size + head.length
            self.wire.append((data[: HEADER.size], data[HEADER.size : end]))
            data = data[end:]
        self.busy = out
        return True

    def read(self, other: End) -> bool:
        """Read a frame of the other end; False if there is none."""
        if not other.wire:
            return False
        header, payload = other.wire.popleft()
        head = Frame.of(header)
        if head.kind is HeaderKind.PIECE:
            target = self.protocol.target(head)
            if payload:
                target[:] = payload
            self.protocol.merge(head.length)
            self.make(self.protocol.filled(head.length))
        else:
            self.make(self.protocol.take(head, payload))
        return True

    def breaks(self) -> None:
        self.make(self.protocol.broken(BROKEN))
        if self.busy is not None:
            self.make(self.protocol.written(self.busy.half))
        self.wire.clear()
        self.busy = None


def pair() -> tuple[End, End]:
    first, second = End(), End()
    first.protocol.connected()
    second.protocol.connected()
    return first, second


def run(*ends: End) -> None:
    """Write and read until both ends are idle."""
    first, second = ends
    while first.write() | second.write() | first.read(second) | second.read(first):
        pass


def is_clean(end: End) -> bool:
    sender, receiver = end.protocol.sender, end.protocol.receiver
    kept = (sender.sending, sender.active, sender.given, receiver.receiving, receiver.held, receiver.arrived)
    return not any(kept)


def values(nbytes: int) -> Any:
    return np.arange(nbytes, dtype=np.uint8)


def offer(end: End, transfer: bytes, array: Any, meta: Meta | None = None) -> Ear:
    ear = Ear()
    end.make(end.protocol.offer(transfer, meta or Meta.of(array.shape, array.dtype), array, ear))
    return ear


def expect(end: End, transfer: bytes, meta: Meta) -> Ear:
    ear = Ear()
    end.make(end.protocol.expect(transfer, meta, ear))
    return ear


def receive(end: End, transfer: bytes, array: Any) -> Ear:
    ear = Ear()
    end.make(end.protocol.receive(transfer, array, ear))
    return ear


def take(end: End, transfer: bytes, into: Any, meta: Meta) -> Ear:
    ear = Ear()
    end.make(end.protocol.take_value(transfer, meta, into, ear))
    return ear


class Sums:
    """Adds pieces, which have to come in their order, to a base. `fails`: from that element on."""

    def __init__(self, base: Any, fails: int | None = None) -> None:
        self.result, self.fails, self.seen = base.copy(), fails, 0

    def __call__(self, first: int, piece: Any) -> None:
        assert first == self.seen
        if self.fails is not None and first >= self.fails:
            raise FloatingPointError("no sum")
        self.seen += len(piece)
        self.result[first : self.seen] += piece


# -- one transfer ------------------------------------------------------------------------------------------------------


@each_case("first", ["offer", "expect"])
@each_case("nbytes", [0, 1, SMALL_BYTES, LARGE, 100_000])
def test_a_value_arrives(first, nbytes):
    one, other = pair()
    sent, into = values(nbytes), np.zeros(nbytes, np.uint8)
    transfer, meta = T[0], Meta.of((nbytes,), "uint8")
    if first == "offer":
        done = offer(one, transfer, sent)
        run(one, other)
        offered = expect(other, transfer, meta)
    else:
        offered = expect(other, transfer, meta)
        done = offer(one, transfer, sent)
        run(one, other)
    assert offered.heard == [None]
    assert not done.heard
    arrived = receive(other, transfer, into)
    run(one, other)
    assert (arrived.error, done.error) == (None, None)
    np.testing.assert_array_equal(into, sent)
    assert is_clean(one)
    assert is_clean(other)


@each_case("first", ["offer", "take"])
@each_case("nbytes", [0, 8, SMALL_BYTES, SMALL_BYTES + 8, 100_000])
@each_case("merged", [False, True])
def test_a_value_arrives_where_memory_was_there_before(first, nbytes, merged):
    one, other = pair()
    sent, base = np.arange(nbytes // 8, dtype=float), np.arange(nbytes // 8, dtype=float) ** 2
    sums, into, meta = Sums(base), np.zeros_like(base), Meta.of((nbytes // 8,), "float64")
    if first == "offer":
        done = offer(one, T[0], sent)
        run(one, other)
        arrived = take(other, T[0], sums if merged else into, meta)
    else:
        arrived = take(other, T[0], sums if merged else into, meta)
        done = offer(one, T[0], sent)
    run(one, other)
    assert (arrived.heard, done.heard) == ([None], [None])
    np.testing.assert_array_equal(sums.result if merged else into, sent + base if merged else sent)
    assert is_clean(one)
    assert is_clean(other)


@each_case("nbytes", [80, LARGE - LARGE % 8 + 8])
def test_a_value_that_cannot_be_merged_fails_the_receivers_half_at_its_end(nbytes):
    one, other = pair()
    sent = np.ones(nbytes // 8)
    sums = Sums(np.zeros_like(sent), fails=0 if nbytes == 80 else 100)
    arrived = take(other, T[0], sums, Meta.of(sent.shape, "float64"))
    done = offer(one, T[0], sent)
    run(one, other)
    assert done.heard == [None]
    assert isinstance(arrived.error, KernelError)
    assert "FloatingPointError: no sum" in str(arrived.error)
    assert sums.seen == (0 if nbytes == 80 else 125)  # one piece, of whole elements
    assert is_clean(other)


@each_case("what", ["another meta", "a failure", "a refusal", "a break", "twice"])
@each_case("nbytes", [80, LARGE - LARGE % 8 + 8])
def test_what_is_taken_ends_with_the_error_if_nothing_comes(what, nbytes):
    one, other = pair()
    sent, error = np.ones(nbytes // 8), KernelError("no")
    meta = Meta.of((7,) if what == "another meta" else sent.shape, "float64")
    arrived = take(other, T[0], sent.copy(), meta)
    if what == "twice":
        assert isinstance(take(other, T[0], sent.copy(), meta).error, ProtocolError)
        return
    if what == "a failure":
        one.make(one.protocol.fail(T[0], error))
    elif what == "a refusal":
        other.make(other.protocol.refuse(T[0], error))
    done = offer(one, T[0], sent) if what != "a failure" else None
    if what == "a break":
        while nbytes > SMALL_BYTES and one.write() | other.read(one):  # the memory is granted, and that is on its way
            pass
        one.breaks()
        other.breaks()
    run(one, other)
    expected = {"another meta": MetadataError, "a break": NodeLost}.get(what, KernelError)
    assert isinstance(arrived.error, expected)
    assert done is None or isinstance(done.error, expected)
    assert is_clean(one)
    assert is_clean(other)


def test_a_large_value_takes_no_memory_until_it_is_asked_for():
    one, other = pair()
    offer(one, T[0], values(10 * LARGE))
    run(one, other)
    assert (one.protocol.sender.given, other.protocol.receiver.held) == (0, 0)


def test_pieces_of_several_values_take_turns():
    one, other = pair()
    for transfer in T[:3]:
        expect(other, transfer, Meta.of((LARGE,), "uint8"))
        offer(one, transfer, values(LARGE))
    run(one, other)
    for transfer in T[:3]:
        receive(other, transfer, np.zeros(LARGE, np.uint8))
    while other.write():
        pass
    while one.read(other):
        pass
    order = []
    for _ in range(6):
        out = one.protocol.next()
        assert out is not None
        assert out.half is not None
        order.append(out.half.transfer)
        one.protocol.written(out.half)
    assert order == T[:3] * 2


def test_small_values_beyond_the_window_wait_to_be_asked_for():
    one, other = pair()
    fit = WINDOW_BYTES // cost(Meta.of((SMALL_BYTES,), "uint8"))
    for transfer in T[: fit + 3]:
        offer(one, transfer, values(SMALL_BYTES))
    run(one, other)
    assert other.protocol.receiver.held <= WINDOW_BYTES
    assert len(other.protocol.receiver.receiving) == fit + 3
    for transfer in T[: fit + 3]:
        assert expect(other, transfer, Meta.of((SMALL_BYTES,), "uint8")).heard == [None]
        done = receive(other, transfer, np.zeros(SMALL_BYTES, np.uint8))
        run(one, other)
        assert done.heard == [None]
    assert is_clean(one)
    assert is_clean(other)


def test_an_empty_value_beyond_the_window_arrives(monkeypatch):
    monkeypatch.setattr(sender, "WINDOW_BYTES", 0)
    one, other = pair()
    done = offer(one, T[0], values(0))
    expect(other, T[0], Meta.of((0,), "uint8"))
    run(one, other)
    arrived = receive(other, T[0], np.zeros(0, np.uint8))
    run(one, other)
    assert (arrived.heard, done.heard) == ([None], [None])


@each_case("nbytes", [10, LARGE])
def test_another_meta_fails_both_halves(nbytes):
    one, other = pair()
    done = offer(one, T[0], values(nbytes))
    offered = expect(other, T[0], Meta.of((3,), "float32"))
    run(one, other)
    for ear in (done, offered):
        assert isinstance(ear.error, MetadataError)
        assert f"uint8[{nbytes}] was sent where a float32[3] was expected" in str(ear.error)
    assert is_clean(one)
    assert is_clean(other)


@each_case("nbytes", [10, LARGE])
@each_case("when", ["before", "offered", "expected"])
def test_an_error_arrives_in_place_of_a_value(nbytes, when):
    one, other = pair()
    error, meta = KernelError("no inverse", op="inv"), Meta.of((nbytes,), "uint8")
    done = offer(one, T[0], values(nbytes)) if when != "before" else None
    offered = expect(other, T[0], meta) if when == "expected" else None
    run(one, other)
    one.make(one.protocol.fail(T[0], error))
    run(one, other)
    late = offered is None
    offered = offered or expect(other, T[0], meta)
    told = offered.error if late or not done else receive(other, T[0], np.zeros(nbytes, np.uint8)).error
    assert isinstance(told, KernelError)
    assert told.op == "inv"
    assert done is None or done.error is error
    run(one, other)
    assert is_clean(one)
    assert is_clean(other)


@each_case("nbytes", [10, LARGE])
@each_case("when", ["before", "expected", "offered"])
def test_a_refusal_reaches_the_sender(nbytes, when):
    one, other = pair()
    error = KernelError("the session has ended")
    if when != "before":
        expect(other, T[0], Meta.of((nbytes,), "uint8"))
    done = offer(one, T[0], values(nbytes)) if when == "offered" else None
    run(one, other)
    other.make(other.protocol.refuse(T[0], error))
    run(one, other)
    done = done or offer(one, T[0], values(nbytes))
    run(one, other)
    assert isinstance(done.error, KernelError)
    assert is_clean(one)
    assert is_clean(other)


def test_a_refusal_that_crosses_the_offer_ends_both():
    one, other = pair()
    done = offer(one, T[0], values(10))
    other.make(other.protocol.refuse(T[0], KernelError("no")))
    run(one, other)
    assert isinstance(done.error, KernelError)
    assert is_clean(one)
    assert is_clean(other)


def test_a_half_begins_once():
    one, other = pair()
    offer(one, T[0], values(10))
    assert isinstance(offer(one, T[0], values(10)).error, ProtocolError)
    expect(other, T[0], Meta.of((10,), "uint8"))
    assert isinstance(expect(other, T[0], Meta.of((10,), "uint8")).error, ProtocolError)
    assert isinstance(receive(other, T[1], values(10)).error, ProtocolError)


def test_an_id_that_is_used_again_breaks_nothing():
    """A client may do that: cancel a SEND, and send another value under its id."""
    one, other = pair()
    first = offer(one, T[0], values(LARGE))
    expect(other, T[0], Meta.of((LARGE,), "uint8"))
    run(one, other)
    into = np.zeros(LARGE, np.uint8)
    arrived = receive(other, T[0], into)
    while other.write():
        pass  # the memory is granted, and that is on its way
    one.make(one.protocol.fail(T[0], KernelError("cancelled")))
    second = offer(one, T[0], values(LARGE))
    run(one, other)
    assert isinstance(first.error, KernelError)
    assert isinstance(arrived.error, KernelError)
    assert not second.heard
    assert expect(other, T[0], Meta.of((LARGE,), "uint8")).heard == [None]
    again = receive(other, T[0], into)
    run(one, other)
    assert (again.heard, second.heard) == ([None], [None])


# -- breaks ------------------------------------------------------------------------------------------------------------


@each_case("nbytes", [10, LARGE])
@each_case("steps", list(range(7)))
def test_a_break_at_any_step_ends_both_halves_and_those_that_come_later(nbytes, steps):
    one, other = pair()
    meta, into = Meta.of((nbytes,), "uint8"), np.zeros(nbytes, np.uint8)
    done = offer(one, T[0], values(nbytes))
    for _ in range(steps):
        one.write()
        other.read(one)
        if steps > 2 and T[0] in other.protocol.receiver.receiving and other.protocol.receiver.arrived:
            expect(other, T[0], meta)
            receive(other, T[0], into)
        other.write()
        one.read(other)
    one.breaks()
    other.breaks()
    assert len(done.heard) == 1
    one.protocol.connected()
    other.protocol.connected()
    run(one, other)
    if steps <= 2:
        assert isinstance(expect(other, T[0], meta).error, NodeLost)
    assert is_clean(one)
    assert is_clean(other)
    again = offer(one, T[1], values(nbytes))
    expect(other, T[1], meta)
    run(one, other)
    receive(other, T[1], into)
    run(one, other)
    assert again.heard == [None]


def test_what_was_offered_hears_of_a_break_when_it_receives():
    one, other = pair()
    offer(one, T[0], values(10))
    run(one, other)
    expect(other, T[0], Meta.of((10,), "uint8"))
    one.breaks()
    other.breaks()
    assert other.protocol.receiver.held == 0
    assert receive(other, T[0], np.zeros(10, np.uint8)).error is BROKEN
    assert is_clean(other)


def test_what_begins_while_there_is_no_connection_waits_for_it():
    one, other = End(), End()
    done = offer(one, T[0], values(10))
    one.make(one.protocol.fail(T[1], KernelError("no")))
    expected = expect(other, T[1], Meta.of((10,), "uint8"))
    assert one.protocol.next() is None
    one.protocol.connected()
    other.protocol.connected()
    run(one, other)
    assert isinstance(expected.error, KernelError)
    assert expect(other, T[0], Meta.of((10,), "uint8")).heard == [None]
    receive(other, T[0], np.zeros(10, np.uint8))
    run(one, other)
    assert done.heard == [None]


class Half:
    """Half of a random transfer, with the machine's possible next calls."""

    def __init__(self, ears: list[Ear]) -> None:
        self.ears = ears
        self.began = self.over = False


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_whatever_happens_both_halves_end_and_agree(random):
    ends = End(), End()
    count = random.randint(1, 12)
    sizes = [random.choice([0, 5, SMALL_BYTES, LARGE, 3 * LARGE]) for _ in range(count)]
    done: list[Ear | None] = [None] * count
    takes = [random.random() < 0.4 for _ in range(count)]
    sums = [Sums(np.zeros(size, np.uint8)) if random.random() < 0.5 else None for size in sizes]
    into = [np.zeros(size, np.uint8) for size in sizes]
    offered: list[Ear | None] = [None] * count
    arrived: list[Ear | None] = [None] * count
    todo = [(number, side) for number in range(count) for side in (0, 1)]
    random.shuffle(todo)

    def begin() -> None:
        number, side = todo.pop()
        end = ends[(number + side) % 2]
        if side == 0 and random.random() < 0.85:
            done[number] = offer(end, T[number], values(sizes[number]))
        elif side == 0:
            end.make(end.protocol.fail(T[number], KernelError("failed")))
        elif takes[number] and random.random() < 0.85:
            arrived[number] = take(end, T[number], sums[number] or into[number], Meta.of((sizes[number],), "uint8"))
        elif random.random() < 0.85:
            offered[number] = expect(end, T[number], Meta.of((sizes[number],), "uint8"))
        else:
            end.make(end.protocol.refuse(T[number], KernelError("refused")))

    def withdraw() -> None:
        number = random.randrange(count)
        ear = done[number]
        if ear is not None and not ear.heard:
            end = ends[number % 2]
            end.make(end.protocol.fail(T[number], KernelError("failed")))

    def have_memory() -> None:
        for number, ear in enumerate(offered):
            if ear is not None and ear.heard == [None] and arrived[number] is None:
                arrived[number] = receive(ends[(number + 1) % 2], T[number], into[number])
                return

    def breaks() -> None:
        for end in random.sample(ends, 2):
            end.breaks()
        if random.random() < 0.7:
            connect()

    def connect() -> None:
        for end in ends:
            if not end.protocol.up:
                end.protocol.connected()

    moves: list[Any] = [ends[0].write, ends[1].write, have_memory, have_memory]
    moves += [partial(ends[0].read, ends[1]), partial(ends[1].read, ends[0])]
    connect()
    while todo:
        step = random.random()
        if step < 0.25:
            begin()
        elif step < 0.28:
            breaks()
        elif step < 0.33:
            withdraw()
        else:
            random.choice(moves)()
    connect()
    for _ in range(count + 1):
        run(*ends)
        have_memory()
    run(*ends)
    for number in range(count):
        sender, first, last = done[number], offered[number], arrived[number]
        assert sender is None or len(sender.heard) == 1
        assert first is None or len(first.heard) == 1
        assert last is None or len(last.heard) == 1
        if sender is not None and sender.error is None:
            assert last is not None
            assert last.error is None
        if last is not None and last.error is None:
            merged = sums[number] if first is None else None
            found = into[number] if merged is None else merged.result
            np.testing.assert_array_equal(found, values(sizes[number]))
    assert all(is_clean(end) for end in ends)


# -- hostile peers -----------------------------------------------------------------------------------------------------


@each_case(
    "sent",
    [
        frames.frame(HeaderKind.PIECE, T[0], 1, b"x"),
        frames.frame(HeaderKind.PIECE, T[1], 9, b"x"),
        frames.frame(HeaderKind.PIECE, T[1], 1, b"x" * (LARGE + 1)),
        frames.frame(HeaderKind.PIECE, T[1], 1),
        frames.frame(HeaderKind.OFFER, T[0], 0, frames.meta_payload(Meta.of((2,), "int8"))),
        frames.frame(HeaderKind.OFFER, T[0], 1, b"junk"),
        frames.frame(HeaderKind.SMALL, T[0], 1, b""),
        frames.frame(HeaderKind.FAIL, T[0], 0, b"junk"),
        frames.frame(HeaderKind.REFUSE, T[0], 0, b""),
        frames.frame(HeaderKind.DONE, T[2], 1),
    ],
)
def test_what_no_peer_sends_is_a_violation(sent):
    _, other = pair()
    head = Frame.of(
        frames.frame(HeaderKind.OFFER, T[1], 1, frames.meta_payload(Meta.of((LARGE,), "uint8")))[: HEADER.size]
    )
    other.protocol.take(head, frames.meta_payload(Meta.of((LARGE,), "uint8")))
    expect(other, T[1], Meta.of((LARGE,), "uint8"))
    receive(other, T[1], np.zeros(LARGE, np.uint8))
    offer(other, T[2], values(LARGE))
    other.wire.clear()
    liar = End()
    liar.wire.append((sent[: HEADER.size], sent[HEADER.size :]))
    with pytest.raises(ProtocolError):
        other.read(liar)


@each_case("nbytes", [7, 9, 0])
def test_a_piece_of_half_an_element_is_a_violation(nbytes):
    """In a merge, a kernel gets each piece as an array."""
    _, other = pair()
    meta = Meta.of((LARGE,), "float64")
    take(other, T[0], Sums(np.zeros(LARGE)), meta)
    payload = frames.meta_payload(meta)
    other.protocol.take(Frame(HeaderKind.OFFER, len(payload), 1, T[0]), payload)
    with pytest.raises(Violation, match="a piece of"):
        other.protocol.target(Frame(HeaderKind.PIECE, nbytes, 1, T[0]))


@each_case(
    "sent",
    [
        frames.frame(HeaderKind.GRANT, T[0], 1),
        frames.frame(HeaderKind.DONE, T[0], 1),
        frames.frame(HeaderKind.GRANT, T[2], 77),
        frames.frame(HeaderKind.REFUSE, T[0], 5, frames.error_payload(BROKEN, 1)),
        frames.frame(HeaderKind.FAIL, T[0], 5, frames.error_payload(BROKEN, 1)),
        frames.BEAT,
    ],
)
def test_an_answer_to_what_has_ended_means_nothing(sent):
    _, other = pair()
    pending = offer(other, T[2], values(LARGE))
    liar = End()
    liar.wire.append((sent[: HEADER.size], sent[HEADER.size :]))
    other.read(liar)
    assert not pending.heard
    assert not other.protocol.receiver.failed
    assert not other.protocol.sender.refused


def flood(end: End, kind: HeaderKind, payload: bytes, transfers: list[bytes]) -> None:
    for number, transfer in enumerate(transfers, 1):
        end.protocol.take(Frame(kind, len(payload), number, transfer), payload)


def test_a_flood_of_small_values_is_a_violation():
    _, other = pair()
    meta = Meta.of((SMALL_BYTES,), "uint8")
    payload = frames.small_payload(meta, bytes(SMALL_BYTES))
    with pytest.raises(Violation, match="no session has received"):
        flood(other, HeaderKind.SMALL, payload, T)
    assert other.protocol.receiver.held <= WINDOW_BYTES + cost(meta)


def test_floods_of_offers_and_failures_are_bounded(monkeypatch):
    monkeypatch.setattr(failures, "MAX_FAILURES", 100)
    monkeypatch.setattr(receiver, "MAX_ARRIVED", 100)
    _, other = pair()
    meta = frames.meta_payload(Meta.of((2,), "int8"))
    for number, transfer in zip(range(1, 600, 2), T[:300], strict=True):
        error = frames.error_payload(BROKEN, number)
        other.protocol.take(Frame(HeaderKind.FAIL, len(error), 0, transfer), error)
        error = frames.error_payload(BROKEN, number + 1)
        other.protocol.take(Frame(HeaderKind.REFUSE, len(error), 0, transfer), error)
    assert len(other.protocol.receiver.failed) == len(other.protocol.sender.refused) == 100
    assert T[0] not in other.protocol.receiver.failed
    flood(other, HeaderKind.OFFER, meta, T[300:])
    assert len(other.protocol.receiver.receiving) == other.protocol.receiver.arrived == 100
    assert len(other.protocol.outgoing.notices) == 100


@each_case("nbytes", [1, LARGE])
def test_an_offer_beyond_what_may_wait_fails_alone(nbytes, monkeypatch):
    monkeypatch.setattr(receiver, "MAX_ARRIVED", 3)
    first, second = ends = pair()
    array, meta = values(nbytes), Meta.of((nbytes,), "uint8")
    ears = [offer(first, transfer, array) for transfer in T[:5]]
    run(*ends)
    assert [len(ear.heard) for ear in ears] == [0, 0, 0, 1, 1]
    assert "no session has asked" in str(ears[3].error)
    assert "no session has asked" in str(expect(second, T[4], meta).error)
    asked = expect(second, T[5], meta)  # earlier requests have room
    late = offer(first, T[5], array)
    run(*ends)
    assert asked.error is None
    into = np.zeros(nbytes, np.uint8)
    receive(second, T[5], into)
    run(*ends)
    assert late.error is None
    assert (into == array).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(HeaderKind), st.sampled_from(T[:3]), st.integers(0, 3), st.booleans()), max_size=30
    )
)
def test_any_frames_are_taken_or_refused(given_frames):
    random = Random(len(given_frames))
    end, liar = End(), End()
    end.protocol.connected()
    meta = Meta.of((LARGE,), "uint8")
    offer(end, T[0], values(LARGE))
    expect(end, T[1], meta)
    payloads = {
        HeaderKind.OFFER: frames.meta_payload(meta),
        HeaderKind.SMALL: frames.small_payload(Meta.of((3,), "uint8"), b"abc"),
        HeaderKind.PIECE: b"x" * 1000,
        HeaderKind.FAIL: frames.error_payload(BROKEN, 1),
        HeaderKind.REFUSE: frames.error_payload(BROKEN, 1),
    }
    try:
        for kind, transfer, number, spoilt in given_frames:
            payload = payloads.get(kind, b"")
            payload = payload[: random.randint(0, len(payload))] if spoilt else payload
            data = frames.frame(kind, transfer, number, payload)
            liar.wire.append((data[: HEADER.size], data[HEADER.size :]))
            end.read(liar)
            end.write()
            receive(end, T[1], np.zeros(LARGE, np.uint8))
    except ProtocolError:
        pass
    end.breaks()
    assert not end.protocol.sender.sending
