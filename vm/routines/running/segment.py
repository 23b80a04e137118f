"""A compiled segment of a routine, with its operands and the replays that wait for a run.

The driving thread, which admits runs, and the streams' threads, which run them, share the list `idle` of replays; each
operation of a list is atomic. Only the driving thread uses all other attributes.
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

# Limits of idle replays, which keep the pages of their arenas and operands, even after the pool has released these.
IDLE = 2  # replays of a segment
MAX_IDLE_ARENA = 1 << 20  # bytes of an arena
STAYING = 1 << 12  # bytes of an operand


class Operand(NamedTuple):
    """A tensor from outside, or a result.

    `packed`: whether the operand has to be packed. `stays`: whether the operand may stay bound between runs: if it is
    small, or captured by the routine. Memory that clients map is larger, so it never stays bound.
    """

    variable: int
    meta: Meta
    packed: bool
    stays: bool

    @classmethod
    def of(cls, program: Program, variable: int, *, packed: bool) -> Operand:
        """The operand for a variable of the program."""
        meta = known_meta(program, variable)
        captured = len(program.parameters) <= variable < program.inputs
        return cls(variable, meta, packed, captured or meta.nbytes <= STAYING)


class CompiledSegment:
    """A compiled segment of one routine, with replays that wait for a run.

    `reads`, `written`, `made`: the operands, as in the recipe. `need`: bytes of arena and results; `more`: the number
    of ids for results and views. `idle` replays are bound to an arena in the device's memory, `ready` ones to the arena
    for all runs at admission. `detailed`: runs since the last timed one. `turned_away`: the number of runs that went
    op by op, by reason.
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
        self.own = recipe.arena <= device.backend.run_arena  # the memory for runs at admission always has room for it
        self.long = not self.own and may_share_arena(device, recipe.arena)  # a larger block may have room
        graphs = device.backend.graphs and (self.own or self.long)
        self.graph = SegmentGraph(recipe, program.constants, device) if graphs else None
        self.sizes = [operand.meta.nbytes for operand in self.made]
        self.more = len(recipe.made) + len(recipe.views)
        self.arena_meta = Meta.of((recipe.arena,), "uint8")
        self.slots = len(operands)
        self.idle: list[Replay] = []
        self.ready: list[Replay] = []
        self.detailed = 0
        self.why_away = ""
        self.turned_away: dict[str, int] = {}

    def turn_away(self, why: str) -> bool:
        """Note why a run cannot be admitted, and return False."""
        self.why_away = why
        return False

    def note_op_by_op(self) -> None:
        """Count a run that was turned away and goes op by op."""
        self.turned_away[self.why_away] = self.turned_away.get(self.why_away, 0) + 1

    def is_due(self, every: int) -> bool:
        """Whether to time this run: one of `every` runs is timed."""
        self.detailed += 1
        if self.detailed < every:
            return False
        self.detailed = 0
        return True

    def take(self, arena: Any) -> Replay:
        """A replay for a run in this arena, an idle one if possible. Called by any thread."""
        for replay in list(self.idle):
            if is_same(replay.arena, arena):
                try:
                    self.idle.remove(replay)
                except ValueError:  # another thread has taken it
                    continue
                return replay
        return Replay(self.recipe, self.constants, arena, self.plan.device.backend)

    def has_own_arena(self) -> bool:
        """Whether the memory for runs at admission has room for the arena. A larger block is allocated if possible."""
        return self.own or (self.long and block_for(self.plan.device, self.recipe.arena) is not None)

    def take_own(self) -> Replay:
        """A replay for a run at admission, a ready one if possible. Called by the driving thread.

        All these replays use the same arena, one after the other.
        """
        block = self.plan.device.long_arena if self.long else None
        while self.ready:
            replay = self.ready.pop()
            if replay.block is block:
                return replay
        replay = Replay(self.recipe, self.constants, self.own_arena(), self.plan.device.backend, own=True)
        replay.block = block
        return replay

    def own_arena(self) -> Any:
        """The memory for runs at admission, in the size of this segment's arena."""
        size = self.recipe.arena
        return arena_at_admission(self.plan.device, size) if size else None

    def give_back(self, replay: Replay, operands: Iterable[int] | None = None) -> None:
        """Take back the replay of a run that has ended. `operands`: the slots of operands to forget; None for all."""
        replay.forget(range(replay.slots) if operands is None else operands)
        waiting = self.ready if replay.own else self.idle
        if (replay.own or self.recipe.arena <= MAX_IDLE_ARENA) and len(waiting) < IDLE:
            waiting.append(replay)


def is_same(left: Any, right: Any) -> bool:
    """Whether both are the same memory, each bound to the start of its block."""
    if left is None or right is None:
        return left is right
    return left is right or (left.base is not None and left.base is right.base)
