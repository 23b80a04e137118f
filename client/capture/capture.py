"""A capture: what a function does with its session, recorded as a program.

Tensors that were there before, and are no arguments, become *captured* tensors of the program, by identity. Numbers of
the arguments become its parameters, all others constants. A write in place writes the variable behind the tensor: the
caller's, a captured one, or one that the function has made. Values that are uploaded inside are copied now, and
uploaded once when the capture has succeeded; each run takes a copy of its own, since the function may write to it.

The functions of control flow are captured within that, as blocks (`blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CaptureError, MetadataError, TensordError
from ...interpreter.programs.builder import LONGEST, SLOTS, Builder
from ...interpreter.programs.numbers import CONSTANT, DRAW, PARAMETER, SEED
from ...interpreter.programs.program import Program
from ...interpreter.schema.promotion import WIRE_INTEGERS, check_scalar, check_scalars
from ...interpreter.types.meta import SCALAR_TYPES, Meta, OperandMeta, Scalar
from ..calls.checks import own
from ..core.core import Core
from ..host_arrays.uploads import copied
from ..locations.locations import located, user_line
from ..outbox.current import CURRENT
from ..requests.effects import check_callback
from ..tensor.tensor import Tensor
from .numbers import SymbolicNumber, plain
from .symbolic import SymbolicTensor

if TYPE_CHECKING:
    from ..calls.handlers import Invocation
    from .blocks import Block, Draws


class Constant(NamedTuple):
    """Values that the function uploads, for a tensor that the routine captures."""

    array: NDArray[Any]
    home: str


class Range(NamedTuple):
    """An int that a run computes, as an operand of an op: what `check_scalar` has to be asked at each run."""

    slot: int
    op: str
    metas: tuple[OperandMeta | None, ...]
    attributes: dict[str, Any]


class Identity:
    """An object as the key of a dictionary: by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Located:
    """`with LOCATED:` errors from inside get the user's line."""

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TensordError):
            located(error)


LOCATED: Final = Located()


class Capture:
    """One capture, of one thread.

    `fixed`: the positions of numbers whose values were asked for -> the line that has asked.
    """

    around: Capture | None = None  # of a block
    draws: Draws | None = None  # of a block

    def __init__(self, core: Core, names: Mapping[int, str]) -> None:
        self.core = core
        self.outbox = core.outbox
        self.over = False
        self.fixed: dict[int, str | None] = {}
        self.ranges: list[Range] = []
        self.captured: list[Tensor | Constant] = []
        self._builder = Builder(CURRENT.infer)
        self._names = dict(names)  # of tensors that may be captured, by id()
        self._numbered: dict[str, int] = {}  # names of captured tensors -> the last number put behind them
        self._devices: dict[str, int] = {}
        self._chains: dict[int, int] = {}
        self._callbacks: dict[Identity, int] = {}
        self._variables: dict[int, int] = {}  # of captured tensors, by id()
        self._symbols: list[SymbolicTensor] = []
        self._constants: dict[tuple[str, str], int] = {}
        self._seed: SymbolicNumber | None = None

    @property
    def root(self) -> Capture:
        """The capture around all blocks."""
        return self if self.around is None else self.around.root

    def begin(self) -> None:
        """Record what this thread does, until `end`."""
        with SHIELD:  # an exception between the two would leave the session half in a capture
            self.core.calls.capturing(1)
            CURRENT.capture = self
            SHIELD.hold(self)

    @ends_block
    def end(self) -> None:
        """Record nothing more. The capture's symbolic tensors are dead."""
        with SHIELD:
            if CURRENT.capture is not None and CURRENT.capture.root is self:
                SHIELD.let_go(self)
                CURRENT.capture = None
                self.core.calls.capturing(-1)
            self.over = True
            for symbol in self._symbols:
                symbol._die()
            self._seed = None  # it refers to the capture, and so to the session

    def finish(self, results: Sequence[int]) -> Program:
        """The program that returns these variables."""
        with LOCATED:
            return self._builder.finish([self._builder.newest[variable] for variable in results])

    @property
    def devices(self) -> list[str]:
        """The device of each slot."""
        return list(self._devices)

    @property
    def chains(self) -> list[int]:
        """The chain of each slot."""
        return list(self._chains)

    @property
    def callbacks(self) -> list[Callable[..., None]]:
        """The function of each slot."""
        return [each.value for each in self._callbacks]

    def is_within(self, other: Capture | None) -> bool:
        """Is it that capture, or a block in it?"""
        found: Capture | None = self
        while found is not None and found is not other:
            found = found.around
        return found is not None

    def is_parameter(self, tensor: SymbolicTensor) -> bool:
        """Does it stand for an argument?"""
        return tensor._variable < len(self._builder.parameters)

    def name(self, tensor: Tensor, name: str) -> None:
        """The name that a tensor gets if it is captured from now on, unless it has one."""
        if name:
            self._names.setdefault(id(tensor), name)

    # -- arguments -------------------------------------------------------------------------------------------------

    def parameter(self, tensor: Tensor, name: str) -> SymbolicTensor:
        """The symbolic tensor of an argument."""
        meta = known_meta(own(self.core, tensor), f"the argument {name}")
        value = self._builder.parameter(meta, self._slot(tensor._home), name)
        return self._symbol(value, meta, tensor._home)

    def number(self, value: Any, leaf: int, name: str) -> SymbolicNumber:
        """The symbolic number of an argument, at that place among the arguments' numbers."""
        slot = self._builder.number(kind_of(value), PARAMETER, name=name)
        return SymbolicNumber(self, slot, value, frozenset((leaf,)))

    def fix(self, leaves: frozenset[int]) -> None:
        """The values of these numbers were asked for."""
        for leaf in leaves:
            if leaf not in self.fixed:
                self.fixed[leaf] = user_line()

    # -- steps -----------------------------------------------------------------------------------------------------

    def record(self, invocation: Invocation) -> list[Tensor]:
        """Record an op; its results."""
        from ..calls.signatures import as_floats, inferred, signature_of

        calls, out = self.core.calls, invocation.out
        device = calls.place(self.core, invocation)
        key = signature_of(self.core, invocation, device)
        inputs = as_floats(key, invocation.inputs) or invocation.inputs
        attributes, line = dict(invocation.attributes), user_line()
        with LOCATED:
            inferred(CURRENT.infer, key)  # first, as op by op: its errors are those of the operands as they are given
            self._check_ints(key.op.name, inputs, key.metas, attributes)
            operands = [self._operand(value) for value in inputs]
            into = None if out is None else [self._value(target) for target in out]
            made = self._builder.op(key.op.name, operands, attributes, self._slot(device), into, line)
        if out is not None:
            return list(out)
        return [self._symbol(value, self._builder.metas[value], device) for value in made]

    def move(self, tensor: Tensor, home: str) -> Tensor:
        """Record a move to another home, or a copy."""
        with LOCATED:
            value = self._builder.move(self._value(tensor), self._slot(home), user_line())
        return self._symbol(value, self._builder.metas[value], home)

    def constant(self, values: Any, home: str, dtype: Any) -> Tensor:
        """Copy the values for an upload, and record that each run takes a copy of the tensor."""
        meta, array = copied(plain(values), dtype, lambda meta: np.empty(meta.shape, meta.dtype))
        with LOCATED:
            variable = self._keep(Constant(array, home), meta)
            moved = self._builder.move(self._builder.newest[variable], self._slot(home), user_line())
        return self._symbol(moved, meta, home)

    def _keep(self, constant: Constant, meta: Meta) -> int:
        """The variable of a tensor with these values, which each run has."""
        self.captured.append(constant)
        return self._builder.captured(meta, self._slot(constant.home))

    def print(self, parts: Sequence[str | None], tensors: Sequence[Tensor], sep: str, chain: int | None) -> None:
        """Record a print."""
        known = self.core.effects.known(chain)
        with LOCATED:
            values = [self._value(tensor) for tensor in tensors]
            slot = limited(self._chains, known, "chains")
            self._builder.print(parts, values, sep, slot, user_line())

    def effect(self, callback: Callable[..., None], tensors: Sequence[Tensor], chain: int | None) -> None:
        """Record a side effect."""
        check_callback(callback)
        known = self.core.effects.known(chain)
        with LOCATED:
            values = [self._value(tensor) for tensor in tensors]
            number = limited(self._callbacks, Identity(callback), "functions of side effects")
            self._builder.effect(number, values, limited(self._chains, known, "chains"), user_line())

    def construct(
        self, op: str, head: Any, arguments: Sequence[Tensor], blocks: Sequence[Block], attributes: Any
    ) -> list[Tensor]:
        """Record a step of control flow; its results. `head`: what it decides by, None if it has a test."""
        operands = [] if head is None else [self._operand(head)]
        operands += [self._value(tensor) for tensor in arguments]
        for block in blocks:
            operands += [*block.values, *block.numbers]
        programs = [block.program for block in blocks]
        made = self._builder.construct(op, operands, programs, dict(attributes), user_line())
        metas, homes, devices = self._builder.metas, self._builder.homes, self.devices
        new = made[: len(programs[-1].results)]
        return [self._symbol(value, metas[value], devices[homes[value]]) for value in new]

    # -- numbers ---------------------------------------------------------------------------------------------------

    def arithmetic(self, op: str, operands: Sequence[Any], value: Any) -> SymbolicNumber | None:
        """The number that a run computes, and that is `value` now; None if a program cannot have it."""
        if not all(fits(each) for each in (value, *operands) if type(each) is not SymbolicNumber):
            return None
        with LOCATED:
            slots = [each._slot if type(each) is SymbolicNumber else self._constant(each) for each in operands]
            slot = self._builder.number(kind_of(value), op, slots)
        behind = (each._leaves for each in operands if type(each) is SymbolicNumber)
        return SymbolicNumber(self, slot, value, frozenset().union(*behind))

    def seed(self) -> SymbolicNumber:
        """The session's seed, as of the run."""
        with LOCATED:
            if self._seed is None:
                self._seed = SymbolicNumber(self, self._builder.number("int", SEED), None)
            return self._seed

    def draw(self) -> tuple[SymbolicNumber, ...]:
        """The session's seed, and the number of one of its random calls, as of the run."""
        with LOCATED:
            return self.seed(), SymbolicNumber(self, self._builder.number("int", DRAW), None)

    def attributes(self, given: Any) -> Any:
        """An op's attributes with plain numbers."""
        return {name: plain(value) for name, value in given.items()} if type(given) is dict else given

    def _constant(self, value: Scalar) -> int:
        kind = kind_of(value)
        key = (kind, repr(value))  # tells 0.0 from -0.0
        slot = self._constants.get(key)
        if slot is None:
            slot = self._constants[key] = self._builder.number(kind, CONSTANT, value=value)
        return slot

    def _check_ints(
        self, op: str, inputs: Sequence[Any], metas: tuple[OperandMeta | None, ...], attributes: dict[str, Any]
    ) -> None:
        """Check the ints, those that runs compute as they are now, and note what runs have to check."""
        check_scalars(op, inputs, metas, attributes)
        for value in inputs:
            if type(value) is SymbolicNumber and value._value is not None and kind_of(value._value) == "int":
                try:
                    check_scalar(op, plain_number(value._value), metas, attributes)
                except MetadataError:  # the function may go on, and do something else for other values
                    self.root.fix(value._leaves)
                    raise
                self.root.ranges.append(Range(value._slot, op, metas, attributes))

    # -- operands --------------------------------------------------------------------------------------------------

    def _operand(self, value: Any) -> int:
        if isinstance(value, Tensor):
            return self._value(value)
        if type(value) is SymbolicNumber:
            value._check()
            return ~self._slot_of(value)
        return ~self._constant(value)

    def _slot_of(self, number: SymbolicNumber) -> int:
        return number._slot

    def _value(self, tensor: Tensor) -> int:
        """The newest value of the variable behind a tensor."""
        if type(tensor) is SymbolicTensor:
            tensor._check()
        return self._builder.newest[self._variable(tensor)]

    def _variable(self, tensor: Tensor) -> int:
        if type(tensor) is SymbolicTensor:
            return tensor._variable
        variable = self._variables.get(id(tensor))
        return self._capture(tensor) if variable is None else variable

    def _capture(self, tensor: Tensor) -> int:
        name = self._names.get(id(tensor), "")
        meta = known_meta(own(self.core, tensor), f"the tensor {name or 'that the routine captures'}")
        variable = self._builder.captured(meta, self._slot(tensor._home), self._unused(name))
        self.captured.append(tensor)
        self._variables[id(tensor)] = variable
        return variable

    def _unused(self, name: str) -> str:
        """The name, or with a number behind it if another captured tensor has it: `session.link` goes by names."""
        if not name:
            return name
        found, number = name, self._numbered.get(name, 1)
        while found in self._numbered:
            number += 1
            found = f"{name[: LONGEST - 6]}.{number}"
        self._numbered[name] = number
        self._numbered.setdefault(found, 1)
        return found

    def _symbol(self, variable: int, meta: Meta | None, home: str) -> SymbolicTensor:
        symbol = SymbolicTensor(self, variable, meta, home)
        self._symbols.append(symbol)
        return symbol

    def _slot(self, device: str) -> int:
        return numbered(self._devices, device)


def known_meta(tensor: Tensor, what: str) -> Meta:
    """The tensor's meta; MetadataError if data decide it, and have not yet."""
    meta = tensor._meta
    if type(meta) is not Meta:
        raise located(MetadataError(f"{what} has a shape that depends on data: wait for it first (.wait())"))
    return meta


def numbered(table: dict[Any, int], key: Any) -> int:
    """The number of a key, the next one for a new key."""
    return table.setdefault(key, len(table))


def limited(table: dict[Any, int], key: Any, what: str) -> int:
    """The same for what a program has few slots of; CaptureError for one too many."""
    if key not in table and len(table) >= SLOTS:
        raise CaptureError(f"a routine has at most {SLOTS} {what}; make several routines of it")
    return numbered(table, key)


def plain_number(value: Any) -> Scalar:
    """A NumPy scalar as the Python number it is."""
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    return number


def kind_of(value: Any) -> str:
    """The name of a number's Python type."""
    return type(plain_number(value)).__name__


def fits(value: Any) -> bool:
    """May a program have this number?"""
    return type(value).__name__ in SCALAR_TYPES and (type(value) is not int or value in WIRE_INTEGERS)
