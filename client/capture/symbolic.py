"""Symbolic tensors: stand in for tensors while a function is captured.

A symbolic tensor has a shape, a dtype and a device, but no value. Ops on it use the same operators, methods and
functions as on any other tensor. An attempt to read its value raises CaptureError at the user's line, with advice. When
the capture is over, its symbolic tensors are dead: any use raises.

Their class has all methods of `Tensor`, and `isinstance` accepts it as one, but it is no subclass: of two operands
Python asks a subclass first, so that `x > y` would become `y < x`, whose result may live on another device.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from ...interpreter.errors import CaptureError
from ...interpreter.types.meta import Meta
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..outbox.current import CURRENT
from ..tensor import reading
from ..tensor.handle import RELEASED
from ..tensor.methods import Methods
from ..tensor.operators import OPERANDS
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .capture import Capture

    Base = Tensor
else:
    Base = Methods

_READ: Final = "return the tensor and read it outside, or print it in its place (session.print)"
_NUMBER: Final = "use the tensor itself as an operand, or pass the number as an argument"
_CHOICE: Final = "choose elementwise (xp.where), or let the machine choose (session.cond, while_loop)"
_WAIT: Final = "wait for the routine's results, outside of it"
_TEXT: Final = "session.print writes it at each run"
_HINT: Final = "give placement hints outside"

# Operation that needs a value -> advice.
REFUSED: Final = {
    **dict.fromkeys(("numpy", "numpy_async", "tolist", "tolist_async", "__dlpack__", "cupy"), _READ),
    **dict.fromkeys(("item", "item_async", "__float__", "__int__", "__complex__"), _NUMBER),
    "__index__": "index with the tensor itself, or pass the number as an argument",
    **dict.fromkeys(("__bool__", "__contains__"), _CHOICE),
    **dict.fromkeys(("wait", "is_ready", "is_ready_async", "error_async", "__await__"), _WAIT),
    **dict.fromkeys(("residency", "residency_async"), _WAIT),
    **dict.fromkeys(("__str__", "__format__"), _TEXT),
    **dict.fromkeys(("pin", "unpin", "evict", "prefetch"), _HINT),
}


class Symbol:
    """A capture's knowledge of a symbolic tensor: the program's `variable`. `capture`: None once the capture is
    over."""

    __slots__ = ("capture", "variable")

    def __init__(self, capture: Capture, variable: int) -> None:
        self.capture: Capture | None = capture
        self.variable = variable

    def check(self) -> None:
        """CaptureError unless this thread is in the capture."""
        if self.capture is None:
            raise located(
                CaptureError("the tensor belongs to a capture that has ended: return the tensor from the routine")
            )
        if CURRENT.capture is None or not CURRENT.capture.is_within(self.capture):
            raise located(CaptureError("the tensor belongs to a capture on another thread"))

    @property
    def is_parameter(self) -> bool:
        return self.capture is not None and self.capture.is_parameter(self.variable)

    def as_operand(self, tensor: Tensor) -> Tensor:
        """The tensor: it is an operand as it is."""
        return tensor


def end_life(tensor: SymbolicTensor) -> None:
    tensor._symbol.capture = None
    tensor._meta = RELEASED


class SymbolicTensor(Base):
    """A tensor of a capture. `_symbol`: the capture's knowledge of it."""

    __slots__ = ("__weakref__", "_core", "_home", "_id", "_meta", "_reading", "_symbol")

    def __init__(self, capture: Capture, variable: int, meta: Meta | None, home: str) -> None:
        self._core = capture.core
        self._id = 0  # there is no tensor to release
        self._meta = meta
        self._home = home
        self._reading = reading.SHARED
        self._symbol = Symbol(capture, variable)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """`Tensor`, for `isinstance`."""
        return Tensor

    def _check_living(self) -> None:
        """CaptureError unless this thread is in the tensor's capture."""
        self._symbol.check()

    def _refusal(self, what: str, instead: str) -> CaptureError:
        self._symbol.check()
        return located(CaptureError(f"{what}: a tensor has no value while a routine is captured; {instead}"))

    def _living(self) -> Self:
        raise self._refusal("this", _READ)

    def _known_meta(self) -> Meta:
        if type(self._meta) is Meta:
            return self._meta
        raise self._refusal("its shape depends on data", "do without it, or make the tensor outside and pass it")

    def __copy__(self) -> Tensor:
        return self.copy()

    @property
    def error(self) -> NoReturn:
        raise self._refusal("error", _WAIT)

    def release(self) -> None:
        """Do nothing, since a routine's tensors are released after their last use. CaptureError for an argument."""
        self._symbol.check()
        if self._symbol.is_parameter:
            message = "release: the tensor is an argument of the routine that is captured; release it outside"
            raise located(CaptureError(message))

    def __repr__(self) -> str:
        if self._symbol.capture is None:
            return "<tensor of a capture that has ended>"
        return (
            f"<tensor of a capture, {'of unknown shape' if self._meta is None else repr(self._meta)} on {self._home}>"
        )


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(self: SymbolicTensor, *_: Any, **__: Any) -> NoReturn:
        raise self._refusal(name.strip("_"), instead)

    refuse.__name__, refuse.__qualname__ = name, f"SymbolicTensor.{name}"
    refuse.__doc__ = "CaptureError: there is no value."
    return refuse


_OF_THE_CLASS: Final = frozenset(
    ("__annotations__", "__del__", "__dict__", "__doc__", "__module__", "__slots__", "__weakref__")
)
for _name, _instead in REFUSED.items():
    setattr(SymbolicTensor, _name, _refused(_name, _instead))
for _kind in (kind for kind in Tensor.__mro__ if kind not in SymbolicTensor.__mro__):
    for _name, _method in vars(_kind).items():
        if (
            _name not in vars(SymbolicTensor)
            and _name not in _OF_THE_CLASS
            and not isinstance(_method, MemberDescriptorType)
        ):
            setattr(SymbolicTensor, _name, _method)
SymbolicTensor.__name__ = Tensor.__name__  # appears in Python's own errors: "unsupported operand type(s) for +"
make_public(SymbolicTensor, frozenset(name for name in REFUSED if name.startswith("__")))
OPERANDS.add(SymbolicTensor)
