"""The engine's state of one session: ids, signatures, locations, spans, requests, cancellation, flow control.

Only the driving thread uses it. Attributes that change together are parts with rules of their own (`Account`,
`SessionFiles`, `SourceTexts`); those that an inline op reads are attributes of the session itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.limits import Limits
from ...streams.stream import Stream
from .account import Account
from .gpu_sharing import GpuSharing
from .instruction import Instruction
from .linked import SessionProgram
from .plan import Plan
from .session_counts import SessionCounts
from .session_files import SessionFiles
from .session_queue import SessionQueue
from .tensor import Copy, Moved, VmTensor
from .texts import SourceTexts
from .unfolding import Unfolding

if TYPE_CHECKING:
    from ...interpreter.programs.program import Program
    from ...interpreter.programs.records import RecordsReader

PRIVATE: Final = 1 << 40  # the signatures that runs make have numbers above, those of clients below

# (request, value, error): the answer to a session's request. Called on the driving thread; must not block.
ReplySink: TypeAlias = Callable[[int, object, TensordError | None], None]


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


class HostCallAnswer(NamedTuple):
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
    `trusted`: the messages are made in this process, by `client`, so they are well-formed.
    """

    __slots__ = (
        "account",
        "answering",
        "ask_client",
        "barrier",
        "calls",
        "cancelled",
        "chains",
        "closed",
        "counts",
        "detail",
        "files",
        "flooded",
        "generation",
        "gpu",
        "id",
        "immediate",
        "limits",
        "live",
        "moves",
        "moving",
        "name",
        "newest",
        "offered",
        "operands",
        "payload",
        "pins",
        "plans",
        "programs",
        "queues",
        "refused_chains",
        "reply",
        "routines",
        "shares",
        "signed",
        "source",
        "steps",
        "strict",
        "tapped",
        "tensors",
        "trusted",
        "unfolding",
    )

    def __init__(
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
        self.ask_client = reply  # like `reply`, for the `HostCallAnswer` of a host call
        self.strict = strict
        self.detail = 0  # one in this many runs of a routine is timed call by call; 0 for none
        self.trusted = trusted
        self.gpu = GpuSharing(in_place=trusted)
        self.limits = limits or Limits()
        self.account = Account(self.limits, id_)
        self.tensors: dict[int, VmTensor] = {}
        self.calls: dict[int, HostCall] = {}  # host calls that the client has not answered yet
        self.chains: dict[int, Copy] = {}
        self.refused_chains: dict[int, TensordError] = {}  # the errors for side effects of refused chains
        self.plans: dict[int, Plan | TensordError] = {}
        self.immediate: dict[int, Plan] = {}  # the plans whose calls may run at admission
        self.offered: set[int] = set()  # live instructions whose values another node has not received yet
        self.operands = 0  # the number of operands of all plans
        self.programs: dict[int, Program | RecordsReader | TensordError] = {}
        self.routines: dict[int, SessionProgram | TensordError] = {}
        self.steps = 0  # the number of steps of all programs and routines
        self.signed = PRIVATE  # the newest number of a signature made by a run
        self.unfolding: Unfolding | None = None  # the run that is being admitted op by op
        self.source = SourceTexts(self.limits.location_bytes)
        self.live: dict[int, Instruction] = {}
        self.barrier: Instruction | None = None  # the latest live barrier
        self.moves: dict[Moved, None] = {}
        self.moving: list[Copy] = []
        self.pins: dict[int, tuple[VmTensor, int]] = {}
        self.files: SessionFiles[Copy] = SessionFiles()
        self.newest = 0
        self.generation = 0
        self.closed = False
        self.shares = False  # whether it has ever published or looked up a name
        self.queues: dict[Stream, SessionQueue] = {}
        self.flooded = False  # whether it has launched as far ahead of a device as it may
        self.cancelled: TensordError | None = None
        self.counts = SessionCounts()
        self.payload = 0  # bytes of uploads not yet consumed
        self.answering = 0  # bytes of answers in preparation
        self.tapped: Any = None  # its recording (`recording.tapped.Tapped`); None if it is not recorded

    def in_run(self) -> bool:
        """Whether a run is being admitted op by op."""
        return self.unfolding is not None  # a method, since type checkers take an attribute for unchanged after a call

    def waits(self) -> bool:
        """Whether its messages must wait: it has launched too far ahead, or its run needs a value first."""
        return self.flooded or (self.unfolding is not None and self.unfolding.waits())


def rest_of_run(session: VmSession, most: int) -> Iterator[Sequence[Any]]:
    """The next messages of the session's unfolding run, at most `most`, to be admitted one by one.

    The run ends when the message after its last one is requested. The iteration also stops when the run must wait for a
    value, or should let other sessions have a turn.
    """
    unfolding = session.unfolding
    if unfolding is None:
        return
    for _ in range(most):
        if unfolding.answer is not None and unfolding.waits():
            return
        message = next(unfolding.messages, None)
        if message is None:
            session.unfolding = None
            unfolding.finish()
            return
        yield message
        if unfolding.ends_turn:
            unfolding.ends_turn = False
            return


class Cause(NamedTuple):
    """The cause of a planned transfer: a session, and a location number in its program.

    `author`: the session that is reported as the cause, if the transfer is planned for another one.
    """

    session: VmSession
    location: int
    author: VmSession | None = None
