"""`tensord top` on small screens, and how it ends."""

from __future__ import annotations

import os
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tensord.client.cli.daemon import top
from tensord.client.cli.daemon.screen import DaemonSample, screen, screen_state, sorted_by
from tensord.client.cli.drawing import keyboard
from tensord.vm.reporting.rows.eviction import NO_EVICTION

from ....each_case import each_case


def device(n: int) -> dict[str, Any]:
    memory = {"used": 1 << 20, "limit": 1 << 30, "cached": 1 << 12}
    moved = {"h2d": {"count": 12, "bytes": 1 << 22}, "d2h": {"count": 3, "bytes": 1 << 24}}
    running = {"instruction": 4711, "op": "matmul", "seconds": 1.5, "location": "/a/long/path/train.py:9 in <module>"}
    streams = [{"name": f"sim:{n}/compute0", "running": running, "queued": 3, "backlog": 0}]
    rest = {"lost": "", "streams": streams, "eviction": NO_EVICTION}
    return {"name": f"sim:{n}", "memory": memory, "transfers": moved, **rest}


def session(n: int) -> dict[str, Any]:
    counts = {
        "live": n,
        "pending": 7 * n,
        "tensors": 12,
        "bytes": 1 << 20,
        "errors": 1,
        "consumed": 100 * n,
        "moved": {"count": n, "bytes": n << 20},
        "evicted": {"count": n, "bytes": n << 18},
        "asks": n == 0,
    }
    return {"id": n, "name": f"a program with a rather long name {n}.py", "pid": 12345 + n, **counts}


def look(devices: int, sessions: int) -> DaemonSample:
    status = {
        "instructions": {"retired": 0, "live": 3, "pending": 4, "failed": 1},
        "pid": 4711,
        "uptime": 100.0,
        "memory": 1 << 26,
        "tensors": 12,
        "names": 1,
        "version": "0.1.0",
        "address": "ipc:///run/user/1000/tensord/socket",
        "hung": [{"instruction": 9, "op": "add", "stream": "sim:0/compute0", "seconds": 9.0}],
    }
    return DaemonSample(1.0, status, [session(n) for n in range(1, sessions + 1)], [device(n) for n in range(devices)])


def drawn(width: int, height: int, now: DaemonSample) -> list[str]:
    """The lines of the screen, as the terminal gets them."""
    return screen(screen_state(now, now), "every 1 s; q ends it", width=width, height=height)


@each_case(("width", "height"), [(60, 20), (80, 24), (40, 12), (120, 50)])
@each_case(("devices", "sessions"), [(2, 3), (5, 30)])
def test_the_screen_fits_and_shows_every_kind_of_table_that_has_room(
    width: int, height: int, devices: int, sessions: int
) -> None:
    lines = drawn(width, height, look(devices, sessions))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any("session" in line and "name" in line for line in lines)
    assert lines[-1].startswith("every 1 s; q ends it")


def test_the_session_that_asks_is_not_among_the_busiest() -> None:
    """The session is busy with asking alone, and would be the first on an idle daemon."""
    now = look(1, 2)
    asking = now._replace(sessions=[*now.sessions, session(0) | {"name": "this very command"}])
    assert not any("this very command" in line for line in drawn(200, 60, asking))


def test_what_does_not_fit_is_named() -> None:
    assert "left out: " not in drawn(200, 60, look(2, 3))[-1]
    lines = drawn(120, 20, look(2, 30))
    told = lines[-1].partition("left out: ")[2]
    shown = sum(".py" in line and "a program" in line for line in lines)
    assert f"{30 - shown} sessions" in told
    assert 0 < shown < 30


def test_a_key_ends_it() -> None:
    typed = iter(["", "x", "q"])
    assert len(list(top._samples(answer, 1000.0, lambda _rest: next(typed)))) == 0
    assert next(typed, None) is None


def answer(what: str) -> Any:
    """The status of a daemon."""
    return look(1, 1)[("at", "status", "sessions", "devices").index(what)]


def test_a_key_draws_what_is_there_anew_and_asks_nothing() -> None:
    asked: list[str] = []

    def ask(what: str) -> Any:
        asked.append(what)
        return answer(what)

    clock = iter([0.0, 10.0, 20.0, 20.0, 20.0, 20.0, 20.0])
    typed = iter(["s", "h", "x", "q"])
    view = top.View()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: next(clock, 20.0))
        pairs = list(top._samples(ask, 5.0, lambda _rest: next(typed), view.typed))
    assert len(pairs) == 3
    assert pairs[0] is pairs[1] is pairs[2]
    assert asked.count("status") == 2
    assert (view.sort, view.lists_keys) == ("live", True)


def test_another_size_of_the_terminal_draws_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    view = top.View()
    assert not view.typed("")
    monkeypatch.setenv("COLUMNS", "60")
    assert view.typed("")
    assert view.size.columns == 60
    assert not view.typed("")


def test_sessions_are_sorted_by_what_was_chosen() -> None:
    view = top.View()
    chosen = zip(look(0, 3).sessions, (5, 9, 7), "bca", (3.0, 0.0, 9.0), strict=True)
    sessions = [{**one, "bytes": size, "name": name, "per_second": rate} for one, size, name, rate in chosen]
    orders = {}
    for _ in range(4):
        orders[view.sort] = [one["id"] for one in sorted_by(view.sort, sessions)]
        assert view.typed("s")
    assert orders == {"messages": [3, 1, 2], "live": [3, 2, 1], "bytes": [2, 3, 1], "name": [3, 1, 2]}
    assert view.sort == "messages"


def test_the_keys_are_listed_on_request() -> None:
    view = top.View()
    assert view.foot(1.0) == "every 1 s; sessions by messages; q ends it, h lists the keys"
    assert view.typed("?")
    assert view.foot(1.0) == "s: sort sessions by messages, live, bytes, name (now messages); h: hide this; q: end"
    assert not view.typed("x")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as stdin; the end that types."""
    types, reads = os.openpty()
    with os.fdopen(reads, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield types
    os.close(types)


def test_keys_arrive_without_enter_and_the_terminal_is_left_as_it_was(terminal: int) -> None:
    before = termios.tcgetattr(sys.stdin.fileno())
    with keyboard.keys_as_typed() as wait:
        assert wait(0) == ""
        os.write(terminal, b"q")
        assert wait(10) == "q"
    assert termios.tcgetattr(sys.stdin.fileno()) == before
