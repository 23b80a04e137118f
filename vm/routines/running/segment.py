"""A compiled segment of a routine, with its operands and the replays that wait for a run.

The replays are shared by the driving thread, which admits runs, and the streams' threads, which run them: `idle` is a
list, of which each operation is atomic. All else is the driving thread's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ....interpreter.programs.program import Program
from ....interpreter.types.meta import Meta
from ...memory.run_memory import arena_at_admission, block_for, may_share_arena
from ..compiling.recipe import Recipe, known_meta
from .graphing import SegmentGraph
from .replay import Replay
from .segment_plan import SegmentPlan

# What waits for the next run keeps its arena's pages, also where the pool has let go of them: so it is little.
IDLE = 2  # replays of a segment
KEPT = 1 << 20  # bytes of an arena
STAYING = 1 << 12  # bytes of an operand


class Operand(NamedTuple):
    """A tensor from outside, or a result.

    `packed`: has it to be packed? `stays`: may it stay bound between runs? It is little, or the routine holds it
    anyway, since that captures it; it is memory of a pool, or of nobody else, as what clients map is larger.
    """

    variable: int
    meta: Meta
    packed: bool
    stays: bool

    @classmethod
    def of(cls, program: Program, variable: int, *, packed: bool) -> Operand:
        """The operand that is that variable of the program."""
        meta = known_meta(program, variable)
        captured = len(program.parameters) <= variable < program.inputs
        return cls(variable, meta, packed, captured or meta.nbytes <= STAYING)


class CompiledSegment:
    """A compiled segment of one routine, with replays that wait for a run.

    `reads`, `written`, `made`: its operands, as those of its recipe. `need`: bytes of arena and results; `more`: ids of
    results and views. `idle` replays are bound to an arena in the device's memory, `ready` ones to the one that is for
    all runs at admission. `detailed`: runs since one was timed. `turned_away`: how many went op by op, and why.
    """

    def __init__(self, program: Program, recipe: Recipe, plan: SegmentPlan) -> None:
        self.program = program
        self.recipe = recipe
        self.plan = plan
        self.constants = program.constants
        packed = set(recipe.packed)
        self.reads = [Operand.of(program, v, packed=slot in packed) for slot, v in enumerate(recipe.reads)]
        self.written = [Operand.of(program, variable, packed=True) for variable in recipe.written]
        self.made = [Operand.of(program, variable, packed=True) for variable in recipe.made]
        operands = (*self.reads, *self.written, *self.made)
        self.passing = [slot for slot, operand in enumerate(operands) if not operand.stays]
        self.need = recipe.arena + sum(operand.meta.nbytes for operand in self.made)
        device = plan.device
        self.own = recipe.arena <= device.backend.run_arena  # is its arena for runs at admission certain to be there?
        self.long = not self.own and may_share_arena(device, recipe.arena)  # or may it be there?
        graphs = device.backend.graphs and (self.own or self.long)
        self.graph = SegmentGraph(recipe, program.constants, device) if graphs else None
        self.sizes = [operand.meta.nbytes for operand in self.made]  # of the results
        self.more = len(recipe.made) + len(recipe.views)
        self.arena_meta = Meta.of((recipe.arena,), "uint8")
        self.slots = len(operands)
        self.idle: list[Replay] = []
        self.ready: list[Replay] = []
        self.detailed = 0
        self.why_away = ""
        self.turned_away: dict[str, int] = {}

    def turn_away(self, why: str) -> bool:
        """Note why a run cannot be admitted, one of a few reasons. False."""
        self.why_away = why
        return False

    def note_op_by_op(self) -> None:
        """Note that the run that was turned away goes op by op."""
        self.turned_away[self.why_away] = self.turned_away.get(self.why_away, 0) + 1

    def is_due(self, every: int) -> bool:
        """Is this run to be timed, of so many?"""
        self.detailed += 1
        if self.detailed < every:
            return False
        self.detailed = 0
        return True

    def take(self, arena: Any) -> Replay:
        """A replay for a run in that arena, rather one that was there before. Called by any thread."""
        for replay in list(self.idle):
            if is_same(replay.arena, arena):
                try:
                    self.idle.remove(replay)
                except ValueError:  # another thread has it
                    continue
                return replay
        return Replay(self.recipe, self.constants, arena, self.plan.device.backend)

    def has_own_arena(self) -> bool:
        """Is there memory for runs at admission that has room for the arena? A larger one is made, if it can be."""
        return self.own or (self.long and block_for(self.plan.device, self.recipe.arena) is not None)

    def take_own(self) -> Replay:
        """A replay for a run at admission, rather one that was there before: its arena is what all these use, one after
        the other. Called by the driving thread."""
        block = self.plan.device.long_arena if self.long else None
        while self.ready:
            replay = self.ready.pop()
            if replay.block is block:
                return replay
        replay = Replay(self.recipe, self.constants, self.own_arena(), self.plan.device.backend, own=True)
        replay.block = block
        return replay

    def own_arena(self) -> Any:
        """The memory of all runs at admission, as much of it as these use."""
        size = self.recipe.arena
        return arena_at_admission(self.plan.device, size) if size else None

    def give_back(self, replay: Replay, operands: Iterable[int] | None = None) -> None:
        """The run is over. `operands`: the slots of those that are to be forgotten; None for all."""
        replay.forget(range(replay.slots) if operands is None else operands)
        waiting = self.ready if replay.own else self.idle
        if (replay.own or self.recipe.arena <= KEPT) and len(waiting) < IDLE:
            waiting.append(replay)


def is_same(left: Any, right: Any) -> bool:
    """Are both the same memory, each bound to the start of its block?"""
    if left is None or right is None:
        return left is right
    return left is right or (left.base is not None and left.base is right.base)
