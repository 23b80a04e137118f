"""Recordings of a daemon, over its sockets, and replays on one."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.client.recording.recorder import ValueRecorder
from tensord.interpreter.errors import ConnectionLost, ProtocolError
from tensord.interpreter.recordings.reader import RecordingReader

from ...daemon import Daemon
from ...ports import free_port


def work(session):
    x = session.asarray(np.arange(1 << 16, dtype=np.float32), device="sim:0")
    y = session.xp.sin(x) * session.random.normal(x.shape, dtype="float32", device="sim:0")
    session.publish("shared", y)
    z = session.lookup("shared") + 1
    session.unpublish("shared")
    return [y.sum().numpy(), z.numpy()]


def test_a_daemon_is_recorded_and_runs_what_was_recorded(daemon, tmp_path, played):
    """Uploads in shared memory, sessions from before the recording and later ones, an empty poll in between."""
    with daemon.connect() as recorder, daemon.connect() as early:
        before = early.asarray([5.0])
        early.sync()
        with ValueRecorder(recorder._core.answers.query, tmp_path / "x.rec") as recording:
            assert recording.take() > 0
            while recording.take():
                pass
            (before * 2).numpy()
            with daemon.connect() as late:
                work(late)
        assert recording.lost == 0
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert len(reader.sessions) == 2
        assert (reader.ended, reader.notes) == ("", [])
    player = played(daemon.address, "serial")
    assert (player.findings, player.fetched) == ([], 3)
    assert player.compared >= 6
    assert played("vm", daemon.address).findings == []


def test_a_session_of_a_daemon_records_itself(daemon, played, recorded):
    with daemon.connect() as session, recorded(session):
        work(session)
    player = played("vm", "serial")
    assert (player.findings, player.fetched) == ([], 2)


def test_a_recording_without_a_cpu_runs_on_all_devices_of_a_daemon(daemon, make_session, recorded, played):
    session = make_session(devices=["sim:0", "sim:1"])
    with recorded(session):
        (session.asarray([2.0], device="sim:1") * 2).numpy()
    player = played(daemon.address, "vm")
    assert (player.findings, player.fetched) == ([], 1)


def test_a_replay_leaves_nothing_on_a_daemon(daemon, recorded, played):
    with daemon.connect() as session:
        with recorded(session):
            work(session)
        tensors = session.stats()["session"]
        assert played(daemon.address).findings == []
        found = session._core.answers.query("sessions")
        assert [one["id"] for one in found] == [tensors["id"]]


def test_a_daemon_that_ends_leaves_a_recording_of_what_was_there(tmp_path):
    with Daemon.start(tmp_path, "--device", "cpu:0") as own_daemon:
        ended_by_a_kill(own_daemon, tmp_path)
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert reader.messages > 0


def ended_by_a_kill(own_daemon, tmp_path):
    session = own_daemon.connect()
    with pytest.raises(ConnectionLost):
        work_until_it_ends(session, own_daemon, tmp_path / "x.rec")
    session.close()


def work_until_it_ends(session, own_daemon, path):
    with session.record(path) as recording:
        session.asarray(np.ones(3)).numpy()
        recording._recorder.take()
        own_daemon.kill()
        session.asarray(np.ones(3)).numpy()


@pytest.fixture(scope="module")
def tcp_daemon(tmp_path_factory):
    address = f"tcp://127.0.0.1:{free_port()}"
    devices = ("--device", "cpu:0", "--device", "sim:0")
    with Daemon.start(tmp_path_factory.mktemp("tcp"), *devices, address=address) as running:
        yield running


def test_over_tcp_others_are_not_recorded_but_a_session_itself_is(tcp_daemon, tmp_path, recorded, played):
    with tcp_daemon.connect() as session:
        with pytest.raises(ProtocolError, match="the daemon's own user, over ipc, may record"):
            ValueRecorder(session._core.answers.query, tmp_path / "x.rec")
        with recorded(session):
            work(session)
    assert played("vm", "serial").findings == []
