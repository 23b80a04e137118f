"""Waits for a global tensor, and reads it: the parts' values are assembled on the host, in steps.

Of equal parts one is read, the first in the grid that has no error: a lost replica is no error of the value. If other
sessions may write to the tensor, copies of the parts are made in one group first, so that no half of a write is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import Failure, TensordError
from ...interpreter.layouts.layout import Broadcast, Partial
from ...interpreter.types.meta import Meta
from ..core.core import Core
from ..requests.answers import fetched, seconds
from ..tensor import reading, waiting
from ..tensor.display import FONT, MAX_HTML_LENGTH, value_text
from ..tensor.display import state_of as state_of_part
from ..tensor.operators import GLOBALS
from ..tensor.tensor import Tensor
from ..transport.replies import Reply
from ..waiting.procedures import of, side_by_side
from ..waiting.steps import Steps, Within
from .form import Form, grid_coordinates

if TYPE_CHECKING:
    from .tensor import GlobalTensor

REDUCED: Final[Mapping[str, np.ufunc]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
Coordinates = tuple[int, ...]
T = TypeVar("T")


def value(tensor: GlobalTensor) -> Steps[NDArray[Any]]:
    """The steps of `numpy`."""
    return (yield from over_nodes(tensor) if tensor._form.placement.spans else asked_for(tensor))


def over_nodes(tensor: GlobalTensor) -> Steps[NDArray[Any]]:
    """The value of parts on several nodes, which are asked concurrently."""
    parts, needed = stable(tensor), sources(tensor._form)
    first = [parts[numbers[0]] for numbers in needed.values()]
    received = yield from side_by_side((part._core.outbox, part._core.answers.fetching(part)) for part in first)
    values: dict[Coordinates, NDArray[Any]] = {}
    for (coordinates, numbers), result in zip(needed.items(), received, strict=True):
        values[coordinates] = (
            (yield from replica(parts, numbers, result)) if isinstance(result, TensordError) else result
        )
    learn(tensor)
    return whole(tensor._form, values)


def lock_of(tensor: GlobalTensor) -> Any:
    """The object whose lock procedures about the tensor take: its session's outbox, or, over nodes, the gate."""
    core = tensor._core
    return core.cluster.gate if core.cluster is not None and tensor._form.placement.spans else core.outbox


def at(tensor: GlobalTensor, part: Tensor, steps: Steps[T]) -> Steps[T]:
    """A procedure about a part, run as one of the tensor."""
    return of(part._core.outbox, steps) if tensor._form.placement.spans else steps


def asked_for(tensor: GlobalTensor) -> Steps[NDArray[Any]]:
    """Ask for the value now; returns the steps that take the answers."""
    parts = stable(tensor)
    needed = sources(tensor._form)
    questions = [tensor._core.answers.question(parts[numbers[0]]) for numbers in needed.values()]
    return answered(tensor, parts, needed, tensor._core.outbox.ask_all(questions))


def answered(
    tensor: GlobalTensor, parts: Sequence[Tensor], needed: Mapping[Coordinates, list[int]], replies: Sequence[Reply]
) -> Steps[NDArray[Any]]:
    """The value, assembled from the answers about its parts."""
    values: dict[Coordinates, NDArray[Any]] = {}
    for (coordinates, numbers), reply in zip(needed.items(), replies, strict=True):
        try:
            values[coordinates] = fetched(parts[numbers[0]], (yield reply))
        except TensordError as error:
            values[coordinates] = yield from replica(parts, numbers, error)
    learn(tensor)
    return whole(tensor._form, values)


def replica(parts: Sequence[Tensor], numbers: Sequence[int], error: TensordError) -> Steps[NDArray[Any]]:
    """The value of an equal part, in place of one with an error; raises that error if all have one."""
    for number in numbers[1:]:
        try:
            part = parts[number]
            return (yield from of(part._core.outbox, part._core.answers.fetching(part)))
        except TensordError:
            continue
    raise named(error, parts[numbers[0]]._home) from None


def named(error: Failure, home: str) -> Failure:
    """A copy of the error that names the part's device."""
    if not isinstance(error, TensordError):
        return error
    message = f"{error.message} (the part on {home})"
    made = type(error)(message, op=error.op, location=error.location, instruction=error.instruction)
    made.__cause__ = error.__cause__
    return made


def stable(tensor: GlobalTensor) -> tuple[Tensor, ...]:
    """The parts; or copies of one moment, if other sessions may write to the parts."""
    parts = tensor._living()._parts
    if all(part._reading is not reading.SHARED for part in parts):
        return parts
    with tensor._core.global_calls.grouped(tensor._form.placement):
        return tuple([part.copy() for part in parts])


def sources(form: Form) -> dict[Coordinates, list[int]]:
    """The positions in the grid whose parts make up the value, each with the numbers of all parts equal to the one
    there."""
    parts_at: dict[Coordinates, list[int]] = {}
    for number, coordinates in enumerate(grid_coordinates(form.placement.grid)):
        first = tuple(
            0 if isinstance(atom, Broadcast) else at for at, atom in zip(coordinates, form.layout, strict=True)
        )
        parts_at.setdefault(first, []).append(number)
    return parts_at


def whole(form: Form, values: dict[Coordinates, NDArray[Any]]) -> NDArray[Any]:
    """The value, assembled from the parts' values."""
    for dim, atom in enumerate(form.layout):
        if isinstance(atom, Partial):
            values = combined(values, dim, REDUCED[atom.reduction])
    if len(values) == 1:
        (alone,) = values.values()
        return alone
    meta: Any = form.meta
    made = np.empty(meta.shape, meta.dtype)
    shares = dict(zip(grid_coordinates(form.placement.grid), form.shares, strict=True))
    for coordinates, part in values.items():
        begin, shape = shares[coordinates]
        made[tuple(slice(low, low + size) for low, size in zip(begin, shape, strict=True))] = part
    return made


def combined(values: dict[Coordinates, NDArray[Any]], dim: int, function: np.ufunc) -> dict[Coordinates, NDArray[Any]]:
    """The parts' values, with those along one dimension of the grid combined in its order."""
    made: dict[Coordinates, NDArray[Any]] = {}
    for coordinates, part in sorted(values.items()):
        rest = (*coordinates[:dim], 0, *coordinates[dim + 1 :])
        made[rest] = np.asarray(function(made[rest], part)) if rest in made else part
    return made


def fetching_all(core: Core, tensors: Sequence[Any]) -> Steps[list[NDArray[Any]]]:
    """The values of several tensors, plain and global, in one round trip."""
    if not any(type(tensor) in GLOBALS for tensor in tensors):
        return (yield from core.answers.fetching_all(tensors))
    asked: list[Any] = [
        asked_for(tensor) if type(tensor) in GLOBALS else core.outbox.ask(core.answers.question(tensor))
        for tensor in tensors
    ]
    values = []
    for tensor, pending in zip(tensors, asked, strict=True):
        values.append((yield from pending) if type(tensor) in GLOBALS else fetched(tensor, (yield pending)))
    return values


def item(tensor: GlobalTensor) -> Steps[Any]:
    return waiting.one_value((yield from value(tensor)))


def rows(tensor: GlobalTensor) -> Steps[Any]:
    """The steps of `tolist`."""
    return (yield from value(tensor)).tolist()


def ready(tensor: GlobalTensor, timeout: float | None = None) -> Steps[GlobalTensor]:
    """The steps of `wait`, and of `await tensor`."""
    limit = seconds("wait", timeout)
    parts = tensor._living()._parts
    received = yield from side_by_side((part._core.outbox, ready_part(part, limit)) for part in parts)
    for part, error in zip(parts, received, strict=True):
        if error is not None:
            raise named(error, part._home) from None
    learn(tensor)
    return tensor


def ready_part(part: Tensor, limit: float | None) -> Steps[None]:
    waiting.learn(part, (yield Within(part._core.answers.ask_ready(part), limit)))


def learn(tensor: GlobalTensor) -> None:
    """Learn the meta from the parts; if it depended on data, the parts are equal."""
    if tensor._meta is None:
        meta = next((part._meta for part in tensor._parts if part._meta is not None), None)
        tensor._form = Form.of(meta, tensor._form.placement, tensor._form.layout)
        for part in tensor._parts:
            part._meta = meta


def is_ready(tensor: GlobalTensor) -> Steps[bool]:
    done = True
    for part in tensor._living()._parts:
        done = (yield from at(tensor, part, waiting.is_ready(part))) and done
    return done


def error_of(tensor: GlobalTensor) -> Steps[TensordError | None]:
    """The steps of `error`."""
    for part in tensor._living()._parts:
        error = yield from at(tensor, part, waiting.error_of(part))
        if error is not None:
            return named(error, part._home)
    return None


def residency(tensor: GlobalTensor) -> Steps[dict[str, str]]:
    states: dict[str, str] = {}
    for part in tensor._living()._parts:
        for device, state in (yield from at(tensor, part, waiting.residency(part))).items():
            states[device] = "valid" if "valid" in (state, states.get(device)) else state
    return states


def state_of(tensor: GlobalTensor) -> str:
    """ "ready", "pending", or the error of a part; for `repr`, which waits for no value."""
    if any(part._id < 0 for part in tensor._parts):
        return "released"
    if any(part._id == 0 for part in tensor._parts):
        return "of a capture"
    states = [state_of_part(part)[0] for part in tensor._parts]
    for state, part in zip(states, tensor._parts, strict=True):
        if state not in ("ready", "pending"):
            return f"{part._home} {state}"
    return "pending" if "pending" in states else "ready"


def html(tensor: GlobalTensor) -> str:
    """The summary for notebooks, with the value if it is ready."""
    head = f"<code {FONT}>{escape(repr(tensor))}</code>"
    if not repr(tensor).endswith("ready>") or type(tensor._meta) is not Meta:
        return head
    text = value_text(tensor)
    return f"{head}<pre {FONT}>{escape(text[:MAX_HTML_LENGTH])}</pre>"
