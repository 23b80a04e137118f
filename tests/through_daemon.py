"""The tests' own sessions, on a daemon in place of a machine in this process: the same session, the same errors.

`pytest --daemon` runs every test that starts from the session fixtures so, each on a daemon of its own: some minutes.
The modules in `ALSO` run both ways in any case, on daemons that they share. A test that looks inside the machine, or
brings ops or faults of its own, is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tensord
from tensord.client.session.session import Session
from tensord.client.transport.remote import RemoteTransport
from tensord.interpreter.schema.opdef import REGISTRY

from .daemon import Daemon
from .puppet import eventually

ALSO = frozenset(
    {
        "test_atomic.py",
        "test_corners.py",
        "test_effects.py",
        "test_tensor.py",
        "test_messages.py",
        "test_handlers.py",
        "test_padding.py",
        "test_host_arrays.py",
        "test_host_calls.py",
        "test_host_results.py",
        "test_reading.py",
    }
)
UNABLE = {
    "test_publish_inside_returns_at_once_and_takes_effect_with_the_group": "another connection may come first",
    "test_a_machine_shared_by_name_does_not_take_other_options": "a daemon's devices are its own",
    "test_what_fits_serially_fits_when_all_is_submitted_at_once": "it is not submitted at once: a daemon starts early",
    "test_the_machine_gives_a_foreign_client_the_same_error": "it looks for the answer without waiting",
    "test_cancelling_while_the_other_session_reads_from_its_own_thread": "a cancellation overtakes what was sent",
}
ELSEWHERE = frozenset({"test_bad_input.py", "test_waiting.py"})  # tests/vm/service and test_remote do it for daemons
INSIDE = ("machine", "_replies", "_session")  # attributes that only an embedded transport has


def applies(test: pytest.Item | pytest.Function) -> bool | None:
    """Is the test to run on a daemon in any case? None: it cannot."""
    if test.name in UNABLE or test.path.name in ELSEWHERE:
        return None
    return test.path.name in ALSO


def skip(*_: object) -> NoReturn:
    """Skip: the test looks inside, or brings ops or faults of its own."""
    pytest.skip("looks inside the machine, or changes it")


def keep_outside(patch: pytest.MonkeyPatch, *, alone: bool) -> None:
    """Skip a test that turns out to look inside the machine, or to bring ops of its own.

    Without a daemon of its own (`alone`) it may not look at the trace either, which has others' instructions.
    """
    for name in INSIDE:
        patch.setattr(RemoteTransport, name, property(skip), raising=False)
    if not alone:
        patch.setattr(Session, "trace", skip)
    setitem = pytest.MonkeyPatch.setitem

    def watched(own: pytest.MonkeyPatch, where: Any, name: Any, value: Any) -> None:
        if where is REGISTRY:
            skip()
        setitem(own, where, name, value)

    patch.setattr(pytest.MonkeyPatch, "setitem", watched)


class Daemons:
    """A daemon for each list of devices that a test asks for, started when it is asked for first.

    With `alone` only for that test.
    """

    def __init__(self, directory: Callable[[str], Path], *, alone: bool) -> None:
        self.alone = alone
        self._directory = directory
        self._running: dict[str, Daemon] = {}
        self._named: dict[str, Daemon] = {}
        self._sessions: list[tuple[Daemon, Session]] = []

    def connect(self, address: str, *, devices: Sequence[Any] | None, **options: Any) -> Session:
        """A session on the daemon with these devices, or on that of the last session with the same address."""
        if "tracing" in options:
            skip()
        daemon = self._named[address] if devices is None else self._daemon(devices)
        self._named[address] = daemon
        session = tensord.connect(daemon.address, **options)
        self._sessions.append((daemon, session))
        return session

    def _daemon(self, devices: Sequence[Any]) -> Daemon:
        table = f"devices = [{', '.join(map(toml, devices))}]\n"
        if table not in self._running:
            directory = self._directory("daemon")
            (directory / "tensord.toml").write_text(table)
            self._running[table] = Daemon.start(directory, "--config", str(directory / "tensord.toml"))
        return self._running[table]

    def close_sessions(self) -> None:
        """After a test: its sessions end, and nothing is left of them."""
        sessions, self._sessions = self._sessions, []
        for _, session in reversed(sessions):
            session.close()
        for daemon in dict.fromkeys(daemon for daemon, _ in sessions):
            with daemon.connect() as last:
                last.unpublish(*last.names())
                eventually(partial(is_empty, last))
        if self.alone:
            self.close()

    def close(self) -> None:
        """The daemons have served without errors."""
        running, self._running = self._running, {}
        for daemon in running.values():
            with daemon:
                with daemon.connect() as last:
                    assert last.trace().verify() == []
                assert daemon.stop() == 0
                assert "Traceback" not in daemon.log, daemon.log


def is_empty(session: Session) -> bool:
    """Is that the only session, and does it hold nothing?"""
    stats = session.stats()
    held = sum(device["allocated"] for device in stats["devices"].values())
    return len(session._core.answers.query("sessions")) == 1 and not held and not stats["live"]


def toml(spec: Any) -> str:
    """A device in the form of the configuration file."""
    if isinstance(spec, str):
        return json.dumps(spec)
    if not isinstance(spec, Mapping) or not all(isinstance(value, str | int | float) for value in spec.values()):
        skip()
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in spec.items()) + "}"
