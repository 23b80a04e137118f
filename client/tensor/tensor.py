"""The public class Tensor: a handle. It is made at once, long before its value; dropping it releases the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.indexing import selects_all
from ...interpreter.schema.opdef import REGISTRY
from ...interpreter.types.meta import Meta
from ..locations.locations import located
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides, make_public, refusing
from . import display, exchange, reading
from .hints import METHODS, add_hints, present
from .methods import Methods, frozen_index, tensors_of_index, with_tensor_marks
from .numpy_functions import about_meta, operator_of
from .operators import SCALARS, Operand, add_operators, as_number
from .waiting import Conversions

if TYPE_CHECKING:
    from ..array_api.namespace import Namespace
    from ..global_tensors.tensor import GlobalTensor

_GETITEM, _SETITEM = REGISTRY["getitem"], REGISTRY["setitem"]
_PUBLIC_METHODS = "setitem len iter contains array_namespace dlpack deepcopy str repr"


class Tensor(Conversions, Methods):
    """A handle to a tensor of a session's virtual machine.

    Operators and ops take tensors of one session and Python scalars, and return handles at once. `numpy`, `item`,
    `wait` and `await` wait for the value, in the version at that point of program order. `shape` and `dtype` are known
    at once unless they depend on data; then they wait. In an event loop `await tensor.numpy_async()` and the like wait
    while the loop goes on.

    Values are independent: tensors share memory only until one of them is written, and writing to one tensor never
    changes another.
    """

    __slots__ = ()

    # -- placement and lifetime --------------------------------------------------------------------------------------

    def to_device(self, device: str | Placement, /, *, stream: None = None) -> Tensor:
        """Make a tensor with this value and another home. The bytes move once, and only if the device has no copy.

        They begin to move when an op needs them there, or when the session next asks for anything. A tensor that was
        released by then does not move.

        :param device: A device; or a placement, for a global tensor in equal parts.
        :param stream: Must be None, because the machine chooses its own streams. Part of the array API's signature.
        :returns: The tensor with the new home.
        :raises MetadataError: The device does not exist, or `stream` was given.
        """
        if stream is not None:
            raise located(MetadataError("to_device: the machine chooses its own streams; leave stream= out"))
        return self._core.calls.to_device(self, device)

    def to_global(self, placement: Any = None, layout: Any = None) -> GlobalTensor:
        """Make a global tensor with the same value. Bytes that move do so within the machine.

        :param placement: The devices; by default only the home of the tensor.
        :param layout: The layout of the parts; by default each device has the whole value.
        :returns: The global tensor.
        :raises MetadataError: Placement, layout and shape do not fit together.
        """
        return self._core.global_calls.to_global(self, placement, layout)

    def pin(self) -> Self:
        """Keep the value at its home, so that it is not evicted. Returns at once.

        The pin lasts until `unpin` has been called as often, or the handle is gone. Pinned memory is not available for
        other values.

        :returns: The tensor.
        """
        self._core.calls.hint(self, "pin")
        return self

    def unpin(self) -> Self:
        """Take back one `pin`; does nothing if the tensor is not pinned. Returns at once.

        :returns: The tensor.
        """
        self._core.calls.hint(self, "unpin")
        return self

    def evict(self) -> Self:
        """Move the value from its home to the host, at this point in program order.

        The value comes back when it is used. Nothing happens if the home is on the host, or if the value is pinned,
        read in place, or not at its home. Returns at once.

        :returns: The tensor.
        """
        self._core.calls.hint(self, "evict")
        return self

    def prefetch(self, device: str | None = None) -> Self:
        """Bring the value to a device, if there is room, so that the next op there need not wait. Returns at once.

        Other values may be evicted for that. `Session.host_results` brings all results to the host.

        :param device: The device; the home by default. "host" is where a fetch reads the value: the first cpu device,
            unless the value is on another one.
        :returns: The tensor.
        :raises MetadataError: At this line: the device does not exist.
        """
        self._core.calls.hint(self, "prefetch", device)
        return self

    def copy(self) -> Tensor:
        """Make a tensor with this value and home. No bytes move until one of the two is written.

        :returns: The new tensor.
        """
        return self.to_device(self._home)

    __copy__ = copy

    def __deepcopy__(self, _memo: object) -> Tensor:
        return self.copy()

    @refusing
    def __reduce__(self) -> NoReturn:
        raise TypeError("a tensor cannot be pickled: publish it by name (session.publish), or take .numpy()")

    # -- ops -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, *others: Operand, **attributes: Any) -> Tensor:
        return self._core.calls.call(self._core, name, [self, *others], attributes)[0]

    @hides
    def __getitem__(self, key: Any, /) -> Tensor:
        """Select a part by ints, slices, None, '...', tensors of integers and masks (tensors of bool).

        Without tensors the result is a view: it shares memory until one of the two is written. Values are independent:
        unlike with NumPy's views, writing to one never changes the other; `x[0] = y` writes to a part of x. With a mask
        the result's shape depends on data. IndexError at this line for an impossible index; if a tensor holds an index
        out of bounds, waiting for the result raises.
        """
        try:
            core, tensors = self._core, tensors_of_index(key)
            if tensors:
                known = all(type(each._meta) is Meta and each._meta.dtype.kind != "b" for each in tensors)
                op = "advanced_getitem" if known else "dynamic_getitem"
                return core.calls.call(core, op, [self, *tensors], {"index": with_tensor_marks(key)})[0]
            frozen = frozen_index(key, _GETITEM)
            whole = reading.of(self)
            view = core.calls.operate(_GETITEM, self, attributes=frozen)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise
        if whole is not None and core.calls.native and self._reading is whole:  # otherwise it was written to
            view._reading = reading.TensorReading(view, whole, frozen[0][1])
        return view

    def __setitem__(self, key: Any, value: Operand, /) -> None:
        """Write a part of the tensor, in place; see `__getitem__` for the index. The value broadcasts to the part.

        If the index selects everything, like `...` and `:`, the old value is not read, so the write heals a failed
        tensor.
        """
        if type(value) not in SCALARS and not isinstance(value, Tensor):
            number = as_number(value)
            value = value if number is NotImplemented else number
        core, tensors = self._core, tensors_of_index(key)
        if tensors:
            attributes: dict[str, Any] = {"index": with_tensor_marks(key)}
            core.calls.call(core, "advanced_setitem", [self, value, *tensors], attributes, out=[self])
            return
        index, meta = frozen_index(key, _SETITEM)[0][1], self._meta
        if type(meta) is Meta and selects_all(index, meta.shape):
            attributes = {"index": index, "shape": meta.shape, "dtype": meta.dtype.name}
            try:
                core.calls.call(core, "overwrite", [value], attributes, out=[self])
            except MetadataError:  # raised again below, by the op that the user knows
                pass
            else:
                return
        core.calls.call(core, "setitem", [self, value], {"index": index}, out=[self])

    # -- Python's protocols -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise located(MetadataTypeError("len() of a 0-d tensor"))
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate over the rows."""
        if not self.shape:
            raise located(MetadataTypeError("iteration over a 0-d tensor"))
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, item: Operand) -> bool:
        """Whether an element equals `item`. Waits for the value."""
        value = item if isinstance(item, Tensor) or type(item) in SCALARS else as_number(item)
        return value is not NotImplemented and bool(self._call("equal", value).any())

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Namespace:
        """The namespace of the array API standard that takes this tensor: its session's `xp`."""
        namespace = cast("Namespace", self._core.xp())
        if api_version is not None and api_version not in namespace.versions:
            known = ", ".join(namespace.versions)
            raise located(MetadataError(f"there is no array API {api_version!r} here: {known}"))
        return namespace

    def __dlpack__(
        self,
        /,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The value for another library: in place on a GPU that this process can read (`cupy`), else in host memory, as
        with `dl_device=(1, 0)`. Waits. BufferError for other devices.

        On a GPU the work of `stream` finds the value there, and the host does not wait for it.

        On the host the fetched array is handed over, or a copy if it is mapped read-only: PyTorch writes even to
        read-only arrays. With `copy=False` only a value that is mapped in place is handed over: a large one on a
        daemon's cpu device, which is read-only; BufferError for all others, and if the DLPack version cannot express
        that it is read-only. With `copy=True` the array is copied once more, and DLPack tells the consumer that it is
        the only owner. Source: DLPack, https://dmlc.github.io/dlpack/
        """
        return exchange.exported(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCUDA, number) of the GPU if this process can read its memory, else (kDLCPU, 0) for the host."""
        return exchange.dlpack_device(self)

    def cupy(self) -> Any:
        """Return the value as a CuPy array in the memory of its GPU; not copied in the machine's own process.

        Later writes to the tensor do not change the array: they go elsewhere, and the memory is kept until the last
        view of the array is gone. Do not write to the array, since that would change the tensor, and tensors that share
        its value. Kernels on CuPy's current stream find the complete value.

        :returns: The array.
        :raises MetadataError: The home is no GPU that this process can read; `numpy` gives a copy on the host.
        """
        return exchange.cupy_array(self)

    @refusing
    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("a tensor is not an array of this process: call .numpy(), which waits for its value")

    @refusing
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tensor:
        """An operator with a NumPy scalar on its left; TypeError for any other NumPy function."""
        op, left = operator_of(ufunc, method, inputs, options, self)
        return self._core.calls.call(self._core, op, [left, self])[0]

    @refusing
    def __array_function__(self, function: Any, _types: Any, arguments: Any, named: Any, /) -> Any:
        """Answer `numpy.shape` and the like; TypeError for any other NumPy function."""
        return about_meta(function, arguments, named)

    def __dir__(self) -> list[str]:
        """The attributes, without names that only hint at others."""
        return present(Tensor, super().__dir__())

    def __str__(self) -> str:
        """The value as NumPy prints it. Waits, and raises the tensor's error. Only the printed part is fetched."""
        return display.value_text(self._living())

    def __repr__(self) -> str:
        """Id, shape, dtype and home, and whether it is pending, ready or failed, with the error. Waits for no value."""
        return f"<tensor {-self._id} released>" if self._id < 0 else display.described(self, *display.state_of(self))

    def _repr_html_(self) -> str:
        """The text for notebooks: the `repr`, and the value if it is ready."""
        return escape(repr(self)) if self._id < 0 else display.html(self)

    __hash__ = object.__hash__


add_operators(Tensor)
add_hints(Tensor, "a tensor", METHODS)
make_public(Methods)
make_public(Tensor, frozenset(f"__{name}__" for name in ("copy", *_PUBLIC_METHODS.split())))
