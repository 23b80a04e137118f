"""The supervisor as an actor of Ray: its remote methods, its calls to other actors, and its end with the raylet.

If an actor has coroutines as methods, Ray runs it on one event loop, `__init__` included, on a thread that lives as
long as the actor. If the process or the node of an actor ends, Ray restarts the actor with the original arguments.

The raylet is the parent of this process. When the raylet ends, Ray has given up the node, or soon will; a daemon that
continued would be a second owner of the node's durable names. So the supervisor kills the daemon at once, sends a last
message to the other supervisors (calls go directly from process to process, without the raylet), and ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError

from ....interpreter.wire.addresses import default_address, pid_of
from ..child import start_daemon
from ..credentials import ClusterCredentials
from ..lifecycle import DaemonEvent, DaemonProcessState
from ..members import Entry
from ..ports import Locks, of_this_machine
from ..specification import Specification
from ..supervisor import Ask, PeerLost, Supervisor
from .metrics import Gauges

MESSAGE_GRACE: Final = 0.3  # how many seconds the last message has to be sent
DEFAULT_ADDRESS_LOCK: Final = "usual"  # the lock of the default address


class RayPeers:
    """The other supervisors, as named actors in the cluster's namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._handles: dict[str, Any] = {}

    async def names(self) -> frozenset[str]:
        try:
            return frozenset(await asyncio.to_thread(ray.util.list_named_actors))
        except RayError as error:
            raise PeerLost(str(error)) from None

    async def follow(self, node: str, since: int) -> tuple[int, Entry]:
        found: tuple[int, Entry] = await self._call(node, "follow", since)
        return found

    async def known(self, node: str, of: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._call(node, "known", of)
        return found

    async def _call(self, node: str, method: str, *arguments: Any) -> Any:
        try:
            if node not in self._handles:
                self._handles[node] = await asyncio.to_thread(ray.get_actor, node, self._namespace)
            return await getattr(self._handles[node], method).remote(*arguments)
        except (RayError, ValueError) as error:  # ValueError: no actor has that name
            self._handles.pop(node, None)
            raise PeerLost(str(error)) from None


class SupervisorActor:
    """The actor of Ray, one for each node."""

    def __init__(
        self,
        node: str,
        wanted: Mapping[str, Any],
        credentials: Mapping[str, Any],
        group: str,
        bundle: int,
        after: int,
        ask: Ask,
    ) -> None:
        """`group`, `bundle`: where the actor is placed.

        `after`: the last incarnation of a node with that name. `ask`: asks a daemon; the client passes it, since
        `vm` does not know how clients connect.
        """
        context = ray.get_runtime_context()
        self.about = {
            "group": group,
            "bundle": bundle,
            "ray_node": context.get_node_id(),
            "supervisor": os.getpid(),
            "ray": ray.__version__,
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),  # set by Ray, and inherited by the daemon
        }
        specification = Specification.from_plain(wanted)
        self.wanted = dict(wanted)
        locks = of_this_machine()
        self.supervisor = Supervisor(
            node,
            ray.util.get_node_ip_address(),
            specification,
            ClusterCredentials.from_plain(credentials),
            start=start_daemon,
            ask=ask,
            peers=RayPeers(specification.cluster),
            locks=locks,
            usual=usual_address(locks),
            observe=Gauges(node).observe,
            echo=log_in_worker,
        )
        self._watch_raylet()
        begin = self.supervisor.begin(after=after, anew=context.was_current_actor_reconstructed)
        self._begun = asyncio.get_running_loop().create_task(begin)

    # -- the end of the raylet -------------------------------------------------------------------------------------

    def _watch_raylet(self) -> None:
        loop = asyncio.get_running_loop()
        self._raylet = os.pidfd_open(os.getppid())
        loop.add_reader(self._raylet, self._raylet_ended)

    def _raylet_ended(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._raylet)
        loop.call_later(MESSAGE_GRACE, os._exit, 1)
        self.supervisor.give_up()

    # -- for other supervisors -------------------------------------------------------------------------------------

    async def follow(self, since: int) -> tuple[int, dict[str, Any]]:
        return await self.supervisor.follow(since)

    async def known(self, of: str) -> dict[str, Any]:
        return self.supervisor.known(of)

    async def hear(self, entry: Entry) -> None:
        self.supervisor.hear(entry)

    # -- for operators ---------------------------------------------------------------------------------------------

    async def met(self) -> None:
        """Look for new nodes: the set of nodes has changed."""
        self.supervisor.met()

    async def row(self) -> dict[str, Any]:
        """The node's row in `cluster status`."""
        return self.supervisor.row() | self.about

    async def reached(self, states: list[str], seconds: float) -> dict[str, Any]:
        return await self.supervisor.reached(frozenset(states), seconds) | self.about

    async def specification(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings that all nodes share, and the credentials, for a node that is added."""
        return self.wanted, self.supervisor.credentials.to_plain()

    async def admit(self, credentials: Mapping[str, Any]) -> None:
        self.supervisor.admit(ClusterCredentials.from_plain(credentials))

    async def log(self, after: int, seconds: float) -> list[tuple[int, str]]:
        return await self.supervisor.log(after, seconds)

    async def status(self) -> Any:
        """The daemon's status."""
        return await self.supervisor.ask_daemon("status")

    async def reach(self, host: str, port: int, seconds: float) -> float:
        """How many seconds this node takes to connect to a port of another node. OSError if it cannot be reached."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), seconds)
        taken = loop.time() - began
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return taken

    async def clock(self) -> float:
        """This node's time, in seconds since the epoch."""
        return time.time()

    async def wish(self, event: str, seconds: float | None = None) -> None:
        """Drain, restart or stop the daemon. `seconds`: how long a drain lasts at most."""
        if seconds is not None:
            self.supervisor.keeper.lifecycle.drain_for(seconds)
        self.supervisor.wish(DaemonEvent(event))

    async def rotate(self) -> None:
        """Restart the daemon with a new pair of keys."""
        self.supervisor.keeper.home.rotate()
        self.supervisor.wish(DaemonEvent.RESTART)

    async def stopped(self, seconds: float) -> bool:
        """Whether the daemon ends for good within `seconds`."""
        row = await self.supervisor.reached(frozenset({DaemonProcessState.STOPPED}), seconds)
        return bool(row["state"] == DaemonProcessState.STOPPED)


def usual_address(locks: Locks) -> str:
    """The address that this user's clients try first, if it is free;

    "" otherwise. One node of a machine can have it.
    """
    if not locks.take(DEFAULT_ADDRESS_LOCK):
        return ""
    if pid_of(default_address()) is None:
        return default_address()
    locks.give_back(DEFAULT_ADDRESS_LOCK)  # another daemon of this user runs there
    return ""


def log_in_worker(line: str) -> None:
    """Print a line of the daemon's log to stderr, which Ray stores as this worker's log."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
