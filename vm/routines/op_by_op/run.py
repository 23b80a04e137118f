"""A run while it is unfolded, as its steps with blocks see it; and what unfolding asks of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ....interpreter.errors import TensordError
from ....interpreter.types.meta import Meta, Scalar
from ....interpreter.wire.messages import Message
from ...model.linked import Linked
from ...model.unfolding import Answer
from .ids import Ids, NewIds


class Results:
    """What a step makes: ids, metas and homes of new tensors; and the ids of those that it writes.

    `begun`: may a loop have written some of them? Then a cancellation does not spare those that others hold.
    """

    __slots__ = ("begun", "made", "written")

    def __init__(
        self, made: Sequence[tuple[int, Meta | None, str]], written: Sequence[int], begun: bool = False
    ) -> None:
        self.made = made
        self.written = written
        self.begun = begun


class Engine(Protocol):
    """What an engine does for the runs of one session."""

    iterations: int

    def prepare(self, routine: Linked) -> Iterator[None]:
        """Do what takes long before there are pieces, a slice at a time. A turn ends behind each."""
        ...

    def pieces(self, routine: Linked) -> Sequence[range]:
        """The steps of a program in order: those that may run as one instruction together."""
        ...

    def admit(self, routine: Linked, piece: range, ids: Ids, numbers: Sequence[Scalar], location: int) -> bool:
        """Admit steps as one instruction; False, and nothing is changed, if they have to run one by one."""
        ...

    def sign(self, routine: Linked, position: int, number: int) -> int:
        """Make the signature of an op, that step of the program, under this number, or a new one if it is 0; its
        number. Where it is refused, the step is among `refused`, and is asked for again by the next run."""
        ...

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """Read a value of the session, once it is there. The run goes on then."""
        ...

    def stopped(self) -> TensordError | None:
        """The cancellation that ends the session's loops before their next round; None if they go on."""
        ...

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids, all at once: (old, new)."""
        ...

    def fail(self, error: TensordError | None, answer: Answer | None, results: Results, op: str, location: int) -> None:
        """Poison what a step was to make and to write, with an error of its own, or what an answer has failed with."""
        ...


class Run(Protocol):
    """A run. `effects`: chain, callback and request of each side effect; `open`: the steps with blocks that it is in
    the middle of, the outermost first; `drawn`: the number of the block that runs, for its random draws;
    `iterations`: rounds of its loops."""

    engine: Engine
    effects: Sequence[Sequence[Any]]
    new: NewIds
    open: list[Any]
    drawn: int
    iterations: int

    def program(self, routine: Linked, ids: Ids, numbers: Sequence[Scalar], effects: int = 0) -> Iterator[Message]:
        """The messages of a program's steps, and admission where steps are one instruction."""
        ...
