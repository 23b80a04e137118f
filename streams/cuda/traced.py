"""Finds what an op's kernel computes for each element, by running the kernel on symbols.

A kernel is written against an array module. Here that module is a `KernelRecorder`, which has the names of CuPy's
ufuncs, and whose arrays are symbols: the kernel's calls are recorded as loops of CuPy's, in order. So a generated
kernel computes what CuPy would compute call by call, and no formula is written twice.

Some kernels cannot be recorded, and raise `Untraceable`: those that ask for values or shapes, or call other functions
than ufuncs, and those with a loop that NVIDIA's compiler treats differently next to other loops (`CONTRACTED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.schema.opdef import OpDef
from ...interpreter.types.meta import Meta, OperandMeta
from .loops import NAMES, UfuncLoop, first_loop

# Ufuncs in whose loops for float64 the compiler joins a product and a sum, unless told not to. The machine code of
# other loops does not depend on that.
_LOGARITHMS: Final = ("log", "log10", "log1p", "log2", "logaddexp")
CONTRACTED: Final = frozenset((*_LOGARITHMS, "arccos", "arccosh", "arcsinh", "arctanh", "power"))
KINDS: Final = "biuf"  # of dtypes, in the order in which they are promoted
KIND_OF_NUMBER: Final[dict[Any, int]] = {bool: 0, int: 1, float: 3}  # types of numbers -> their positions there
COPY_BITS: Final = "memcpy(&out0, &in0, sizeof(out0))"


class Untraceable(Exception):  # noqa: N818 - a fact about a kernel, which is not reported
    """The kernel cannot be recorded."""


class Constant(NamedTuple):
    """A number in a kernel's code."""

    number: Any


# An operand of a loop: the number of an op's operand (as ~n), the number of an earlier loop, or a constant.
Operand: TypeAlias = int | Constant


class TracedCall(NamedTuple):
    """A call of a ufunc's loop."""

    name: str
    loop: UfuncLoop
    operands: tuple[Operand, ...]


class KernelTrace(NamedTuple):
    """The calls of a kernel. The last call gives its result."""

    calls: tuple[TracedCall, ...]


def trace(
    cupy: Any, op: OpDef, attributes: Mapping[str, Any], metas: Sequence[OperandMeta], result: Meta
) -> KernelTrace:
    """The calls of an op's kernel for operands of these metas. Untraceable if they cannot be recorded."""
    recorder = KernelRecorder(cupy)
    tensors = [meta.dtype for meta in metas if isinstance(meta, Meta)]
    if any(dtype.name not in NAMES for dtype in (*tensors, result.dtype)):
        raise Untraceable
    given = [
        TracedArray(recorder, meta.dtype, ~n) if isinstance(meta, Meta) else GivenNumber(meta, ~n)
        for n, meta in enumerate(metas)
    ]
    out = TracedArray(recorder, result.dtype, None)
    try:
        op.bind(recorder, len(metas), dict(attributes))(*given, out)
    except Untraceable:
        raise
    except Exception as error:  # the kernel uses a symbol as an array
        raise Untraceable from error
    if out.value is None:
        raise Untraceable
    if out.value < 0 or out.value != len(recorder.calls) - 1:
        recorder.record("copy", UfuncLoop((out.dtype,), out.dtype, "out0 = in0", ""), (out.value,))
    return KernelTrace(tuple(recorder.calls))


class GivenNumber:
    """A Python number among an op's operands. Only its type is known."""

    def __init__(self, of_type: Any, value: int) -> None:
        self.of_type = of_type
        self.value = value


class KernelRecorder:
    """The array module that a kernel gets."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.calls: list[TracedCall] = []

    def __getattr__(self, name: str) -> Any:
        ufunc = getattr(self._cupy, name, None)
        if not hasattr(ufunc, "_ops"):
            raise Untraceable(name)
        return lambda *operands, **named: self.call(name, ufunc, operands, **named)

    def call(self, name: str, ufunc: Any, operands: Sequence[Any], out: Any = None) -> TracedArray:
        """Record a CuPy ufunc, with its result in `out`, if that is given."""
        count = ufunc.nin
        if len(operands) > count:
            *operands, out = operands
        if len(operands) != count:
            raise Untraceable
        loop = first_loop(ufunc, [dtype_of(each) for each in operands])
        if loop is None or (loop.given == np.float64 and name in CONTRACTED):
            raise Untraceable
        check_numbers(operands)
        result = TracedArray(self, loop.given, self.record(name, loop, [operand_of(each) for each in operands]))
        if out is None:
            return result
        out.assign(result)
        return out  # type: ignore[no-any-return]

    def record(self, name: str, loop: UfuncLoop, operands: Sequence[Operand]) -> int:
        self.calls.append(TracedCall(name, loop, tuple(operands)))
        return len(self.calls) - 1

    def cast(self, value: Any, dtype: np.dtype[Any]) -> TracedArray:
        """The value, with another dtype."""
        if not isinstance(value, TracedArray):
            raise Untraceable
        if value.dtype == dtype:
            return TracedArray(self, dtype, value.read())
        loop = UfuncLoop((value.dtype,), dtype, "out0 = in0", "")
        return TracedArray(self, dtype, self.record("cast", loop, (value.read(),)))

    def where(self, condition: Any, x: Any, y: Any) -> TracedArray:
        """`cupy.where`."""
        check_numbers((x, y))
        dtype = np.result_type(*[each.dtype for each in (x, y) if isinstance(each, TracedArray)])
        loop = UfuncLoop((np.dtype(bool), dtype, dtype), dtype, "out0 = in0 ? in1 : in2", "")
        condition = self.cast(condition, np.dtype(bool))
        return TracedArray(self, dtype, self.record("where", loop, [operand_of(each) for each in (condition, x, y)]))

    def asarray(self, value: Any, dtype: Any = None) -> TracedArray:
        """`cupy.asarray` of an array."""
        return self.cast(value, value.dtype if dtype is None else np.dtype(dtype))

    array = asarray

    def copyto(self, target: TracedArray, source: Any, casting: str = "same_kind", where: Any = None) -> None:  # noqa: ARG002 - as `cupy.copyto`
        """`cupy.copyto`."""
        target.assign(source if where is None else self.where(where, source, target))

    def zeros_like(self, array: TracedArray) -> TracedArray:
        """`cupy.zeros_like`."""
        loop = UfuncLoop((array.dtype,), array.dtype, "out0 = 0", "")
        return TracedArray(self, array.dtype, self.record("zero", loop, (array.read(),)))

    def empty_like(self, array: TracedArray) -> TracedArray:
        """`cupy.empty_like`."""
        return TracedArray(self, array.dtype, None)


class TracedArray:
    """An array of which only the dtype is known. `value`: the operand or the call whose value it holds, or None."""

    size = 1  # kernels of ops leave out empty results
    __array_ufunc__ = None  # operators of NumPy's numbers leave the operation to it

    def __init__(self, recorder: KernelRecorder, dtype: np.dtype[Any], value: int | None) -> None:
        self.recorder = recorder
        self.dtype = dtype
        self.value = value

    def read(self) -> int:
        """The operand or call whose value the symbol holds."""
        if self.value is None:
            raise Untraceable
        return self.value

    def assign(self, source: Any) -> None:
        """Store a value, with the cast of a copy."""
        self.value = self.recorder.cast(source, self.dtype).read()

    def astype(self, dtype: Any, copy: bool = True) -> TracedArray:  # noqa: ARG002 - as an array's
        """The value with another dtype."""
        return self.recorder.cast(self, np.dtype(dtype))

    def view(self, dtype: Any) -> TracedArray:
        """The same bits with another dtype."""
        return BitsView(self, np.dtype(dtype))

    def __setitem__(self, key: Any, source: Any) -> None:
        if key is not Ellipsis:
            raise Untraceable
        self.assign(source)

    def __bool__(self) -> bool:
        raise Untraceable

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Any:
        return self.recorder.equal(self, other)

    def __ne__(self, other: object) -> Any:
        return self.recorder.not_equal(self, other)


class BitsView(TracedArray):
    """A view of a symbol's bits with another dtype."""

    def __init__(self, base: TracedArray, dtype: np.dtype[Any]) -> None:
        if base.dtype.itemsize != dtype.itemsize or dtype.name not in NAMES:
            raise Untraceable
        super().__init__(base.recorder, dtype, None)
        self.base = base

    def read(self) -> int:
        return self.recorder.record(
            "bits", UfuncLoop((self.base.dtype,), self.dtype, COPY_BITS, ""), (self.base.read(),)
        )

    def assign(self, source: Any) -> None:
        value = self.recorder.cast(source, self.dtype).read()
        loop = UfuncLoop((self.dtype,), self.base.dtype, COPY_BITS, "")
        self.base.value = self.recorder.record("bits", loop, (value,))


def _operator(ufunc: str, *, swapped: bool = False, in_place: bool = False) -> Callable[..., Any]:
    def apply(self: TracedArray, *others: Any) -> Any:
        operands = (*others, self) if swapped else (self, *others)
        return getattr(self.recorder, ufunc)(*operands, **({"out": self} if in_place else {}))

    return apply


_BINARY: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
for _name, _ufunc in _BINARY.items():
    setattr(TracedArray, f"__{_name}__", _operator(_ufunc))
    setattr(TracedArray, f"__r{_name}__", _operator(_ufunc, swapped=True))
    setattr(TracedArray, f"__i{_name}__", _operator(_ufunc, in_place=True))
for _name, _ufunc in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}.items():
    setattr(TracedArray, f"__{_name}__", _operator(_ufunc))
for _name, _ufunc in {"neg": "negative", "invert": "invert"}.items():
    setattr(TracedArray, f"__{_name}__", _operator(_ufunc))


def dtype_of(operand: Any) -> Any:
    """The dtype of a symbol; the type of a number."""
    if isinstance(operand, TracedArray):
        return operand.dtype
    return operand.of_type if isinstance(operand, GivenNumber) else type(operand)


def check_numbers(operands: Sequence[Any]) -> None:
    """Untraceable if there is no tensor, or a number of a higher kind than any tensor, which would select another
    loop."""
    kinds = [KINDS.index(each.dtype.kind) for each in operands if isinstance(each, TracedArray)]
    numbers = [KIND_OF_NUMBER.get(dtype_of(each)) for each in operands if not isinstance(each, TracedArray)]
    if not kinds or any(kind is None or kind > max(kinds) for kind in numbers):
        raise Untraceable


def operand_of(operand: Any) -> Operand:
    """The operand of a loop."""
    if isinstance(operand, TracedArray):
        return operand.read()
    return operand.value if isinstance(operand, GivenNumber) else Constant(operand)
