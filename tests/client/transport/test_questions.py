"""A connection that only asks: answers, errors, slices, and the end of the daemon."""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path

import pytest

import tensord as td
from tensord.client.transport import questions
from tensord.client.transport.questions import Questions
from tensord.interpreter.wire.frames import PART, VALUE

from ...daemon import Daemon
from ...puppet import PATIENCE, eventually, paused


def test_questions_are_answered_as_a_session_s_are(daemon: Daemon) -> None:
    with daemon.connect() as session, Questions(daemon.address, {}) as asking:
        session.publish("weights", session.asarray([[1.0, 2.0]]))
        for what, arguments in [("names", (0,)), ("tensors", (10, 0, "")), ("devices", ())]:
            assert asking.ask(what, *arguments) == session._core.answers.query(what, *arguments)
        assert [row["name"] for row in asking.ask("sessions") if row["asks"]] == ["tensord"]
        with pytest.raises(td.ProtocolError, match="unknown session 12345"):
            asking.ask("tensors", 10, 12345, "")
        assert asking.ask("status")["names"] == 1
        session.unpublish("weights")


@pytest.mark.parametrize("slices", [[[]], [[1, 2], [3]], [[], [], [1]]])
def test_a_long_answer_is_all_its_slices(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, slices: list[list[int]]
) -> None:
    answers = iter([[1, PART, part] for part in slices])
    with Questions(daemon.address, {}) as asking:
        monkeypatch.setattr(asking, "_answers", lambda: [next(answers, [1, VALUE, None])])
        assert asking.ask("tensors") == list(chain(*slices))


def test_its_session_ends_with_it(tmp_path: Path) -> None:
    with Daemon.start(tmp_path, "--device", "cpu:0", "--log-level", "debug") as daemon:
        with Questions(daemon.address, {}) as asking:
            assert asking.ask("status")
        eventually(lambda: "closed by its client" in daemon.log)


def test_a_daemon_that_ends_ends_the_wait(tmp_path: Path) -> None:
    told: list[str] = []

    def ask(asking: Questions) -> None:
        try:
            asking.ask("status")
        except td.ConnectionLost as error:
            told.append(error.message)

    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, Questions(daemon.address, {}) as asking:
        thread = threading.Thread(target=ask, args=(asking,))
        with paused(daemon):
            thread.start()
            daemon.process.kill()
        thread.join(PATIENCE)
        assert told == [f"the daemon at {daemon.address} is gone"]
        with pytest.raises(td.ConnectionLost, match="is gone"):
            asking.ask("status")


def test_a_daemon_that_freezes_behind_its_greeting_ends_the_wait(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"has not answered for 0.2 s: it hangs, its process is stopped, or .*; .*`tensord stop --now`"
    with Questions(daemon.address, {}) as asking:
        assert asking.ask("status")
        monkeypatch.setattr(questions, "ANSWER_TIMEOUT", 0.2)
        with paused(daemon), pytest.raises(td.ConnectionLost, match=said):
            asking.ask("status")
