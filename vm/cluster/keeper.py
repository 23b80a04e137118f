"""Keeps a node's daemon running: applies the lifecycle to a process.

Theory. Everything happens on the thread of the supervisor's event loop, so there is no lock. The lifecycle is pure;
this file passes events to it, and performs its actions. The current state has one timer: the limit of a start, a
pause or a drain. Each start has its own receiver of reports (`_Reports`), so late reports of an earlier process have
no effect.

A failure to start (no port, no directory, no process) counts as a start that has ended, so the start is repeated
after the same pauses, and the failure is reported in the same way.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from ...interpreter.errors import TensordError
from . import configuration, ports
from .child import DaemonProcess, Start, end_text
from .home import Home, private
from .lifecycle import Action, DaemonEvent, DaemonProcessState, Lifecycle, Patience
from .members import LEFT, LOST, UP
from .specification import Specification

LOG_LINES: Final = 400  # the lines of the daemon's log that are kept
END_MARGIN: Final = 10.0  # seconds in addition to the grace period, until a daemon must have ended


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time, and calls at a later time: an event loop, or the clock of a test."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer: ...


class Keeper:
    """Keeps one node's daemon: restarts it whenever it ends.

    `changed` is called after each change of `entry` or `state`.
    """

    def __init__(
        self,
        node: str,
        host: str,
        wanted: Specification,
        start: Start,
        clock: Clock,
        *,
        take_port: Callable[[int], bool],
        usual: str = "",
        changed: Callable[[], None] = lambda: None,
        echo: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`take_port`: locks a port if it is free.

        `usual`: one more address on which the daemon listens. `echo`: called with each line of the daemon's log.
        """
        self.node, self.host, self.wanted = node, host, wanted
        self.home = Home(wanted.home(node))
        self.runtime = private(wanted.runtime(node))
        self.address = f"ipc://{self.runtime / 'socket'}"
        self.usual, self.take_port, self.changed, self.echo = usual, take_port, changed, echo
        self.lifecycle = Lifecycle(Patience(end=wanted.grace + END_MARGIN))
        self.lines: deque[tuple[int, str]] = deque(maxlen=LOG_LINES)
        self.printed = 0  # the number of lines so far
        self.starts = 0  # how often this supervisor has started the daemon
        self.closed = False
        self.served_since: float | None = None
        self.failure = ""  # why the last failed start failed
        self.devices: list[str] = []
        self.key = self.values = self.fingerprint = ""
        self.ports: tuple[int, ...] = tuple(self.home.last_start().get("ports", ()))
        self.incarnation = int(self.home.last_start().get("incarnation", 0))
        self._start, self._clock = start, clock
        self._process: DaemonProcess | None = None
        self._timer: Timer | None = None
        self._heard = 0.0  # when the daemon's loop last turned

    @property
    def state(self) -> DaemonProcessState:
        return self.lifecycle.state

    def now(self) -> float:
        return self._clock.time()

    def begin(self, *, after: int = 0) -> None:
        """Start the daemon for the first time. `after`: the last incarnation of this node that other nodes know."""
        self.incarnation = max(self.incarnation, after)
        self.take(DaemonEvent.STARTED)

    def take(self, event: DaemonEvent) -> None:
        """Take the step for an event. IllegalStep if the current state has no such step."""
        action = self.lifecycle.take(event, self.now())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_at(self.lifecycle.due, self._is_due)
        if self.state is not DaemonProcessState.SERVING and self.state is not DaemonProcessState.DRAINING:
            self.served_since = None
        if action is Action.START:
            self._begin()
        elif self._process is not None and action is Action.TERMINATE:
            self._process.terminate()
        elif self._process is not None and action is Action.KILL:
            self._process.kill()
        self.changed()

    def _is_due(self) -> None:
        self._timer = None
        self.take(DaemonEvent.DUE)

    def _call_at(self, when: float | None, callback: Callable[[], object]) -> Timer | None:
        return None if when is None else self._clock.call_at(when, callback)

    def close(self) -> None:
        """Kill the daemon and do not restart it: the supervisor ends."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.kill()

    # -- a start ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start a process with a new incarnation. If that fails, the start ends on the loop's next turn."""
        self.starts += 1
        self.incarnation += 1
        reports = _Reports(self, self.starts)
        try:
            self.ports = ports.choose(2, self.ports, self.wanted.ports, self.take_port)
            self.home.note_start(self.incarnation, self.ports)
            self.key = self.home.public
            file = self.runtime / "tensord.toml"
            file.write_text(configuration.text(self.wanted, self._settings()))
            self._process = self._start(file, self.runtime, self.wanted.watchdog, reports)
        except (TensordError, OSError) as error:
            self.note(f"supervisor: cannot start the daemon: {error}")
            self._clock.call_at(self.now(), partial(reports.exited, 1))

    def _settings(self) -> configuration.NodeSettings:
        port, values = self.ports
        addresses = (self.address, self.tcp, *((self.usual,) if self.usual else ()))
        durable = self.home.durable if self.wanted.durable else None
        allow = self.home.allow
        return configuration.NodeSettings(
            self.node, self.host, addresses, port, values, self.home.secret, allow, durable, self.incarnation
        )

    @property
    def tcp(self) -> str:
        """The address for other machines."""
        return f"tcp://{configuration.bracketed(self.host)}:{self.ports[0]}" if self.ports else ""

    # -- reports of a process --------------------------------------------------------------------------------------

    def ready(self) -> None:
        if self.lifecycle.allows(DaemonEvent.READY):
            self.served_since = self.now()
            self.take(DaemonEvent.READY)

    def alive(self) -> None:
        self._heard = self.now()

    def look(self) -> None:
        """End the daemon's process if its loop has not run for the watchdog's time. Call this at intervals."""
        silent = self.now() - self._heard
        if self.wanted.watchdog and silent > self.wanted.watchdog and self.lifecycle.allows(DaemonEvent.HUNG):
            self.note(f"supervisor: the daemon's loop has not run for {silent:.0f} s: the daemon is killed")
            self.failure = f"its loop did not run for {silent:.0f} s"
            self.take(DaemonEvent.HUNG)

    def exited(self, status: int) -> None:
        self._process = None
        if self.closed:
            return
        self.devices, self.values, self.fingerprint = [], "", ""
        wanted = self.state in (DaemonProcessState.STOPPING, DaemonProcessState.RESTARTING)
        if not wanted:
            self.note(f"supervisor: {end_text(status)}")
            self.failure = self._explained(status)
        self.take(DaemonEvent.EXITED)

    def _explained(self, status: int) -> str:
        """How a daemon ended, and why, if its output has a line with an error."""
        said = [line for _, line in self.lines if line.startswith(("tensord: ", "supervisor: cannot"))]
        last = said[-1].partition(": ")[2] if said else ""
        return f"{end_text(status)}{f': {last}' if last else ''}"

    def note(self, line: str) -> None:
        """Add a line to the log, and pass it on."""
        self.printed += 1
        self.lines.append((self.printed, line))
        self.echo(line)

    # -- the view of other nodes ----------------------------------------------------------------------------------

    def described(self, own: dict[str, Any]) -> None:
        """Set the fields of the entry that the daemon has reported about itself."""
        self.devices = list(own["devices"])
        self.values, self.fingerprint = own["values"], own["fingerprint"]
        self.failure = ""
        self.changed()

    def entry(self) -> dict[str, Any]:
        """This node's entry in the table of members. It is up once the daemon has reported its devices."""
        serves = self.state in (DaemonProcessState.SERVING, DaemonProcessState.DRAINING) and bool(self.devices)
        state = UP if serves else LEFT if self.state is DaemonProcessState.STOPPED else LOST
        return {
            "node": self.node,
            "address": self.tcp,
            "key": self.key,
            "values": self.values,
            "fingerprint": self.fingerprint,
            "incarnation": self.incarnation,
            "devices": list(self.devices),
            "state": state,
        }

    def row(self) -> dict[str, Any]:
        """This node's row in `cluster status`."""
        process, now, entry = self._process, self.now(), self.entry()
        return {
            **entry,
            "up": entry["state"] == UP,
            "state": "failing"
            if self.lifecycle.failing and self.state is not DaemonProcessState.SERVING
            else str(self.state),
            "pid": None if process is None else process.pid,
            "host": socket.gethostname(),
            "ipc": self.address,
            "uptime": None if self.served_since is None else now - self.served_since,
            "starts": self.starts,
            "failures": self.lifecycle.failures,
            "wrong": self.failure if self.state is not DaemonProcessState.SERVING else "",
            "next": None
            if self.state is not DaemonProcessState.WAITING or self.lifecycle.due is None
            else self.lifecycle.due - now,
        }


class _Reports:
    """Passes the reports of one process to the keeper, as long as no later process was started."""

    def __init__(self, keeper: Keeper, number: int) -> None:
        self._keeper, self._number = keeper, number

    def _is_last(self) -> bool:
        return self._keeper.starts == self._number

    def ready(self) -> None:
        if self._is_last():
            self._keeper.ready()

    def alive(self) -> None:
        if self._is_last():
            self._keeper.alive()

    def printed(self, line: str) -> None:
        self._keeper.note(line)

    def exited(self, status: int) -> None:
        if self._is_last():
            self._keeper.exited(status)
