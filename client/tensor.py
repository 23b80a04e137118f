"""Tensor: a handle. Made at once, long before its value; dropping it releases the tensor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ..interpreter import ops as _ops  # noqa: F401 - fills the registry
from ..interpreter.errors import ProtocolError, TensordError
from ..interpreter.meta import Meta, Scalar
from ..interpreter.opdef import REGISTRY, OpDef

if TYPE_CHECKING:
    from .session import Session
    from .transport import Reply

Operand = Any  # a Tensor, or a Python scalar
_GONE: Any = object()  # the meta of a released handle: no signature has it


class Tensor:
    """A handle to a tensor of a session's virtual machine.

    Operators and ops take tensors of one session and Python scalars, and return handles at once. A value is waited
    for by `numpy`, `item`, `wait` and `await`, all of which see the version at their place in program order. `shape`
    and `dtype` are known at once unless data decide them; then they wait.
    """

    __slots__ = ("__weakref__", "_home", "_id", "_meta", "_probe", "_session")
    _probe: Reply  # set once somebody has asked whether it is ready
    __array_ufunc__ = None  # numpy arrays on the left leave operators to us, which then say what to do

    def __init__(self, session: Session, id_: int, meta: Meta | None, home: str) -> None:
        self._session = session
        self._id = id_
        self._meta = meta
        self._home = home

    def __del__(self) -> None:
        # Runs in any thread, inside any lock: nothing but this.
        if self._id > 0:
            self._session._drop(self._id)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; waits if data decide it, and raises what went wrong with it."""
        return self._known().shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Its dtype; waits like `shape`."""
        return self._known().dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions; waits like `shape`."""
        return self._known().ndim

    @property
    def size(self) -> int:
        """Number of elements; waits like `shape`."""
        return self._known().size

    @property
    def device(self) -> str:
        """Its home: where ops on it run unless told otherwise."""
        return self._home

    def _known(self) -> Meta:
        meta = self._meta
        if type(meta) is not Meta:
            meta = self.wait()._meta
        return cast(Meta, meta)

    def _learn(self, described: Any) -> None:
        """The answer to a wait tells the meta."""
        (wire, _home), *_ = described
        if self._meta is None:
            self._meta = Meta.of(*wire)

    def residency(self) -> dict[str, str]:
        """Devices that hold a current copy ("valid"), or will ("planned")."""
        self._session.flush()
        found: dict[str, str] = self._session._transport.query("residency", self._own()._id)
        return found

    # -- waiting ---------------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Its value as a NumPy array of its own. Waits; raises the error of the call that failed, with that line."""
        result = self._session._fetch(self._own())
        if self._meta is None:
            self._meta = Meta.of(result.shape, result.dtype)
        return result

    def item(self) -> Scalar:
        """The value of a tensor with one element, as a Python scalar."""
        value: Scalar = self.numpy().item()
        return value

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until its value is there; raises its error, or TimeoutError."""
        self._learn(self._session._await(self._session._ask_ready(self._own()), timeout))
        return self

    def is_ready(self) -> bool:
        """Is its value there, or its error? Never waits."""
        return self._poll().done

    @property
    def error(self) -> TensordError | None:
        """What went wrong with it; None while it is healthy or not finished. Never waits."""
        reply = self._poll()
        return reply.error if reply.done else None

    def _poll(self) -> Reply:
        """The standing question whether it is ready; asked again once answered, since it may be written to."""
        probe = getattr(self, "_probe", None)
        if probe is None or probe.done:
            probe = self._session._ask_ready(self._own())
            self._probe = probe
        else:
            self._session.flush()
        return probe

    def __await__(self) -> Generator[Any, None, Self]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> Self:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        reply = self._session._ask_ready(self._own())

        def finish() -> None:
            if not future.done():
                future.set_result(None)

        def done() -> None:
            with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
                loop.call_soon_threadsafe(finish)

        reply.when_done(done)
        await future
        self._learn(reply.result())
        return self

    # -- placement and life ----------------------------------------------------------------------------------------

    def to_device(self, device: str) -> Tensor:
        """A tensor with this value and another home. The bytes move once, and only if they are not there."""
        return self._session._to_device(self, device)

    def release(self) -> None:
        """Let go of the tensor now. Using the handle afterwards is an error; releasing it twice is none."""
        if self._id > 0:
            self._session._drop(self._id)
            self._id = -self._id
            self._meta = _GONE

    @property
    def _released(self) -> bool:
        return self._id < 0

    def _own(self) -> Self:
        if self._released:
            raise self._session._at_user(ProtocolError(f"tensor {-self._id} was released"), 2)
        return self

    # -- ops as methods --------------------------------------------------------------------------------------------

    def _call(self, name: str, *others: Operand, **attributes: Any) -> Tensor:
        return self._session.call(name, [self, *others], attributes)[0]

    @property
    def T(self) -> Tensor:  # noqa: N802 - the array API's name
        """The transpose: a view."""
        return self._call("transpose")

    def reshape(self, *shape: int | tuple[int, ...]) -> Tensor:
        """Another shape, with one -1 at most; a view where strides can express it."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return self._call("reshape", shape=wanted)

    def astype(self, dtype: Any) -> Tensor:
        """Another dtype."""
        return self._call("astype", dtype=dtype)

    def sum(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Sum over the axes."""
        return self._call("sum", axis=axis, keepdims=keepdims)

    def mean(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Mean over the axes."""
        return self._call("mean", axis=axis, keepdims=keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Largest element along the axes."""
        return self._call("max", axis=axis, keepdims=keepdims)

    def min(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Smallest element along the axes."""
        return self._call("min", axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the largest element along the axis."""
        return self._call("argmax", axis=axis, keepdims=keepdims)

    def __getitem__(self, index: Any) -> Tensor:
        """Basic indexing: integers, slices, ellipsis, None. A view."""
        return self._call("getitem", index=index)

    def __setitem__(self, index: Any, value: Operand) -> None:
        """Write a part of it, in place."""
        self._session.call("setitem", [self, value], {"index": index}, out=[self])

    def __neg__(self) -> Tensor:
        return self._call("negative")

    def __pos__(self) -> Tensor:
        return self._call("positive")

    def __abs__(self) -> Tensor:
        return self._call("abs")

    def __invert__(self) -> Tensor:
        return self._call("bitwise_invert")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.numpy().item())

    def __int__(self) -> int:
        return int(self.numpy().item())

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("a tensor is not an array in this process: call .numpy(), which waits for its value")

    def __repr__(self) -> str:
        if self._released:
            return f"<tensor {-self._id} released>"
        meta = "pending" if self._meta is None else repr(self._meta)
        return f"<tensor {self._id} {meta} on {self._home}>"

    __hash__ = object.__hash__


def _forward(op: OpDef) -> Callable[[Tensor, Operand], Tensor]:
    def operate(self: Tensor, other: Operand) -> Tensor:
        if type(other) is not Tensor and type(other) not in _SCALARS:
            refused: Tensor = _refuse(other)
            return refused
        return self._session._operate(op, self, other)

    return operate


def _in_place(op: OpDef) -> Callable[[Tensor, Operand], Tensor]:
    def operate(self: Tensor, other: Operand) -> Tensor:
        if type(other) is not Tensor and type(other) not in _SCALARS:
            refused: Tensor = _refuse(other)
            return refused
        return self._session._operate(op, self, other, True)

    return operate


def _reflected(op: OpDef) -> Callable[[Tensor, Operand], Tensor]:
    def operate(self: Tensor, other: Operand) -> Tensor:
        if type(other) not in _SCALARS:
            refused: Tensor = _refuse(other)
            return refused
        return self._session.call(op.name, [other, self])[0]

    return operate


def _refuse(other: object) -> Any:
    if isinstance(other, np.ndarray | np.generic):
        raise TypeError("a NumPy array is no operand: make a tensor of it with session.asarray, or take .numpy()")
    return NotImplemented


_SCALARS = frozenset((bool, int, float, complex))
_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}


def _add_operators() -> None:
    for name, op in _BINARY.items():
        setattr(Tensor, f"__{name}__", _forward(REGISTRY[op]))
        setattr(Tensor, f"__i{name}__", _in_place(REGISTRY[op]))
        setattr(Tensor, f"__r{name}__", _reflected(REGISTRY[op]))
    for name, op in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _forward(REGISTRY[op]))


_add_operators()
