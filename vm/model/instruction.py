"""Instructions. `lifecycle` has their states.

An instruction is a stream's `Task`. `execute` runs on a stream's thread (or inline on the driving thread) and
touches only the arguments bound at dispatch, `error`, `failures` and the poison slots of its copies. Everything
else belongs to the driving thread.

Whether its kernel runs is decided once, by whoever pops the one item of `claim_token` first: the stream that starts it,
or a cancellation, which has put its error beneath that item before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...interpreter.compilation import mypyc_attr
from ...interpreter.errors import CancelledError, TensordError, kernel_error, text_of, without_frames
from ...interpreter.opcodes import TRAITS, Opcode
from ...interpreter.types.meta import Scalar
from ...streams.stream import Stream, Task
from .device_state import DeviceState
from .lifecycle import FINAL, TRANSITIONS, Event, IllegalTransition, Status
from .reason import Reason
from .signature import call_text
from .tensor import Binding, Copy, Storage
from .work_plan import WorkPlan

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
        """Act on an instruction that has an error, and whose kernel will not run, or goes on in the background."""
        self.retired(doomed)


class Instruction:
    """The smallest unit of execution.

    `reads` and `writes` are the copies that the instruction accesses; a copy in both is updated in place. `hard` counts
    the sources that must be done first; `soft` holds the sources for which dispatch order or an event may be enough;
    `pending` counts the input metas that are not known yet. `composite`: the instruction has parts, which its stream
    runs as separate tasks when tasks are intercepted.
    """

    composite: ClassVar[bool] = False

    __slots__ = (
        "admitted",
        "arguments",
        "author",
        "beside",
        "bytes_moved",
        "claim_token",
        "dependents",
        "device",
        "dispatched",
        "donated",
        "doubtful",
        "edges",
        "error",
        "event",
        "event_sources",
        "failures",
        "finished",
        "foreign",
        "forwarded",
        "hard",
        "held",
        "here",
        "id",
        "inputs",
        "kernel",
        "label",
        "launch",
        "limit",
        "location",
        "most",
        "on_control",
        "on_end",
        "opcode",
        "origin",
        "outputs",
        "payload",
        "pending",
        "plan",
        "queue",
        "quick",
        "reads",
        "ready",
        "received",
        "remote",
        "replaced",
        "replans",
        "results",
        "scratch",
        "session",
        "soft",
        "started",
        "status",
        "stream",
        "traits",
        "used",
        "versions",
        "writes",
    )

    def __init__(  # noqa: PLR0915 - one for each field
        self, id_: int, session: VmSession, opcode: Opcode, label: str, device: DeviceState, location: int
    ) -> None:
        self.id = id_
        self.session = session  # whose cancellation and limits apply
        self.author = session  # whose message caused the instruction: the location is its, and failures go to it
        self.opcode = opcode
        self.traits = traits = TRAITS[opcode]
        self.label = label
        self.device = device
        self.location = location
        self.status = Status.WAITING
        self.plan: WorkPlan | None = None
        self.inputs: tuple[Binding | Scalar, ...] = ()  # in the kernel's order
        self.outputs: tuple[Binding, ...] = ()
        self.reads: tuple[Copy, ...] = ()
        self.writes: tuple[Copy, ...] = ()
        self.versions: tuple[int, ...] = ()
        self.donated: tuple[Copy, ...] = ()  # inputs released with this instruction: the result may take their memory
        self.kernel: Callable[..., Any] | None = None
        self.arguments: tuple[Any, ...] | list[Any] = ()
        self.results: Any = None
        self.stream: Stream | None = None  # fixed at admission for copies, chosen at dispatch for kernels
        self.hard = 0
        self.held = 0  # the bits above: reasons for waiting although all edges were satisfied
        self.soft: dict[Instruction, None] = {}
        self.queue: SessionQueue | None = None  # set when a stream gets the instruction: soft successors may follow
        self.quick = False  # small and bounded, so that it ends within tens of microseconds
        self.on_control = traits.on_control  # runs on the driving thread, whatever its size
        self.doubtful = False  # although launched, the instruction or its operands may still fail
        self.here = False  # launched by the driving thread
        self.foreign = False  # although launched, may fail because another device is lost
        self.forwarded: Copy | None = None  # the input whose memory the result has taken over
        self.payload: Any = None  # the array from a client that becomes the result's memory
        self.pending = 0
        self.dependents: dict[Instruction, bool] = {}  # successor -> whether the edge is hard
        self.edges: list[tuple[int, Reason, int, bool]] = []
        self.error: TensordError | None = None
        self.claim_token: list[TensordError | None] = [None]  # the None is popped; beneath it a cancellation's error
        self.origin = False  # whether `error` arose in this instruction, which then reports it
        self.failures: dict[Copy, TensordError] | None = None  # results that failed alone
        self.on_end: InstructionEnd | None = None
        self.scratch = 0  # bytes reserved for the kernel's temporaries, from dispatch until execution ends
        self.beside = 0  # bytes of temporaries of an instruction without a plan
        self.limit = 0  # nanoseconds that the instruction may run; 0 for no limit
        self.remote = False  # waits for another node, or for a remote instruction
        self.replaced: tuple[tuple[Copy, Storage], ...] = ()  # of a transfer: standby copies, kept until it has arrived
        self.replans = 0  # number of replans for its memory
        self.launch = 0  # the number of its launch at admission; of a Fence, the highest number that it covers
        self.most = 0  # bytes that are planned for results whose size depends on data
        self.bytes_moved = 0
        self.used = 0  # bytes in use on its device once its results had memory
        self.event_sources: Sequence[Task] = ()
        self.event: Any = None
        self.admitted = 0
        self.received = 0
        self.ready = self.dispatched = 0
        self.started = self.finished = 0

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

    def failure_of(self, copy: Copy) -> TensordError | None:
        """The error that the instruction leaves in a copy; None if it leaves none, or if none is known yet."""
        if self.error is not None:
            return self.error
        return None if self.failures is None else self.failures.get(copy)

    def own_failures(self) -> Sequence[TensordError]:
        """The errors of single results, which arose in this instruction."""
        return () if self.failures is None else tuple(self.failures.values())

    # -- on the stream's thread ------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Run one slice on the driving thread; True if it was the last. Only runs of routines have several slices."""
        self.execute()
        return True

    def execute(self) -> None:
        """Run the kernel unless an operand is poisoned, and set the poison slots of the copies written."""
        if self.may_run() and self.kernel is not None:
            try:
                self.results = self.kernel(*self.arguments)
            except BaseException as error:
                self.fail(error)
        self.settle_poison()

    def start(self, report: Callable[[], None]) -> None:
        """Begin a kernel that ends later, on any thread, by calling its last argument with an error or None.

        `report` is called once, when the kernel has ended or could not begin.
        """
        running = [True]

        def ended(error: TensordError | None) -> None:
            try:
                running.pop()
            except IndexError:
                return
            self.conclude(error)
            report()

        if not self.may_run() or self.kernel is None:
            ended(None)
            return
        try:
            self.kernel(*self.arguments, ended)
        except BaseException as error:
            ended(self.describe(error))

    def conclude(self, error: TensordError | None) -> None:
        """End a kernel that `start` has begun. An error that names its op arose, and was reported, elsewhere."""
        if error is not None and self.error is None:
            self.origin = error.op is None
            self.error = self.describe(error) if self.origin else without_frames(error.reraisable())
        self.settle_poison()

    def may_run(self) -> bool:
        """Claim the kernel, once; False, with the error noted, if the kernel must not run."""
        why = self.claim_token.pop() if self.claim_token else None  # the error of a cancellation that came first
        if why is None and not self.traits.tolerant:
            why = self.poisoned_operand()
        if why is not None and self.error is None:
            self.error = why
        return self.error is None

    def revoke(self, error: TensordError) -> None:
        """Claim the kernel for a cancellation, unless the kernel has begun. Called on the driving thread."""
        self.claim_token.insert(0, error)  # the stream may claim between these two lines; `list.pop` is atomic
        self.claim_token.pop()

    @property
    def cancelled(self) -> bool:
        """Whether the kernel certainly will not run; asked by the stream before execution."""
        token = self.claim_token
        return self.error is not None or (bool(token) and token[-1] is not None)

    @property
    def blocking(self) -> bool:
        """Whether the kernel waits for the device."""
        return self.plan is not None and self.plan.blocking

    @property
    def work(self) -> int:
        """The work of the kernel, in element operations."""
        return 0 if self.plan is None else self.plan.work

    @property
    def reports(self) -> bool:
        """Whether the kernel's refusal of data is known only after the kernel."""
        return self.plan is not None and self.plan.reports

    def poisoned_operand(self) -> TensordError | None:
        """The poison of the first poisoned operand."""
        for copy in self.reads:
            if copy.poison is not None:
                return copy.poison
        return None

    def settle_poison(self) -> None:
        """Set the poison slot of each copy written: a successful write clears it, a failed write sets it."""
        results = self.results
        if type(results) is list or type(results) is tuple:
            self.note_failed_results(results)
        for copy in self.writes:
            error = self.error
            if error is None and self.failures is not None:
                error = self.failures.get(copy)
            if copy.poison is not error:
                copy.poison = error

    def note_failed_results(self, results: list[Any] | tuple[Any, ...]) -> None:
        """Note the results in whose place the kernel has returned an exception."""
        for copy, result in zip(self.writes, results, strict=False):
            if isinstance(result, BaseException):
                self.failures = self.failures or {}
                self.failures[copy] = self.describe(result)

    def fail(self, error: BaseException) -> None:
        """Fail the instruction: the copies that it writes get the error.

        If the instruction was executed before, the error is late, and later writes may have followed: the driving
        thread decides which copies are poisoned. An existing error stays: the driving thread may have found a poisoned
        operand while the kernel ran.
        """
        if self.error is None:
            poison = None if self.finished else self.poisoned_operand()
            self.error = poison or self.describe(error)
            self.origin = poison is None
        if not self.finished:
            self.settle_poison()

    def fail_late(self, error: BaseException) -> None:
        """Fail an instruction whose kernel has run with wrong data, for the reason `error`.

        Its results may have been overwritten since: the driving thread decides which copies are poisoned.
        """
        if self.error is None:
            self.error = self.describe(error)
            self.origin = True

    def hear_of(self, copy: int, error: TensordError) -> None:
        """Note that a copy (id) which a dispatched `tolerant` instruction reads has turned out to be poisoned."""

    def settle_late_errors(self) -> None:
        """Fail the results that depend on copies noted by `hear_of`; called once all sources are final."""

    def describe(self, error: BaseException) -> TensordError:
        """The error with op, location and instruction id, and without frames.

        An error that lacks one of these is copied, unless it names this instruction, since the error of a lost device
        is shared by all instructions that fail with it.
        """
        location = self.author.source.where(self.location)
        if isinstance(error, TensordError):
            whole = error.op and error.location and error.instruction
            mine = error if whole or error.instruction == self.id else error.reraisable()
            mine.op = error.op or self.label
            mine.location = error.location or location
            mine.instruction = error.instruction or self.id
            without_frames(error)  # the kernel's frames would keep the error, files and memory alive
            return mine
        called = self.label if self.plan is None else call_text(self.plan.op, self.plan.attributes)
        message = f"{called}: {type(error).__name__}: {text_of(error)}"
        described = kernel_error(error, message, op=self.label, location=location, instruction=self.id)
        described.__cause__ = without_frames(error)
        return described

    def __repr__(self) -> str:
        return f"<{self.opcode.value} {self.id} {self.label} {self.status.value}>"


def story(instruction: Instruction) -> str:
    """The history of an instruction for the error of an illegal transition: edges, times, thread."""
    where = instruction.author.source.where(instruction.location) or "an unknown line"
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
