"""GlobalTensor: a handle to a value whose parts lie on several devices.

The class has all methods of `Tensor`, and `isinstance` accepts it as one, but it is not a subclass; neither is a
symbolic tensor. So the hot path of plain tensors, which checks their exact class, pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from numpy.typing import NDArray

from ...interpreter.concurrency.finalisers import redone
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataBufferError, MetadataError, TensordError
from ...interpreter.layouts.layout import Layout, user_notation
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.meta import Meta
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import make_public, refusing
from ..tensor import reading
from ..tensor.methods import Methods
from ..tensor.operators import GLOBALS, OPERANDS
from ..tensor.tensor import Tensor
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps, on_thread
from . import values
from .form import Form
from .operators import add_operators

if TYPE_CHECKING:
    Base = Tensor
else:
    Base = Methods

T = TypeVar("T")

_WAY: Final = "take .numpy(), or one of .parts()"


class Itself:
    """The `_symbol` of a tensor that needs no conversion to an operand, on either side of an operator."""

    __slots__ = ()

    def as_operand(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor


class GlobalTensor(Base):
    """A tensor in parts on several devices. Made by `session.global_tensor`, and by ops on global tensors.

    `layout` describes the parts: slices, full copies, or addends of the value. `placement`, which is also `device`, has
    their devices. An op on a global tensor is one op on each device, in one atomic group; the machine moves data if
    necessary.

    Most results only serve as operands of later ops, which need no more than the ids of the parts. So handles of the
    parts are made on first need (`_parts`). From then on these handles release the parts; before that, the tensor
    does.
    """

    __slots__ = ("__weakref__", "_core", "_form", "_handles", "_ids")
    _handles: tuple[Tensor, ...] | None
    _ids: tuple[int, ...]  # of parts that have no handles
    _id = 0  # none: only the parts have ids and lifetimes
    _reading = reading.SHARED
    _symbol = Itself()

    def __init__(self, form: Form, parts: Sequence[Tensor]) -> None:
        self._core: Core = parts[0]._core  # the others are of the same session, or of the same cluster
        self._form = form
        self._handles = tuple(parts)
        self._ids = ()

    @redone
    def __del__(self) -> None:
        # May run in any thread, inside any lock, so it does nothing else.
        try:
            for id_ in self._ids:
                self._core.release(id_)
        except AttributeError:  # construction did not finish
            pass

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        """Handles of its parts."""
        return self._handles or self._handled()

    def _handled(self) -> tuple[Tensor, ...]:
        """Make the handles of the parts. A handle lives until the tensor and all other references to it are gone."""
        form = self._form
        with SHIELD:
            ids, handles = self._ids, self._handles
            if handles is not None:
                return handles
            kinds = zip(ids, form.metas, form.placement.names, strict=True)
            made = tuple([handle_of(self._core, id_, meta, home) for id_, meta, home in kinds])
            if self._handles is None:  # no other thread runs between this line and the next two
                self._handles = made
                self._ids = ()
            else:
                for each in made:
                    each._id = 0
            return self._handles

    def _part_ids(self) -> tuple[int, ...]:
        """The ids of the parts; () if a part was released."""
        if self._handles is None:
            return self._ids
        ids = tuple([part._id for part in self._handles])
        return ids if min(ids) > 0 else ()

    @property
    def _meta(self) -> Meta | None:  # type: ignore[override]
        """Shape and dtype of the value; None while they depend on data."""
        return self._form.meta

    @property
    def _home(self) -> Any:  # type: ignore[override]
        """The placement."""
        return self._form.placement

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`Tensor`, for `isinstance`."""
        return Tensor

    # -- placement and layout -------------------------------------------------------------------------------------

    @property
    def placement(self) -> Placement:
        """The devices of the parts, in a grid."""
        return self._form.placement

    @property
    def layout(self) -> Layout:
        """The layout of the parts along each dimension of the grid."""
        return self._form.layout

    @property
    def device(self) -> Any:
        """The placement. Passed as `device=`, it makes another global tensor."""
        return self._form.placement

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(values.lock_of(self), steps)

    def parts(self) -> tuple[Tensor, ...]:
        """Return the parts as plain tensors, row-major in the grid.

        Writing to a part does not change the global tensor, or the other way round: the two share memory until one of
        them is written.

        :returns: The parts.
        """
        with self._core.global_calls.grouped(self._form.placement):
            return tuple([part.copy() for part in self._parts])

    def to_global(self, placement: Any = None, layout: Any = None) -> GlobalTensor:
        """Make a global tensor with the same value on another placement, or in another layout.

        Parts move within the machine.

        :param placement: The devices; by default, those of this tensor.
        :param layout: The layout of the parts; on another placement each device has the whole value by default.
        :returns: The global tensor.
        :raises MetadataError: Placement, layout and shape do not fit together.
        """
        return self._core.global_calls.to_global(self, placement, layout)

    def to_device(self, device: Any, /, *, stream: None = None) -> Tensor:
        """Make a plain tensor with the whole value.

        :param device: A device. Or a placement; the result is then a global tensor with a full copy on each device.
        :param stream: Must be None, because the machine chooses its own streams. Part of the array API's signature.
        :returns: The tensor.
        :raises MetadataError: The device does not exist, or `stream` was given.
        """
        if stream is not None:
            raise located(MetadataError("to_device: the machine chooses its own streams; leave stream= out"))
        return self._core.global_calls.to_device(self, device)

    def copy(self) -> Tensor:
        """Make a global tensor with this value, placement and layout. No bytes move until one of the two is written.

        :returns: The new tensor.
        """
        return GlobalTensor(self._form, self.parts())

    __copy__ = copy

    def __deepcopy__(self, _memo: object) -> Tensor:
        return self.copy()

    def pin(self) -> Self:
        """Keep each part at home; see `Tensor.pin`."""
        return self._each("pin")

    def unpin(self) -> Self:
        """Undo one `pin`."""
        return self._each("unpin")

    def evict(self) -> Self:
        """Let the machine move each part off its home device; see `Tensor.evict`."""
        return self._each("evict")

    def prefetch(self, device: str | Placement | None = None) -> Self:
        """Bring each part to its home, or all to a device; see `Tensor.prefetch`."""
        return self._each("prefetch", None if device == self._home else device)

    def _each(self, hint: str, device: Any = None) -> Self:
        for part in self._parts:
            part._core.calls.hint(part, hint, device)
        return self

    # -- lifetime --------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Release the parts now. Using the handle afterwards is an error; releasing it twice is not."""
        for part in self._parts:
            part.release()

    def _check_living(self) -> None:
        for part in self._parts:
            if part._id <= 0:
                part._check_living()

    def _living(self) -> Self:
        for part in self._parts:
            part._living()
        return self

    @refusing
    def __reduce__(self) -> NoReturn:
        raise TypeError("a global tensor cannot be pickled: publish it by name (session.publish), or take .numpy()")

    # -- value -----------------------------------------------------------------------------------------------------

    def numpy(self) -> NDArray[Any]:
        """Return the value as a NumPy array, assembled on the host. Waits for it.

        If the parts are full copies, only one is read: the first without an error.

        :returns: The array.
        :raises TensordError: The error of a failed part, with its device.
        """
        return on_thread(values.lock_of(self), values.value(self))

    _value = numpy

    def numpy_async(self) -> Awaiting[NDArray[Any]]:
        """`array = await t.numpy_async()`: see `numpy`."""
        return self._awaiting(values.value(self))

    def item_async(self) -> Awaiting[Any]:
        """`number = await t.item_async()`: see `item`."""
        return self._awaiting(values.item(self))

    def tolist_async(self) -> Awaiting[Any]:
        """`rows = await t.tolist_async()`: see `tolist`."""
        return self._awaiting(values.rows(self))

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all parts are computed.

        :param timeout: The longest wait, in seconds; unlimited by default.
        :returns: The tensor.
        :raises TimeoutError: The parts were not computed in time.
        :raises TensordError: The error of a part, with its device.
        """
        on_thread(values.lock_of(self), values.ready(self, timeout))
        return self

    def __await__(self) -> Any:
        """Wait until all parts are computed, as `wait` does; gives the tensor."""
        return self._awaiting(values.ready(self)).__await__()

    def is_ready(self) -> bool:
        """Say whether all parts are computed, or one has failed. Never waits.

        :returns: Whether `wait` would return or raise at once.
        """
        return on_thread(values.lock_of(self), values.is_ready(self))

    def is_ready_async(self) -> Awaiting[bool]:
        """See `is_ready`."""
        return self._awaiting(values.is_ready(self))

    @property
    def error(self) -> TensordError | None:
        """The error of the first part that has failed; None if none has failed so far. Never waits."""
        return on_thread(values.lock_of(self), values.error_of(self))

    def error_async(self) -> Awaiting[TensordError | None]:
        """See `error`."""
        return self._awaiting(values.error_of(self))

    def residency(self) -> dict[str, str]:
        """Say where the parts are.

        :returns: For each device that holds a current copy of a part "valid", and for each that will "planned".
        """
        return on_thread(values.lock_of(self), values.residency(self))

    def residency_async(self) -> Awaiting[dict[str, str]]:
        """See `residency`."""
        return self._awaiting(values.residency(self))

    def _known_meta(self) -> Meta:
        if type(self._meta) is not Meta:
            self.wait()
        meta: Any = self._meta
        return meta  # type: ignore[no-any-return]

    def __dlpack__(self, **_options: Any) -> NoReturn:
        """BufferError: other libraries have no arrays that are spread over devices."""
        raise located(MetadataBufferError(f"a global tensor lies on several devices: {_WAY}", op="__dlpack__"))

    def __dlpack_device__(self) -> tuple[int, int]:
        """BufferError: the tensor lies on several devices."""
        raise located(MetadataBufferError(f"a global tensor lies on several devices: {_WAY}", op="__dlpack_device__"))

    def cupy(self) -> NoReturn:
        """BufferError: the tensor lies on several devices."""
        raise located(MetadataBufferError(f"a global tensor lies on several devices: {_WAY}", op="cupy"))

    def __repr__(self) -> str:
        """Shape, dtype, layout, devices, and the state of its parts. Waits for no value."""
        meta = "of unknown shape" if self._meta is None else repr(self._meta)
        where = ", ".join(self.placement.names)
        return f"<global tensor {meta} {user_notation(self.layout)} on {where}, {values.state_of(self)}>"

    def _repr_html_(self) -> str:
        """The text for notebooks."""
        return values.html(self)


def of_ids(core: Core, form: Form, ids: tuple[int, ...]) -> GlobalTensor:
    """A new tensor of parts with these ids."""
    made = object.__new__(GlobalTensor)
    made._core = core
    made._form = form
    made._handles = None
    made._ids = ids
    return made


def handle_of(core: Core, id_: int, meta: Meta | None, home: str) -> Tensor:
    """A handle that no context holds yet."""
    made = object.__new__(Tensor)
    made._core = core
    made._id = id_
    made._meta = meta
    made._home = home
    made._reading = None
    return made


_OF_THE_CLASS: Final = frozenset(
    ("__annotations__", "__del__", "__dict__", "__doc__", "__module__", "__slots__", "__weakref__", "__init__")
)
for _kind in (kind for kind in Tensor.__mro__ if kind not in GlobalTensor.__mro__):
    for _name, _method in vars(_kind).items():
        if (
            _name not in vars(GlobalTensor)
            and _name not in _OF_THE_CLASS
            and not isinstance(_method, MemberDescriptorType)
        ):
            setattr(GlobalTensor, _name, _method)
add_operators(GlobalTensor)
make_public(GlobalTensor, frozenset(("__copy__", "__deepcopy__", "__await__", "__dlpack__", "__dlpack_device__")))
OPERANDS.add(GlobalTensor)
GLOBALS.add(GlobalTensor)
