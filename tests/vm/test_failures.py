"""Failures that no client waits for are logged once, within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, TensordError
from tensord.vm.failures import GRACE, LINES, LINES_IN_ALL, MAX_WAITING_ERRORS, WINDOW, Failures, LogWarning, log_lines
from tensord.vm.log import log

from ..puppet import eventually, paused


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock) -> Failures:
    return Failures(clock)


def made(number: int = 1) -> KernelError:
    return KernelError(f"failure {number}", op="inv", location="user.py:7 in main", instruction=number)


def lines(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def told(found: list[LogWarning]) -> list[tuple[object, object]]:
    """Session and instruction of each line about a failure."""
    return [(line.fields["session"], line.fields["instruction"]) for line in found if "op" in line.fields]


def left_out(found: list[LogWarning]) -> dict[Any, Any]:
    """How many failures were left out, by session."""
    return {line.fields["session"]: line.fields["count"] for line in found if "count" in line.fields}


def test_a_failure_is_told_after_a_while_with_its_op_line_and_session(failures, clock):
    failures.add(3, made())
    assert not failures.due()
    clock.now += GRACE
    (line,) = failures.due()
    assert not failures.due()
    assert "nobody has waited for" in line.event
    assert line.fields == {
        "session": 3,
        "op": "inv",
        "location": "user.py:7 in main",
        "instruction": 1,
        "error": "KernelError: failure 1",
    }


def test_a_failure_that_a_client_has_heard_of_is_not(failures, clock):
    failures.add(3, error := made())
    error.is_reported = True
    clock.now += GRACE
    assert not failures.due()


def test_the_end_of_a_session_ends_the_wait_for_its_failures_alone(failures):
    failures.add(3, made(1))
    failures.add(4, made(2))
    assert told(failures.end(3)) == [(3, 1)]
    assert told(failures.close()) == [(4, 2)]


def test_a_loop_of_failures_fills_no_disk_and_what_is_left_out_is_counted(failures, clock):
    for number in range(MAX_WAITING_ERRORS + 50):
        failures.add(3, made(number))
    clock.now += GRACE
    assert len(told(failures.due())) == LINES
    clock.now += WINDOW
    assert left_out(failures.due()) == {3: MAX_WAITING_ERRORS + 50 - LINES}
    failures.add(3, made())
    assert told(failures.close()) == [(3, 1)]


def test_a_loop_of_failures_hides_no_failure_of_another_session(failures, clock):
    """Neither among the waiting failures nor among the log's lines."""
    for number in range(MAX_WAITING_ERRORS + 50):
        failures.add(3, made(number))
    failures.add(4, made(7))
    clock.now += GRACE
    assert (4, 7) in told(failures.due())


def test_sessions_that_come_fail_and_go_fill_no_disk_either(failures, clock):
    found = []
    for session in range(LINES_IN_ALL + 50):
        failures.add(session, made())
        found += failures.end(session)
    assert len(told(found)) == LINES_IN_ALL
    assert sum(left_out(found).values()) == 50
    clock.now += WINDOW
    failures.add(1, made())
    assert told(failures.end(1)) == [(1, 1)]


def test_nothing_is_kept_of_sessions_that_fail_no_more(failures, clock):
    for session in range(5):
        failures.add(session, made())
    clock.now += GRACE
    failures.due()
    assert failures.entries
    clock.now += WINDOW
    failures.due()
    assert not failures.entries


def test_a_log_that_fails_stops_nothing(failures, monkeypatch):
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(log, "warning", broken, raising=False)
    failures.add(3, made())
    log_lines(failures.close())


def fail(session: Any) -> Any:
    """A failed tensor, and the error's line."""
    return session.xp.linalg.inv(session.asarray(np.zeros((3, 3))))


def test_the_log_of_an_embedded_machine_has_what_nobody_waited_for(session, caplog):
    waited_for, dropped, asked = fail(session), fail(session), fail(session)
    with pytest.raises(TensordError):
        waited_for.wait()
    asked.is_ready()
    assert asked.error is not None
    del dropped
    session.close()
    (line,) = [line for line in lines(caplog) if "nobody" in line]
    assert "test_failures.py" in line
    assert "Singular matrix" in line


def test_the_log_of_a_daemon_has_what_nobody_waited_for(daemon):
    with daemon.connect() as session:
        with paused(daemon):  # it gets the failure and the request at once, however slow this process is
            waited_for = fail(session)
            session._core.answers.ask_ready(waited_for)
        with pytest.raises(TensordError):
            waited_for.wait()
        session.sync()
        assert "nobody has waited for" not in daemon.log
        kept = fail(session) + 1.0
        session.sync()
        eventually(lambda: "a failure that nobody has waited for" in daemon.log)
        del kept
    assert daemon.log.count("nobody has waited for") == 1


def test_sync_says_how_many_have_failed_since_the_last_one(session):
    assert session.sync() == 0
    results = [fail(session) + 1.0 for _ in range(3)]
    assert session.sync() == 3
    assert session.sync() == 0
    results.append(fail(session))
    assert session.sync() == 1
