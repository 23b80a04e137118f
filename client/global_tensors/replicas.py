"""If some of several equal parts have failed, on a lost or full device, the value is made of the others."""

from __future__ import annotations

from collections.abc import Sequence

from ...interpreter.layouts.layout import BROADCAST, Broadcast
from ...interpreter.layouts.placement import Placement
from ..tensor import waiting
from ..waiting.steps import Steps, on_thread
from .form import Form
from .tensor import GlobalTensor
from .values import at, lock_of, sources


def has_replicas(form: Form) -> bool:
    """Return whether several parts are equal."""
    return any(n > 1 and atom == BROADCAST for n, atom in zip(form.placement.grid, form.layout, strict=True))


def without_failed(tensor: GlobalTensor) -> GlobalTensor:
    """The value without replicas, of parts that have not failed, if one has failed; else the tensor itself. Waits for
    no value."""
    if not has_replicas(tensor._form) or not tensor._core.outbox.answers():
        return tensor
    failed = on_thread(lock_of(tensor), failures(tensor))
    return chosen(tensor, failed) if any(failed) else tensor


def failures(tensor: GlobalTensor) -> Steps[list[bool]]:
    """For each part, whether it has failed so far."""
    failed = []
    for part in tensor._parts:
        error = yield from at(tensor, part, waiting.error_of(part))
        failed.append(error is not None)
    return failed


def chosen(tensor: GlobalTensor, failed: Sequence[bool]) -> GlobalTensor:
    """The value without replicas: the first of equal parts that has not failed, on a grid without their dimensions."""
    form = tensor._form
    dims = [dim for dim, atom in enumerate(form.layout) if not isinstance(atom, Broadcast)]
    numbers = [next((n for n in equal if not failed[n]), equal[0]) for equal in sources(form).values()]
    names, grid = form.placement.names, form.placement.grid
    where = Placement(tuple([names[n] for n in numbers]), tuple([grid[dim] for dim in dims]) or (1,))
    layout = tuple([form.layout[dim] for dim in dims]) or (BROADCAST,)
    return GlobalTensor(Form.of(form.meta, where, layout), [tensor._parts[n] for n in numbers])
