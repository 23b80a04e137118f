"""Makes a program from the steps of another, with some removed, moved or replaced. The builder checks each of them
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..builder import MAX_STEPS, Builder
from ..facts import made_by, origin
from ..numbers import Number
from ..program import Program, Step


def rebuilt(
    program: Program,
    steps: Iterable[Step],
    same: Mapping[int, int] | None = None,
    numbers: Sequence[Number] | None = None,
    slots: Mapping[int, int] | None = None,
) -> Program:
    """The program with these steps in place of its own, with the same numbering of values and numbers.

    `same`: a value -> its replacement for readers, which a run also returns if no step makes the former. `numbers`:
    replace the program's, and with them `slots`: an old slot -> the new one.
    """
    builder = Builder(limit=max(MAX_STEPS, len(program.steps), len(program.numbers), len(program.metas)))
    for number in program.numbers if numbers is None else numbers:
        builder.number(*number)
    for source in program.parameters:
        builder.parameter(*source)
    for source in program.captured:
        builder.captured(*source)
    same = same or {}
    value_of = {value: value for value in range(program.inputs)}

    def renamed(operand: int) -> int:
        if operand >= 0:
            return value_of[origin(operand, same)]
        return operand if slots is None else ~slots[~operand]

    for step in steps:
        operands, into = tuple(map(renamed, step.operands)), step.into and tuple(map(renamed, step.into))
        made = builder.add(step._replace(operands=operands, into=into))
        value_of.update(zip(made_by(step), made, strict=True))
    return builder.finish([value_of[n] if n in value_of else renamed(n) for n in program.results])
