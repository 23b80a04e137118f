"""The socket front end in process: turns, connections that come and go, clients that do not receive."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.wire.frames import REFUSED, VERSION, WELCOME
from tensord.vm.service.connections.front import QUANTUM_NS
from tensord.vm.service.connections.inbound import unadmitted

from ....fuzz.harness import Harness
from ....fuzz.programs import pack

ME, OTHER = b"me", b"other"
SYNC, QUERY, UPLOAD, FETCH, ATOMIC = 5, 17, 2, 3, 15


def sync(number: int, request: int = 1) -> list[Any]:
    """A BATCH with a SYNC."""
    return [1, number, [[SYNC, request, 0]], []]


@pytest.fixture
def harness() -> Harness:
    found = Harness()
    found.hello(ME)
    return found


def test_a_client_that_takes_nothing_has_one_slot_in_the_ring(harness: Harness) -> None:
    """However often the client stops and goes on."""
    number = 0
    for _ in range(5):
        harness.listener.full.add(ME)
        number += 1
        harness.say(ME, sync(number))
        number += 1
        harness.receive(ME, pack([1, number, [[SYNC, 2, 0]] * 3, []]))
        harness.front.admit_next()
        assert harness.front.not_reading
        harness.listener.full.clear()
        harness.front.retry_sending()
        assert len(harness.front.fresh) + len(harness.front.busy) == 1
        harness.turn()
    harness.check()


@pytest.mark.parametrize("stray", ["x", 5, None])
def test_what_is_no_message_beside_an_upload_in_a_group_ends_no_session(harness: Harness, stray: Any) -> None:
    upload = [UPLOAD, 1, [1], "float64", "cpu:0", None, 0]
    harness.say(ME, [1, 1, [[ATOMIC, [upload, stray]], [SYNC, 1, 0]], [[0, 0, bytes(8)]]])
    answers = [answer for header in harness.headers(ME) if header[0] == 17 for answer in header[4]]
    assert [answer[:2] for answer in answers if answer[0] == 1] == [(1, 0)]
    harness.check()


def test_a_long_answer_waits_for_who_takes_it(harness: Harness) -> None:
    harness.say(ME, [1, 1, [[SYNC, 0, 0]] * 1000, []])
    harness.listener.full.add(ME)
    harness.say(ME, [1, 2, [[QUERY, "trace", [], 1]], []])
    peer = harness.registry.peers[harness.listener, ME]
    assert peer.parts
    assert len(peer.unsent) <= 2
    harness.listener.full.clear()
    harness.turn()
    assert not peer.parts
    assert sum(header[0] == 17 for header in harness.headers(ME)) > 3
    harness.check()


def test_a_long_answer_that_fails_in_the_middle_is_an_error(harness: Harness) -> None:
    def slices() -> Any:
        yield ["a"]
        raise KeyError("gone meanwhile")

    harness.engine.admission.answer = lambda *_: slices()
    harness.receive(ME, pack([1, 1, [[QUERY, "trace", [], 1]], []]))
    with pytest.raises(KeyError):  # the harness raises the error that the daemon would log
        harness.turn()
    harness.turn()
    kinds = [kind for header in harness.headers(ME) if header[0] == 17 for _, kind, _ in header[4]]
    assert kinds[0] == 4
    harness.check()


def test_what_a_dead_client_had_sent_is_dropped_without_a_word(harness: Harness) -> None:
    """libzmq delivers it later; the descriptor may belong to another client by then, which must not be cut."""
    harness.disconnect(7)
    harness.say(ME, sync(1))
    assert not list(harness.headers(ME))
    assert not harness.cut
    harness.check()


@pytest.mark.parametrize("local", [True, False])
def test_a_goodbye_that_arrived_before_the_end_is_heard(local: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The monitor reports the end first. The goodbye must not cut another client that has the descriptor by then."""
    harness = Harness(local=local)
    harness.listener.connections[7] = 1
    harness.hello(ME)
    harness.registry.disconnected(harness.listener, 7)
    harness.listener.connections[7] = 2
    with caplog.at_level("INFO", "tensord"):
        harness.say(ME, [5])
        harness.end_lost_connections()
    assert "closed by its client" in caplog.text
    assert [who.number for _, who in harness.cut] == [1]
    harness.check()


def test_who_was_refused_is_told_once(harness: Harness) -> None:
    for _ in range(3):
        harness.send(OTHER, b"noise", fd=8)
    assert [header[0] for header in harness.headers(OTHER)] == [REFUSED]
    assert len(harness.cut) == 1
    harness.check()


def test_a_routing_id_may_be_used_again(harness: Harness) -> None:
    harness.disconnect(7)
    assert harness.hello(ME)[0] == WELCOME
    harness.check()


def test_a_lost_session_goes_to_the_token_and_not_to_the_routing_id() -> None:
    harness = Harness(local=False)
    token = harness.hello(ME)[3]
    harness.disconnect(7)
    assert list(harness.registry.sessions.values())
    session = harness.hello(ME)[2]
    assert session == 2
    assert harness.hello(OTHER, token=token)[2] == 1
    harness.check()


def test_what_a_lost_session_has_sent_goes_on() -> None:
    harness = Harness(local=False)
    token = harness.hello(ME)[3]
    harness.receive(ME, pack(sync(1)))
    harness.disconnect(7)
    assert not harness.front.busy
    assert not harness.front.not_reading
    assert harness.hello(OTHER, token=token)[6] == 1
    assert harness.answers(OTHER) == {1: (0, 0)}
    harness.check()


def test_replies_that_nobody_acknowledges_hold_up_their_client() -> None:
    harness = Harness(local=False, window_bytes=1 << 16)
    harness.hello(ME)
    upload = [UPLOAD, 1, [512], "float64", "cpu:0", None, 0]
    harness.say(ME, [1, 1, [upload], [[0, -1, bytes(4096)]]])
    for number in range(2, 42):
        harness.receive(ME, pack([1, number, [[FETCH, 1, number, 0, 0]], []]))
        harness.front.admit_next()
        harness.bare.drain()
        harness.front.flush()
    told = harness.answers(ME)
    assert 10 < len(told) < 20
    assert harness.front.not_reading
    harness.say(ME, [4, 100])
    assert len(harness.answers(ME)) > 10
    harness.say(ME, [5])
    harness.check()


def test_what_is_decoded_of_one_client_is_bounded() -> None:
    """One batch is decoded; later ones wait undecoded, in their order."""
    harness = Harness(header=4096)
    harness.hello(ME)
    filler = [[9, 1, "x" * 1000]] * 3
    for number in range(1, 9):
        harness.receive(ME, pack([1, number, [*filler, [SYNC, number, 0]], []]))
    peer = harness.registry.peers[harness.listener, ME]
    assert (peer.batch, len(peer.packed)) == (1, 7)
    assert unadmitted(peer) == 8 * 4
    harness.turn()
    assert list(harness.answers(ME)) == list(range(1, 9))
    assert (len(peer.packed), peer.packed_bytes, peer.packed_payload) == (0, 0, 0)
    harness.check()


@pytest.mark.parametrize("start", [b"\xdc\x00\x04\x01", b"\xdd\x00\x00\x00\x04\x01", b"\x94\xcc\x01", b"\x94\xd0\x01"])
def test_a_batch_in_more_bytes_than_it_takes_keeps_its_position(harness: Harness, start: bytes) -> None:
    """Only a hostile client encodes like this, but the bytes are valid msgpack."""
    usual = [pack(sync(number, number)) for number in (1, 2, 3)]
    for header in (usual[0], usual[1], start + usual[2][2:]):
        harness.receive(ME, header)
    peer = harness.registry.peers[harness.listener, ME]
    assert (len(peer.inbox), len(peer.packed), unadmitted(peer)) == (1, 2, 3)
    harness.turn()
    assert list(harness.answers(ME)) == [1, 2, 3]
    harness.check()


@pytest.mark.parametrize(
    ("damaged", "counted"), [(b"\x94\x01\x02", 1), (b"\x94\x01\x02\xdd\xff\xff\xff\xff", 8), (b"\x94\x01\x02\xc0", 1)]
)
def test_what_waits_in_a_damaged_batch_counts_for_little(harness: Harness, damaged: bytes, counted: int) -> None:
    harness.receive(ME, pack(sync(1)))
    harness.receive(ME, damaged)
    assert unadmitted(harness.registry.peers[harness.listener, ME]) == 1 + counted
    harness.turn()
    assert harness.refusal(ME) is not None
    harness.check()


def test_one_array_may_be_larger_than_every_window() -> None:
    """Also if the array has to wait, and requests behind it, too; but not a second array."""
    harness = Harness(window_bytes=1 << 16)
    harness.hello(ME)
    large = 5 << 16
    upload = [UPLOAD, 1, [large], "uint8", "cpu:0", None, 0]
    harness.receive(ME, pack(sync(1, 1)))
    harness.receive(ME, pack([1, 2, [upload], [[0, -1, 0]]]), bytes(large))
    harness.receive(ME, pack(sync(3, 3)))
    assert len(harness.registry.peers[harness.listener, ME].packed) == 2
    harness.turn()
    assert sorted(harness.answers(ME)) == [1, 3]
    harness.receive(ME, pack(sync(4, 4)))
    for number in (5, 6):
        harness.receive(ME, pack([1, number, [[*upload[:1], number, *upload[2:]]], [[0, -1, 0]]]), bytes(large))
    refusal = harness.refusal(ME)
    assert refusal is not None
    assert "of payloads unfinished" in refusal[2]
    harness.check()


def test_what_is_sent_again_is_decoded_one_batch_a_turn() -> None:
    """However many batches there are, others have their turns in between."""
    harness = Harness(local=False)
    harness.hello(ME)
    for number in (1, 2, 3):
        harness.say(ME, sync(number))
    harness.receive(ME, pack(sync(4, 4)))
    for number in (1, 2, 3):
        harness.receive(ME, pack(sync(number)))
    harness.receive(ME, pack(sync(5, 5)))
    peer = harness.registry.peers[harness.listener, ME]
    left = []
    while harness.front.admit_next():
        left.append(len(peer.packed))
    assert left == [4, 3, 2, 1, 0]
    harness.turn()
    assert list(harness.answers(ME))[-2:] == [4, 5]
    harness.check()


def test_who_sends_too_many_frames_is_told_how_many() -> None:
    """Header and payloads; the routing id is none of its frames."""
    harness = Harness(frames=2)
    harness.hello(ME)
    harness.receive(ME, pack([1, 1, [], []]), b"", b"")
    assert harness.refusal(ME) is None
    harness.receive(ME, pack([1, 2, [], []]), b"", b"", b"")
    refusal = harness.refusal(ME)
    assert refusal is not None
    assert "a message of 4 frames; 3 are allowed" in refusal[2]


def test_who_has_more_to_say_lets_others_go_first(harness: Harness) -> None:
    """A client that sends batch after batch does not count as new for each of them."""
    harness.hello(OTHER)
    me, other = (harness.registry.peers[harness.listener, who] for who in (ME, OTHER))
    for number in (1, 2, 3):
        harness.receive(ME, pack(sync(number, number)))
    harness.front.admit_next()
    assert (list(harness.front.fresh), list(harness.front.busy)) == ([], [me])
    harness.receive(OTHER, pack(sync(1)))
    assert (list(harness.front.fresh), list(harness.front.busy)) == ([other], [me])
    harness.turn()
    assert list(harness.answers(ME)) == [1, 2, 3]
    harness.check()


def test_what_has_arrived_when_the_daemon_stops_still_finishes(harness: Harness) -> None:
    for number in (1, 2):
        harness.receive(ME, pack(sync(number, number)))
    harness.registry.closing = True
    harness.receive(ME, pack(sync(3, 3)))
    harness.turn()
    assert list(harness.answers(ME)) == [1, 2]
    harness.registry.closing = False
    harness.check()


def test_a_turn_is_longer_while_nothing_else_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four quanta instead of one; but one as soon as another client has sent a message."""

    def admitted(*, news: bool, others: bool) -> int:
        harness = Harness()
        harness.hello(ME)
        harness.hello(OTHER)
        ticks = count(0, QUANTUM_NS // 10)
        monkeypatch.setattr(harness.engine.scheduler, "clock", lambda: next(ticks))
        harness.front.has_news = lambda: news
        harness.receive(ME, pack([1, 1, [[SYNC, 0, 0]] * 60, []]))
        peer = harness.registry.peers[harness.listener, ME]
        if others:
            harness.receive(OTHER, pack(sync(1)))
        harness.front.admit_next()
        return 60 - len(peer.inbox)

    usual = admitted(news=True, others=False)
    assert 2 < usual < 15
    assert admitted(news=False, others=True) == usual
    assert 3 * usual <= admitted(news=False, others=False) <= 5 * usual


def test_credit_is_told_in_turn_and_before_the_rest() -> None:
    """A turn looks at one of the peers that are owed credit; all of them get it before the daemon sleeps."""
    harness = Harness(window=8)
    names = [b"a", b"b", b"c"]
    for fd, name in enumerate(names, 20):
        harness.send(name, pack([0, VERSION, "x", 1, "", False, None, 0]), fd=fd)
        harness.listener.sent[name].clear()
    for fd, name in enumerate(names, 20):
        harness.receive(name, pack([1, 1, [[SYNC, 0, 0]] * 4, []]), fd=fd)
    front = harness.front
    while front.admit_next():
        pass
    harness.bare.drain()
    assert len(front.credit_due) == 3
    front.report_credit(everybody=False)
    front.flush()
    assert [len(harness.listener.sent[name]) for name in names] == [1, 0, 0]
    front.report_credit(everybody=True)
    front.flush()
    assert [len(harness.listener.sent[name]) for name in names] == [1, 1, 1]
    harness.check()


def test_what_is_kept_of_a_signature_that_does_not_infer_is_short(harness: Harness) -> None:
    long = "y" * 400_000
    signatures = [
        [8, 1, long, [], [], "cpu:0", None],
        [8, 2, "ones", {long: 1}, [], "cpu:0", None],
        [8, 3, "ones", {"shape": long}, [], "cpu:0", None],
        [8, 4, "ones", {"shape": [1]}, [], long, None],
        [8, 5, "add", [], [long, long], "cpu:0", None],
    ]
    for number, signature in enumerate(signatures, 1):
        harness.say(ME, [1, number, [signature], []])
    session = harness.engine.directory.sessions[1]
    assert len(session.plans) == 5
    for error in session.plans.values():
        assert isinstance(error, TensordError)
        assert error.__traceback__ is None
        assert len(str(error)) + len(error.op or "") < 3000
    harness.check()


def test_fetches_on_their_way_hold_up_their_client() -> None:
    harness = Harness(window_bytes=1 << 20)
    harness.hello(ME)
    ones = [8, 1, "ones", {"shape": [1 << 17]}, [], "cpu:0", None]  # a MiB, which is copied on a stream
    harness.say(ME, [1, 1, [ones, [0, 1, [], [1], 0, 0]], []])
    harness.receive(ME, pack([1, 2, [[FETCH, 1, request, 0, 0] for request in range(1, 6)], []]))
    for _ in range(10):
        harness.front.admit_next()
        harness.engine.schedule()
    peer = harness.registry.peers[harness.listener, ME]
    assert peer.inbox
    assert peer.session is not None
    assert peer.session.answering <= 2 << 20
    harness.turn()
    assert list(harness.answers(ME)) == [1, 2, 3, 4, 5]
    harness.check()


def test_the_log_says_whose_a_session_is(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    with caplog.at_level("INFO", "tensord"):
        harness.hello(ME)
    assert f"uid={os.getuid()}" in caplog.text
    assert "name='fuzz'" in caplog.text
    harness.check()


def test_a_look_of_the_command_line_is_no_news(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    look = harness.encoder.encode([0, VERSION, None, 1, "", False, None, 0])
    with caplog.at_level("INFO", "tensord"):
        harness.send(OTHER, look, fd=8)
        harness.say(OTHER, [5])
    assert caplog.text == ""
    harness.check()


def test_a_program_of_the_command_lines_name_is_news_as_any_other(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "tensord"):
        harness.say(OTHER, [0, VERSION, "tensord", 1, "", False, None, 0])
    assert "session opened" in caplog.text
    harness.check()
