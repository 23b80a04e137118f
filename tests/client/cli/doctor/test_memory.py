"""`tensord doctor` on a daemon's memory: unexplained bytes, ended sessions, old errors."""

from __future__ import annotations

import pytest

from tensord.client.cli.doctor import daemon as of_daemon
from tensord.client.cli.doctor.findings import Level

from ..daemon.test_held import POOL, ROW


def found_in(monkeypatch, *answers):
    """The findings, if the daemon gives these answers one after the other."""
    told = [[*rows, {"still": still, "total": 4 << 20, "pools": [pool]}] for still, rows, pool in answers]
    monkeypatch.setattr(of_daemon, "ask", lambda *_: told.pop(0) if len(told) > 1 else told[0])
    return {one.check: one for one in of_daemon.check_memory("local")}


WELL = POOL | {"unaccounted": 0}
MINE = ROW | {"ended": False, "poisoned": 0}


def test_bytes_without_a_holder_are_a_defect(monkeypatch):
    found = found_in(monkeypatch, (True, [MINE], POOL))["device memory"]
    assert found.level is Level.FAIL
    assert found.message == "1,048,576 of 4,194,304 bytes in use of cpu:0 have no holder"


def test_that_there_are_none_is_said(monkeypatch):
    found = found_in(monkeypatch, (True, [MINE], WELL))
    assert [(one.check, one.level) for one in found.values()] == [("device memory", Level.OK)]
    assert found["device memory"].message == "every byte in use has a holder: 4 MiB on 1 device"


def test_a_daemon_at_work_is_asked_again(monkeypatch):
    found = found_in(monkeypatch, (False, [MINE], POOL), (True, [MINE], WELL))
    assert found["device memory"].level is Level.OK


def test_one_that_never_stands_still_is_no_defect(monkeypatch):
    found = found_in(monkeypatch, (False, [MINE], POOL))
    assert found["device memory"].level is Level.NOTE
    assert "do not add up" in found["device memory"].message


def test_what_ended_sessions_have_left_is_told_with_its_holders(monkeypatch):
    found = found_in(monkeypatch, (True, [ROW | {"poisoned": 0}], WELL))["ended sessions"]
    assert found.level is Level.NOTE
    assert found.message == ("3 MiB were made by 1 session that ended, and are still held by name 'w', session 4")


@pytest.mark.parametrize(("age", "told"), [(599.0, False), (720.0, True), (None, False)])
def test_values_that_have_had_an_error_for_long_are_told(monkeypatch, age, told):
    found = found_in(monkeypatch, (True, [MINE | {"poisoned": 2, "poisoned_age": age}], WELL))
    assert ("values with errors" in found) is told
    if told:
        assert found["values with errors"].message == "2 values with an error are held, the oldest for 12 min"


def test_a_machine_at_work_is_well(watched, address):
    (found,) = of_daemon.check_memory(address)
    assert (found.check, found.level) == ("device memory", Level.OK)
    assert "768 KiB on 2 devices" in found.message
    assert watched.names() == ["weights"]
