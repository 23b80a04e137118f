"""A clock that tests move, daemons that tests control, and supervisors that know each other without Ray."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensord.interpreter.errors import ConnectionLost
from tensord.vm.cluster.child import ChildObserver
from tensord.vm.cluster.supervisor import PeerLost, Supervisor


class FakeTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """Time passes in `advance` alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, int, FakeTimer]] = []
        self.numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object], /) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self.calls, (when, next(self.numbers), timer))
        return timer

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self.calls and self.calls[0][0] <= until:
            when, _, timer = heapq.heappop(self.calls)
            self.now = max(self.now, when)
            if timer.callback is not None:
                timer.callback()
        self.now = until


class FakeProcess:
    """A daemon. `asked`: the requests to it; tests call `observer`."""

    def __init__(self, pid: int, config: str, observer: ChildObserver) -> None:
        self.pid, self.config, self.observer = pid, config, observer
        self.asked: list[str] = []

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self) -> None:
        self.asked.append("kill")

    def serve(self) -> None:
        self.observer.ready()
        self.observer.alive()


class FakeStart:
    """Starts fake daemons, or raises `fails`."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.fails: OSError | None = None

    def __call__(self, config: Path, runtime: Path, watchdog: float, observer: ChildObserver) -> FakeProcess:
        del runtime, watchdog
        if self.fails is not None:
            raise self.fails
        made = FakeProcess(1000 + len(self.started), config.read_text(), observer)
        self.started.append(made)
        return made

    @property
    def last(self) -> FakeProcess:
        return self.started[-1]


class FakeDaemon:
    """Answers of daemons, by address. `tables`: sent by `join` to each; `sessions`: the number in each status."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.tokens: list[str] = []
        self.asked: list[str] = []
        self.sessions = 0
        self.deaf = False

    def ask(self, address: str, what: str, *arguments: Any) -> Any:
        self.asked.append(what)
        node = address.rsplit("/", 2)[1]
        if self.deaf:
            raise ConnectionLost("nobody listens")
        if what == "members":
            devices = [f"{node}/cpu:0"]
            return [{"node": node, "devices": devices, "values": "127.0.0.1:7", "fingerprint": "ab", "state": "up"}]
        if what == "join":
            self.tables[node], token = arguments
            self.tokens.append(token)
            return len(self.tables[node])
        return {"sessions": self.sessions} if what == "status" else None

    def seen(self, node: str) -> dict[str, tuple[str, int]]:
        """The states and incarnations last reported to a node's daemon."""
        return {one["node"]: (one["state"], one["incarnation"]) for one in self.tables.get(node, ())}


class FakePeers:
    """Supervisors of one event loop. `gone`: the supervisors that do not answer."""

    def __init__(self) -> None:
        self.there: dict[str, Supervisor] = {}
        self.gone: set[str] = set()
        self.lost = asyncio.Event()

    def lose(self, node: str) -> None:
        self.gone.add(node)
        self.lost.set()

    def take_back(self, node: str) -> None:
        self.gone.discard(node)
        self.lost = asyncio.Event()

    async def names(self) -> frozenset[str]:
        return frozenset(self.there)

    async def follow(self, node: str, since: int) -> tuple[int, Mapping[str, Any]]:
        following = asyncio.ensure_future(self._supervisor(node).follow(since))
        losing = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait([following, losing], return_when=asyncio.FIRST_COMPLETED)
            self._supervisor(node)
            return await following
        finally:
            following.cancel()
            losing.cancel()

    async def known(self, node: str, of: str) -> Mapping[str, Any]:
        return self._supervisor(node).known(of)

    def _supervisor(self, node: str) -> Supervisor:
        if node in self.gone or node not in self.there:
            raise PeerLost(node)
        return self.there[node]
