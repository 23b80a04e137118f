"""A run while it is unfolded, as its steps with blocks see it; and what unfolding asks of an engine."""

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
    """The results of a step: ids, metas and homes of new tensors, and the ids of those that it writes.

    `begun`: may a loop have written some of them? Then a cancellation does not spare those that others hold.
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
        """Do what takes long before there are pieces, a slice at a time. A turn ends behind each."""

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """The steps of a program in order: those that may run as one instruction together."""

    def admit(
        self, routine: SessionProgram, piece: range, ids: RunIds, numbers: Sequence[Scalar], location: int
    ) -> bool:
        """Admit steps as one instruction; False, and nothing is changed, if they have to run one by one."""

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        """Make the signature of an op, that step of the program, under this number, or a new one if it is 0; its
        number. Where it is refused, the step is among `refused`, and is asked for again by the next run."""

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """Read a value of the session, once it is there. The run goes on then."""

    def stopped(self) -> TensordError | None:
        """The cancellation that ends the session's loops before their next round; None if they go on."""

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids, all at once: (old, new)."""

    def fail(
        self, error: TensordError | None, answer: Answer | None, results: StepResults, op: str, location: int
    ) -> None:
        """Poison what a step was to make and to write, with an error of its own, or what an answer has failed with."""


class UnfoldedRun(Protocol):
    """A run. `effects`: chain, callback and request of each side effect; `open`: the steps with blocks that it is in
    the middle of, the outermost first; `drawn`: the number of the block that runs, for its random draws;
    `iterations`: rounds of its loops."""

    engine: RunEngine
    effects: Sequence[Sequence[Any]]
    new: NewIds
    open: list[Any]
    drawn: int
    iterations: int

    def program(
        self, routine: SessionProgram, ids: RunIds, numbers: Sequence[Scalar], effects: int = 0
    ) -> Iterator[Message]:
        """The messages of a program's steps, and admission where steps are one instruction."""


class NewIds:
    """Ids that nothing has, behind the `newest` one that a run has used."""

    __slots__ = ("newest",)

    def __init__(self, newest: int) -> None:
        self.newest = newest

    def take(self) -> int:
        self.newest += 1
        return self.newest


class RunIds:
    """The id of each variable of a program, by the number of its first value: of what comes from outside, then new
    ones, behind the `newest`, or as they are asked for, if blocks of the program need ids in between. `results`: the
    ids of what the run returns, if they are to be used from the start."""

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
        self._new = new if program.asks else None
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
