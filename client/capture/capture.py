"""A capture: the ops of a function on its session, recorded as a program.

Tensors from outside that are no arguments become *captured* tensors of the program, by identity. Numbers among the
arguments become its parameters, all others constants. A write in place writes the variable behind the tensor: the
caller's, a captured one, or one that the function has made. Values that the function uploads are copied during the
capture, and uploaded once after it has succeeded; each run takes its own copy, since the function may write to it.

Functions of control flow are captured within the capture, as blocks (`blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError
from ...interpreter.programs.builder import MAX_NAME_LENGTH, Builder
from ...interpreter.programs.numbers import CONSTANT, DRAW, PARAMETER, SEED
from ...interpreter.programs.program import Program
from ...interpreter.schema.promotion import check_scalar, check_scalars
from ...interpreter.types.meta import Meta, OperandMeta, Scalar
from ..calls.checks import own
from ..calls.op_invocation import OpInvocation
from ..core.core import Core
from ..host_arrays.uploads import copied
from ..locations.locations import located, user_line
from ..outbox.current import CURRENT
from ..requests.effects import check_callback
from ..tensor.tensor import Tensor
from ..transport.host_functions import HostFunction
from .numbers import SymbolicNumber, plain
from .slots import CaptureSlots
from .structure import LOCATED, is_representable, kind_of, plain_number
from .symbolic import SymbolicTensor, end_life

if TYPE_CHECKING:
    from .blocks import CapturedBlock, Draws


class UploadedConstant(NamedTuple):
    """Values that the function uploads, for a tensor that the routine captures."""

    array: NDArray[Any]
    home: str


class RangeCheck(NamedTuple):
    """A check at each run of an int that the run computes, as an operand of an op: the arguments of `check_scalar`."""

    slot: int
    op: str
    metas: tuple[OperandMeta | None, ...]
    attributes: dict[str, Any]


class Capture:
    """One capture, of one thread. `fixed`: the positions of numbers whose values were read -> the line there."""

    around: Capture | None = None  # of a block
    draws: Draws | None = None  # of a block

    def __init__(self, core: Core, names: Mapping[int, str]) -> None:
        self.core = core
        self.outbox = core.outbox
        self.over = False
        self.fixed: dict[int, str | None] = {}
        self.ranges: list[RangeCheck] = []
        self.captured: list[Tensor | UploadedConstant] = []
        self.builder = Builder(CURRENT.infer)
        self.slots = CaptureSlots()
        self.names = dict(names)  # of tensors that may be captured, by id()
        self._numbered: dict[str, int] = {}  # names of captured tensors -> the last number appended to them
        self._variables: dict[int, int] = {}  # of captured tensors, by id()
        self._symbols: list[SymbolicTensor] = []
        self._constants: dict[tuple[str, str], int] = {}
        self._seed: SymbolicNumber | None = None
        self._cores: list[Core] = []  # all their calls pass `execute` during the capture

    @property
    def root(self) -> Capture:
        """The outermost capture."""
        return self if self.around is None else self.around.root

    def begin(self) -> None:
        """Record the ops of this thread until `end`."""
        with SHIELD:  # an exception between the two would leave the session half captured
            cluster = self.core.cluster
            self._cores = [self.core] if cluster is None else list(cluster.cores())
            for core in self._cores:
                core.calls.capturing(1)
            CURRENT.capture = self
            SHIELD.hold(self)

    @ends_block
    def end(self) -> None:
        """Stop recording. The capture's symbolic tensors are dead."""
        with SHIELD:
            if CURRENT.capture is not None and CURRENT.capture.root is self:
                SHIELD.let_go(self)
                CURRENT.capture = None
                for core in self._cores:
                    core.calls.capturing(-1)
            self.over = True
            for symbol in self._symbols:
                end_life(symbol)
            self._seed = None  # it refers to the capture, and so to the session

    def finish(self, results: Sequence[int]) -> Program:
        with LOCATED:
            return self.builder.finish([self.builder.newest[variable] for variable in results])

    def is_within(self, other: Capture | None) -> bool:
        """Return whether this is the other capture, or a block within it."""
        capture: Capture | None = self
        while capture is not None and capture is not other:
            capture = capture.around
        return capture is not None

    def is_parameter(self, variable: int) -> bool:
        return variable < len(self.builder.parameters)

    def name(self, tensor: Tensor, name: str) -> None:
        """Set the name of a tensor that may be captured later, unless it has one."""
        if name:
            self.names.setdefault(id(tensor), name)

    # -- arguments -------------------------------------------------------------------------------------------------

    def parameter(self, tensor: Tensor, name: str) -> SymbolicTensor:
        meta = known_meta(own(self.core, tensor), f"the argument {name}")
        value = self.builder.parameter(meta, self.slots.device(tensor._home), name)
        return self.symbol(value, meta, tensor._home)

    def number(self, value: Any, leaf: int, name: str) -> SymbolicNumber:
        """The symbolic number for an argument; `leaf` is its position among the numbers in the arguments."""
        slot = self.builder.number(kind_of(value), PARAMETER, name=name)
        return SymbolicNumber(self, slot, value, frozenset((leaf,)))

    def fix(self, leaves: frozenset[int]) -> None:
        """Note that the values of these numbers were read."""
        for leaf in leaves:
            if leaf not in self.fixed:
                self.fixed[leaf] = user_line()

    # -- steps -----------------------------------------------------------------------------------------------------

    def record(self, invocation: OpInvocation) -> list[Tensor]:
        from ..calls.signatures import as_floats, inferred, signature_of

        calls, out = self.core.calls, invocation.out
        device = calls.place(self.core, invocation)
        key = signature_of(self.core, invocation, device)
        inputs = as_floats(key, invocation.inputs) or invocation.inputs
        attributes, line = dict(invocation.attributes), user_line()
        with LOCATED:
            inferred(CURRENT.infer, key)  # first, as for single ops: its errors are about the operands as given
            self.check_ints(key.op.name, inputs, key.metas, attributes)
            operands = [self.operand(value) for value in inputs]
            into = None if out is None else [self.value(target) for target in out]
            made = self.builder.op(key.op.name, operands, attributes, self.slots.device(device), into, line)
        if out is not None:
            return list(out)
        return [self.symbol(value, self.builder.metas[value], device) for value in made]

    def move(self, tensor: Tensor, home: str) -> Tensor:
        """Record a move to another home, or a copy."""
        with LOCATED:
            value = self.builder.move(self.value(tensor), self.slots.device(home), user_line())
        return self.symbol(value, self.builder.metas[value], home)

    def collective(self, kind: str, tensors: Sequence[Tensor], attributes: Mapping[str, Any]) -> list[Tensor]:
        """Record a collective."""
        with LOCATED:
            values = [self.value(tensor) for tensor in tensors]
            made = self.builder.collective(kind, values, attributes, user_line())
        metas = self.builder.metas
        return [self.symbol(value, metas[value], tensor.device) for value, tensor in zip(made, tensors, strict=True)]

    def constant(self, values: Any, home: str, dtype: Any) -> Tensor:
        """Copy the values of an upload, and record that each run copies the tensor that holds them."""
        meta, array = copied(plain(values), dtype, lambda meta: np.empty(meta.shape, meta.dtype))
        with LOCATED:
            variable = self.keep(UploadedConstant(array, home), meta)
            moved = self.builder.move(self.builder.newest[variable], self.slots.device(home), user_line())
        return self.symbol(moved, meta, home)

    def keep(self, constant: UploadedConstant, meta: Meta) -> int:
        """The variable of a constant, which is the same in every run."""
        self.captured.append(constant)
        return self.builder.captured(meta, self.slots.device(constant.home))

    def print(self, parts: Sequence[str | None], tensors: Sequence[Tensor], sep: str, chain: int | None) -> None:
        known = self.core.effects.chain_number(chain)
        with LOCATED:
            values = [self.value(tensor) for tensor in tensors]
            slot = self.slots.chain(known)
            self.builder.print(parts, values, sep, slot, user_line())

    def effect(self, callback: Callable[..., None], tensors: Sequence[Tensor], chain: int | None) -> None:
        check_callback(callback)
        known = self.core.effects.chain_number(chain)
        with LOCATED:
            values = [self.value(tensor) for tensor in tensors]
            number = self.slots.callback(callback)
            self.builder.effect(number, values, self.slots.chain(known), user_line())

    def host_call(self, function: HostFunction, tensors: Sequence[Tensor], home: str) -> list[Tensor]:
        """Record a host call; returns its results."""
        metas = [meta.plain for meta in function.metas]
        with LOCATED:
            values = [self.value(tensor) for tensor in tensors]
            number = self.slots.callback(function)
            made = self.builder.host_call(number, values, metas, self.slots.device(home), user_line())
        return [self.symbol(value, self.builder.metas[value], home) for value in made]

    def construct(
        self, op: str, head: Any, arguments: Sequence[Tensor], blocks: Sequence[CapturedBlock], attributes: Any
    ) -> list[Tensor]:
        """Record a step of control flow; returns its results. `head`: the operand that it decides by, None for a loop
        with a test."""
        operands = [] if head is None else [self.operand(head)]
        operands += [self.value(tensor) for tensor in arguments]
        for block in blocks:
            operands += [*block.values, *block.numbers]
        programs = [block.program for block in blocks]
        made = self.builder.construct(op, operands, programs, dict(attributes), user_line())
        metas, homes, devices = self.builder.metas, self.builder.homes, self.slots.devices
        new = made[: len(programs[-1].results)]
        return [self.symbol(value, metas[value], devices[homes[value]]) for value in new]

    # -- numbers ---------------------------------------------------------------------------------------------------

    def arithmetic(self, op: str, operands: Sequence[Any], value: Any) -> SymbolicNumber | None:
        """A number that runs compute, with the present value `value`; None if a program cannot represent it."""
        if not all(is_representable(each) for each in (value, *operands) if type(each) is not SymbolicNumber):
            return None
        with LOCATED:
            slots = [each._symbol.number if type(each) is SymbolicNumber else self._constant(each) for each in operands]
            slot = self.builder.number(kind_of(value), op, slots)
        behind = (each._symbol.leaves for each in operands if type(each) is SymbolicNumber)
        return SymbolicNumber(self, slot, value, frozenset().union(*behind))

    def seed(self) -> SymbolicNumber:
        """The session's seed at the time of the run."""
        with LOCATED:
            if self._seed is None:
                self._seed = SymbolicNumber(self, self.builder.number("int", SEED), None)
            return self._seed

    def draw(self) -> tuple[SymbolicNumber, ...]:
        """The session's seed and the number of one of its random calls, at the time of the run."""
        with LOCATED:
            return self.seed(), SymbolicNumber(self, self.builder.number("int", DRAW), None)

    def attributes(self, given: Any) -> Any:
        """The attributes of an op, with plain numbers."""
        return {name: plain(value) for name, value in given.items()} if type(given) is dict else given

    def _constant(self, value: Scalar) -> int:
        kind = kind_of(value)
        key = (kind, repr(value))  # tells 0.0 from -0.0
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = self.builder.number(kind, CONSTANT, value=value)
        return slot

    def check_ints(
        self, op: str, inputs: Sequence[Any], metas: tuple[OperandMeta | None, ...], attributes: dict[str, Any]
    ) -> None:
        """Check the ints, symbolic ones with their present values, and note which of them each run has to check."""
        check_scalars(op, inputs, metas, attributes)
        for value in inputs:
            if (
                type(value) is SymbolicNumber
                and value._symbol.value is not None
                and kind_of(value._symbol.value) == "int"
            ):
                try:
                    check_scalar(op, plain_number(value._symbol.value), metas, attributes)
                except MetadataError:  # the function may catch it, and act differently on other values
                    self.root.fix(value._symbol.leaves)
                    raise
                self.root.ranges.append(RangeCheck(value._symbol.number, op, metas, attributes))

    # -- operands --------------------------------------------------------------------------------------------------

    def operand(self, value: Any) -> int:
        """The operand of a step: a value, or a number (n < 0)."""
        if isinstance(value, Tensor):
            return self.value(value)
        if type(value) is SymbolicNumber:
            value._symbol.check()
            return ~self.slot_of(value)
        return ~self._constant(value)

    def slot_of(self, number: SymbolicNumber) -> int:
        return number._symbol.number

    def value(self, tensor: Tensor) -> int:
        """The newest value of the variable behind a tensor."""
        if type(tensor) is SymbolicTensor:
            tensor._symbol.check()
        return self.builder.newest[self.variable(tensor)]

    def variable(self, tensor: Tensor) -> int:
        """The variable behind a tensor; the tensor is captured if necessary."""
        if type(tensor) is SymbolicTensor:
            return tensor._symbol.variable
        variable = self._variables.get(id(tensor))
        return self._capture(tensor) if variable is None else variable

    def _capture(self, tensor: Tensor) -> int:
        name = self.names.get(id(tensor), "")
        meta = known_meta(own(self.core, tensor), f"the tensor {name or 'that the routine captures'}")
        variable = self.builder.captured(meta, self.slots.device(tensor._home), self._unused(name))
        self.captured.append(tensor)
        self._variables[id(tensor)] = variable
        return variable

    def _unused(self, name: str) -> str:
        """The name, with a number appended if another captured tensor has it: `session.link` uses names."""
        if not name:
            return name
        unused, number = name, self._numbered.get(name, 1)
        while unused in self._numbered:
            number += 1
            unused = f"{name[: MAX_NAME_LENGTH - 6]}.{number}"
        self._numbered[name] = number
        self._numbered.setdefault(unused, 1)
        return unused

    def symbol(self, variable: int, meta: Meta | None, home: str) -> SymbolicTensor:
        symbol = SymbolicTensor(self, variable, meta, home)
        self._symbols.append(symbol)
        return symbol


def known_meta(tensor: Tensor, what: str) -> Meta:
    """The tensor's meta; MetadataError if it still depends on data."""
    meta = tensor._meta
    if type(meta) is not Meta:
        raise located(MetadataError(f"{what} has a shape that depends on data: wait for it first (.wait())"))
    return meta
