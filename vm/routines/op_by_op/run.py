"""The state of a run that is being unfolded, for its steps with blocks, and the interface of unfolding to an engine.

One run has one `UnfoldedRun`. The routine's program, and each execution of a block, has `RunIds` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ....interpreter.errors import TensordError
from ....interpreter.programs.program import Program
from ....interpreter.types.meta import Meta, Scalar
from ....interpreter.wire.messages import Message
from ...model.linked import SessionProgram
from ...model.unfolding import Answer


class StepResults:
    """The results of a step: ids, metas and homes of new tensors, and the ids of the tensors that the step writes.

    `begun`: whether a loop may already have written some of these. If so, cancelling the run poisons them for their
    other holders, too.
    """

    __slots__ = ("begun", "made", "written")

    def __init__(
        self, made: Sequence[tuple[int, Meta | None, str]], written: Sequence[int], begun: bool = False
    ) -> None:
        self.made = made
        self.written = written
        self.begun = begun


class RunEngine(Protocol):
    """An engine, for the runs of one session."""

    iterations: int

    def prepare(self, routine: SessionProgram) -> Iterator[None]:
        """Prepare the pieces a little at a time; the engine may turn to other work at each `yield`."""

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """The pieces of a program, in order. The steps of a piece may run as one instruction."""

    def admit(
        self, routine: SessionProgram, piece: range, ids: RunIds, numbers: Sequence[Scalar], location: int
    ) -> bool:
        """Admit a piece as one instruction. False, without any change, if its steps have to run one by one."""

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        """Register the signature of a step's op as `number`, or as a new number if that is 0; return the number.

        If the signature is refused, the step is added to the routine's `refused`, and the next run tries again.
        """

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """Request a value from the session. The run continues once the answer has come."""

    def stopped(self) -> TensordError | None:
        """The error that stops the session's loops before their next iteration; None if they continue."""

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Change the ids of tensors, all at once. `pairs`: old id, new id."""

    def fail(
        self, error: TensordError | None, answer: Answer | None, results: StepResults, op: str, location: int
    ) -> None:
        """Poison the results and the written tensors of a step, with its own error or that of an answer."""


class UnfoldedRun(Protocol):
    """A run.

    `effects`: chain, callback and request of each side effect. `open`: the unfinished steps with blocks, outermost
    first. `drawn`: the number of the block that is running; its random draws depend on it. `iterations`: the number of
    iterations that its loops have run.
    """

    engine: RunEngine
    effects: Sequence[Sequence[Any]]
    new: NewIds
    open: list[Any]
    drawn: int
    iterations: int

    def program(
        self, routine: SessionProgram, ids: RunIds, numbers: Sequence[Scalar], effects: int = 0
    ) -> Iterator[Message]:
        """Admit the pieces that run as one instruction, and yield the messages of all other steps."""


class NewIds:
    """A source of new ids. `newest`: the last id given out."""

    __slots__ = ("newest",)

    def __init__(self, newest: int) -> None:
        self.newest = newest

    def take(self) -> int:
        self.newest += 1
        return self.newest


class RunIds:
    """Maps each variable of a program, named by the number of its first value, to its id.

    Variables from outside keep their ids. New ones get `newest` + 1, + 2, ...; but if blocks of the program also
    take ids (`program.is_data_dependent`), each gets an id when it is first used. `results`: the ids of the run's
    results, if they are known from the start.
    """

    __slots__ = ("_found", "_new", "_ranks", "_results", "newest", "outside")

    def __init__(
        self,
        program: Program,
        outside: Sequence[int],
        newest: int,
        new: NewIds | None = None,
        results: Sequence[int] = (),
    ) -> None:
        self.outside = outside  # of parameters and captured tensors, in their order
        self.newest = newest  # when the run began
        self._ranks = program.ranks
        self._results = dict(zip(program.returned, results, strict=False))
        self._new = new if program.is_data_dependent else None
        self._found: dict[int, int] = {}
        if new is not None and self._new is None:
            new.newest += program.inner

    def __getitem__(self, variable: int) -> int:
        if variable in self._results:
            return self._results[variable]
        rank = self._ranks[variable]
        if rank == 0:
            return self.outside[variable]
        if self._new is None:
            return self.newest + rank
        id_ = self._found.get(rank)
        if id_ is None:
            id_ = self._found[rank] = self._new.take()
        return id_
