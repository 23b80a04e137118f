"""The supervisor of one node: keeps the daemon running, knows the other nodes, and tells the daemon about them.

Theory. Everything runs on the thread of one event loop, except questions to the daemon, which are blocking calls on
threads of the loop's executor. Three tasks and the keeper's timers (keeper.py) run as long as the supervisor lives:
- *tell*: asks a daemon that has begun to serve for its own entry, and sends it the table by `join` whenever the table
  has changed. Only this task sends tables, so an older table cannot arrive after a newer one;
- *meet*: finds the other nodes, and keeps one task for each, which follows that node's entry;
- *look*: checks whether the daemon's loop runs and whether a draining daemon still has sessions, and reads its figures.

Guarantees. A change of one node's entry reaches every other daemon after one message between supervisors and one
`join`. If a supervisor ends, its node counts as lost at once; its old entry stays until its successor's entry, which
has a later incarnation. If a task fails unexpectedly, that is logged, and the task is repeated after a pause.

Rejected: a directory of members in one actor (when it or its node ends, no changes arrive until it is back); each
supervisor polling all others (changes arrive late, and there are as many messages when nothing happens); Ray's
internal key-value store.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.version import version
from ..log import log
from .changes import Changes
from .child import Start
from .credentials import ClusterCredentials
from .keeper import Clock, Keeper
from .lifecycle import DaemonEvent, DaemonProcessState, IllegalStep
from .members import LOST, Entry, Members
from .ports import Locks
from .specification import Specification

RETRY_PAUSE: Final = 0.2  # seconds before a failed task is repeated
NODES_INTERVAL: Final = 5.0  # seconds between two queries for the nodes of the cluster
LOOK_INTERVAL: Final = 1.0  # seconds between two looks at the daemon
HOLD_TIMEOUT: Final = 20.0  # the most seconds for which the answer to a question about changes is delayed
ANSWER_TIMEOUT: Final = 5.0  # seconds for the daemon to answer
TAKEOVER_TIMEOUT: Final = 3.0  # seconds for a previous supervisor of this node to end
FIGURES_INTERVAL: Final = 5.0  # seconds between two readings of the daemon's figures

Ask: TypeAlias = Callable[..., Any]  # ask(address, what, *arguments) -> the daemon's answer; blocks
Observe: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any] | None], None]


class PeerLost(Exception):  # noqa: N818 - names what has happened
    """The supervisor of a node does not answer."""


class PeerSupervisors(Protocol):
    """The other supervisors of the cluster."""

    async def names(self) -> frozenset[str]:
        """All nodes of the cluster, this one included."""

    async def follow(self, node: str, since: int) -> tuple[int, Entry]:
        """Wait until the version of a node's entry differs from `since`.

        Returns version and entry. PeerLost if the node's supervisor does not answer.
        """

    async def known(self, node: str, of: str) -> Mapping[str, Any]:
        """The answer of the supervisor of `node` to `Supervisor.known(of)`. PeerLost if it does not answer."""


class Supervisor:
    """The supervisor of one node. It must be made and used on the thread of a running event loop."""

    def __init__(
        self,
        node: str,
        host: str,
        wanted: Specification,
        credentials: ClusterCredentials,
        *,
        start: Start,
        ask: Ask,
        peers: PeerSupervisors,
        locks: Locks,
        usual: str = "",
        clock: Clock | None = None,
        observe: Observe = lambda _row, _status: None,
        echo: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`observe`: called at intervals with the row and the daemon's status, None if the daemon does not answer.

        `echo`: called with each line of the daemon's log.
        """
        self.node = node
        self.credentials = credentials
        self.members = Members()
        self._ask, self._peers, self._observe, self._echo = ask, peers, observe, echo
        self._changes, self._lines = Changes(), Changes()
        self._met = asyncio.Event()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._entry: dict[str, Any] = {}
        self._version = 0  # of this node's entry
        self._drained = 0  # the incarnation that was asked to refuse new sessions
        self._looked = 0.0
        self._locks = locks
        self.keeper = Keeper(
            node,
            host,
            wanted,
            start,
            clock or asyncio.get_running_loop(),
            take_port=lambda port: locks.take_port(host, port),
            usual=usual,
            changed=self._changed,
            echo=self._printed,
        )

    async def begin(self, *, after: int = 0, anew: bool = True) -> None:
        """Start the daemon, whose last incarnation was `after`.

        If the supervisor was restarted (`anew`), perhaps on another machine, it first asks the others for their records
        of this node.
        """
        await self._lock_directories()
        remembered = await self._remembered() if anew else []
        stored = self.keeper.home.credentials()
        offered = [ClusterCredentials.from_plain(one["credentials"]) for one in remembered]
        self.admit(max([self.credentials, *offered, *([stored] if stored else [])], key=lambda one: one.version))
        self.keeper.begin(after=max([after, *(one["incarnation"] for one in remembered)]))
        self._tasks = [asyncio.create_task(self._again(task)) for task in (self._tell, self._meet, self._look)]

    async def _lock_directories(self) -> None:
        """Lock the node's directories for this supervisor. Waits, since a previous supervisor may be about to end."""
        loop = asyncio.get_running_loop()
        late = loop.time() + TAKEOVER_TIMEOUT
        while not self._locks.take(self.keeper.wanted.lock(self.node)):
            if loop.time() > late:
                self.keeper.failure = (
                    f"another {self.node} of a cluster {self.keeper.wanted.cluster!r} is on this machine: end that "
                    "one, or give this cluster another name (--name)"
                )
            await asyncio.sleep(RETRY_PAUSE)
        self.keeper.failure = ""

    async def _remembered(self) -> list[Mapping[str, Any]]:
        """The answers of the other supervisors about this node (`known`)."""
        try:
            others = await self._peers.names() - {self.node}
        except PeerLost:
            return []
        asked = [asyncio.wait_for(self._peers.known(one, self.node), ANSWER_TIMEOUT / 2) for one in others]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [one for one in found if isinstance(one, Mapping)]

    async def _again(self, task: Callable[[], Awaitable[None]]) -> None:
        """Repeat a task without end, after errors with a pause. Unexpected errors are logged."""
        while True:
            try:
                await task()
            except (TensordError, PeerLost, TimeoutError):
                await asyncio.sleep(RETRY_PAUSE)
            except Exception:
                log.exception("a supervisor's task has failed, and is repeated", node=self.node)
                await asyncio.sleep(RETRY_PAUSE)

    def close(self) -> None:
        """Kill the daemon, and end the supervisor."""
        for task in (*self._tasks, *self._following.values()):
            task.cancel()
        self.keeper.close()
        self._locks.close()

    def give_up(self) -> None:
        """Kill the daemon, and tell the supervisors that follow this node that it is lost."""
        self.keeper.close()
        self._entry = {**self._entry, "state": LOST}
        self._version += 1
        self._changes.report()

    # -- changes of this node --------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Pass on a change of the keeper's state or entry."""
        entry = self.keeper.entry()
        if entry != self._entry:
            self._entry = entry
            self._version += 1
            self.members.store(entry)
        self._changes.report()

    def _printed(self, line: str) -> None:
        self._lines.report()
        self._echo(line)

    def _heard(self, changed: bool) -> None:
        if changed:
            self._changes.report()

    def admit(self, credentials: ClusterCredentials) -> None:
        """Use these credentials, unless later ones are known."""
        if credentials.version >= self.credentials.version:
            self.credentials = credentials
            self.keeper.home.admit_clients(credentials)
            self._changes.report()

    # -- messages to the daemon ---------------------------------------------------------------------------------------

    async def ask_daemon(self, what: str, *arguments: Any) -> Any:
        """The daemon's answer to a question."""
        return await asyncio.to_thread(self._ask, self.keeper.address, what, *arguments)

    async def _tell(self) -> None:
        """Keep the daemon's table of members equal to this one."""
        reported: tuple[int, int, int] | None = None
        while True:
            seen = self._changes.version
            serves = self.keeper.state in (DaemonProcessState.SERVING, DaemonProcessState.DRAINING)
            if serves and not self.keeper.devices:
                await self._describe()
                continue
            now = (self.keeper.incarnation, self.members.version, self.credentials.version)
            if serves and reported != now:
                await self.ask_daemon("join", [dict(one) for one in self.members.table()], self.credentials.token)
                reported = now
                continue
            await self._changes.wait(seen)

    async def _describe(self) -> None:
        """Ask a daemon that has just begun to serve for its own entry."""
        incarnation = self.keeper.incarnation
        entries = await self.ask_daemon("members")
        if self.keeper.incarnation == incarnation and self.keeper.served_since is not None:
            self.keeper.described(next(one for one in entries if one["node"] == self.node))

    # -- the other nodes -------------------------------------------------------------------------------------------

    async def _meet(self) -> None:
        """Follow each other node of the cluster."""
        self._met.clear()
        names = await self._peers.names() - {self.node}
        for node in names - self._following.keys():
            self._following[node] = asyncio.create_task(self._follow(node))
        for node in self._following.keys() - names:
            self._following.pop(node).cancel()
            self._heard(self.members.mark_lost(node))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._met.wait(), NODES_INTERVAL)

    def met(self) -> None:
        """Look for new nodes: the set of nodes has changed."""
        self._met.set()

    async def _follow(self, node: str) -> None:
        """Store each new entry of a node. If the node's supervisor does not answer, the node is lost until it does."""
        since = -1
        while True:
            try:
                since, entry = await self._peers.follow(node, since)
                self._heard(bool(entry) and self.members.store(entry))
            except PeerLost:
                since = -1
                self._heard(self.members.mark_lost(node))
                await asyncio.sleep(RETRY_PAUSE)
            except Exception:
                log.exception("a node cannot be followed", node=node)
                await asyncio.sleep(NODES_INTERVAL)

    # -- looks at the daemon ---------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Check once whether the daemon is alive and whether it has sessions, and read its figures."""
        await asyncio.sleep(LOOK_INTERVAL)
        self.keeper.look()
        draining = self.keeper.state is DaemonProcessState.DRAINING
        if draining and self._drained != self.keeper.incarnation:
            await self.ask_daemon("drain")
            self._drained = self.keeper.incarnation
        now = self.keeper.now()
        if draining or now - self._looked >= FIGURES_INTERVAL:
            self._looked = now
            await self._read_figures(draining)

    async def _read_figures(self, draining: bool) -> None:
        """Pass the daemon's figures on, or None if it does not answer; end the daemon if it is draining and has no
        sessions."""
        try:
            status = await self.ask_daemon("status") if self.keeper.devices else None
        except (TensordError, TimeoutError):
            status = None  # the daemon has just ended, or is busy
        self._observe(self.keeper.row(), status)
        empty = status is not None and not status["sessions"]
        if draining and empty and self.keeper.lifecycle.allows(DaemonEvent.EMPTIED):
            self.keeper.take(DaemonEvent.EMPTIED)

    # -- for others ------------------------------------------------------------------------------------------------

    async def follow(self, since: int) -> tuple[int, dict[str, Any]]:
        """Wait until the version of this node's entry differs from `since`, or for `HOLD_TIMEOUT` seconds.

        Returns version and entry; the entry is empty if the supervisor has not begun.
        """
        deadline = asyncio.get_running_loop().time() + HOLD_TIMEOUT
        while self._version in (since, 0) and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            await self._changes.wait(self._changes.version, rest)
        return self._version, self._entry

    def hear(self, entry: Entry) -> None:
        """Store another node's entry, which an operator has received from that node before it left."""
        self._heard(self.members.store(entry))

    def known(self, of: str) -> dict[str, Any]:
        """The newest incarnation of a node that has been announced here, 0 for an unknown node; and the credentials."""
        entry = self.members.entries.get(of)
        return {
            "incarnation": 0 if entry is None else entry["incarnation"],
            "credentials": self.credentials.to_plain(),
        }

    def row(self) -> dict[str, Any]:
        """This node's row in `cluster status`, with what it knows about the others."""
        return {
            **self.keeper.row(),
            "version": version(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "members": [dict(one) for one in self.members.table()],
            "credentials": self.credentials.version,
        }

    async def reached(self, states: frozenset[str], seconds: float) -> dict[str, Any]:
        """Wait until the state is one of these, for at most `seconds`. Returns the row."""
        deadline = asyncio.get_running_loop().time() + seconds
        while (row := self.row())["state"] not in states and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            await self._changes.wait(self._changes.version, rest)
        return row

    async def log(self, after: int, seconds: float) -> list[tuple[int, str]]:
        """The lines of the daemon's log after the line with number `after`, with their numbers.

        Waits for the first of them for at most `seconds`.
        """
        if self.keeper.printed <= after:
            await self._lines.wait(self._lines.version, seconds)
        return [one for one in self.keeper.lines if one[0] > after]

    def wish(self, event: DaemonEvent) -> None:
        """Carry out an operator's request for the daemon. MetadataError if that is not possible now."""
        try:
            self.keeper.take(event)
        except IllegalStep:
            raise MetadataError(f"{self.node} is {self.keeper.state}, and cannot {event} now") from None
