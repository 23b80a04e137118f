"""A machine's notes of sessions for a recorder: their start, their sessions, their limits, and their readers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensord.client.recording.recorder import ValueRecorder
from tensord.interpreter.errors import MetadataError, ProtocolError
from tensord.interpreter.recordings.entries import (
    ANSWER,
    BEGIN,
    END,
    IMPORT,
    LOST,
    MESSAGE,
    NOTE,
    PIECE,
    PIECE_BYTES,
    VALUE,
    decode_entry,
)
from tensord.interpreter.wire.message_kinds import (
    CALL,
    CHAIN,
    EFFECT,
    FETCH,
    LINK,
    LOOKUP,
    PROGRAM,
    QUERY,
    SIGNATURE,
    UPLOAD,
    WAIT,
)
from tensord.vm.recording.recorders import MAX_READS, OTHERS_QUEUE_BYTES
from tensord.vm.recording.tap import SLACK, TOO_SLOW, Tap

from ...behaviours.looking_inside import machine_of


def asks(session):
    return session._core.answers.query


def own(session):
    return session.stats()["session"]["id"]


def record(session, sessions=None, bound=1 << 28):
    return asks(session)("record", [own(session)] if sessions is None else sessions, bound)


def drained(session, what="recorded"):
    return [decode_entry(body) for body in asks(session)(what)]


def kinds(entries):
    return [entry[3][0] for entry in entries if entry[0] == MESSAGE]


def of(entries, kind):
    return [entry for entry in entries if entry[0] == kind]


class TestOneSession:
    def test_its_messages_are_noted_with_the_bytes_of_its_uploads_and_fetches(self, session):
        record(session)
        x = session.asarray(np.arange(3, dtype=np.float64))
        y = x + 1
        assert y.tolist() == [1, 2, 3]
        found = drained(session)
        assert [kind for kind in kinds(found) if kind in {UPLOAD, CALL, FETCH}] == [UPLOAD, CALL, FETCH]
        values = [np.frombuffer(entry[2]).tolist() for entry in of(found, PIECE)]
        assert values == [[0, 1, 2], [1, 2, 3]]
        (answer,) = of(found, ANSWER)
        assert answer[3:] == (2, None)

    def test_what_changes_no_value_is_left_out(self, session):
        record(session)
        session.asarray([1.0]).wait()
        session.sync()
        assert not {WAIT, QUERY} & set(kinds(drained(session)))

    def test_an_uploads_bytes_are_those_at_its_position_though_an_op_overwrites_them(self, session):
        record(session)
        x = session.asarray(np.zeros(1 << 16))
        x += 5
        x.numpy()
        first = of(drained(session), PIECE)[0]
        assert not any(first[2])

    def test_what_it_has_already_comes_first(self, session):
        x = session.asarray([1.0, 2.0])
        double = session.routine(lambda a: a * 2 + 1)
        double(x)
        y = double(x)
        kept = session.asarray([7.0])
        del kept
        record(session)
        y + 1
        session.flush()
        session.sync()
        found = drained(session)
        (begin,) = of(found, BEGIN)
        assert begin[4] > 0
        there = kinds(found)
        assert {SIGNATURE, PROGRAM, LINK} <= set(there)
        assert there.index(LINK) < there.index(CALL)
        read = {entry[3]: entry[5] for entry in of(found, IMPORT)}
        assert len(read) == 2
        assert set(read.values()) <= {entry[2] for entry in of(found, ANSWER)}

    def test_what_comes_from_elsewhere_is_read_behind_the_message_that_brings_it(self, make_session):
        here, there = (make_session("local:recording-lookup") for _ in range(2))
        there.publish("weights", there.asarray([4.0]))
        record(here)
        x = here.lookup("weights")
        assert (x + 1).tolist() == [5]
        found = drained(here)
        assert LOOKUP not in kinds(found)
        indices = {entry[0]: index for index, entry in enumerate(found)}
        assert indices[IMPORT] < next(n for n, e in enumerate(found) if e[0] == MESSAGE and e[3][0] == CALL)

    def test_side_effects_are_noted_without_their_functions(self, session):
        record(session)
        session.print("x is", session.asarray([1.0]))
        session.sync()
        found = drained(session)
        assert CHAIN in kinds(found)
        (effect,) = [entry[3] for entry in of(found, MESSAGE) if entry[3][0] == EFFECT]
        assert effect[3] is None

    def test_it_ends_with_the_session(self, make_session):
        recorder, other = (make_session("local:recording-end") for _ in range(2))
        record(recorder, [own(other)])
        number = own(other)
        other.close()
        assert [entry[1] for entry in of(drained(recorder), END)] == [number]

    def test_afterwards_nothing_is_noted(self, session):
        record(session)
        asks(session)("unrecord")
        engine = machine_of(session).engine
        assert [one.tapped for one in engine.directory.sessions.values()] == [None]
        assert not engine.recorders.taps
        assert not engine.recorders.tapped
        with pytest.raises(ProtocolError, match="this session is not recording"):
            asks(session)("recorded")
        assert session.asarray([1.0]).tolist() == [1.0]


class TestAllSessions:
    def test_those_that_open_later_are_recorded_too_and_the_recorder_is_not(self, make_session):
        recorder = make_session("local:recording-all")
        record(recorder, [])
        late = make_session("local:recording-all")
        late.asarray([3.0]).numpy()
        assert {entry[1] for entry in of(drained(recorder), BEGIN)} == {own(late)}

    def test_the_messages_are_in_the_order_in_which_the_machine_took_them(self, make_session):
        recorder, a, b = (make_session("local:recording-order") for _ in range(3))
        record(recorder, [])
        for session in (a, b, a):
            session.asarray([1.0]).numpy()
        found = [entry[1] for entry in of(drained(recorder), MESSAGE) if entry[3][0] == FETCH]
        assert found == [own(a), own(b), own(a)]

    def test_a_recording_ends_with_its_recorder(self, make_session):
        recorder, other = (make_session("local:recording-recorder") for _ in range(2))
        record(recorder, [])
        other.asarray([1.0]).numpy()
        recorder.close()
        engine = machine_of(other).engine
        assert not engine.recorders.taps
        assert other.asarray([2.0]).tolist() == [2.0]

    def test_a_session_is_recorded_by_one_recorder_at_a_time(self, make_session):
        first, second, other = (make_session("local:recording-two") for _ in range(3))
        record(first, [own(other)])
        record(second, [own(other)])
        (note,) = of(drained(second), NOTE)
        assert "another recorder" in note[1]
        with pytest.raises(MetadataError, match="already recording"):
            record(first, [own(other)])

    def test_there_are_few_recorders(self, make_session):
        sessions = [make_session("local:recording-many") for _ in range(5)]
        for session in sessions[:4]:
            record(session)
        with pytest.raises(MetadataError, match="4 recorders"):
            record(sessions[4])
        other = machine_of(sessions[4]).engine.directory.sessions[own(sessions[4])]
        other.files.may_store = False  # others do not take the slots of the machine's user, nor he theirs
        record(sessions[4])
        assert machine_of(sessions[4]).engine.recorders.taps[other].bound == OTHERS_QUEUE_BYTES


class TestBounds:
    def test_a_value_without_room_is_lost_and_named_and_the_rest_goes_on(self, session):
        record(session, bound=5000)
        x = session.asarray(np.ones(1000))
        assert (x.sum() + 1).item() == 1001
        found = drained(session)
        (lost,) = of(found, LOST)
        assert "there was no room for" in lost[2]
        assert of(found, VALUE)[0][1:] == (lost[1], "float64", (1000,), 8000)
        assert [kind for kind in kinds(found) if kind == CALL]

    def test_room_comes_back_as_the_recorder_fetches(self, session):
        record(session, bound=10_000)
        for _ in range(20):
            session.asarray(np.ones(1000)).wait()
            found = drained(session)
            assert not of(found, LOST)
            assert of(found, VALUE)

    def test_what_was_there_is_read_as_there_is_room(self, session):
        kept = [session.asarray(np.full(1000, n, np.float64)) for n in range(8)]
        record(session, bound=20_000)
        found = []
        for _ in range(10):
            found += drained(session)
        assert len(of(found, IMPORT)) == len(of(found, VALUE)) == len(kept)
        assert not of(found, LOST)

    def test_what_was_there_is_read_a_portion_at_a_time(self, session):
        kept = [session.asarray(np.full(4, n)) for n in range(3 * MAX_READS)]
        record(session)
        assert len(of(drained(session), IMPORT)) <= 2 * MAX_READS
        found = drained(session) + drained(session)
        assert found
        assert asks(session)("recording") == {"reads": 0}
        del kept

    def test_a_recorder_that_fetches_nothing_ends_the_recording_and_holds_up_nobody(self):
        tap = Tap(lambda: 0, 1000, everybody=True)
        body = b"x" * 200_000
        for _ in range(SLACK // len(body) + 10):
            tap.put(PIECE, 1, body)
        assert tap.over == TOO_SLOW
        entries = [decode_entry(one) for part in tap.drain() for one in part]
        assert entries[-1] == (NOTE, TOO_SLOW)
        assert len(entries) < SLACK // len(body) + 5

    def test_a_large_value_comes_in_pieces(self, session):
        record(session)
        x = np.arange(PIECE_BYTES, dtype=np.float64)
        session.asarray(x).wait()
        pieces = of(drained(session), PIECE)
        assert len(pieces) == 8
        assert b"".join(piece[2] for piece in pieces) == x.tobytes()

    def test_a_message_that_cannot_travel_leaves_a_note(self):
        tap = Tap(lambda: 0, 1000, everybody=True)
        tap.put(MESSAGE, 1, 0, (0, object()), ())
        (entry,) = [decode_entry(one) for part in tap.drain() for one in part]
        assert entry[0] == NOTE
        assert "not in the recording" in entry[1]

    @pytest.mark.parametrize("arguments", [(7,), ("x",), ([99],), ([-1],), ([0.5],), ([1], -1), ([1], "x")])
    def test_what_is_asked_for_is_checked(self, session, arguments):
        with pytest.raises(ProtocolError):
            asks(session)("record", *arguments)


class TestRecorder:
    def test_threads_that_go_on_meanwhile_are_recorded_whole(self, session, tmp_path):
        """The recording begins between two batches, so no message is noted whose operands are not."""
        ended = threading.Event()

        def work():
            x = session.asarray([1.0])
            while not ended.is_set():
                x = x * 1.0
                x.wait()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            with ValueRecorder(asks(session), tmp_path / "x.rec", (own(session),)) as recorder:
                for _ in range(20):
                    recorder.take()
        finally:
            ended.set()
            worker.join()
        assert recorder.lost == 0

    def test_a_limit_ends_it_with_a_note(self, session, tmp_path):
        with ValueRecorder(asks(session), tmp_path / "x.rec", (own(session),), limit=5000) as recorder:
            x = session.asarray(np.ones(1000))
            for _ in range(300):
                x = x + 1
            x.wait()
            recorder.take()
            assert recorder.full
            assert not machine_of(session).engine.recorders.taps
        assert recorder.lost == 1
        assert (tmp_path / "x.rec").stat().st_size < 6000
        assert any("the limit of 5000 bytes" in note for note in recorder.file.notes)

    def test_a_limit_of_nothing_is_refused(self, session, tmp_path):
        with pytest.raises(MetadataError, match="limit"):
            ValueRecorder(asks(session), tmp_path / "x.rec", limit=0)


def test_over_a_daemon_a_client_that_is_not_the_daemons_user_records_itself_alone(session):
    """The daemon's own user over ipc may record all sessions; for other clients `may_store` is unset."""
    machine = machine_of(session)
    (inner,) = machine.engine.directory.sessions.values()
    inner.files.may_store = False
    with pytest.raises(ProtocolError, match="the daemon's own user"):
        record(session, [])
    record(session)
    assert of(drained(session), BEGIN)
