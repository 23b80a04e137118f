"""A program linked in a session: its slots stand for devices, it captures tensors, and its steps become messages.

The message of a step is made when a run first needs it. Sessions share the compiled parts of a program, not the
messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.passes.table import SEGMENT_PASSES, Applied
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta


class Template(NamedTuple):
    """The message of a step, with variables and numbers (n < 0 is number slot ~n) in place of ids and values.

    `signature`: the number of an op's signature; 0 for any other step. `released`: the bits of the operands that the
    message releases; `behind`: variables released after the step for which the message has no bit. `line`: the number
    of the step's line.
    """

    signature: int
    operands: tuple[int, ...]
    outputs: tuple[int, ...]
    released: int
    behind: tuple[int, ...]
    line: int


class SessionProgram:
    """A program in one session, with a device for each slot, and the ids of the captured tensors.

    `name`: for reports. `number`: names the program in trace records; 0 before the first record. `templates`: the steps
    as messages, each made when a run first needs it; `nested`: likewise the blocks of control-flow steps. `compiled`:
    the compiled parts that sessions share; None before the first run. `convention`: the encoded calling convention;
    `extra`: the convention's weight in the quota of steps.

    `passes`: the names of the passes that may change the program. `improved`: the program after its passes; None if
    they change nothing, or have not run yet; `applied`: the effect of each pass. `source`: the program as linked.
    """

    def __init__(
        self,
        program: Program,
        devices: tuple[str, ...],
        captured: tuple[int, ...],
        location: int,
        name: str = "",
        passes: frozenset[str] = SEGMENT_PASSES,
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
        self.refused: set[int] = set()  # steps whose op has no valid signature
        self.runs = 0
        self.compiled: Any = None
        self.pieces: Sequence[range] | None = None  # ranges of steps; None until all steps have signatures
        self.fusions: Sequence[Fusion] | None = None  # None until they were searched
        self.segments: dict[int, Any] = {}  # first step of a piece -> its compiled segment, or None

    def all_templates(self) -> Iterator[Template]:
        """All templates made so far, including those of the parts."""
        yield from (template for template in self.templates if template is not None)
        for routine in self.parts():
            yield from routine.all_templates()

    def parts(self) -> Iterator[SessionProgram]:
        """The routines that belong to this one: its blocks, and itself after its passes."""
        for blocks in self.nested.values():
            yield from (block.routine for block in blocks)
        if self.improved is not None:
            yield self.improved

    def after(self, program: Program) -> SessionProgram:
        """This routine with `program`, which is its program after the passes."""
        routine = SessionProgram(
            program, self.devices, self.captured, self.location, self.name, self.passes & SEGMENT_PASSES
        )
        routine.source = self.source
        return routine

    @property
    def results(self) -> list[tuple[Meta | None, str]]:
        """The meta and home of each result of a run."""
        program = self.program
        return [(program.metas[value], self.devices[program.homes[value]]) for value in program.results]


class LinkedBlock(NamedTuple):
    """A linked block of a control-flow step.

    `values`, `numbers`: the positions of the block's arguments among the step's operands; `effects`: the number of side
    effects in the step's earlier blocks. Compiled code requires `SessionProgram` to be defined first.
    """

    routine: SessionProgram
    values: tuple[int, ...]
    numbers: tuple[int, ...]
    effects: int
