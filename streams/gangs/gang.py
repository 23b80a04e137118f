"""One node's part of a launch on GPUs of several nodes.

Theory of operation
    The node whose name is first leads. It waits until all nodes are ready (READY), and no node's turn is held
    meanwhile, because computing the operands may need that turn. Then the leader takes the turns, its own first, the
    others' in the order of their names (TURN, GRANTED). With all turns it chooses the communicator, an existing one of
    all nodes or a new one, and all nodes launch (GO). A node gives its turn back when the communicator exists and the
    launch is the next one of the node's launcher. Finally each node reports that its GPUs have ended (ENDED, END).
    Until then all nodes listen, because an error or loss of one node leaves kernels on the others that would wait for
    ever.

Guarantees
    - Either all nodes launch, or each is told why not. `ended` is called once for each `begin`, when no GPU of this
      node uses the arrays any more.
    - An error anywhere reaches all nodes through the leader, and nodes that have launched abort. The results of a node
      whose GPUs have ended remain valid.
    - A withdrawal before the launch fails the launch on all nodes. A cancellation after it lets the launch finish.
    - A node that sends another digest, or a message at the wrong time, fails this launch and no other.

Who owns what
    One thread at a time handles events. A thread that arrives while another one handles leaves its event to that
    thread. So nothing is called under a lock, and the links may call back within any call.

Rejected
    - Messages in frames of their own: the links already deliver errors, losses and cancellations of transfers.
    - Messages from each node to each other node: no leader would be needed, but there would be n * n messages.
    - A launch on nodes that have their turns before the last turn is taken: launches could wait in a circle.
    - A choice of the communicator with READY: the communicator may be aborted before the turn comes.

Source: PyTorch's ProcessGroupNCCL (rank 0 puts the unique id into a store; a watchdog aborts communicators), Ray's
`util.collective` (a named actor has the id), Horovod's coordinator (nothing is launched before all ranks are ready).
MXNet's KVStoreNCCL covers one process only. XLA met both deadlocks: communicators made in different orders on two
hosts, and a communicator's allocation next to a kernel that waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import NamedTuple

from ...interpreter.errors import KernelError, ProtocolError, TensordError
from ..library import CollectiveLaunch, CollectiveLibrary, Ended, Operands, SharedCommunicator, tell_nobody
from ..links.link import NodeLink
from ..stream import LOG
from .messages import GangMessage, IncomingMessage, OutgoingMessage
from .states import IGNORING_STATES, STATES_OF_MESSAGE, TIMED_STATES, TRANSITIONS, GangEvent, State
from .turns import Turns


class Rendezvous(NamedTuple):
    """The nodes of a launch, in the order of their names; `node` is this one. `first`: the name of the first transfer;
    `digest`: identifies what is launched; `links`: to the leader, or from the leader to all others."""

    nodes: Sequence[str]
    node: str
    first: bytes
    digest: bytes
    links: Mapping[str, NodeLink]

    @property
    def leads(self) -> bool:
        """Return whether this node leads."""
        return self.node == self.nodes[0]

    @property
    def others(self) -> Sequence[str]:
        """The nodes with which this one exchanges messages."""
        return self.nodes[1:] if self.leads else self.nodes[:1]

    def withdraw(self, error: TensordError) -> None:
        """Tell the other nodes that this node will not take part."""
        for other in self.others:
            PeerMessages(self, other).withdraw(error)


class PeerMessages:
    """All messages between this node and another one. Without a link, no message is sent."""

    def __init__(self, rendezvous: Rendezvous, other: str) -> None:
        self.node = other
        follower = rendezvous.nodes.index(other if rendezvous.leads else rendezvous.node)
        self.outgoing: dict[GangMessage, OutgoingMessage] = {}
        self.incoming: dict[GangMessage, IncomingMessage] = {}
        link = rendezvous.links.get(other)
        for message in GangMessage:
            transfer = message.transfer(rendezvous.first, follower)
            if link is None:
                continue
            if message.is_leaders is rendezvous.leads:
                self.outgoing[message] = OutgoingMessage(link, transfer)
            else:
                self.incoming[message] = IncomingMessage(link, transfer)

    def withdraw(self, error: TensordError) -> None:
        """Fail the next message to the other node, which tells that node of the error."""
        for outgoing in self.outgoing.values():
            outgoing.withdraw(error)
        for incoming in self.incoming.values():
            incoming.withdraw(error)


class Gang:
    """One launch, as this node sees it."""

    def __init__(
        self, launch: CollectiveLaunch, library: CollectiveLibrary, turns: Turns, rendezvous: Rendezvous
    ) -> None:
        self.launch = launch
        self.library = library
        self.turns = turns
        self.rendezvous = rendezvous
        self.state = State.COMING
        self.since = 0  # perf_counter_ns; a long wait since then counts as a hang; 0: no wait counts
        self._peer_messages = {other: PeerMessages(rendezvous, other) for other in rendezvous.others}
        self._error: TensordError | None = None  # the reason of its failure
        self._operands: Operands = ()
        self._ended: Ended | None = None
        self._ids: list[bytes] = []  # of communicators that all nodes with GRANTED and this one have
        self._missing = {
            message: set(rendezvous.others) for message in (GangMessage.READY, GangMessage.ENDED)
        }  # nodes from which the message has not arrived
        self._lock = threading.Lock()  # guards the two below
        self._due: deque[Callable[[], None]] = deque()
        self._handling = False

    # -- any thread ------------------------------------------------------------------------------------------------

    def begin(self, operands: Operands, ended: Ended) -> None:
        """Operands and results exist on this node: take part."""
        self._post(partial(self._begun, operands, ended))

    def withdraw(self, error: TensordError) -> None:
        """Withdraw the launch: its results are not needed."""
        self._post(partial(self._withdrawn, error))

    def waits_for(self) -> str:
        """The awaited event, as text for people."""
        nodes = {
            State.GATHERING: self._missing[GangMessage.READY],
            State.HOLDING: set(self._unasked()),
            State.ENDED: self._missing[GangMessage.ENDED],
        }.get(self.state, set())
        names = ", ".join(sorted(nodes) if self.rendezvous.leads else self.rendezvous.others)
        return f"it waits for {self.state}" + (f": {names}" if nodes else "")

    def _post(self, handle: Callable[[], None]) -> None:
        with self._lock:
            self._due.append(handle)
            if self._handling:
                return
            self._handling = True
        while (due := self._next()) is not None:
            try:
                due()
            except BaseException as error:
                LOG.error("the launch of %s failed by an error of its own", self.launch.label, exc_info=error)
                wrong = KernelError(f"{self.launch.label}: {type(error).__name__}: {error}")
                self._due.append(partial(self._fail, wrong))

    def _next(self) -> Callable[[], None] | None:
        """The next event to handle. None if there is none; another thread may then handle events."""
        with self._lock:
            self._handling = bool(self._due)
            return self._due.popleft() if self._due else None

    # -- one thread at a time --------------------------------------------------------------------------------------

    def _move(self, event: GangEvent) -> None:
        self.state = TRANSITIONS[self.state, event]
        if self.state in TIMED_STATES:
            self.since = self.since or perf_counter_ns()
        else:
            self.since = 0

    def _send(self, message: GangMessage, to: Sequence[str], id_: bytes = b"") -> None:
        for other in to:
            outgoing = self._peer_messages[other].outgoing[message]
            outgoing.send(self.rendezvous.digest, id_, lambda error: self._post(partial(self._fail, error)))

    def _begun(self, operands: Operands, ended: Ended) -> None:
        if self._error is not None:
            ended(self._error)
            return
        self._move(GangEvent.BEGUN)
        self._operands, self._ended = operands, ended
        for other, messages in self._peer_messages.items():
            for message, incoming in messages.incoming.items():
                incoming.receive(
                    partial(self._arrived, other, message), lambda error: self._post(partial(self._fail, error))
                )
        if self.rendezvous.leads:
            self._gather()
        else:
            self._send(GangMessage.READY, self.rendezvous.others)

    def _arrived(self, other: str, message: GangMessage, digest: bytes, id_: bytes) -> None:
        self._post(partial(self._handle_message, other, message, digest, id_))

    def _handle_message(self, other: str, message: GangMessage, digest: bytes, id_: bytes) -> None:
        """Another node has sent a message."""
        if self.state in IGNORING_STATES:
            return
        if digest != self.rendezvous.digest:
            self._fail(ProtocolError(f"{self.launch.label}: {other} was told to launch something else"))
        elif self.state not in STATES_OF_MESSAGE[message] or (
            message is GangMessage.GRANTED and [other] != list(self._unasked()[:1])
        ):
            self._fail(ProtocolError(f"{self.launch.label}: {other} sent {message.name} out of turn"))
        else:
            self._take(other, message, id_)

    def _take(self, other: str, message: GangMessage, id_: bytes) -> None:
        """Handle a message that is legal in this state."""
        if message is GangMessage.TURN:
            self._queue()
        elif message is GangMessage.GRANTED:
            self._ids.append(id_)
            self._ask_next()
        elif message is GangMessage.GO:
            self._go(id_)
        elif message is GangMessage.END:
            self._move(GangEvent.DISPERSED)
        else:
            self._missing[message].discard(other)
            (self._gather if message is GangMessage.READY else self._disperse)()

    def _gather(self) -> None:
        """On the leader: go on if all nodes are ready."""
        if not self._missing[GangMessage.READY]:
            self._queue()

    def _queue(self) -> None:
        self._move(GangEvent.GATHERED)
        self.turns.take(self, lambda: self._post(self._granted))

    def _granted(self) -> None:
        """This node has its turn."""
        if self.state is not State.QUEUING:
            return  # the launch failed meanwhile
        self._move(GangEvent.GRANTED)
        self._ids.append(self.library.working_id(self.launch.devices))
        if self.rendezvous.leads:
            self._ask_next()
        else:
            self._send(GangMessage.GRANTED, self.rendezvous.others, self._ids[0])

    def _ask_next(self) -> None:
        """Ask the next node to take its turn; launch if all have theirs."""
        if unasked := self._unasked():
            self._send(GangMessage.TURN, unasked[:1])
        else:
            self._launch(self._ids[0] if len(set(self._ids)) == 1 else b"", announce=self._announce)

    def _unasked(self) -> Sequence[str]:
        """On the leader: the nodes that have not sent GRANTED. The first of them was asked."""
        return self.rendezvous.others[len(self._ids) - 1 :]

    def _announce(self, id_: bytes) -> None:
        self._post(partial(self._announced, id_))

    def _announced(self, id_: bytes) -> None:
        """On the leader: this node is about to launch with that communicator."""
        if self.state is State.LAUNCHED:
            self._send(GangMessage.GO, self.rendezvous.others, id_)

    def _go(self, id_: bytes) -> None:
        if not id_:
            self._fail(ProtocolError(f"{self.launch.label}: {self.rendezvous.others[0]} has named no communicator"))
        elif id_ == self._ids[0]:
            self._launch(existing=id_)
        else:
            self._launch(made_with=id_)

    def _launch(
        self, existing: bytes = b"", made_with: bytes = b"", announce: Callable[[bytes], None] = tell_nobody
    ) -> None:
        self._move(GangEvent.AGREED)
        self.launch.shared = SharedCommunicator(existing, made_with, announce, partial(self.turns.leave, self))
        self.library.begin(self.launch, self._operands, lambda error: self._post(partial(self._has_ended, error)))

    def _has_ended(self, error: TensordError | None) -> None:
        """The GPUs of this node no longer use the arrays."""
        aborting = self.state is State.ABORTING
        self.turns.leave(self)
        self._move(GangEvent.ENDED if error is None else GangEvent.BROKEN)
        if error is not None and not aborting:
            self._withdraw_words(error)
        self._report(error)
        if self.state is State.ENDED and self.rendezvous.leads:
            self._disperse()
        elif self.state is State.ENDED:
            self._send(GangMessage.ENDED, self.rendezvous.others)

    def _disperse(self) -> None:
        """On the leader: end the launch if the GPUs of all nodes have ended."""
        if self.state is State.ENDED and not self._missing[GangMessage.ENDED]:
            self._send(GangMessage.END, self.rendezvous.others)
            self._move(GangEvent.DISPERSED)

    def _withdrawn(self, error: TensordError) -> None:
        if self.state is State.LAUNCHED:
            self.library.withdraw(self.launch, error)
        elif self.state is not State.ENDED:
            self._fail(error)

    def _fail(self, error: TensordError) -> None:
        """The launch failed, here or on another node: tell all nodes, and abort a launch that was begun."""
        if self.state in IGNORING_STATES:
            return
        before, self._error = self.state, error
        self._move(GangEvent.FAILED)
        self.turns.leave(self)
        self._withdraw_words(error)
        if before is State.LAUNCHED:
            self.library.withdraw(self.launch, error, missing=True)
        else:
            self._report(error)

    def _withdraw_words(self, error: TensordError) -> None:
        for messages in self._peer_messages.values():
            messages.withdraw(error)

    def _report(self, error: TensordError | None) -> None:
        ended, self._ended, self._operands = self._ended, None, ()
        if ended is not None:
            ended(error)
