"""The nodes of a cluster session, and the session on each: found, opened at first use, lost, and found again.

Theory of operation. Each node has an ordinary session. A tensor refers to the core of its node's session, so an op on a
tensor works as on one machine, and does not involve this file. Functions that make tensors ask here for the core of a
device's node. The nodes are those that a member has listed (`members`). The list is refreshed when a name is unknown,
or a node's session has ended: a restarted daemon has another incarnation, address and key.

Ownership. The facade (`ClusterSession`) keeps the cores, and each tensor its own; a core keeps the cluster, and the
cluster no core. So a session that was dropped ends with its last tensor, as on one machine.

Threads. Any thread may call. Each node has a lock for opening its session; the gate guards the addition of a new
session, so a session that is opened inside an atomic block takes part in it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from ...interpreter.errors import ConnectionLost, MetadataError, TensordError, node_lost
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.device_names import node_of
from ...interpreter.wire.forms import shown
from ...interpreter.wire.members import Member, table_of
from ..calls.checks import device_of
from ..locations.locations import located
from ..outbox.current import CURRENT
from ..process.forks import FORKS
from ..session.connect import ConnectOptions
from ..session.handlers import DEFAULT_HANDLER, Handler
from ..session.parts import Parts
from ..tensor.tensor import Tensor
from ..transport.interface import CLOSED, FORKED
from .gate import ClusterGate
from .opening import opened
from .watching import ask, watch

if TYPE_CHECKING:
    from .session import ClusterSession
    from .spans import ClusterSpan

PATIENCE: Final = 5.0  # seconds for a node to list the members


class Cluster:
    """The state that the sessions of the nodes share. `table`: the members, as last listed. `home`: the node that was
    connected first, where new tensors are unless a device or a placement says otherwise."""

    def __init__(self, home: Parts, rows: Any, wanted: ConnectOptions) -> None:
        self.wanted = wanted
        self.table: Mapping[str, Member] = table_of(rows)
        self.home = home.node
        self.address = home.address
        self.gate = ClusterGate()
        self.handler: Handler = DEFAULT_HANDLER
        self.placement: Placement | None = None
        self.spans: ContextVar[tuple[ClusterSpan, ...]] = ContextVar("tensord cluster spans", default=())
        self.ended = threading.Event()
        self._why = CLOSED
        self._random_state, self._scopes = home.random_state, home.scopes
        self._living: WeakValueDictionary[str, Parts] = WeakValueDictionary()
        self._stale: set[str] = set()  # nodes whose ended session `losses` has reported
        self._opening: dict[str, threading.RLock] = {}
        self._naming = threading.Lock()
        self._session: Callable[[], ClusterSession | None] = lambda: None
        self._prefix, self._transfers = os.urandom(8), 0
        FORKS.inherited.add(self)
        self._enter(home)

    # -- the facade ------------------------------------------------------------------------------------------------

    def as_session(self) -> ClusterSession:
        """The session for users' code; a new facade if the program has dropped its own."""
        from .session import ClusterSession

        return self._session() or ClusterSession(self)

    def adopt(self, session: Callable[[], ClusterSession | None]) -> list[Parts]:
        """Register a facade, by a weak reference; returns the cores that it has to keep."""
        self._session = session
        return self.cores()

    # -- which core ------------------------------------------------------------------------------------------------

    def default(self) -> Parts:
        """The core where new tensors are made: the core of the placement's node if a placement is set, else
        `first()`."""
        return self.first() if self.placement is None else self.core(self.node_of(self.placement.names[0]))

    def first(self) -> Parts:
        """The core of the node that was connected first; during the capture of a routine, the routine's core."""
        capture: Any = CURRENT.capture
        if capture is not None and capture.core.cluster is self:
            core: Parts = capture.core
            return core
        return self.core(self.home)

    def core(self, node: str) -> Parts:
        """The core of a node's session, which is opened unless one is open. NodeLost if the node is gone."""
        core = self._living.get(node)
        return core if core is not None and not core.closed else self._open(node, core)

    def cores(self) -> list[Parts]:
        """The cores of the open sessions, in the order of the nodes."""
        return [found for node in self.nodes() if (found := self._living.get(node)) is not None and not found.closed]

    def all_cores(self) -> list[Parts]:
        """The cores of all sessions, open or ended."""
        return list(self._living.values())

    def nodes(self) -> list[str]:
        """The names of the nodes that are not known to be gone; the first node comes first."""
        return sorted((each.node for each in self.table.values() if each.is_up), key=lambda node: node != self.home)

    def devices(self) -> list[str]:
        """The devices of the nodes that are not known to be gone."""
        return [device for node in self.nodes() for device in self.table[node].devices]

    def node_of(self, device: str) -> str:
        """The node of a device; MetadataError if there is no such node."""
        node = node_of(device) or self.home
        if node not in self.table:
            self.refresh()
        if node not in self.table:
            raise located(MetadataError(f"unknown device {shown(device)}; devices: {', '.join(self.devices())}"))
        return node

    def place(self, core: Parts, placement: Placement | None) -> None:
        """Set the placement of new tensors for which no device is given. All its devices are on the node of `core`."""
        with self.gate.lock:
            self.placement = placement
            for each in self.cores():
                each.placement = placement if each is core else None

    def core_of(self, values: Any) -> Parts:
        """The core for a call with these values."""
        from .routing import core_of

        core: Any = core_of(self, values)
        return core  # type: ignore[no-any-return]

    def is_elsewhere(self, core: Any, device: Any) -> bool:
        """Return whether `device` names a device of another node than that core's."""
        return type(device) is str and node_of(device) not in {"", core.node}

    def moved(self, tensor: Tensor, device: str) -> Tensor:
        """The tensor, moved to a device of another node."""
        from .moving import moved

        return moved(self, tensor, device)

    def named(self, device: str) -> str:
        """The full name of a device of any node."""
        return device_of(self.core(self.node_of(device)), device)

    def collective(
        self, kind: str, tensors: Sequence[Tensor], devices: Sequence[str], attributes: dict[str, Any]
    ) -> list[Tensor]:
        """Issue a collective on tensors of several nodes; returns its results."""
        from .collectives import issue, resolved_request

        resolved = resolved_request(kind, tensors, devices, attributes)
        return issue(self, resolved, tensors, devices, attributes)

    def losses(self) -> list[TensordError]:
        """An error for each session that has ended since the last call; each is given once."""
        errors: list[TensordError] = []
        for node, core in list(self._living.items()):
            if core.closed and node not in self._stale:
                self._stale.add(node)
                errors.append(node_lost(node, "all tensors that were there are gone"))
        return errors

    # -- opening ---------------------------------------------------------------------------------------------------

    def _open(self, node: str, former: Parts | None) -> Parts:
        self.check_open()
        with self._opening.setdefault(node, threading.RLock()):
            found = self._living.get(node)
            if found is not None and not found.closed:  # another thread has opened it
                return found
            if former is not None or not self._is_up(node):
                self.refresh()
            if not self._is_up(node):
                raise located(node_lost(node, self._why_not(node)))
            core = self._opened(node)
            if former is not None:
                former.transport.close()  # ends its threads; its tensors report that the node was lost
            self._enter(core)
        return core

    def _opened(self, node: str) -> Parts:
        member = self.reached(node)
        try:
            core = opened(member, self.wanted)
        except ConnectionLost as error:
            raise located(node_lost(node, f"it cannot be reached: {error.message}")) from None
        if core.node != node:
            core.outbox.close()
            raise located(node_lost(node, f"at {member.address} is {core.node or 'another daemon'}"))
        return core

    def _is_up(self, node: str) -> bool:
        return node in self.table and self.table[node].is_up

    def _why_not(self, node: str) -> str:
        """The reason why no session can be opened on a node."""
        state = self.table[node].state if node in self.table else "left"
        return "it has left the cluster" if state == "left" else "its daemon has not been started again"

    def reached(self, node: str) -> Member:
        """The member, with the address at which this process reaches it.

        For the first node, that is the address to which the program connected; if that is a tcp address, the one
        that the node lists. Other nodes: as listed.
        """
        member = self.table[node]
        by_tcp = self.address.startswith("tcp://") and member.address
        return member if node != self.home or by_tcp else member._replace(address=self.address)

    def open_all(self, wanted: Collection[str] | None = None) -> list[Parts]:
        """Open the sessions of these nodes, or of all, concurrently; nodes that cannot be reached are left out.

        If one of them was lost, the members are listed anew first, since it may be back. Returns the cores of all
        open sessions.
        """
        if any(each.state == "lost" and (wanted is None or each.node in wanted) for each in self.table.values()):
            self.refresh()
        nodes = [node for node in self.nodes() if (wanted is None or node in wanted) and self._is_closed(node)]
        # In copies of this thread's context, so that the sessions join the spans that are open here.
        opening = [partial(copy_context().run, self._try_to_open, node) for node in nodes[1:]]
        threads = [threading.Thread(target=one) for one in opening]
        for thread in threads:
            thread.start()
        for node in nodes[:1]:
            self._try_to_open(node)
        for thread in threads:
            thread.join()
        return self.cores()

    def _is_closed(self, node: str) -> bool:
        core = self._living.get(node)
        return core is None or core.closed

    def _try_to_open(self, node: str) -> None:
        with suppress(TensordError):
            self.core(node)

    def _keep(self, core: Parts) -> None:
        session = self._session()
        if session is not None:
            session.keep(core)

    def _enter(self, core: Parts) -> None:
        """Add a session to the cluster."""
        core.strict, core.random_state = self.wanted.strict, self._random_state
        core.scopes, core.opened, core.innermost = self._scopes, self._scopes.opened, self._scopes.innermost
        core.session = self.as_session
        core.use(self.handler)
        with self.gate.lock:
            core.placement = self.placement if self._has_placement(core) else None
            core.cluster = self
            self._living[core.node] = core
            self._stale.discard(core.node)
            self._keep(core)
            for span in self.spans.get():
                span.join(core)
            if self.gate.block is not None:
                self.gate.block.join(core)
        watch(self, core)

    def _has_placement(self, core: Parts) -> bool:
        return self.placement is not None and self.node_of(self.placement.names[0]) == core.node

    # -- the members -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Ask for the list of members; keep the old list if no node answers."""
        for rows in self._member_lists():
            self.table = table_of(rows)
            return

    def _member_lists(self) -> Iterable[Any]:
        """The member lists that the nodes answer, one node after another; the caller takes the first."""
        for core in self.cores():
            if core.outbox.answers() and not core.transport.away:
                with suppress(TensordError, TimeoutError):
                    yield core.answers.query("members", timeout=PATIENCE)
        for node in (*self.nodes(), *(each.node for each in self.table.values() if each.state == "lost")):
            rows = ask(self.reached(node), self.wanted.keys)
            if rows is not None:
                yield rows

    def transfer(self, count: int = 1) -> bytes:
        """The name of the next transfer; for several, the first of `count` consecutive names."""
        with self._naming:
            first = self._transfers
            self._transfers += count
        return self._prefix + first.to_bytes(8)

    # -- the end ---------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ConnectionLost if the session has been closed."""
        if self.ended.is_set():
            raise located(ConnectionLost(self._why))

    def inherit(self) -> None:
        """Count as closed in a forked child: the sessions belong to the parent."""
        self._why = FORKED
        self.ended.set()
