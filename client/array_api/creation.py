"""Creation functions. A tensor is made on `device`, else on the machine's first device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataBufferError, MetadataError, MetadataTypeError
from ...interpreter.schema.attributes import check_dtype
from ...interpreter.schema.promotion import broadcast_shapes
from ...interpreter.types.meta import Scalar
from ...interpreter.wire.forms import shown
from ..calls.by_name import call
from ..calls.checks import Device, home_of, own
from ..device_arrays.given import is_on_gpu
from ..host_arrays.uploads import as_tensor
from ..locations.locations import located
from ..tensor.exchange import check_copy, host_array
from ..tensor.operators import SCALARS, as_number
from ..tensor.tensor import Tensor
from .functions import Functions, argument_error

DType: TypeAlias = np.dtype[np.generic] | type[np.generic]

Shape: TypeAlias = int | tuple[int, ...]
UNCOPIED: Final = "{}: a value cannot get into a device's memory without a copy"


class Creation(Functions):
    """arange asarray empty(_like) eye from_dlpack full(_like) linspace meshgrid ones(_like) tril triu zeros(_like)."""

    def arange(
        self,
        start: float,
        /,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
    ) -> Tensor:
        """Evenly spaced numbers in [start, stop), or in [0, start); int64 if all are ints, else float64."""
        bounds = {"start": python_number(start), "stop": python_number(stop), "step": python_number(step)}
        return self._create("arange", device, **bounds, dtype=dtype)

    def asarray(
        self, obj: Any, /, *, dtype: DType | None = None, device: Device | None = None, copy: bool | None = None
    ) -> Tensor:
        """A tensor of a Python number, a nested sequence of them, a NumPy array or other buffer, or of a tensor.

        A tensor that needs no conversion is returned as it is, unless `copy=True`; anything else is copied to its
        device, so `copy=False` raises ValueError. TypeError for values that are not numbers. A real `dtype` drops
        imaginary parts, with NumPy's ComplexWarning.
        """
        core = self._maker()
        check_copy(copy, "asarray")
        if not isinstance(obj, Tensor):
            if copy is False:
                raise located(MetadataError(UNCOPIED.format("asarray"), op="asarray"))
            try:
                # bytes are numbers, as in the standard; NumPy would read them as text
                values = memoryview(obj) if isinstance(obj, bytes) else obj
                return as_tensor(core, self._real_if_asked(values, dtype), device, dtype=dtype)
            except MetadataTypeError:
                first = first_tensor(obj)
                if first is None:
                    raise
                return self._stack(obj, dtype, device or first.device)
        x = own(core, obj)
        moves = device is not None and home_of(core, device) != x.device
        wanted = None if dtype is None else dtype_name(dtype, "asarray")
        pending = x._meta is None and copy is not False  # then x is cast, without waiting for its dtype
        casts = wanted is not None and (pending or wanted != x.dtype.name)
        if copy is False and (moves or casts):
            raise located(MetadataError("asarray: another dtype or device needs a copy", op="asarray"))
        if casts:
            x = self._real_if_asked(x, dtype).astype(dtype)
        if moves:
            return x.to_device(home_of(core, device))
        return x.copy() if copy and not casts else x

    def empty(self, shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """A tensor of zeros: old contents of memory are never exposed."""
        return self._create("empty", device, shape=shape, dtype=or_float64(dtype))

    def empty_like(self, x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """As `empty`, with the shape of x, and its dtype and device unless others are given."""
        return self._like("empty", x, dtype, device)

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: DType | None = None,
        device: Device | None = None,
    ) -> Tensor:
        """Ones on the k-th diagonal, zeros elsewhere; square unless `n_cols` is given."""
        return self._create("eye", device, n_rows=n_rows, n_cols=n_cols, k=k, dtype=or_float64(dtype))

    def from_dlpack(self, x: Any, /, *, device: Device | None = None, copy: bool | None = None) -> Tensor:
        """A tensor of another library's array: any object with `__dlpack__` (NumPy, PyTorch, CuPy, JAX).

        A tensor of this session is returned as it is, if `copy` and `device` allow. Everything else is copied: on its
        GPU if that is the new tensor's device, else through the host. BufferError if `copy=False`, AttributeError if x
        does not support DLPack.
        """
        core = self._maker()
        check_copy(copy, "from_dlpack")
        home = None if device is None else home_of(core, device)
        if isinstance(x, Tensor) and x._core is core and (copy is not False or home in (None, x.device)):
            return self.asarray(x, device=home, copy=copy)
        if copy is False:
            raise located(MetadataBufferError(UNCOPIED.format("from_dlpack"), op="from_dlpack"))
        where = home_of(core, home)
        gpu = core.transport.memory.gpu(where) if isinstance(where, str) else None
        stays = hasattr(x, "__dlpack__") and gpu is not None and is_on_gpu(x)
        return as_tensor(core, x if stays else host_array(x), home)

    def full(
        self, shape: Shape, fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: Device | None = None
    ) -> Tensor:
        """A tensor filled with one value; the dtype defaults to that of the value's kind.

        The value may be a 0-d tensor; then its dtype and device are the defaults.
        """
        if isinstance(fill_value, Tensor):
            return self._broadcast_value(fill_value, shape, dtype, device)
        return self._create("full", device, fill_number(fill_value, "full"), shape=shape, dtype=dtype)

    def full_like(
        self, x: Tensor, /, fill_value: Scalar | Tensor, *, dtype: DType | None = None, device: Device | None = None
    ) -> Tensor:
        """As `full`, with the shape of x, and its dtype and device unless others are given."""
        if isinstance(fill_value, Tensor):
            like = own(self._core, x)
            home = like.device if device is None else device
            return self._broadcast_value(fill_value, like.shape, like.dtype if dtype is None else dtype, home)
        return self._like("full", x, dtype, device, fill_number(fill_value, "full_like"))

    def linspace(
        self,
        start: complex,
        stop: complex,
        /,
        num: int,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        endpoint: bool = True,
    ) -> Tensor:
        """`num` evenly spaced numbers from start to stop, which is included if `endpoint`."""
        bounds = {"start": python_number(start), "stop": python_number(stop)}
        return self._create("linspace", device, **bounds, num=num, dtype=dtype, endpoint=endpoint)

    def meshgrid(self, *arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
        """Coordinate matrices of 1-d tensors: views, one per tensor, all of the grid's shape.

        "xy" puts the first tensor along the second axis, "ij" along the first. ValueError unless all are 1-d and of one
        dtype. Waits for data-dependent shapes.
        """
        if not isinstance(indexing, str) or indexing not in {"xy", "ij"}:
            raise located(
                MetadataError(f"meshgrid: indexing must be 'xy' or 'ij', not {shown(indexing)}", op="meshgrid")
            )
        tensors = [own(self._core, each) for each in arrays]
        if any(each.ndim != 1 for each in tensors):
            raise located(MetadataError("meshgrid: takes 1-d tensors; reshape them first", op="meshgrid"))
        if len({each.dtype for each in tensors}) > 1:
            raise located(MetadataError("meshgrid: all tensors must have the same dtype", op="meshgrid"))
        axes = list(range(len(tensors)))
        if indexing == "xy" and len(axes) > 1:
            axes[:2] = [1, 0]
        spread = [
            each.reshape(tuple(-1 if i == axis else 1 for i in range(len(tensors))))
            for axis, each in zip(axes, tensors, strict=True)
        ]
        shape = broadcast_shapes(each.shape for each in spread)
        return tuple(self._call("broadcast_to", each, shape=shape) for each in spread)

    def ones(self, shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """A tensor of ones, float64 by default."""
        return self._create("ones", device, shape=shape, dtype=or_float64(dtype))

    def ones_like(self, x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """As `ones`, with the shape of x, and its dtype and device unless others are given."""
        return self._like("ones", x, dtype, device)

    def tril(self, x: Tensor, /, *, k: int = 0) -> Tensor:
        """The matrices of x with zeros above the k-th diagonal."""
        return self._call("tril", x, k=k)

    def triu(self, x: Tensor, /, *, k: int = 0) -> Tensor:
        """The matrices of x with zeros below the k-th diagonal."""
        return self._call("triu", x, k=k)

    def zeros(self, shape: Shape, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """A tensor of zeros, float64 by default."""
        return self._create("zeros", device, shape=shape, dtype=or_float64(dtype))

    def zeros_like(self, x: Tensor, /, *, dtype: DType | None = None, device: Device | None = None) -> Tensor:
        """As `zeros`, with the shape of x, and its dtype and device unless others are given."""
        return self._like("zeros", x, dtype, device)

    def _stack(self, rows: Sequence[Any], dtype: DType | None, device: Device | None) -> Tensor:
        """A nested sequence of tensors and numbers, stacked on the device without waiting for the tensors."""
        parts = [self.asarray(each, dtype=dtype, device=device) for each in rows]
        if dtype is None and all(each._meta is not None for each in parts):
            common = np.result_type(*(each.dtype for each in parts))
            parts = [self.asarray(each, dtype=common) for each in parts]
        return self._call("stack", *parts)

    def _broadcast_value(self, value: Tensor, shape: Shape, dtype: DType | None, device: Device | None) -> Tensor:
        """A 0-d tensor's value everywhere; if its shape is data-dependent, the value of a tensor with one element."""
        value = self.asarray(value, dtype=dtype, device=device)
        if value._meta is None:
            value = value.reshape(())
        elif value.ndim:
            raise located(
                MetadataError(f"full: the fill value must be a number, not an array of shape {value.shape}", op="full")
            )
        return self._call("broadcast_to", value, shape=(shape,) if isinstance(shape, int) else shape)

    def _create(self, name: str, device: Device | None, *operands: Scalar, **attributes: Any) -> Tensor:
        core = self._maker()
        return call(core, name, operands, attributes, device=home_of(core, device))[0]

    def _like(self, name: str, x: Tensor, dtype: DType | None, device: Device | None, *operands: Scalar) -> Tensor:
        """Create from x's meta alone, if it is known: then the result does not wait for x, and no bytes move."""
        core = self._core
        x = own(core, x)
        home = x.device if device is None else home_of(core, device)
        if x._meta is None:
            made = call(core, f"{name}_like", (x, *operands), {"dtype": dtype})[0]
            return made if home == x.device else made.to_device(home)
        attributes = {"shape": x.shape, "dtype": x.dtype if dtype is None else dtype}
        return call(core, name, operands, attributes, device=home)[0]


def first_tensor(values: Any) -> Tensor | None:
    """The first tensor in the nested sequence, or None."""
    if isinstance(values, list | tuple):
        return next((found for each in values if (found := first_tensor(each)) is not None), None)
    return values if isinstance(values, Tensor) else None


def dtype_name(dtype: Any, function: str) -> str:
    """The dtype's name; MetadataTypeError if `dtype` is no dtype."""
    try:
        return check_dtype(dtype)
    except TypeError as error:
        raise argument_error(function, error) from None


def or_float64(dtype: DType | None) -> Any:
    """The dtype, float64 by default."""
    return "float64" if dtype is None else dtype


def python_number(value: Any) -> Any:
    """A Python number for a NumPy scalar; everything else unchanged, for the attribute's check to judge."""
    return value.item() if isinstance(value, np.generic) else value


def fill_number(value: Any, function: str) -> Scalar:
    """A fill value; MetadataTypeError unless it is a number."""
    converted = value if type(value) in SCALARS else as_number(value)
    if converted is NotImplemented:
        message = f"{function}: the fill value must be a Python number, not {type(value).__name__}"
        raise located(MetadataTypeError(message, op=function))
    result: Scalar = converted
    return result
