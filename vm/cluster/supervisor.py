"""One node's supervisor: keeps the daemon running, knows the other nodes, and tells the daemon about them.

Theory. One event loop, and on its thread everything but the questions to the daemon, which are blocking calls on
threads of the loop's executor. Four tasks run for as long as the supervisor lives:
- *tell*: asks a daemon that has begun to serve what it is, and acts `join` on it whenever the table has changed. Only
  this task talks about members, so no older table comes after a newer one;
- *meet*: which nodes there are, and one task for each other node that follows that node's entry;
- *look*: does the daemon's loop turn, does a draining daemon still have sessions, what are its figures;
- the *keeper*'s timers (keeper.py).

Guarantees. A change of one node's entry reaches every other daemon after one message and one act. A supervisor that is
gone counts as a lost node at once; its entry is the old one until its successor's, which has a later incarnation. What
a task does not expect is logged and tried again after a pause.

Rejected: a directory of members in one actor (its end, or its node's, stops all news until it is back); each supervisor
asking all others now and then (late, and as many messages when nothing happens); Ray's internal key-value store.
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
from .child import Start
from .credentials import ClusterCredentials
from .keeper import Clock, Keeper
from .lifecycle import DaemonEvent, DaemonProcessState, IllegalStep
from .members import LOST, Entry, Members
from .news import News
from .ports import Locks
from .specification import Specification

PAUSE: Final = 0.2  # seconds before something that has failed is tried again
MEETING: Final = 5.0  # seconds between two looks at which nodes there are
LOOKING: Final = 1.0
HOLD: Final = 20.0  # seconds for which a question about changes is held back at the most
PATIENCE: Final = 5.0  # seconds for the daemon to answer
PLACE: Final = 3.0  # seconds for another supervisor of this node to end
FIGURES: Final = 5.0  # seconds between two looks at the daemon's figures

Ask: TypeAlias = Callable[..., Any]  # ask(address, what, *arguments) -> the daemon's answer; blocks
Observe: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any] | None], None]


class PeerLost(Exception):  # noqa: N818 - names what has happened
    """Nobody answers for that node."""


class PeerSupervisors(Protocol):
    """The other supervisors of the cluster."""

    async def names(self) -> frozenset[str]:
        """The nodes that there are, this one included."""

    async def follow(self, node: str, since: int) -> tuple[int, Entry]:
        """A node's entry and its version, once that is another one than `since`. PeerLost if nobody answers."""

    async def known(self, node: str, of: str) -> Mapping[str, Any]:
        """What a node's supervisor knows of the node `of`, and the credentials that it has. PeerLost."""


class Supervisor:
    """The supervisor of one node. To be made and used on the thread of a running event loop."""

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
        """`observe`: is given the row and the daemon's status, None while it has none, now and then. `echo`: is given
        each line of the daemon's log."""
        self.node = node
        self.credentials = credentials
        self.members = Members()
        self._ask, self._peers, self._observe, self._echo = ask, peers, observe, echo
        self._news, self._lines = News(), News()
        self._met = asyncio.Event()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._entry: dict[str, Any] = {}
        self._version = 0  # of the own entry
        self._drained = 0  # the incarnation that was told to take no new sessions
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
        """Start the daemon, whose last incarnation was `after`. If it begins `anew`, perhaps on another machine, the
        others first say what they remember of this node."""
        await self._take_place()
        remembered = await self._remembered() if anew else []
        kept = self.keeper.home.credentials()
        offered = [ClusterCredentials.from_plain(one["credentials"]) for one in remembered]
        self.admit(max([self.credentials, *offered, *([kept] if kept else [])], key=lambda one: one.version))
        self.keeper.begin(after=max([after, *(one["incarnation"] for one in remembered)]))
        self._tasks = [asyncio.create_task(self._again(task)) for task in (self._tell, self._meet, self._look)]

    async def _take_place(self) -> None:
        """Lock the node's directories for this supervisor; the previous one may be about to end."""
        loop = asyncio.get_running_loop()
        late = loop.time() + PLACE
        while not self._locks.take(self.keeper.wanted.lock(self.node)):
            if loop.time() > late:
                self.keeper.failure = (
                    f"another {self.node} of a cluster {self.keeper.wanted.cluster!r} is on this machine: end that "
                    "one, or give this cluster another name (--name)"
                )
            await asyncio.sleep(PAUSE)
        self.keeper.failure = ""

    async def _remembered(self) -> list[Mapping[str, Any]]:
        """The other supervisors' knowledge of this node."""
        try:
            others = await self._peers.names() - {self.node}
        except PeerLost:
            return []
        asked = [asyncio.wait_for(self._peers.known(one, self.node), PATIENCE / 2) for one in others]
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [one for one in found if isinstance(one, Mapping)]

    async def _again(self, task: Callable[[], Awaitable[None]]) -> None:
        """Repeat an action for ever, also after errors, with a pause. Unexpected errors are reported."""
        while True:
            try:
                await task()
            except (TensordError, PeerLost, TimeoutError):
                await asyncio.sleep(PAUSE)
            except Exception:
                log.exception("a supervisor's task has failed, and is tried again", node=self.node)
                await asyncio.sleep(PAUSE)

    def close(self) -> None:
        """End the daemon at once; the supervisor ends."""
        for task in (*self._tasks, *self._following.values()):
            task.cancel()
        self.keeper.close()
        self._locks.close()

    def give_up(self) -> None:
        """Kill the daemon, and say that the node is lost to whoever follows it."""
        self.keeper.close()
        self._entry = {**self._entry, "state": LOST}
        self._version += 1
        self._news.ring()

    # -- what changes here -----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """The keeper's state or entry has changed."""
        entry = self.keeper.entry()
        if entry != self._entry:
            self._entry = entry
            self._version += 1
            self.members.heard(entry)
        self._news.ring()

    def _printed(self, line: str) -> None:
        self._lines.ring()
        self._echo(line)

    def _heard(self, changed: bool) -> None:
        if changed:
            self._news.ring()

    def admit(self, credentials: ClusterCredentials) -> None:
        """Take these credentials, unless later ones are here."""
        if credentials.version >= self.credentials.version:
            self.credentials = credentials
            self.keeper.home.let_in(credentials)
            self._news.ring()

    # -- the daemon is told ----------------------------------------------------------------------------------------

    async def asked(self, what: str, *arguments: Any) -> Any:
        """The daemon's answer to a question."""
        return await asyncio.to_thread(self._ask, self.keeper.address, what, *arguments)

    async def _tell(self) -> None:
        """Keep the daemon's table as it is here."""
        reported: tuple[int, int, int] | None = None
        while True:
            seen = self._news.version
            serves = self.keeper.state in (DaemonProcessState.SERVING, DaemonProcessState.DRAINING)
            if serves and not self.keeper.devices:
                await self._describe()
                continue
            now = (self.keeper.incarnation, self.members.version, self.credentials.version)
            if serves and reported != now:
                await self.asked("join", [dict(one) for one in self.members.table()], self.credentials.token)
                reported = now
                continue
            await self._news.after(seen)

    async def _describe(self) -> None:
        """Ask a daemon that has just begun to serve what it is."""
        incarnation = self.keeper.incarnation
        entries = await self.asked("members")
        if self.keeper.incarnation == incarnation and self.keeper.served_since is not None:
            self.keeper.described(next(one for one in entries if one["node"] == self.node))

    # -- the other nodes -------------------------------------------------------------------------------------------

    async def _meet(self) -> None:
        """Follow each other node that there is."""
        self._met.clear()
        names = await self._peers.names() - {self.node}
        for node in names - self._following.keys():
            self._following[node] = asyncio.create_task(self._follow(node))
        for node in self._following.keys() - names:
            self._following.pop(node).cancel()
            self._heard(self.members.lost(node))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._met.wait(), MEETING)

    def met(self) -> None:
        """The nodes that there are have changed."""
        self._met.set()

    async def _follow(self, node: str) -> None:
        """Take each new entry of a node. A node whose supervisor does not answer is lost, until that answers again."""
        since = -1
        while True:
            try:
                since, entry = await self._peers.follow(node, since)
                self._heard(bool(entry) and self.members.heard(entry))
            except PeerLost:
                since = -1
                self._heard(self.members.lost(node))
                await asyncio.sleep(PAUSE)
            except Exception:
                log.exception("a node cannot be followed", node=node)
                await asyncio.sleep(MEETING)

    # -- looks at the daemon ---------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Once: is the daemon alive, is it empty, what are its figures?"""
        await asyncio.sleep(LOOKING)
        self.keeper.look()
        draining = self.keeper.state is DaemonProcessState.DRAINING
        if draining and self._drained != self.keeper.incarnation:
            await self.asked("drain")
            self._drained = self.keeper.incarnation
        now = self.keeper.now()
        if draining or now - self._looked >= FIGURES:
            self._looked = now
            await self._read_figures(draining)

    async def _read_figures(self, draining: bool) -> None:
        """Pass the daemon's figures on, or that it has none; end it if it drains and is empty."""
        try:
            status = await self.asked("status") if self.keeper.devices else None
        except (TensordError, TimeoutError):
            status = None  # it has just ended, or is busy
        self._observe(self.keeper.row(), status)
        empty = status is not None and not status["sessions"]
        if draining and empty and self.keeper.lifecycle.allows(DaemonEvent.EMPTIED):
            self.keeper.take(DaemonEvent.EMPTIED)

    # -- for others ------------------------------------------------------------------------------------------------

    async def follow(self, since: int) -> tuple[int, dict[str, Any]]:
        """The own entry and its version, once that is another one than `since`, or after a while. Empty before there
        is one: the supervisor has not begun."""
        deadline = asyncio.get_running_loop().time() + HOLD
        while self._version in (since, 0) and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            await self._news.after(self._news.version, rest)
        return self._version, self._entry

    def hear(self, entry: Entry) -> None:
        """Take another node's entry, from an operator who has seen it leave."""
        self._heard(self.members.heard(entry))

    def known(self, of: str) -> dict[str, Any]:
        """What is known of a node, and the credentials."""
        entry = self.members.entries.get(of)
        return {
            "incarnation": 0 if entry is None else entry["incarnation"],
            "credentials": self.credentials.to_plain(),
        }

    def row(self) -> dict[str, Any]:
        """This node's line in `cluster status`, and what it says about the others."""
        return {
            **self.keeper.row(),
            "version": version(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "members": [dict(one) for one in self.members.table()],
            "credentials": self.credentials.version,
        }

    async def reached(self, states: frozenset[str], seconds: float) -> dict[str, Any]:
        """The row, once its state is one of these, or after so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while (row := self.row())["state"] not in states and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            await self._news.after(self._news.version, rest)
        return row

    async def log(self, after: int, seconds: float) -> list[tuple[int, str]]:
        """The lines of the daemon's log behind that one, with their numbers; waits so long for the first of them."""
        if self.keeper.printed <= after:
            await self._lines.after(self._lines.version, seconds)
        return [one for one in self.keeper.lines if one[0] > after]

    def wish(self, event: DaemonEvent) -> None:
        """Carry out an operator's request for the daemon; MetadataError if the request is not possible now."""
        try:
            self.keeper.take(event)
        except IllegalStep:
            raise MetadataError(f"{self.node} is {self.keeper.state}, and cannot {event} now") from None
