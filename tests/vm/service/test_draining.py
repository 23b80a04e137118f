"""A drained daemon opens no new sessions; open sessions go on."""

from __future__ import annotations

import pytest

import tensord as td
from tensord.client.cli.daemon.ask import ask
from tensord.interpreter.errors import ProtocolError

from ...daemon import Daemon


def test_a_drained_daemon_refuses_new_sessions_and_serves_the_open_ones(tmp_path):
    with Daemon.start(tmp_path) as daemon:
        session = daemon.connect()
        x = session.asarray([1.0, 2.0])
        ask(daemon.address, "drain")
        with pytest.raises(td.ConnectionLost, match="is being drained and takes no new sessions"):
            daemon.connect()
        assert (x + x).tolist() == [2.0, 4.0]
        assert ask(daemon.address, "status")["sessions"] == 1
        session.close()
        assert daemon.stop() == 0
        assert "draining: no new sessions are taken" in daemon.log


def test_a_machine_of_this_process_is_not_drained(session):
    with pytest.raises(ProtocolError, match="only the daemon's own user, over ipc, may drain it"):
        session._core.answers.query("drain")
