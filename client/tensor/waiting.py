"""The awaitable forms of a tensor, for asyncio, and their steps. docs/waiting.md says what they promise."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.meta import Meta, Scalar
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps
from . import reading

if TYPE_CHECKING:
    from ..transport.interface import Reply
    from .tensor import Tensor

T = TypeVar("T")


class AwaitableTensor:
    """What a tensor has for event loops."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, Self]:
        """Wait until its value is there, as `wait`; gives the tensor, whose shape is known then."""
        return cast("Generator[Any, Any, Self]", self._awaiting(ready(cast("Tensor", self))).__await__())

    def numpy_async(self) -> Awaiting[NDArray[Any]]:
        """`array = await t.numpy_async()`: its value as a NumPy array, as of this call. See `numpy`."""
        return self._awaiting(value(cast("Tensor", self)))

    def item_async(self) -> Awaiting[Scalar]:
        """`number = await t.item_async()`: the value of a tensor with one element, as of this call. See `item`."""
        return self._awaiting(item(cast("Tensor", self)))

    def tolist_async(self) -> Awaiting[Any]:
        """`rows = await t.tolist_async()`: its value as nested lists, as of this call. See `tolist`."""
        return self._awaiting(rows(cast("Tensor", self)))

    def residency_async(self) -> Awaiting[dict[str, str]]:
        """Devices that hold a current copy, or will. See `residency`."""
        return self._awaiting(residency(cast("Tensor", self)))

    def is_ready_async(self) -> Awaiting[bool]:
        """Is its value there, or its error? Waits for no value. See `is_ready`."""
        return self._awaiting(is_ready(cast("Tensor", self)))

    def error_async(self) -> Awaiting[TensordError | None]:
        """Its error; None if there is none, or none yet. Waits for no value. See `error`."""
        return self._awaiting(error_of(cast("Tensor", self)))

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(cast("Tensor", self)._core.outbox, steps)


make_public(AwaitableTensor, frozenset(("__await__",)))


def ready(tensor: Tensor) -> Steps[Tensor]:
    """`await tensor`."""
    learn(tensor, (yield tensor._core.answers.ask_ready(tensor._living())))
    return tensor


def value(tensor: Tensor) -> Steps[NDArray[Any]]:
    """`numpy`."""
    known = reading.recall(tensor._living(), asks=False)
    if known is None:
        known = yield from tensor._core.answers.fetching(tensor)
    return known


def item(tensor: Tensor) -> Steps[Scalar]:
    """`item`."""
    return one_value((yield from value(tensor)))


def rows(tensor: Tensor) -> Steps[Any]:
    """`tolist`."""
    return (yield from value(tensor)).tolist()


def residency(tensor: Tensor) -> Steps[dict[str, str]]:
    """`residency`."""
    found: dict[str, str] = yield tensor._core.answers.ask("residency", tensor._living()._id)
    return found


def is_ready(tensor: Tensor) -> Steps[bool]:
    """`is_ready`."""
    return (yield from polling(tensor)).done


def error_of(tensor: Tensor) -> Steps[TensordError | None]:
    """`error`."""
    probe = yield from polling(tensor)
    return probe.error if probe.done else None


def polling(tensor: Tensor) -> Steps[Reply]:
    """The open question whether the tensor is ready; asked again once answered, since a write may follow."""
    probe = getattr(tensor, "_probe", None)
    if probe is None or probe.done:
        probe = tensor._probe = tensor._core.answers.ask_ready(tensor._living())
    else:
        tensor._core.outbox.flush(patient=False)
    if not probe.done and tensor._core.transport.eager:
        yield tensor._core.answers.ask_to_catch_up()
    return probe


def learn(tensor: Tensor, described: Any) -> None:
    """Take the tensor's meta from the answer to a wait."""
    (wire, _home), *_ = described
    if tensor._meta is None:
        tensor._meta = Meta.of(*wire)


def one_value(array: NDArray[Any]) -> Scalar:
    """The one element of an array, as a Python scalar; ValueError if there are others, or none."""
    if array.size != 1:
        message = f"item() is for tensors of one element (size 1), not of shape {array.shape}"
        raise located(MetadataError(message))
    found: Scalar = array.item()
    return found
