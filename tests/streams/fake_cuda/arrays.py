"""CuPy's arrays: a call finds the result's shape and memory at once, and the stream computes the values later.

Any function of NumPy can be launched. To know the result's form, the function is called twice: at the launch, on the
memory's present content, and when the stream gets there. Functions whose result shape depends on data, or that
read a value, wait for the stream first, as CuPy's do. A call with an array of the host is a TypeError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np

from .gpu import Gpu, current_queue
from .memory import MemoryPointer, address_of
from .names import check_call, is_known
from .values import Values

# The host waits for the values: the shape depends on them, or an error does.
WAITING = {"nonzero", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "argwhere"}
WAITING |= {"flatnonzero", "bincount", "histogram", "extract", "compress", "array_equal", "count_nonzero_host"}
# Functions that change their first argument and return nothing.
MUTATING = {"copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis", "at", "fill", "sort_in_place"}
MUTATING |= {"setitem", "setfield", "partition_in_place", "itemset"}
DLPACK_CUDA = 2
# Thrust's, which end with a wait for the stream.
SORTING = {"sort", "argsort", "lexsort", "sort_complex", "partition", "argpartition", "sort_in_place"}
SORTING |= {"partition_in_place", "median", "percentile", "quantile", "nanmedian"}
VALUES = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__complex__"}


class Capsule:
    """The result of `__dlpack__`."""

    def __init__(self, array: Array) -> None:
        self.array = array


class Array:
    """`cupy.ndarray`; `native` is a view of the same bytes, for kernels alone, with CuPy's functions."""

    gpu: Gpu
    malloc: Callable[[int], MemoryPointer]
    __array_ufunc__ = None

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any = np.float64,
        memptr: MemoryPointer | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        dtype = np.dtype(dtype)
        shape = shape if isinstance(shape, tuple) else (shape,)
        if len(shape) > 32:
            raise ValueError("CuPy's arrays have 32 dimensions at the most")
        if memptr is None:
            memptr = type(self).malloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self.data = memptr
        self.native: Any = np.ndarray(shape, dtype, memptr.mem.block, memptr.offset, strides).view(Values)

    @classmethod
    def over(cls, native: Any, owner: Array) -> Array:
        """An array over a view of another one's bytes."""
        made = cls.__new__(cls)
        made.data = MemoryPointer(owner.data.mem, address_of(native) - owner.data.mem.ptr)
        made.native = native.view(Values)
        return made

    @property
    def _c_contiguous(self) -> bool:
        return bool(self.native.flags.c_contiguous)

    @property
    def device(self) -> Any:
        return Ordinal(self.data.device_id)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (address_of(self.native), False), "shape": self.shape, "version": 3}

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self) -> Any:
        """A copy of the values on the host, which waits for them."""
        self.gpu.drain(current_queue(self.gpu))
        return self.native.view(np.ndarray).copy()

    def set(self, source: Any) -> None:
        """Copy an array of the host here, which waits for the stream first."""
        self.gpu.drain(current_queue(self.gpu))
        np.copyto(self.native, source)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self.data.device_id

    def __dlpack__(self, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> Capsule:
        """The consumer's stream waits for the current one; None and 1 are the legacy default stream."""
        array = self.copy() if copy else self
        if stream not in {None, 0, 1, -1}:
            recorded = self.gpu.record(current_queue(self.gpu))
            self.gpu.enqueue(self.gpu.queues[stream], lambda: None, partial(self.gpu.is_over, recorded))
        elif stream != -1:
            self.gpu.drain(current_queue(self.gpu))
        return Capsule(array)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not is_known(f"cupy.ndarray.{name}"):
            raise AttributeError(name)
        if name in {"shape", "dtype", "strides", "nbytes", "itemsize", "size", "ndim", "flags"}:
            return getattr(self.native, name)
        if name in {"T", "real", "imag", "mT"}:
            return Launch(self.gpu, name, operator.attrgetter(name))(self)
        return Launch(self.gpu, IN_PLACE.get(name, name), operator.attrgetter(name), method=True).of(self)

    def __getitem__(self, key: Any) -> Any:
        return Launch(self.gpu, "unique" if has_mask(key) else "getitem", operator.getitem)(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise TypeError("an array of the host is assigned to one of the device")
        if has_mask(key):
            self.check_fits(key, value)
        Launch(self.gpu, "setitem", operator.setitem)(self, key, value)

    def check_fits(self, key: Any, value: Any) -> None:
        """Raise ValueError for a value that does not broadcast to a mask's selection, unless that is empty; waits."""
        self.gpu.drain(current_queue(self.gpu))
        selected = self.native[native(key)].shape
        if 0 not in selected:
            np.broadcast_to(np.empty(getattr(value, "shape", ())), selected)

    def __len__(self) -> int:
        return len(self.native)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        raise TypeError("unhashable")

    def __eq__(self, other: object) -> Any:
        return Launch(self.gpu, "equal", operator.eq)(self, other)


IN_PLACE = {"sort": "sort_in_place", "partition": "partition_in_place"}


class Ordinal:
    """`cupy.ndarray.device`."""

    def __init__(self, id_: int) -> None:
        self.id = id_


def has_mask(key: Any) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return any(isinstance(one, Array) and one.native.dtype == np.bool_ for one in keys)


def give_operators() -> None:
    """The operators of Python, each a launch."""

    def forward(function: Any) -> Any:
        return lambda self, *rest: Launch(self.gpu, "operator", function)(self, *rest)

    def backward(function: Any) -> Any:
        return lambda self, other: Launch(self.gpu, "operator", lambda x, y: function(y, x))(self, other)

    def in_place(function: Any) -> Any:
        def assign(self: Array, other: Any) -> Array:
            Launch(self.gpu, "setitem", function)(self, other)
            return self

        return assign

    def value(name: str) -> Any:
        return lambda self: Launch(self.gpu, name, operator.methodcaller(name))(self)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"):
        setattr(Array, f"__{name}__", forward(getattr(operator, name)))
        setattr(Array, f"__r{name}__", backward(getattr(operator, name)))
        setattr(Array, f"__i{name}__", in_place(getattr(operator, f"i{name}")))
    for name in ("and_", "or_", "xor"):
        plain = name.rstrip("_")
        setattr(Array, f"__{plain}__", forward(getattr(operator, name)))
        setattr(Array, f"__r{plain}__", backward(getattr(operator, name)))
        setattr(Array, f"__i{plain}__", in_place(getattr(operator, f"i{plain}")))
    for name in ("lt", "le", "gt", "ge", "ne", "neg", "pos", "abs", "invert"):
        setattr(Array, f"__{name}__", forward(getattr(operator, name)))
    for name in ("bool", "int", "float", "index", "complex"):
        setattr(Array, f"__{name}__", value(f"__{name}__"))


give_operators()


class Launch:
    """A function of NumPy as a call of CuPy."""

    def __init__(self, gpu: Gpu, name: str, function: Any, *, method: bool = False) -> None:
        self.gpu, self.name, self.function, self.method = gpu, name, function, method
        self.waits = name in WAITING or name in VALUES
        self.path = ""  # in CuPy, for functions that have a path

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.function, name)
        return Launch(self.gpu, name, found) if callable(found) else found

    def of(self, array: Array) -> Callable[..., Any]:
        """A method of that array."""
        get = self.function
        get(array.native)  # raises AttributeError where NumPy has no such method

        def call(*args: Any, **kwargs: Any) -> Any:
            check_call(f"cupy.ndarray.{self.name}", len(args), kwargs)
            return Launch(self.gpu, self.name, lambda x, *a, **k: get(x)(*a, **k))(array, *args, **kwargs)

        return call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_call(self.path, len(args), kwargs)
        if isinstance(self.function, np.ufunc) and len(args) > self.function.nin:
            kwargs["out"] = args[self.function.nin :]
            args = args[: self.function.nin]
        elif (position := position_of_out(self.function)) is not None and len(args) == position + 1:
            args, kwargs["out"] = args[:position], args[position]
        out = kwargs.pop("out", None)
        out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
        outs = [] if out is None else [out] if isinstance(out, Array) else list(out)
        used = [*arrays_in((args, kwargs)), *outs]
        check_devices(self.gpu, used)
        self.gpu.call("launchKernel")
        if self.name in SORTING:
            self.gpu.refuse_capturing()
        native_args, native_kwargs = native((args, kwargs))
        if self.name in MUTATING:
            self.launch(lambda: self.function(*native_args, **native_kwargs))
            return None
        result = self.rehearse(native_args, native_kwargs)
        many = isinstance(result, tuple | list)
        if outs:
            for position, target in enumerate(outs):
                self.launch_into(target, position if many else None, native_args, native_kwargs)
            return out
        if not many:
            return self.wrap(result, used, None, native_args, native_kwargs)
        wrapped = [self.wrap(one, used, position, native_args, native_kwargs) for position, one in enumerate(result)]
        return result._make(wrapped) if hasattr(result, "_make") else type(result)(wrapped)

    def rehearse(self, args: Any, kwargs: Any) -> Any:
        """The call's result, valid in form and memory; its values are valid only if the host waits for them."""
        with np.errstate(all="ignore"):
            if not self.waits:
                try:
                    return self.function(*args, **kwargs)
                except Exception:  # values that are not computed yet may cause it
                    if current_queue(self.gpu).capture is not None:
                        return self.function(*with_zeros(args), **with_zeros(kwargs))
                    self.wait()
            else:
                self.wait()
            return self.function(*args, **kwargs)

    def wait(self) -> None:
        self.gpu.drain(current_queue(self.gpu))

    def wrap(self, result: Any, used: list[Array], position: int | None, args: Any, kwargs: Any) -> Any:
        if self.name in VALUES or not isinstance(result, np.ndarray | np.generic):
            return result
        for array in used:
            if isinstance(result, np.ndarray) and np.may_share_memory(result, array.native):
                return Array.over(result, array)
        made = Array(result.shape, result.dtype)
        self.launch_into(made, position, args, kwargs)
        return made

    def launch_into(self, target: Array, position: int | None, args: Any, kwargs: Any) -> None:
        into = target.native

        def run() -> None:
            result = self.function(*args, **kwargs)
            np.copyto(into, result if position is None else result[position], casting="same_kind")

        self.launch(run)

    def launch(self, run: Callable[[], object]) -> None:
        def quietly() -> None:
            with np.errstate(all="ignore"):
                run()

        self.gpu.enqueue(current_queue(self.gpu), quietly)


@cache
def position_of_out(function: Any) -> int | None:
    """The position of `out` among the arguments of a function that is no ufunc; None if it has none."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = [p.name for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    return names.index("out") if "out" in names else None


def arrays_in(value: Any) -> list[Array]:
    """All device arrays among the arguments; TypeError for a host array."""
    if isinstance(value, Array):
        return [value]
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple):
        return [array for one in value for array in arrays_in(one)]
    if isinstance(value, dict):
        return [array for one in value.values() for array in arrays_in(one)]
    return []


def native(value: Any) -> Any:
    """The arguments with NumPy's views in the place of arrays."""
    if isinstance(value, Array):
        return value.native
    if type(value) in {list, tuple}:
        return type(value)(native(one) for one in value)
    if isinstance(value, dict):
        return {name: native(one) for name, one in value.items()}
    return value


def with_zeros(value: Any) -> Any:
    """The arguments of `native`, with zeros for positions: results of a capture have no values."""
    if isinstance(value, np.ndarray):
        return np.zeros_like(value) if value.dtype.kind in "iu" else value
    if type(value) in {list, tuple}:
        return type(value)(with_zeros(one) for one in value)
    if isinstance(value, dict):
        return {name: with_zeros(one) for name, one in value.items()}
    return value


def check_devices(gpu: Gpu, arrays: list[Array]) -> None:
    """A kernel reads memory of its own device, and of peers that are open to it."""
    for array in arrays:
        other = array.data.device_id
        if other != gpu.device and (gpu.device, other) not in gpu.enabled:
            raise ValueError(f"the array is on device {other}, the current device is {gpu.device}")
