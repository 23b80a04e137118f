"""A linked program that is called while a routine is captured: its steps become steps of the capture.

The steps have the effect of a run: the same ops on the same devices, on the variables of its arguments and on its
captured tensors, with their original lines; prints and effects keep their chains. Random draws take the calls of the
session's random numbers that the run would have taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...interpreter.errors import CaptureError, MetadataError, MetadataTypeError, TensordError
from ...interpreter.programs.constructs import layout, numbers_given, results_of
from ...interpreter.programs.inlining import SlotMap, add_step
from ...interpreter.programs.numbers import ARITHMETIC, CONSTANT, DRAW, PARAMETER, SEED, Number
from ...interpreter.programs.program import Program, Step
from ...interpreter.schema.promotion import check_scalar
from ..calls.checks import own
from ..capture.blocks import Draws
from ..capture.capture import Capture
from ..capture.numbers import SymbolicNumber
from ..capture.structure import LOCATED, kind_of
from ..core.core import Core
from ..locations.locations import located, user_line
from ..outbox.current import CURRENT
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .linked import ProgramBinding

PYTHON_ERRORS: Final = (ArithmeticError, ValueError, TypeError)  # arithmetic raises these


def capture_for(core: Core, name: str) -> Capture | None:
    """The current capture, if there is one; CaptureError if it belongs to another session than the routine."""
    capture = CURRENT.capture
    if capture is not None and capture.core is not core:
        message = f"{name} belongs to another session than the routine that is captured"
        raise located(CaptureError(f"{message}: publish it, and look it up there"))
    return capture


def inlined(
    capture: Capture, linked: ProgramBinding, tensors: Sequence[Tensor], values: Sequence[Any], name: str
) -> list[Tensor]:
    """Record the steps of a run; returns its results. `values`: the program's numbers, by slot (`evaluated`)."""
    captured = [living_tensor(capture.core, tensor, name) for tensor in linked.captured]
    inlining = Inlining(capture, linked, values, name)
    with LOCATED:
        inlining.take((*tensors, *captured))
        for step in linked.program.steps:
            inlining.add(step)
    return inlining.results()


def living_tensor(core: Core, tensor: Tensor, name: str) -> Tensor:
    """A captured tensor; CaptureError if it was released."""
    try:
        return own(core, tensor)
    except TensordError as error:
        message = f"{name} captures a tensor that is gone ({error.message}): keep it (context.keep), or link anew"
        raise located(CaptureError(message)) from None


def as_metadata_error(error: Exception) -> MetadataError:
    return (
        error
        if isinstance(error, MetadataError)
        else MetadataError(f"the program's numbers cannot be computed: {error}")
    )


# -- numbers -----------------------------------------------------------------------------------------------------------


def evaluated(
    capture: Capture, program: Program, given: Iterable[Any], ints: Iterable[tuple[str, int, Any, Any]]
) -> list[Any]:
    """The value of each number of the program: plain, or one that runs of the capture compute. In a block, a draw of an
    op is a tuple of two numbers: that of the random call, and its part. A draw of control flow is the former alone,
    since its own blocks have the parts. `ints`: the ints that are operands of ops."""
    rest, values = iter(given), list[Any]()
    with LOCATED:
        if capture.draws is not None and program.draws:
            check_draws(program)
        of_ops = {~operand for step in program.steps if not step.blocks for operand in step.operands if operand < 0}
        try:
            for slot, number in enumerate(program.numbers):
                if number.op == DRAW:
                    values.append(drawn(capture, of_op=slot in of_ops))
                else:
                    values.append(next(rest) if number.op == PARAMETER else value_of(capture, number, values))
        except PYTHON_ERRORS as error:
            raise as_metadata_error(error) from None
        for op, slot, metas, attributes in ints:
            if type(values[slot]) is int:
                check_scalar(op, values[slot], metas, attributes)
            else:
                capture.check_ints(op, [values[slot]], metas, attributes)
    return values


def drawn(capture: Capture, *, of_op: bool) -> Any:
    """The value of a draw, by an op or by control flow."""
    if not of_op:
        return (capture.draws or Draws(capture)).numbers()[1]
    numbers = capture.draw()[1:]
    return numbers[0] if len(numbers) == 1 else numbers


def value_of(capture: Capture, number: Number, earlier: Sequence[Any]) -> Any:
    """The value of a number other than a parameter or a draw."""
    if number.op == CONSTANT:
        return number.value
    if number.op == SEED:
        return capture.seed()
    value = ARITHMETIC[number.op][1](*[earlier[slot] for slot in number.operands])
    kind = kind_of(value._symbol.value if type(value) is SymbolicNumber else value)
    if kind != number.kind:
        message = f"a number of the program is {number.kind}, and {kind} for these values"
        raise MetadataTypeError(message, op=number.op)
    return value


def check_draws(program: Program) -> None:
    """CaptureError unless a program that a block calls draws as captures do: the number of a random call is used only
    by ops that draw, and by blocks that add a part of their own. Otherwise each round would draw the same numbers."""
    draws = {slot for slot, number in enumerate(program.numbers) if number.op == DRAW}
    computed = {slot for number in program.numbers for slot in number.operands}
    if draws & computed or uses_otherwise(program, draws, inside=False):
        message = (
            "the program uses the number of a random call for more than draws, and would get the same in each round"
        )
        raise CaptureError(f"{message}: call it outside of control flow, or capture a function that draws (routine)")


def uses_otherwise(program: Program, draws: Collection[int], *, inside: bool) -> bool:
    """Return whether steps use the draws for anything but drawing. `inside`: in a block."""
    for step in program.steps:
        if not step.blocks:
            if not all(~n not in draws or draws_by(program, step, n, inside=inside) for n in step.operands):
                return True
            continue
        head = layout(step).head
        if head is not None and ~head in draws:
            return True
        for block, taken in numbers_given(step):
            if uses_otherwise(block, {slot for slot, outer in taken.items() if outer in draws}, inside=True):
                return True
    return False


def draws_by(program: Program, step: Step, operand: int, *, inside: bool) -> bool:
    """Return whether the operand is the call of a random stream: the last operand after the seed, or before the part if
    there is one."""
    position = step.operands.index(operand)
    rest = step.operands[position + 1 :]
    after_seed = position > 0 and step.operands[position - 1] < 0
    if not inside:
        return after_seed and not rest
    return after_seed and len(rest) == 1 and rest[0] < 0 and program.numbers[~rest[0]].op == DRAW


# -- steps -------------------------------------------------------------------------------------------------------------


class Inlining:
    """One linked program in one capture."""

    def __init__(self, capture: Capture, linked: ProgramBinding, values: Sequence[Any], name: str) -> None:
        self._capture = capture
        self._builder = capture.builder
        self._program = linked.program
        self._devices = linked.devices
        self._values = values
        self._name = name
        self._variables: dict[int, int] = {}  # variables of the program -> of the capture
        self._line = user_line()
        with LOCATED:
            self._slots = SlotMap(
                list(map(capture.slots.device, linked.devices)),
                list(map(capture.slots.chain, linked.chains)),
                list(map(capture.slots.callback, linked.callbacks)),
            )

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Bind the program's parameters and captured tensors."""
        sources = (*self._program.parameters, *self._program.captured)
        for value, (tensor, source) in enumerate(zip(tensors, sources, strict=True)):
            self._capture.root.name(tensor, source.name)
            self._variables[value] = self._builder.variables[self._capture.value(tensor)]
        for step in self._program.steps:
            if step.blocks:
                self._check_homes(step)

    def _check_homes(self, step: Step) -> None:
        """CaptureError if control flow gets a tensor on another device than its blocks expect."""
        program, builder = self._program, self._builder
        for value in step.operands:
            variable = self._variables.get(program.variables[value]) if value >= 0 else None
            wanted = self._slots.devices[program.homes[value]] if variable is not None else -1
            if variable is not None and builder.homes[variable] != wanted:
                name = (*program.parameters, *program.captured)[program.variables[value]].name or "a tensor"
                found, home = self._capture.slots.devices[builder.homes[variable]], self._capture.slots.devices[wanted]
                message = f"{self._name} takes {name} on {home} into its {step.op}, not on {found}: move it (to_device)"
                raise CaptureError(f"{message}, or call {self._name} outside of the routine")

    def add(self, step: Step) -> None:
        operands = tuple([each for operand in step.operands for each in self._operand(operand, step)])
        into = None if step.into is None else tuple(map(self._newest, step.into))
        step_here = step._replace(operands=operands, into=into)
        made = add_step(self._builder, step_here, self._slots, lambda location: location or self._line)
        new = len(results_of(step.blocks[-1])) if step.blocks else 0 if step.into else len(step.results)
        for n in range(new):
            self._variables[step.first + n] = made[n]

    def results(self) -> list[Tensor]:
        program, builder = self._program, self._builder
        symbols: list[Tensor] = []
        for value in program.results:
            variable = self._variables[program.variables[value]]
            home = self._devices[program.homes[value]]
            symbols.append(self._capture.symbol(variable, builder.metas[builder.newest[variable]], home))
        return symbols

    def _newest(self, value: int) -> int:
        return self._builder.newest[self._variables[self._program.variables[value]]]

    def _operand(self, operand: int, step: Step) -> Iterable[int]:
        """The values or numbers (n < 0) of an operand: two for an op's draw in a block."""
        if operand >= 0:
            return (self._newest(operand),)
        value = self._values[~operand]
        values = value if type(value) is tuple else (value,)
        return map(self._capture.operand, values[:1] if step.blocks else values)
