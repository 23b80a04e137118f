"""Tensor: a handle. Made at once, long before its value; dropping it releases the tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.finalisers import redone
from ...interpreter.errors import (
    MetadataError,
    MetadataTypeError,
    ProtocolError,
    TensordError,
    metadata_error,
)
from ...interpreter.schema.indexing import selects_all
from ...interpreter.schema.opdef import REGISTRY
from ...interpreter.types.meta import Meta, Scalar
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import MEANT, hide, hides, make_public, refusing
from ..waiting.steps import on_thread
from . import display, exchange, reading
from .hints import METHODS, add_hints, present
from .indices import frozen_index, tensors_in, with_places
from .methods import Methods
from .operators import SCALARS, Operand, about_meta, add_operators, as_number, operator_of
from .waiting import AwaitableTensor, learn, one_value, polling

if TYPE_CHECKING:
    from ..array_api.namespace import Namespace
    from ..transport.interface import Reply

Converted = TypeVar("Converted")
_GETITEM, _SETITEM = REGISTRY["getitem"], REGISTRY["setitem"]
_ASKED = "setitem len iter contains bool float int complex index format array_namespace dlpack deepcopy str repr"


class Gone:
    """In place of the meta of a released handle: no signature has it. As text, what has become of the tensor."""

    __slots__ = ()

    def __str__(self) -> str:
        return "was released"


RELEASED: Any = Gone()
Handles: TypeAlias = "list[ref[Tensor]]"  # of a context


class Tensor(AwaitableTensor, Methods):
    """A handle to a tensor of a session's virtual machine.

    Operators and ops take tensors of one session and Python scalars, and return handles at once. `numpy`, `item`,
    `wait` and `await` wait for the value, in the version at their place in program order. `shape` and `dtype` are known
    at once unless they depend on data; then they wait. In an event loop `await tensor.numpy_async()` and the like wait
    while the loop goes on.

    Values are independent: tensors share memory only until one of them is written, and writing to one tensor never
    changes another.
    """

    __slots__ = ("__weakref__", "_core", "_holder", "_home", "_id", "_meta", "_probe", "_reading")
    _core: Core
    _holder: Handles | None  # set if it was made in a context
    _probe: Reply  # set by the first question whether the tensor is ready

    def __init__(self, core: Core, id_: int, meta: Meta | None, home: str) -> None:
        self._core = core
        self._id = id_
        self._meta = meta
        self._home = home
        self._reading: reading.Reading | None = None
        if core.opened and (scope := core.innermost()) is not None:
            scope.hold(self)

    @redone
    def __del__(self) -> None:
        # Runs in any thread, inside any lock, so it does nothing else.
        try:
            if self._id > 0:
                self._core.release(self._id)
        except AttributeError:  # `__init__` has not finished
            pass

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; waits if it depends on data, and then raises the tensor's error."""
        return self._known_meta().shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Its dtype; waits like `shape`."""
        return self._known_meta().dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions; waits like `shape`."""
        return self._known_meta().ndim

    @property
    def size(self) -> int:
        """Number of elements; waits like `shape`."""
        return self._known_meta().size

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; waits like `shape`."""
        return self._known_meta().nbytes

    @property
    def device(self) -> str:
        """Its home: where ops on it run unless told otherwise."""
        return self._home

    def _known_meta(self) -> Meta:
        meta = self._meta
        if type(meta) is not Meta:
            meta = self.wait()._meta
        return cast(Meta, meta)

    def residency(self) -> dict[str, str]:
        """Devices that hold a current copy ("valid"), or will ("planned")."""
        found: dict[str, str] = self._core.answers.query("residency", self._living()._id)
        return found

    # -- waiting ---------------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Its value as a NumPy array. Waits; raises the error of the call that failed, with that line.

        Later writes to the tensor do not change the array. The array is a copy of its own; but a large array from a
        daemon on this machine is read in place, and read-only: `numpy.array(t.numpy())` copies it. A small tensor that
        is read piece by piece is fetched once, as a whole.
        """
        known = reading.recall(self._living())
        return self._core.answers.fetch(self) if known is None else known

    _value = numpy  # for calls from here, which are no entries from users' code

    def item(self) -> Scalar:
        """The value of a tensor with one element, as a Python scalar; ValueError for any other."""
        return one_value(self._value())

    def tolist(self) -> Any:
        """Its value as nested lists of Python scalars; waits."""
        return self._value().tolist()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until its value is there, after `to_device` on that device; raises its error, or TimeoutError."""
        learn(self, self._core.answers.await_ready(self._living(), timeout))
        return self

    def is_ready(self) -> bool:
        """Is its value there, after `to_device` on that device, or its error? Never waits."""
        return self._poll().done

    @property
    def error(self) -> TensordError | None:
        """Its error; None if there is none, or none yet. Never waits."""
        reply = self._poll()
        return reply.error if reply.done else None

    def _poll(self) -> Reply:
        """The open question whether the tensor is ready; asked again once answered, since a write may follow."""
        probe = getattr(self, "_probe", None)
        if probe is not None and not probe.done:
            self._core.outbox.flush()
        return on_thread(self._core.outbox, polling(self))

    # -- placement and life ----------------------------------------------------------------------------------------

    def to_device(self, device: str, /, *, stream: None = None) -> Tensor:
        """A tensor with this value and another home. The bytes move once, and only if no copy is there.

        They begin to when an op needs them there, or when the session next asks for anything; what was released by then
        does not move. Streams are the machine's own, so `stream` is None.
        """
        if stream is not None:
            raise located(MetadataError("to_device: the machine's streams are its own; leave it out"))
        return self._core.calls.to_device(self, device)

    def pin(self) -> Self:
        """Keep its value at home once it is there: it is not evicted to make room, until `unpin` has been called as
        often, or the handle is gone. Pinned memory cannot be had for anything else. Returns the tensor, at once."""
        self._core.calls.hint(self, "pin")
        return self

    def unpin(self) -> Self:
        """Take back one `pin`. Nothing if it is not pinned. Returns the tensor, at once."""
        self._core.calls.hint(self, "unpin")
        return self

    def evict(self) -> Self:
        """Let its value leave its home for the host, at this place in program order; it comes back when it is used.

        Nothing if its home is on the host, or if it is pinned, read in place, or not there. Returns the tensor, at
        once.
        """
        self._core.calls.hint(self, "evict")
        return self

    def prefetch(self, device: str | None = None) -> Self:
        """Bring its value to a device, its home by default, if there is room: the next op there need not wait for it.

        "host" is where a fetch reads it, the first cpu device unless it is on another one; `Session.host_results` does
        that for all results. Other values may leave for that. MetadataError, at this line, for a device that is none.
        Returns the tensor, at once.
        """
        self._core.calls.hint(self, "prefetch", device)
        return self

    def copy(self) -> Tensor:
        """A new tensor with this value and home. No bytes move until one of the two is written."""
        return self.to_device(self._home)

    __copy__ = copy

    def __deepcopy__(self, _memo: object) -> Tensor:
        return self.copy()

    @refusing
    def __reduce__(self) -> NoReturn:
        raise TypeError("a tensor cannot be pickled: publish it by name (session.publish), or take .numpy()")

    def release(self) -> None:
        """Release the tensor now. Using the handle afterwards is an error; releasing it twice is none."""
        let_go(self, RELEASED)

    def _living(self) -> Self:
        """Itself; ProtocolError if it was released."""
        if self._id <= 0:
            self._check_living()
        return self

    def _check_living(self) -> None:
        """ProtocolError if it was released. Called where `_id` is not that of a living tensor."""
        if self._id < 0:
            raise located(ProtocolError(f"tensor {-self._id} {self._meta}"))

    # -- ops -------------------------------------------------------------------------------------------------------

    def _call(self, name: str, *others: Operand, **attributes: Any) -> Tensor:
        return self._core.calls.call(self._core, name, [self, *others], attributes)[0]

    @hides
    def __getitem__(self, key: Any, /) -> Tensor:
        """The part that ints, slices, None, '...', tensors of integers and masks (tensors of bool) select.

        Without tensors the result is a view: it shares memory until one of the two is written. Values are independent:
        unlike with NumPy's views, writing to one never changes the other; `x[0] = y` writes to a part of x. With a mask
        the result's shape depends on data. IndexError at this line for an impossible index; if a tensor holds an index
        out of bounds, waiting for the result raises.
        """
        try:
            core, tensors = self._core, tensors_in(key)
            if tensors:
                known = all(type(each._meta) is Meta and each._meta.dtype.kind != "b" for each in tensors)
                op = "advanced_getitem" if known else "dynamic_getitem"
                return core.calls.call(core, op, [self, *tensors], {"index": with_places(key)})[0]
            frozen = frozen_index(key, _GETITEM)
            whole = reading.of(self)
            view = core.calls.operate(_GETITEM, self, attributes=frozen)
        except MEANT as error:
            hide(error)
            raise
        if whole is not None and core.calls.native and self._reading is whole:  # else it was written to
            view._reading = reading.Reading(view, whole, frozen[0][1])
        return view

    def __setitem__(self, key: Any, value: Operand, /) -> None:
        """Write a part of the tensor, in place; see `__getitem__` for the index. The value broadcasts to the part.

        Where the index selects all, as `...` and `:` do, the old value is not read: the write heals a failed tensor.
        """
        if type(value) not in SCALARS and not isinstance(value, Tensor):
            number = as_number(value)
            value = value if number is NotImplemented else number
        core, tensors, operands = self._core, tensors_in(key), [self, value]
        if tensors:
            op, operands = "advanced_setitem", [self, value, *tensors]
            attributes: dict[str, Any] = {"index": with_places(key)}
        else:
            op, index, meta = "setitem", frozen_index(key, _SETITEM)[0][1], self._meta
            attributes = {"index": index}
            if type(meta) is Meta and selects_all(index, meta.shape):
                op, operands = "overwrite", [value]
                attributes |= {"shape": meta.shape, "dtype": meta.dtype.name}
        core.calls.call(core, op, operands, attributes, out=[self])

    # -- what Python asks for ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise located(MetadataTypeError("len() of a 0-d tensor"))
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """Its rows."""
        if not self.shape:
            raise located(MetadataTypeError("iteration over a 0-d tensor"))
        return map(self.__getitem__, range(len(self)))

    def __contains__(self, item: Operand) -> bool:
        """Does an element equal `item`? Waits."""
        value = item if isinstance(item, Tensor) or type(item) in SCALARS else as_number(item)
        return value is not NotImplemented and bool(self._call("equal", value).any())

    def __bool__(self) -> bool:
        if self.size != 1:
            message = f"a tensor of shape {self.shape} has no one truth value: use .any() or .all()"
            raise located(MetadataError(message))
        return bool(self.item())

    def _one(self, what: str, convert: Callable[[Any], Converted]) -> Converted:
        if self.size != 1:
            raise located(MetadataTypeError(f"{what} is for tensors of one element, not of shape {self.shape}"))
        value = self.item()
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError) as error:  # of NaN, of complex numbers; a wrong format
            raise located(metadata_error(error, f"{what}: {error}", None)) from None

    def __float__(self) -> float:
        return self._one("float()", float)

    def __int__(self) -> int:
        return self._one("int()", int)

    def __complex__(self) -> complex:
        return self._one("complex()", as_complex)

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise located(MetadataTypeError(f"a tensor of {self.dtype.name} is no index"))
        return self._one("an index", int)

    def __format__(self, spec: str) -> str:
        return self._one(f"the format {spec!r}", lambda value: format(value, spec)) if spec else str(self)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Namespace:
        """The namespace of the array API standard that takes this tensor: its session's `xp`."""
        namespace = self._core.as_session().xp
        if api_version is not None and api_version not in namespace.versions:
            known = ", ".join(namespace.versions)
            raise located(MetadataError(f"there is no array API {api_version!r} here: {known}"))
        return namespace

    def __dlpack__(
        self,
        /,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Its value for another library, in host memory. Waits. BufferError for other devices.

        The fetched array is handed over, or a copy if it is mapped read-only: PyTorch writes even to read-only arrays.
        With `copy=False` only a value is handed over that is mapped where it lies, a large one on a daemon's cpu
        device, and read-only; BufferError for all others, and if the DLPack version cannot say that it is read-only.
        With `copy=True` the array is copied once more, and DLPack says that the consumer alone has it.
        Source: DLPack, https://dmlc.github.io/dlpack/
        """
        return exchange.exported(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The host: kDLCPU, 0."""
        return exchange.CPU

    @refusing
    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("a tensor is not an array in this process: call .numpy(), which waits for its value")

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
        """Its attributes, but not those that only say what to write instead."""
        return present(Tensor, super().__dir__())

    def __str__(self) -> str:
        """Its value, as NumPy prints it. Waits; raises its error. Of a large tensor only what is printed is fetched."""
        return display.value_text(self._living())

    def __repr__(self) -> str:
        """Id, shape, dtype, home, and whether it is pending, ready or failed, and with what. Waits for no value."""
        return f"<tensor {-self._id} released>" if self._id < 0 else display.summary(self)

    def _repr_html_(self) -> str:
        """What notebooks show: the `repr`, and the value if it is there."""
        return escape(repr(self)) if self._id < 0 else display.html(self)

    __hash__ = object.__hash__


def let_go(handle: Tensor, gone: Any) -> None:
    """Release the tensor of a handle, unless that was done. `gone` says what has become of it."""
    id_ = handle._id
    if id_ > 0:  # no checkpoint up to the call: a context that ends in another thread may come here, too
        handle._id = -id_
        handle._meta = gone
        handle._reading = None
        handle._core.release(id_)


def as_complex(value: Scalar) -> complex:
    """The number as a complex one; NaN in both parts for NaN, as the standard's text says."""
    nan = isinstance(value, float) and math.isnan(value)
    return complex(math.nan, math.nan) if nan else complex(value)


add_operators(Tensor)
add_hints(Tensor, "a tensor", METHODS)
make_public(Methods)
make_public(Tensor, frozenset(f"__{name}__" for name in ("copy", *_ASKED.split())))
