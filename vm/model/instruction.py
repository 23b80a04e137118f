"""Instructions: the request, the open dependences, the memory and the times of each one. `lifecycle` has the states.

`execution` is the part that a stream's thread uses; everything here belongs to the driving thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...interpreter.compilation import mypyc_attr
from ...interpreter.errors import CancelledError
from ...interpreter.opcodes import TRAITS, Opcode
from ...interpreter.types.meta import Scalar
from ...streams.stream import Stream
from .device_state import DeviceState
from .execution import Execution
from .lifecycle import FINAL, TRANSITIONS, Event, IllegalTransition, Status
from .reason import Reason
from .tensor import Binding, Copy

if TYPE_CHECKING:
    from .session import VmSession
    from .session_queue import SessionQueue


# Bits of `Instruction.held`. COMPILING: the instruction was the first to call its kernels on the device.
HELD_BY_MEMORY, HELD_BY_FAIRNESS, COMPILING = 1, 2, 4


@mypyc_attr(allow_interpreted_subclasses=True)
class InstructionEnd:
    """The action of the room that made an instruction, at the instruction's end.

    Each kind of end is a class in the file that makes the instructions; its objects hold the request as plain data. The
    scheduler only notes that an instruction has ended. The driver calls the object, once, after the step
    (`Admission.conclude`). If a kind is `at_doom`, because a client waits for the instruction, the call comes as soon
    as the instruction is doomed; otherwise it comes when the instruction has retired.
    """

    __slots__ = ()
    at_doom: ClassVar[bool] = False

    def retired(self, done: Instruction) -> None:
        """Act on an instruction whose status is final."""
        raise NotImplementedError

    def doomed(self, doomed: Instruction) -> None:
        """Act on an instruction that has an error, and whose kernel will not run, or still runs in the background."""
        self.retired(doomed)


class Instruction(Execution):
    """The smallest unit of execution. The driving thread alone uses the attributes of this class."""

    __slots__ = (  # in the order of __init__
        *("session", "author", "opcode", "device", "location", "inputs", "outputs", "payload", "on_control", "limit"),
        *("status", "hard", "soft", "pending", "dependents", "edges", "remote", "on_end"),
        *("stream", "queue", "doubtful", "here", "foreign", "launch"),
        *("scratch", "beside", "max_bytes", "donated", "forwarded"),
        *("admitted", "received", "ready", "dispatched", "versions", "held", "used"),
    )

    def __init__(  # noqa: PLR0915 - one for each field
        self, id_: int, session: VmSession, opcode: Opcode, label: str, device: DeviceState, location: int
    ) -> None:
        # The request
        self.id = id_
        self.session = session  # whose cancellation and limits apply
        self.author = session  # whose message caused the instruction, at `location`; receives the failures
        self.opcode = opcode
        self.traits = traits = TRAITS[opcode]
        self.label = label
        self.device = device
        self.location = location
        self.plan = None
        self.inputs: tuple[Binding | Scalar, ...] = ()  # in the kernel's order
        self.outputs: tuple[Binding, ...] = ()
        self.reads = ()
        self.writes = ()
        self.kernel = None
        self.payload: Any = None  # the array from a client that becomes the result's memory
        self.on_control = traits.on_control  # runs on the driving thread, with any size
        self.limit = 0  # nanoseconds that the instruction may run; 0 for no limit
        # Its state, and its waits (`scheduler.edges`, `scheduler.pending_metas`)
        self.status = Status.WAITING
        self.hard = 0  # number of sources that must be done first
        self.soft: dict[Instruction, None] = {}  # sources for which dispatch order or an event may be enough
        self.pending = 0  # number of input metas that are not known yet
        self.dependents: dict[Instruction, bool] = {}  # successor -> whether the edge is hard
        self.edges: list[tuple[int, Reason, int, bool]] = []
        self.remote = False  # waits for another node, or for a remote instruction
        self.on_end: InstructionEnd | None = None
        # Its stream
        self.stream: Stream | None = None  # fixed at admission for copies, chosen at dispatch for kernels
        self.queue: SessionQueue | None = None  # set once a stream has the instruction, so that soft successors may go
        self.quick = False
        self.doubtful = False  # although launched, the instruction or its operands may still fail
        self.here = False  # launched by the driving thread
        self.foreign = False  # although launched, may fail because another device is lost
        self.launch = 0  # the number of its launch at admission; of a Fence, the highest number that it covers
        self.event_sources = ()
        self.event = None
        # Its memory
        self.scratch = 0  # bytes reserved for the kernel's temporaries, from dispatch until execution ends
        self.beside = 0  # bytes of temporaries of an instruction without a plan
        self.max_bytes = 0  # bytes that are planned for results whose size depends on data
        self.donated: tuple[Copy, ...] = ()  # inputs released with this instruction: the result may take their memory
        self.forwarded: Copy | None = None  # the input whose memory the result has taken over
        # Its execution and outcome
        self.arguments = ()
        self.claim_token = [None]
        self.results = None
        self.error = None
        self.origin = False
        self.failures = None
        # For the trace
        self.admitted = 0
        self.received = 0
        self.ready = self.dispatched = 0
        self.started = self.finished = 0
        self.versions: tuple[int, ...] = ()
        self.held = 0  # the bits above: the reasons why it waited although all edges were satisfied
        self.bytes_moved = 0
        self.used = 0  # bytes in use on its device once its results had memory

    def move(self, event: Event) -> None:
        """Take the transition of an event; IllegalTransition if the table has none."""
        after = TRANSITIONS[self.status].get(event)
        if after is None:
            raise IllegalTransition(f"{self!r}: {event.name} while {self.status}\n{story(self)}")
        self.status = after

    def move_to_outcome(self) -> None:
        """Take the last transition."""
        self.move(self.outcome())

    @property
    def retired(self) -> bool:
        """Whether the instruction has its final status."""
        return self.status in FINAL

    def outcome(self) -> Event:
        """The last event, from the error."""
        if self.error is None:
            return Event.SUCCEEDED
        if self.origin:
            return Event.FAILED
        return Event.CANCELLED if isinstance(self.error, CancelledError) else Event.SKIPPED

    def where(self) -> str | None:
        return self.author.source.where(self.location)

    def __repr__(self) -> str:
        return f"<{self.opcode.value} {self.id} {self.label} {self.status.value}>"


def story(instruction: Instruction) -> str:
    """The history of an instruction for the error of an illegal transition: edges, times, thread."""
    where = instruction.where() or "an unknown line"
    ran = instruction.stream.name if instruction.queue is not None and instruction.stream is not None else ""
    lines = [f"issued at {where} by session {instruction.author.id}, tick {instruction.admitted}"]
    lines += [
        f"waits for #{source} ({reason}{f' on copy {copy}' if copy else ''}{', elided' if elided else ''})"
        for source, reason, copy, elided in instruction.edges
    ]
    stamps = ("received", "ready", "dispatched", "started", "finished")
    lines += [f"{stamp} at {getattr(instruction, stamp)} ns" for stamp in stamps if getattr(instruction, stamp)]
    lines.append(f"on the thread of {ran}" if ran else "on the driving thread")
    if instruction.error is not None:
        lines.append(f"{type(instruction.error).__name__}: {instruction.error.message}")
    return "\n".join(f"  {line}" for line in lines)
