"""Captures within a capture: each function of control flow becomes a block of the program.

A tensor from outside of the function, whether symbolic or not, becomes a captured tensor of its block, and the step
with the block passes the value. A number from outside becomes a parameter; arithmetic among outer numbers is done
outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CaptureError, MetadataError
from ...interpreter.programs.numbers import DRAW, PARAMETER
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located, user_line
from ..outbox.current import CURRENT
from ..tensor.operators import SCALARS
from ..tensor.tensor import Tensor
from .capture import Capture, UploadedConstant
from .numbers import SymbolicNumber
from .structure import LOCATED, StructureCopies, is_plain_tensor, members, rebuilt, short
from .symbolic import SymbolicTensor, end_life


class Draws:
    """The random call that the outermost step of control flow takes, if one of its blocks draws random numbers."""

    def __init__(self, root: Capture) -> None:
        self._root = root
        self._numbers: tuple[SymbolicNumber, ...] = ()

    def numbers(self) -> tuple[SymbolicNumber, ...]:
        """The seed and the number of the random call."""
        self._numbers = self._numbers or self._root.draw()
        return self._numbers


class BlockCapture(Capture):
    """The capture of one function, within another capture."""

    def __init__(self, around: Capture, draws: Draws) -> None:
        super().__init__(around.core, around.names)
        self.around: Capture = around
        self.draws: Draws = draws
        self.builder = around.builder.block()
        self.slots = around.slots
        self._taken: dict[int, int] = {}  # variables of the surrounding capture -> captured tensors of the block
        self._numbers: dict[int, int] = {}  # numbers of the surrounding capture -> numbers of the block
        self._returned: set[int] = set()

    def begin(self) -> None:
        CURRENT.capture = self

    @ends_block
    def end(self) -> None:
        """End the block, and the life of its tensors."""
        with SHIELD:
            CURRENT.capture = self.around
            self.over = True
            for symbol in self._symbols:
                end_life(symbol)

    def block(self, results: Sequence[int]) -> CapturedBlock:
        """The block: its program, and the newest values and numbers that it takes from the surrounding capture."""
        around = self.around
        return CapturedBlock(
            self.finish(results),
            [around.builder.newest[variable] for variable in self._taken],
            [~slot for slot in self._numbers],
        )

    def result(self, tensor: Tensor) -> int:
        """The variable to return for a tensor: a copy's if the tensor is returned twice, or comes from outside."""
        variable, builder = self.variable(tensor), self.builder
        outside = variable < len(builder.parameters) or variable in self._taken.values()
        if outside or variable in self._returned:
            variable = builder.move(self.value(tensor), self.slots.device(tensor._home), user_line())
        self._returned.add(variable)
        return variable

    def seed(self) -> SymbolicNumber:
        return self.draws.numbers()[0]

    def draw(self) -> tuple[SymbolicNumber, ...]:
        """The seed and the number of the random call, and the number of the draw in it."""
        with LOCATED:
            return (*self.draws.numbers(), SymbolicNumber(self, self.builder.number("int", DRAW), None))

    # -- from outside ----------------------------------------------------------------------------------------------

    def variable(self, tensor: Tensor) -> int:
        if type(tensor) is SymbolicTensor and tensor._symbol.capture is self:
            return tensor._symbol.variable
        return self._captured_variable(self.around.variable(tensor))

    def _captured_variable(self, outer: int) -> int:
        """The captured tensor that stands for a variable of the surrounding capture."""
        captured, around = self._taken.get(outer), self.around.builder
        if captured is None:
            meta = around.metas[outer]
            if meta is None:
                raise MetadataError("the shape of a tensor from outside the block depends on data")
            captured = self._taken[outer] = self.builder.captured(meta, around.homes[outer])
        return captured

    def keep(self, constant: UploadedConstant, meta: Meta) -> int:
        return self._captured_variable(self.around.keep(constant, meta))

    def slot_of(self, number: SymbolicNumber) -> int:
        if number._symbol.capture is self:
            return number._symbol.number
        outer = self.around.slot_of(number)
        slot = self._numbers.get(outer)
        if slot is None:
            kind = self.around.builder.numbers[outer].kind
            slot = self._numbers[outer] = self.builder.number(kind, PARAMETER)
        return slot


class CapturedBlock(NamedTuple):
    """A captured function: its program, and the values and numbers (n < 0) that it takes besides the arguments."""

    program: Program
    values: list[int]
    numbers: list[int]


class BlockWithResults(NamedTuple):
    """A block, and the results of its function: the tensors, and their structure."""

    block: CapturedBlock
    tensors: list[Tensor]
    value: Any


def capture_block(
    around: Capture, function: Callable[..., Any], arguments: Sequence[Any], draws: Draws, *, own: bool
) -> BlockWithResults:
    """Capture a function with these arguments. `own`: a tensor that occurs twice becomes two parameters."""
    with LOCATED:
        block = BlockCapture(around, draws)
    known: dict[int, Any] = {}

    def parameter(value: Any, name: str) -> Any:
        if not is_plain_tensor(value):
            return value
        if own or id(value) not in known:
            known[id(value)] = block.parameter(value, short(name))
        return known[id(value)]

    block.begin()
    try:
        copies = StructureCopies()
        given = [copies.replaced(value, str(position), parameter) for position, value in enumerate(arguments)]
        value = function(*given)
        tensors = list(plain_tensors_in(value))
        with LOCATED:
            results = [block.result(tensor) for tensor in tensors]
    finally:
        block.end()
    with LOCATED:
        return BlockWithResults(block.block(results), tensors, value)


def plain_tensors_in(value: Any, *, strict: bool = True) -> Iterator[Tensor]:
    """The tensors of a nested value. If `strict`, CaptureError for anything else in it."""
    if is_plain_tensor(value):
        yield value
    elif type(value) not in SCALARS and (found := members(value)) is not None:
        for _, each in found:
            yield from plain_tensors_in(each, strict=strict)
    elif value is not None and strict:
        message = (
            f"the functions of control flow must return tensors or containers of tensors, not {type(value).__name__}"
        )
        raise located(CaptureError(f"{message}: make a tensor from it (asarray)"))


def structure_of(value: Any) -> Any:
    """The structure of a nested result, without its tensors."""
    if is_plain_tensor(value) or value is None:
        return value is None
    if type(value) is GlobalTensor:
        return value._form
    return (type(value), *[(name, structure_of(each)) for name, each in members(value) or ()])


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    if is_plain_tensor(value):
        return next(tensors)
    if value is None:
        return None
    return rebuilt(value, [with_tensors(each, tensors) for _, each in members(value) or ()])


def check_structures(op: str, values: Sequence[Any]) -> None:
    """MetadataError unless all values have the same structure."""
    for value in values:
        if structure_of(value) != structure_of(values[0]):
            what = differing(value, values[0]) or "containers that differ"
            raise located(MetadataError(f"{op}: the functions return {what}: all must return the same", op=op))


def differing(value: Any, first: Any) -> str:
    """The global tensor, and the part of the other value in its place, if they differ; else an empty text."""
    if GlobalTensor in (type(value), type(first)):
        return "" if structure_of(value) == structure_of(first) else f"{described(first)}, and {described(value)}"
    pairs = zip(members(value) or (), members(first) or (), strict=False)
    return next(filter(None, (differing(one, other) for (_, one), (_, other) in pairs)), "")


def described(value: Any) -> str:
    """The description of a result in an error."""
    return f"a global tensor, {value._form}" if type(value) is GlobalTensor else type(value).__name__
