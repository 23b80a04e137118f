"""Failures that nobody waits for: in the log, once, within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import KernelError, TensordError
from tensord.vm.failures import GRACE, KEPT, LINES, WINDOW, Failures

from ..puppet import eventually


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


def test_a_failure_is_logged_after_a_while_with_its_op_line_and_session(failures, clock, caplog):
    failures.add(3, made())
    failures.look()
    assert not lines(caplog)
    clock.now += GRACE
    failures.look()
    failures.look()
    (line,) = lines(caplog)
    for part in ("nobody has waited for", "session=3", "op='inv'", "user.py:7 in main", "instruction=1", "failure 1"):
        assert part in line


def test_a_failure_that_a_client_has_heard_of_is_not(failures, clock, caplog):
    failures.add(3, error := made())
    error.heard = True
    clock.now += GRACE
    failures.look()
    assert not lines(caplog)


def test_the_end_of_a_session_ends_the_wait_for_its_failures_alone(failures, caplog):
    failures.add(3, made(1))
    failures.add(4, made(2))
    failures.end(3)
    assert [("session=3" in line) for line in lines(caplog)] == [True]
    failures.close()
    assert "session=4" in lines(caplog)[-1]


def test_a_loop_of_failures_fills_no_disk_and_what_is_left_out_is_counted(failures, clock, caplog):
    for number in range(KEPT + 50):
        failures.add(3, made(number))
    clock.now += GRACE
    failures.look()
    assert len(lines(caplog)) == LINES
    clock.now += WINDOW
    failures.look()
    assert f"were left out' count={KEPT + 50 - LINES}" in lines(caplog)[-1]
    failures.add(3, made())
    failures.close()
    assert len(lines(caplog)) == LINES + 2


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
        with pytest.raises(TensordError):
            fail(session).wait()
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
