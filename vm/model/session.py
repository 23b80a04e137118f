"""The engine's state of one session: ids, signatures, locations, spans, requests, cancellation, flow control."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.files.open_file import OpenFile, OutputFile
from ...interpreter.types.meta import Meta
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.locations import line_of, span_of
from ...streams.device import BlockUser
from ...streams.stream import Stream
from .account import Account
from .instruction import Instruction
from .linked import SessionProgram
from .plan import Plan
from .session_queue import SessionQueue
from .tensor import Copy, Moved, Tensor
from .texts import Texts
from .unfolding import Unfolding

if TYPE_CHECKING:
    from ...interpreter.programs.program import Program
    from ...interpreter.programs.records import Reader

ELSEWHERE: Final = "which is in no process of the same user on the same machine"
PRIVATE: Final = 1 << 40  # the signatures that runs make have numbers above, those of clients below

# (request, value, error): the answer to a session's request. Called on the driving thread; must not block.
ReplySink: TypeAlias = Callable[[int, object, TensordError | None], None]


class FileOpener(Protocol):
    """Opens the file at a place that the session's client has named."""

    def __call__(self, place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile: ...


def refuse_files(place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:  # noqa: ARG001 - as declared
    """The default of `VmSession.open_file`: refuse, since the client cannot name files."""
    raise ProtocolError("this connection loads and saves no files")


class Again(NamedTuple):
    """An answer of a side effect to a request that stays open for further answers."""

    values: Any


class HostCall(NamedTuple):
    """A host call that the client has not answered yet.

    `takes`: the functions that take the bytes of the results; `ended`: called once, with an error or None.
    """

    metas: Sequence[Meta]
    takes: Sequence[Callable[[Any], None]]
    ended: Callable[[TensordError | None], None]


class Called(NamedTuple):
    """An answer that asks the client for a host call, by its number. `values`: None if the call has ended.

    `function`: the function itself, if it came with the message in this process.
    """

    number: int
    values: Any
    function: Any


class VmSession:
    """The engine's state of one session.

    `live`: the unfinished instructions in program order; `tensors`: by id; `newest`: the highest id ever defined, since
    ids rise and are never reused; `generation`: the number of cancellations, so that a restart sent before the latest
    one has no effect; `queues`: the session's queue on each stream; `moves`: moved tensors whose bytes were not needed
    yet; `moving`: copies that begun moves will fill; `pins`: pinned tensors and their counts, by id (`memory.pins`);
    `open_file`: opens the files that the client names. `may_store`: the session may write and restore checkpoints in
    any directory of the machine's user; otherwise only below the directories in `stores`. `watch_process` makes the
    `block_user`, when the client gets its first block of a GPU's memory. `trusted`: the messages are made in this
    process, by `client`, so they are well-formed.
    """

    __slots__ = (
        "account",
        "answering",
        "ask_client",
        "barrier",
        "block_user",
        "blocks",
        "calls",
        "cancelled",
        "chains",
        "closed",
        "detail",
        "errors",
        "evicted",
        "files",
        "flooded",
        "generation",
        "id",
        "immediate",
        "limits",
        "live",
        "locations",
        "may_store",
        "moved",
        "moves",
        "moving",
        "name",
        "newest",
        "offered",
        "open_file",
        "opened",
        "operands",
        "outputs",
        "payload",
        "pins",
        "plans",
        "programs",
        "queues",
        "reads_in_place",
        "refused_chains",
        "reply",
        "routines",
        "shares",
        "signed",
        "spans",
        "steps",
        "stores",
        "strict",
        "synced",
        "tap",
        "tensors",
        "trusted",
        "unfolding",
        "unshared",
        "watch_process",
    )

    def __init__(  # noqa: PLR0915 - one for each field
        self,
        id_: int,
        reply: ReplySink,
        name: str = "",
        *,
        strict: bool = False,
        trusted: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.id = id_
        self.name = name  # for reports
        self.reply = reply
        self.ask_client = reply  # for host calls, with what is `Called`
        self.strict = strict
        self.detail = 0  # one in this many runs of a routine is timed call by call; 0 for none
        self.trusted = trusted
        self.reads_in_place = trusted  # whether the client, in this process, may use the memory of GPUs
        self.unshared = ELSEWHERE  # why the client gets no blocks of GPU memory
        self.watch_process: Callable[[], BlockUser] | None = None
        self.block_user: BlockUser | None = None  # the client's process
        self.blocks: dict[Any, Any] = {}  # the client's blocks, by the values in them (`admission.shares`)
        self.limits = limits or Limits()
        self.account = Account(self.limits, id_)
        self.tensors: dict[int, Tensor] = {}
        self.calls: dict[int, HostCall] = {}  # host calls that the client has not answered yet
        self.chains: dict[int, Copy] = {}
        self.refused_chains: dict[int, TensordError] = {}  # the errors for side effects of refused chains
        self.plans: dict[int, Plan | TensordError] = {}
        self.immediate: dict[int, Plan] = {}  # the plans whose calls may run at admission
        self.offered: set[int] = set()  # live instructions whose values another node has not received yet
        self.operands = 0  # of all plans
        self.programs: dict[int, Program | Reader | TensordError] = {}
        self.routines: dict[int, SessionProgram | TensordError] = {}
        self.steps = 0  # of all programs and routines
        self.signed = PRIVATE  # the newest number of a signature made by a run
        self.unfolding: Unfolding | None = None  # the run that is being admitted op by op
        self.locations: Texts[str] = Texts(self.limits.location_bytes)
        self.spans: Texts[tuple[str, ...]] = Texts(self.limits.location_bytes)
        self.live: dict[int, Instruction] = {}
        self.barrier: Instruction | None = None  # the latest live barrier
        self.moves: dict[Moved, None] = {}
        self.moving: list[Copy] = []
        self.pins: dict[int, tuple[Tensor, int]] = {}
        self.files: dict[int, OpenFile] = {}  # open for LOAD, by the client's numbers
        self.outputs: dict[int, tuple[OutputFile, Copy]] = {}  # open for WRITE, each with its chain
        self.opened: WeakSet[OpenFile | OutputFile] = WeakSet()  # files that are open, or in which values lie
        self.open_file: FileOpener = refuse_files
        self.may_store = False
        self.stores: Sequence[Path] = ()
        self.newest = 0
        self.generation = 0
        self.closed = False
        self.shares = False  # whether it has ever published or looked up a name
        self.queues: dict[Stream, SessionQueue] = {}
        self.flooded = False  # whether it has launched as far ahead of a device as it may
        self.cancelled: TensordError | None = None
        self.errors = 0
        self.moved, self.evicted = [0, 0], [0, 0]  # [count, bytes] of its transfers and evictions
        self.synced = 0  # `errors` at the latest sync
        self.payload = 0  # bytes of uploads not yet consumed
        self.answering = 0  # bytes of answers in preparation
        self.tap: Any = None  # the tap of its recording (`recording.tapped`)

    def in_run(self) -> bool:
        """Whether a run is being admitted op by op."""
        return self.unfolding is not None  # a method, since type checkers take an attribute for unchanged after a call

    def waits(self) -> bool:
        """Whether its messages must wait: it has launched too far ahead, or its run needs a value first."""
        return self.flooded or (self.unfolding is not None and self.unfolding.waits())

    def where(self, location: int) -> str | None:
        """The user's line behind a location number; None for one that was never sent."""
        try:
            return self.locations.get(line_of(location))
        except TypeError:  # a damaged message ran before this field was checked
            return None

    def span(self, location: int) -> tuple[str, ...]:
        """The names of the spans behind a location number, the outermost first."""
        return self.spans.get(span_of(location)) or ()


def rest_of_run(session: VmSession, most: int) -> Iterator[Sequence[Any]]:
    """The next messages of the session's unfolding run, at most `most`, to be admitted one by one.

    The run ends when the message after its last one is requested. The iteration also stops when the run must wait for a
    value, or should let other sessions have a turn.
    """
    unfolding = session.unfolding
    if unfolding is None:
        return
    for _ in range(most):
        if unfolding.asked is not None and unfolding.waits():
            return
        message = next(unfolding.messages, None)
        if message is None:
            session.unfolding = None
            unfolding.finish()
            return
        yield message
        if unfolding.rests:
            unfolding.rests = False
            return


class Cause(NamedTuple):
    """The cause of a planned transfer: a session, and a location number in its program.

    `author`: the session that is reported as the cause, if the transfer is planned for another one.
    """

    session: VmSession
    location: int
    author: VmSession | None = None
