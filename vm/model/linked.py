"""A linked program: which devices its slots stand for, and which tensors it captures; and its steps as messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.passes.table import IN_SEGMENTS, Applied
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta


class Template(NamedTuple):
    """A step as a message to be: variables, and numbers (n < 0: slot ~n), in the places of ids and values.

    `signature`: the number of an op's signature; 0 for another step. `released`: the bits of what dies with the
    message; `behind`: what dies with the step, and the message has no bit for. `line`: the number of the step's line.
    """

    signature: int
    operands: tuple[int, ...]
    outputs: tuple[int, ...]
    released: int
    behind: tuple[int, ...]
    line: int


class SessionProgram:
    """A program with a device for each of its slots, and the ids of the tensors that it captures, in one session.

    `name` is for people. `number`: by which records name it; 0 before the first of them. `templates`: its steps as
    messages, each made when a run first needs it. `nested`: likewise the blocks of its steps of control flow.
    `compiled`: what sessions share of the program, None until it runs. `convention`: how it is called, as it travels;
    `extra`: what that counts for in the quota of steps.

    `passes`: the names of those that may change it. `improved`: the same after those on programs, None if they change
    nothing, or it is not known yet; `applied` is what each of them has done. `source`: the program that was linked.
    """

    def __init__(
        self,
        program: Program,
        devices: tuple[str, ...],
        captured: tuple[int, ...],
        location: int,
        name: str = "",
        passes: frozenset[str] = IN_SEGMENTS,
    ) -> None:
        self.program = self.source = program
        self.passes = passes
        self.improved: SessionProgram | None = None
        self.applied: tuple[Applied, ...] = ()
        self.devices = devices
        self.captured = captured
        self.location = location
        self.name = name
        self.number = 0
        self.convention: Any = None
        self.extra = 0
        self.templates: list[Template | None] = [None] * len(program.steps)
        self.nested: dict[int, tuple[LinkedBlock, ...]] = {}
        self.refused: set[int] = set()  # steps whose op was refused a signature when it was last asked for
        self.runs = 0
        self.compiled: Any = None
        self.pieces: Sequence[range] | None = None  # of its steps; None until they all have signatures
        self.fusions: Sequence[Fusion] | None = None  # None until they are looked for
        self.segments: dict[int, Any] = {}  # first step of a piece -> how it runs as one instruction, if it may

    def all_templates(self) -> Iterator[Template]:
        """The templates that were made, also in its parts."""
        yield from (template for template in self.templates if template is not None)
        for routine in self.parts():
            yield from routine.all_templates()

    def parts(self) -> Iterator[SessionProgram]:
        """The routines that it consists of: its blocks, and what it is after passes."""
        for blocks in self.nested.values():
            yield from (block.routine for block in blocks)
        if self.improved is not None:
            yield self.improved

    def after(self, program: Program) -> SessionProgram:
        """The same with its program after passes."""
        found = SessionProgram(
            program, self.devices, self.captured, self.location, self.name, self.passes & IN_SEGMENTS
        )
        found.source = self.source
        return found

    @property
    def results(self) -> list[tuple[Meta | None, str]]:
        """Meta and home of each result of a run."""
        program = self.program
        return [(program.metas[value], self.devices[program.homes[value]]) for value in program.results]


class LinkedBlock(NamedTuple):
    """A block of a step of control flow, linked. `values`, `numbers`: what it is given, by the places among the step's
    operands; `effects`: how many side effects the step's blocks before it have. Compiled code needs `SessionProgram`
    first."""

    routine: SessionProgram
    values: tuple[int, ...]
    numbers: tuple[int, ...]
    effects: int
