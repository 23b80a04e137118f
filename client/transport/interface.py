"""The interface of a transport, which carries a session's messages to a virtual machine and brings answers back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from numpy.typing import NDArray

from ...interpreter.errors import ConnectionLost, TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_memory import HostMemory
from ...interpreter.wire.messages import Message
from ..locations.locations import user_line
from .callers import Callers
from .replies import Reply

CLOSED = "the session is closed"
FORKED = "this session belongs to another process; connect again after a fork"


class Waker(Protocol):
    """Sends a session's unsent messages after a while."""

    @property
    def awake(self) -> bool:
        """Return whether it will check for unsent messages soon anyway."""

    def rouse(self) -> None:
        """Check for unsent messages after a while."""


class TransportMemory(Protocol):
    """The memory in which a session and its machine pass arrays to each other."""

    def gpu(self, device: str) -> int | None:
        """The number that CUDA in this process gives a device of the machine; None if its memory is not readable."""

    def give_up_gpus(self) -> None:
        """Note that memory of GPUs cannot be read here: from now on `gpu` returns None for every device."""

    def new_array(self, meta: Meta) -> NDArray[Any]:
        """An array for one upload of that meta, in the memory from which the other side can take it most cheaply."""

    def host_memory(self, nbytes: int) -> HostMemory | None:
        """Memory for a host array, which uploads of this connection can read in place; None if there is none."""

    def lend(self, values: Any, dtype: Any) -> tuple[Meta, NDArray[Any]] | None:
        """Meta and payload of an upload that is read in place; None if the values have to be copied."""

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        """Set the function to call with an export's id once the array over the exported value is unused."""


class Transport(Protocol):
    """Carries messages in order, and out-of-band requests, such as `cancel`, that overtake them. Thread-safe."""

    # Device name -> names of ops without a kernel there; the first device is the default one.
    devices: dict[str, frozenset[str]]
    # Op name -> (version, digest), for the other side's ops from other packages; None: it has this process's ops.
    own_ops: Mapping[str, tuple[str, str]] | None
    # Ops with more work than this (element operations) are sent at once, since they do not run on the scheduler's
    # thread.
    inline_work: int
    # A large result may be read in place, in the memory of the other side.
    maps: bool
    # The other side can open the files that this process has open.
    opens_files: bool
    # The other side loads files of its own host, by their paths.
    names_files: bool
    # The name of the machine in a cluster, "" for a single one, and the incarnation of its daemon.
    node: str
    incarnation: int
    # Device name -> its library of collectives, with its version.
    libraries: Mapping[str, str]
    # The functions of this session that the machine may ask for.
    callers: Callers
    # The outboxes of all sessions on the machine that are driven by the same threads, by their ids.
    outboxes: WeakValueDictionary[int, Any]
    # Another process executes the messages in parallel, so a first message is sent at once and waits for no others.
    eager: bool

    @property
    def memory(self) -> TransportMemory:
        """The memory of uploads, and of results that are read in place."""

    @property
    def lost(self) -> bool:
        """Return whether the other side has ended."""

    @property
    def away(self) -> bool:
        """Return whether the connection is broken, but may come back."""

    def tell_loss_to(self, tell: Callable[[TensordError], None]) -> None:
        """Set the function to call when the other side has ended; it may run on any thread, and with any lock held."""

    def send(self, messages: Sequence[Message]) -> None:
        """Hand over a batch in program order. Does not wait."""

    def await_credit(self) -> None:
        """Wait while the session has too much unfinished work. Called without any lock."""

    def has_room(self, share: float) -> bool:
        """Return whether the unfinished work is at most that share of the allowed work. True once the other side has
        ended."""

    def request(self) -> tuple[int, Reply]:
        """A new request number, to be sent in a message, and the reply to it."""

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """Wait for a reply; False after `timeout` seconds. ConnectionLost when the other side ends."""

    def attend(self, reply: Reply) -> None:
        """Make the reply arrive although no thread waits for it, because a callback awaits it."""

    @property
    def waker(self) -> Waker:
        """The object to rouse after a new unsent message, unless it is awake."""

    def flush_with(self, flush: Callable[[], bool]) -> None:
        """Set the function that the waker calls: it sends unsent messages, and returns whether there were any."""

    def cancel(self) -> None:
        """Cancel the session's pending instructions."""

    def ending(self) -> None:
        """Prepare for the end of the session, without waiting for other threads' messages. Called without any lock."""

    def close(self) -> None:
        """End the session."""

    def abandon(self) -> None:
        """Close a session that was dropped without being closed, from another thread. Never waits."""


class ClosedTransport:
    """Replaces a session's transport once it is closed. A call raises ConnectionLost with the reason `why`, except that
    ending the session again does nothing."""

    def __init__(self, devices: dict[str, frozenset[str]], why: str = CLOSED) -> None:
        self.devices = devices
        self.own_ops: Mapping[str, tuple[str, str]] | None = None
        self.why = why
        self.inline_work = 0
        self.node, self.incarnation = "", 0
        self.libraries: Mapping[str, str] = {}
        self.maps = self.eager = self.away = False
        self.lost = True

    def has_room(self, _share: float) -> bool:
        """True: nothing is unfinished, since the session has ended."""
        return True

    def ending(self) -> None:
        """Do nothing: the session has ended."""

    close = abandon = ending

    def __getattr__(self, name: str) -> Any:
        raise ConnectionLost(self.why, location=user_line())
