"""The passes by name, in the order of their application.

Those on programs come first. The others are choices in the compilation of segments, which preserve bits as well, and
may be left out in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from ...errors import MetadataError
from ...wire.forms import shown
from ..constructs import FORMS, blocks_of, layout
from ..program import Program, Step
from .devices import devices
from .needless import common_subexpressions, dead_results
from .numbers import numbers
from .rebuilding import rebuilt
from .transfers import transfers

Pass: TypeAlias = Callable[[Program], Program]

TRANSFERS: Final = "transfers"
PASSES: Final[dict[str, Pass]] = {
    "dead_results": dead_results,
    "numbers": numbers,
    "devices": devices,
    TRANSFERS: transfers,
    "common_subexpressions": common_subexpressions,
}
FUSION: Final = "fusion"  # elementwise steps on large tensors are computed together, piece by piece
IN_PLACE: Final = "in_place"  # a step writes over an operand that dies with it
MEMORY_PLAN: Final = "memory_plan"  # values that do not live at the same time share bytes
SEGMENT_PASSES: Final = frozenset((FUSION, IN_PLACE, MEMORY_PLAN))
PASS_NAMES: Final = (*PASSES, FUSION, IN_PLACE, MEMORY_PLAN)
ALL: Final = "all"
NONE: Final = "none"


class Applied(NamedTuple):
    """The effect of a pass: its name, and the number of steps before and after it, including those in blocks."""

    name: str
    before: int
    after: int
    changed: bool


def chosen_names(names: str | Iterable[str]) -> frozenset[str]:
    """The named passes; "all" and "none" are accepted. MetadataError for an unknown name."""
    chosen: set[str] = set()
    for name in (names,) if isinstance(names, str) else names:
        if name not in PASS_NAMES and name not in (ALL, NONE):
            raise MetadataError(f'unknown pass {shown(name)}; passes: {", ".join(PASS_NAMES)}, or "all" or "none"')
        chosen.update(PASS_NAMES if name == ALL else () if name == NONE else (name,))
    return frozenset(chosen)


def apply(program: Program, names: str | Iterable[str] = ALL) -> Program:
    """The program after these passes, whatever the order of the names. MetadataError for an unknown name."""
    return applied(program, chosen_names(names))[0]


def applied(program: Program, chosen: frozenset[str]) -> tuple[Program, list[Applied]]:
    """The program after these passes, and the effect of each."""
    done: list[Applied] = []
    for name, each in PASSES.items():
        if name in chosen:
            before, program = program, everywhere(each, program)
            done.append(Applied(name, size(before), size(program), program is not before))
    return program, done


def everywhere(each: Pass, program: Program) -> Program:
    """The program and its blocks after a pass: first the blocks, then the steps around them."""
    steps = [with_blocks(each, step) if step.blocks else step for step in program.steps]
    if any(new is not old for new, old in zip(steps, program.steps, strict=True)):
        program = rebuilt(program, steps)
    return each(program)


def with_blocks(each: Pass, step: Step) -> Step:
    """A step of control flow, with its blocks after the pass, except those that write a tensor known by two names."""
    two = [writes_by_two_names(step, n) for n in range(len(step.blocks))]
    blocks = [block if twice else everywhere(each, block) for block, twice in zip(step.blocks, two, strict=True)]
    changed = any(new is not old for new, old in zip(blocks, step.blocks, strict=True))
    return step._replace(blocks=tuple(blocks)) if changed else step


def writes_by_two_names(step: Step, number: int) -> bool:
    """Return whether a block writes a tensor that it is given twice. A pass would treat it as two tensors.

    The state of a loop is its own: it begins as a copy.
    """
    block, (values, _) = step.blocks[number], layout(step).given[number]
    own = len(block.parameters) if FORMS[step.op].loops else 0
    return any(n >= own and values[own:].count(values[n]) > 1 for n in block.written)


def size(program: Program) -> int:
    """The number of the program's steps, including those of its blocks."""
    return len(program.steps) + sum(size(block) for block in blocks_of(program))
