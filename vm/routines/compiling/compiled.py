"""Compiled programs, for all sessions: where they are cut, their fusions, and the recipes of their segments.

Nothing of it belongs to a session. It depends on the program, to the last bit of its constants, on the devices, and on
the passes; so it is found by the program's digest, and by these. Lines are no part of the digest, and recipes know
steps by their numbers: each session looks lines up in the program that it has sent itself. What a routine has taken
over stays with the routine, also when it is forgotten here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.passes.table import IN_SEGMENTS
from ....interpreter.programs.program import Program
from .recipe import Recipe
from .segments import SHORTEST, Piece

# What programs weigh, in steps, of some 2 KiB each: all of them, of which the one that was used least recently is
# forgotten first.
KEPT = 1 << 14
LARGEST = 1 << 11  # steps of a program: to make the digest of a larger one would hold others up


class Compiled:
    """The compiled parts of one program on certain devices. `pieces`: None until it is cut; `recipes`: by the first
    step
    of their pieces, None for one that can only run op by op."""

    __slots__ = ("fusions", "pieces", "recipes", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.pieces: Sequence[Piece] | None = None
        self.fusions: Sequence[Fusion] | None = None
        self.recipes: dict[int, Recipe | None] = {}

    def whole(self) -> bool:
        """Is there nothing left to compile?"""
        pieces = self.pieces
        return pieces is not None and all(piece.start in self.recipes for piece in pieces if len(piece) >= SHORTEST)


class CompiledPrograms:
    """The compiled parts of the programs that were used last. `kept`: how many steps they may have in all."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.steps = 0
        self.found: OrderedDict[tuple[str, tuple[str, ...], frozenset[str]], Compiled] = OrderedDict()

    def of(self, program: Program, devices: tuple[str, ...], passes: frozenset[str] = IN_SEGMENTS) -> Compiled:
        """The compiled parts of that program, with these passes in its segments; empty at first."""
        steps = max(program.weight, 1)
        if steps > min(LARGEST, self.kept):
            return Compiled(steps)
        key = (program.digest, devices, passes & IN_SEGMENTS)
        compiled = self.found.get(key)
        if compiled is not None:
            self.found.move_to_end(key)
            return compiled
        self.found[key] = compiled = Compiled(steps)
        self.steps += steps
        while self.steps > self.kept:
            _, oldest = self.found.popitem(last=False)
            self.steps -= oldest.steps
        return compiled
