"""Runs a linked program, or makes it a part of the routine that is being captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...interpreter.errors import MetadataError
from ...interpreter.programs.constructs import numbers_given
from ...interpreter.programs.convention import CallingConvention
from ...interpreter.programs.numbers import evaluate
from ...interpreter.programs.program import NON_OP_STEPS, Program
from ...interpreter.schema.promotion import check_scalar
from ...interpreter.types.meta import SCALAR_TYPES, Scalar
from ..capture.capture import Capture
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, on_thread
from .inlining import PYTHON_ERRORS, as_metadata_error, evaluated, inlined
from .linked import ProgramBinding, Report


class LinkedRuns:
    """The common part of linked programs and linked routines; a routine also has a calling convention."""

    def __init__(self, linked: ProgramBinding, convention: CallingConvention | None = None) -> None:
        self.core = linked._core
        self.linked = linked
        self.convention = convention
        self._ints = list(int_operands(linked.program, {slot: slot for slot in range(len(linked.program.numbers))}))

    def issue(
        self, capture: Capture | None, tensors: Sequence[Tensor], numbers: Sequence[Scalar], name: str
    ) -> tuple[list[Tensor], Sequence[Any]]:
        """Run the program, or make its steps part of the current capture; returns the results, and the program's
        numbers."""
        if capture is None:
            for tensor in self.linked.captured:
                if tensor._id <= 0:  # released, for example with its context
                    tensor._check_living()
            values = self.values(numbers)
            return self.linked.run(tensors, values), values
        values = evaluated(capture, self.linked.program, numbers, self._ints)
        return inlined(capture, self.linked, tensors, values, name), values

    def values(self, parameters: Sequence[Scalar]) -> Sequence[Scalar]:
        """The value of each number of the program; MetadataError if one cannot be computed."""
        program = self.linked.program
        if not program.numbers:
            return ()
        drawn = program.draws
        seed, calls = self.core.random_state.take(drawn) if drawn else (0, ())
        try:
            values = evaluate(program.numbers, parameters, seed, tuple(calls))
            for op, slot, metas, attributes in self._ints:
                check_scalar(op, values[slot], metas, attributes)
        except (MetadataError, *PYTHON_ERRORS) as error:
            raise located(as_metadata_error(error)) from None
        return values


class Reported:
    """A linked program or linked routine, as users hold it, with the report of its compiled form."""

    _core: LinkedRuns

    def report(self, *, source: bool = False) -> Report:
        """The compiled form so far: the segments, their memory, and where each value is, and why.

        `source`: with the source of the kernels that were generated for it.
        """
        return on_thread(self._core.core.outbox, self._core.linked.reporting(source=source))

    def report_async(self, *, source: bool = False) -> Awaiting[Report]:
        """`await routine.report_async()`: as `report`."""
        return on_loop(self._core.core.outbox, self._core.linked.reporting(source=source))


make_public(Reported)


def int_operands(program: Program, slots: Mapping[int, int]) -> Iterator[tuple[str, int, Any, Any]]:
    """The op, slot, metas and attributes of each int that is an operand of an op, also inside blocks. The slot is the
    outermost program's; `slots`: slot in `program` -> that slot."""
    for step in program.steps:
        for block, taken in numbers_given(step) if step.blocks else ():
            yield from int_operands(block, {inner: slots[outer] for inner, outer in taken.items() if outer in slots})
        ints = [~operand for operand in step.operands if operand < 0 and program.numbers[~operand].kind == "int"]
        if step.op in NON_OP_STEPS or not ints:
            continue
        metas = tuple(SCALAR_TYPES[program.numbers[~o].kind] if o < 0 else program.metas[o] for o in step.operands)
        yield from ((step.op, slots[slot], metas, dict(step.attributes)) for slot in ints if slot in slots)
