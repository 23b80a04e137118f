"""The part of an instruction that the thread which executes it uses: a stream's `Task`.

Theory. The driving thread binds the arguments and hands the instruction to a stream. From then on the stream's thread
runs `execute`, or `start` and later `conclude`. For an instruction that runs inline both are the driving thread.

Guarantees. The stream's thread writes only attributes of this class, and the poison slots of the copies that the
instruction writes. Whether the kernel runs is decided once, by the thread that first pops the one item of
`claim_token`: the stream's thread in `may_run`, or the driving thread in `revoke`, for a cancellation. `revoke` puts
the cancellation's error beneath that item first. Only the driving thread replaces an error that is set
(`scheduler.errors`).

Rejected. A state for a revoked instruction: the driving thread would set it while the stream's thread starts the
kernel. A flag beside the error of the cancellation: the stream may look between the two writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...interpreter.errors import TensordError, kernel_error, text_of, without_frames
from ...interpreter.opcodes import Traits
from ...streams.stream import Task
from .signature import call_text
from .tensor import Copy
from .work_plan import WorkPlan


class Execution:
    """The execution of a kernel, and its outcome. `Instruction` sets the attributes.

    `reads` and `writes` are the copies that the instruction accesses; a copy in both is updated in place. `composite`:
    the instruction has parts, which its stream runs as separate tasks when tasks are intercepted.
    """

    composite: ClassVar[bool] = False

    __slots__ = (
        "arguments",
        "bytes_moved",
        "claim_token",
        "error",
        "event",
        "event_sources",
        "failures",
        "finished",
        "id",
        "kernel",
        "label",
        "origin",
        "plan",
        "quick",
        "reads",
        "results",
        "started",
        "traits",
        "writes",
    )
    id: int
    label: str
    traits: Traits
    plan: WorkPlan | None
    reads: tuple[Copy, ...]
    writes: tuple[Copy, ...]
    kernel: Callable[..., Any] | None
    arguments: tuple[Any, ...] | list[Any]
    bytes_moved: int
    quick: bool  # small and bounded, so that it ends within tens of microseconds
    event_sources: Sequence[Task]
    event: Any
    claim_token: list[TensordError | None]  # the None is popped; beneath it a cancellation's error
    results: Any
    error: TensordError | None
    origin: bool  # whether `error` arose in this instruction, which then reports it
    failures: dict[Copy, TensordError] | None  # results that failed alone
    started: int
    finished: int

    def advance(self) -> bool:
        """Run one slice on the driving thread; True if it was the last. Only runs of routines have several slices."""
        self.execute()
        return True

    def execute(self) -> int | None:
        """Run the kernel unless an operand is poisoned, and set the poison slots of the copies written.

        Returns the element operations of the kernel; None if the kernel did not run.
        """
        work = None
        if self.may_run():
            work = 0 if self.plan is None else self.plan.work
            if self.kernel is not None:
                try:
                    self.results = self.kernel(*self.arguments)
                except BaseException as error:
                    self.fail(error)
        self.settle_poison()
        return work

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
        """End a kernel that `start` has begun. An error that already names an op arose, and was reported, elsewhere."""
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
    def reports(self) -> bool:
        """Whether the kernel reports only after it has run that it refuses its data."""
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
        """Note the results for which the kernel has returned an exception instead of a value."""
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
        location = self.where()
        if isinstance(error, TensordError):
            whole = error.op and error.location and error.instruction
            named = error if whole or error.instruction == self.id else error.reraisable()
            named.op = error.op or self.label
            named.location = error.location or location
            named.instruction = error.instruction or self.id
            without_frames(error)  # the kernel's frames would keep the error, files and memory alive
            return named
        called = self.label if self.plan is None else call_text(self.plan.op, self.plan.attributes)
        message = f"{called}: {type(error).__name__}: {text_of(error)}"
        described = kernel_error(error, message, op=self.label, location=location, instruction=self.id)
        described.__cause__ = without_frames(error)
        return described

    def where(self) -> str | None:
        """The line of the user's program that issued the instruction."""
        raise NotImplementedError

    def failure_of(self, copy: Copy) -> TensordError | None:
        """The error that the instruction leaves in a copy; None if it leaves none, or if none is known yet."""
        if self.error is not None:
            return self.error
        return None if self.failures is None else self.failures.get(copy)

    def own_failures(self) -> Sequence[TensordError]:
        """The errors of single results, which arose in this instruction."""
        return () if self.failures is None else tuple(self.failures.values())
