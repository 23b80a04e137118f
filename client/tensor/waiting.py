"""Waits for a tensor, and asks for its state: for threads, and for asyncio, in the same steps.

docs/waiting.md says what the awaitable forms guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar, cast

from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, MetadataTypeError, TensordError, metadata_error
from ...interpreter.types.meta import Meta, Scalar
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..transport.replies import Reply
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps, on_thread
from . import reading
from .handle import Handle

H = TypeVar("H", bound=Handle)
T = TypeVar("T")


class Waiting(Handle):
    """A handle that can be waited for."""

    __slots__ = ()

    def numpy(self) -> NDArray[Any]:
        """Return the value as a NumPy array. Waits for it.

        Later writes to the tensor do not change the array. The array is a copy of its own; but a large array from a
        daemon on this machine is read in place, and read-only: ``numpy.array(t.numpy())`` copies it. A small tensor
        that is read piece by piece is fetched once, as a whole.

        :returns: The array.
        :raises TensordError: The error of the call that failed, with the line of that call.
        """
        known = reading.recall(self._living())
        return self._core.answers.fetch(self) if known is None else known

    def numpy_async(self) -> Awaiting[NDArray[Any]]:
        """`array = await t.numpy_async()`: the value as of this call. See `numpy`."""
        return self._awaiting(value(self))

    _value = numpy  # for calls from here, which are not entries from users' code

    def item(self) -> Scalar:
        """Return the value of a tensor with one element. Waits for it.

        :returns: A Python scalar.
        :raises ValueError: The tensor has another number of elements.
        :raises TensordError: The error of the call that failed, with the line of that call.
        """
        return one_value(self._value())

    def item_async(self) -> Awaiting[Scalar]:
        """`number = await t.item_async()`: the value of a tensor with one element, as of this call. See `item`."""
        return self._awaiting(item(self))

    def tolist(self) -> Any:
        """Return the value as nested lists. Waits for it.

        :returns: Lists of Python scalars, or a scalar for a tensor without axes.
        :raises TensordError: The error of the call that failed, with the line of that call.
        """
        return self._value().tolist()

    def tolist_async(self) -> Awaiting[Any]:
        """`rows = await t.tolist_async()`: the value as of this call. See `tolist`."""
        return self._awaiting(rows(self))

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the value is computed; after `to_device`, until it is on that device.

        :param timeout: The maximal wait in seconds; by default no limit.
        :returns: The tensor.
        :raises TimeoutError: The time is over.
        :raises TensordError: The error of the call that failed, with the line of that call.
        """
        learn(self, self._core.answers.await_ready(self._living(), timeout))
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Wait for the value as `wait` does. The result is the tensor, whose shape is known then."""
        return self._awaiting(ready(self)).__await__()

    def is_ready(self) -> bool:
        """Say whether the value, or an error, is there; after `to_device`, on that device. Never waits.

        :returns: Whether `wait` would return or raise at once.
        """
        return self._poll().done

    def is_ready_async(self) -> Awaiting[bool]:
        """`ready = await t.is_ready_async()`: waits for no value. See `is_ready`."""
        return self._awaiting(is_ready(self))

    @property
    def error(self) -> TensordError | None:
        """The error of the tensor; None if there is none so far. Never waits."""
        reply = self._poll()
        return reply.error if reply.done else None

    def error_async(self) -> Awaiting[TensordError | None]:
        """`error = await t.error_async()`: None if there is none so far. Waits for no value. See `error`."""
        return self._awaiting(error_of(self))

    def residency(self) -> dict[str, str]:
        """Say where the value is.

        :returns: For each device that holds a current copy "valid", and for each that will "planned".
        """
        found: dict[str, str] = self._core.answers.query("residency", self._living()._id)
        return found

    def residency_async(self) -> Awaiting[dict[str, str]]:
        """`found = await t.residency_async()`: see `residency`."""
        return self._awaiting(residency(self))

    def _poll(self) -> Reply:
        """The open question whether the tensor is ready; asked again once answered, since a write may follow."""
        probe = getattr(self, "_probe", None)
        if probe is not None and not probe.done:
            self._core.outbox.flush()
        return on_thread(self._core.outbox, polling(self))

    def _known_meta(self) -> Meta:
        meta = self._meta
        if type(meta) is not Meta:
            meta = self.wait()._meta
        return cast(Meta, meta)

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(self._core.outbox, steps)


make_public(Waiting, frozenset(("__await__",)))


def ready(tensor: H) -> Steps[H]:
    """The steps of `await tensor`."""
    learn(tensor, (yield tensor._core.answers.ask_ready(tensor._living())))
    return tensor


def value(tensor: Handle) -> Steps[NDArray[Any]]:
    """The steps of `numpy`."""
    known = reading.recall(tensor._living(), asks=False)
    if known is None:
        known = yield from tensor._core.answers.fetching(tensor)
    return known


def item(tensor: Handle) -> Steps[Scalar]:
    return one_value((yield from value(tensor)))


def rows(tensor: Handle) -> Steps[Any]:
    """The steps of `tolist`."""
    return (yield from value(tensor)).tolist()


def residency(tensor: Handle) -> Steps[dict[str, str]]:
    found: dict[str, str] = yield tensor._core.answers.ask("residency", tensor._living()._id)
    return found


def is_ready(tensor: Handle) -> Steps[bool]:
    return (yield from polling(tensor)).done


def error_of(tensor: Handle) -> Steps[TensordError | None]:
    """The steps of `error`."""
    probe = yield from polling(tensor)
    return probe.error if probe.done else None


def polling(tensor: Handle) -> Steps[Reply]:
    """The open question whether the tensor is ready; asked again once answered, since a write may follow."""
    probe = getattr(tensor, "_probe", None)
    if probe is None or probe.done:
        probe = tensor._probe = tensor._core.answers.ask_ready(tensor._living())
    else:
        tensor._core.outbox.flush(patient=False)
    if not probe.done and tensor._core.transport.eager:
        yield tensor._core.answers.ask_to_catch_up()
    return probe


def learn(tensor: Handle, described: Any) -> None:
    """Learn the tensor's meta from the answer to a wait."""
    (wire, _home), *_ = described
    if tensor._meta is None:
        tensor._meta = Meta.of(*wire)


def one_value(array: NDArray[Any]) -> Scalar:
    """The only element of an array as a Python scalar; ValueError if there are several, or none."""
    if array.size != 1:
        message = f"item() is for tensors of one element (size 1), not of shape {array.shape}"
        raise located(MetadataError(message))
    found: Scalar = array.item()
    return found


Converted = TypeVar("Converted")
_PUBLIC_METHODS = "bool float int complex index format"


class Conversions(Waiting):
    """The conversions by which Python asks for a number. All of them wait."""

    __slots__ = ()

    def __bool__(self) -> bool:
        if self.size != 1:
            message = f"a tensor of shape {self.shape} has no truth value of its own: use .any() or .all()"
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
            raise located(MetadataTypeError(f"a tensor of {self.dtype.name} is not an index"))
        return self._one("an index", int)

    def __format__(self, spec: str) -> str:
        return self._one(f"the format {spec!r}", lambda value: format(value, spec)) if spec else str(self)


make_public(Conversions, frozenset(f"__{name}__" for name in _PUBLIC_METHODS.split()))


def as_complex(value: Scalar) -> complex:
    """The number as a complex one; NaN in both parts for NaN, as the standard says."""
    nan = isinstance(value, float) and math.isnan(value)
    return complex(math.nan, math.nan) if nan else complex(value)
