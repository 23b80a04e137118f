"""One client's side of the engine: its ids, signatures, locations, spans, requests, cancellation, flow control."""

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
PRIVATE: Final = 1 << 40  # numbers of signatures that runs make are above; those of clients are below

# (request, value, error): the answer to a session's request. Called on the driving thread; must not block.
ReplySink: TypeAlias = Callable[[int, object, TensordError | None], None]


class FileOpener(Protocol):
    """Opens the file at a place that the session's client has named."""

    def __call__(self, place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile: ...


def refuse_files(place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:  # noqa: ARG001 - as declared
    """Opens files for a session whose client can name none."""
    raise ProtocolError("this connection loads and saves no files")


class Again(NamedTuple):
    """An answer, of a side effect, to a request that stays open for others."""

    values: Any


class HostCall(NamedTuple):
    """A host call that the client was asked for. `takes`: what gives each result its bytes; `ended` is called with the
    error, or with none, once."""

    metas: Sequence[Meta]
    takes: Sequence[Callable[[Any], None]]
    ended: Callable[[TensordError | None], None]


class Called(NamedTuple):
    """An answer that asks for a host call: its number, its values; None if nobody waits for it any more. `function`: in
    process, what the message of the call has brought."""

    number: int
    values: Any
    function: Any


class VmSession:
    """The engine's state of one session.

    `live` are its unfinished instructions in program order; `tensors` what its ids name; `newest` the highest id it
    ever defined, since ids rise and are never reused; `generation` the number of its cancellations, so that a restart
    that was sent before the latest one does not undo it; `queues` what it has on each stream; `moves` the tensors that
    it has moved and that were not needed yet; `moving` copies that the moves begun since will fill; `pins` how
    often it has pinned the tensors of which ids (`memory.pins`); `open_file` opens what its client names. `may_store`:
    it may have checkpoints written and restored, in any directory of the machine's user; else below those of `stores`.
    `watch_process` makes a
    `block_user`, for the first block of a GPU's memory that its client gets. `trusted`:
    its messages are made in this process, by `client`, so they have the form of their kinds.
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
        self.name = name  # for people
        self.reply = reply
        self.ask_client = reply  # for host calls, with what is `Called`
        self.strict = strict
        self.detail = 0  # of how many runs of a routine one is timed, call by call; 0 for none
        self.trusted = trusted
        self.reads_in_place = trusted  # may its client use the memory of GPUs, which is this process's?
        self.unshared = ELSEWHERE  # why its client has no blocks of such memory
        self.watch_process: Callable[[], BlockUser] | None = None
        self.block_user: BlockUser | None = None  # its client's process
        self.blocks: dict[Any, Any] = {}  # what its client has in blocks, by the copies it is of (`admission.shares`)
        self.limits = limits or Limits()
        self.account = Account(self.limits, id_)
        self.tensors: dict[int, Tensor] = {}
        self.calls: dict[int, HostCall] = {}  # what its client was asked for, and has not returned
        self.chains: dict[int, Copy] = {}
        self.refused_chains: dict[int, TensordError] = {}  # what the side effects of a refused chain get
        self.plans: dict[int, Plan | TensordError] = {}
        self.immediate: dict[int, Plan] = {}  # those of the plans whose ops may run, or take effect, at admission
        self.offered: set[int] = set()  # its live instructions whose values wait for another node to take them
        self.operands = 0  # of all plans
        self.programs: dict[int, Program | Reader | TensordError] = {}
        self.routines: dict[int, SessionProgram | TensordError] = {}
        self.steps = 0  # of all programs and routines
        self.signed = PRIVATE  # the newest number of a signature that a run has made
        self.unfolding: Unfolding | None = None  # a run in the middle of being admitted op by op
        self.locations: Texts[str] = Texts(self.limits.location_bytes)
        self.spans: Texts[tuple[str, ...]] = Texts(self.limits.location_bytes)
        self.live: dict[int, Instruction] = {}
        self.barrier: Instruction | None = None  # the latest live Barrier over the whole session
        self.moves: dict[Moved, None] = {}
        self.moving: list[Copy] = []
        self.pins: dict[int, tuple[Tensor, int]] = {}
        self.files: dict[int, OpenFile] = {}  # open for LOAD, by the client's numbers
        self.outputs: dict[int, tuple[OutputFile, Copy]] = {}  # open for WRITE, each with the link of its chain
        self.opened: WeakSet[OpenFile | OutputFile] = WeakSet()  # those that anything lies in
        self.open_file: FileOpener = refuse_files
        self.may_store = False
        self.stores: Sequence[Path] = ()
        self.newest = 0
        self.generation = 0
        self.closed = False
        self.shares = False  # has it ever published or looked up a name?
        self.queues: dict[Stream, SessionQueue] = {}
        self.flooded = False  # has it launched as far ahead of a device as it may?
        self.cancelled: TensordError | None = None
        self.errors = 0
        self.moved, self.evicted = [0, 0], [0, 0]  # transfers that it has caused, and their bytes; those that made room
        self.synced = 0  # as many of them were known to the latest sync
        self.payload = 0  # bytes of uploads not yet consumed
        self.answering = 0  # bytes of answers in preparation
        self.tap: Any = None  # what records it (`recording.tapped`)

    def in_run(self) -> bool:
        """Is it in the middle of a run that is admitted op by op?"""
        return self.unfolding is not None  # asked here, since type checkers think that an attribute stays what it was

    def waits(self) -> bool:
        """Has it launched too far ahead, or is it in the middle of a run that cannot go on before a value is there?"""
        return self.flooded or (self.unfolding is not None and self.unfolding.waits())

    def where(self, location: int) -> str | None:
        """The user's line behind a location number; None for one that was never sent."""
        try:
            return self.locations.get(line_of(location))
        except TypeError:  # from a damaged message that ran before this field was checked
            return None

    def span(self, location: int) -> tuple[str, ...]:
        """The names of the spans behind a location number, the outermost first."""
        return self.spans.get(span_of(location)) or ()


def rest_of_run(session: VmSession, most: int) -> Iterator[Sequence[Any]]:
    """The next messages of the run that the session is in the middle of, at most so many. To be admitted one by one:
    the run ends when the message behind its last one is asked for. It may have to wait for a value in between, or have
    taken so long that others come first."""
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
    """The cause of what placement plans: a session that asks for it, at a `location` of its program, by number."""

    session: VmSession
    location: int
