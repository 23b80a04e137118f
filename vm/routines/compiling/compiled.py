"""A cache of compiled programs for all sessions: their pieces, their fusions, and the recipes of their segments.

Compiled parts belong to no session. They depend on the program, including every bit of its constants, on the devices,
and on the passes; so their key is the program's digest with the devices and the passes. The digest ignores lines, and
recipes refer to steps by number: each session finds lines in the program that it has sent itself. A routine keeps the
compiled parts that it uses, even if this cache drops them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.passes.table import SEGMENT_PASSES
from ....interpreter.programs.program import Program
from .recipe import Recipe
from .segments import MIN_SEGMENT_STEPS, Piece

# Steps of all programs in the cache, some 2 KiB each; the least recently used program is dropped first.
CAPACITY = 1 << 14
MAX_PROGRAM_STEPS = 1 << 11  # the digest of a larger one would delay other sessions


class Compiled:
    """The compiled parts of one program on certain devices.

    `pieces`: None until the program is cut. `recipes`: by the first step of the piece; None for a piece that can only
    run op by op.
    """

    __slots__ = ("fusions", "pieces", "recipes", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.pieces: Sequence[Piece] | None = None
        self.fusions: Sequence[Fusion] | None = None
        self.recipes: dict[int, Recipe | None] = {}

    def whole(self) -> bool:
        """Whether all segments are compiled."""
        pieces = self.pieces
        if pieces is None:
            return False
        return all(piece.start in self.recipes for piece in pieces if len(piece) >= MIN_SEGMENT_STEPS)


class CompiledPrograms:
    """The compiled parts of the most recently used programs. `capacity`: the most steps of all programs."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.steps = 0
        self.cache: OrderedDict[tuple[str, tuple[str, ...], frozenset[str]], Compiled] = OrderedDict()

    def of(self, program: Program, devices: tuple[str, ...], passes: frozenset[str] = SEGMENT_PASSES) -> Compiled:
        """The compiled parts of a program, with these passes in its segments; empty for a new program."""
        steps = max(program.weight, 1)
        if steps > min(MAX_PROGRAM_STEPS, self.capacity):
            return Compiled(steps)
        key = (program.digest, devices, passes & SEGMENT_PASSES)
        compiled = self.cache.get(key)
        if compiled is not None:
            self.cache.move_to_end(key)
            return compiled
        self.cache[key] = compiled = Compiled(steps)
        self.steps += steps
        while self.steps > self.capacity:
            _, oldest = self.cache.popitem(last=False)
            self.steps -= oldest.steps
        return compiled
