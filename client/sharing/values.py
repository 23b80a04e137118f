"""Values under names: from a tensor or a routine to its form in messages, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...interpreter.types.meta import Meta
from ..calls.checks import own
from ..core.core import Core
from ..tensor.reading import mark_shared
from ..tensor.tensor import Tensor
from .names import Publishable

ROUTINE: Final = "routine"  # the first element of an answer about one


def publishable(core: Core, value: Any) -> Publishable:
    """The publishable form of a tensor or routine; raises at the user's line if it cannot be published."""
    if isinstance(value, Tensor):
        return Publishable(own(core, value)._id, (value,))
    from .publishing import publishable_routine

    return publishable_routine(core, value)


def looked_up(
    core: Core, names: Sequence[str], heads: Sequence[Any], ids: Sequence[int], records: Sequence[Any]
) -> list[Any]:
    """The answer to a look-up as tensors and routines of this session, in their order."""
    new, rest = iter(ids), iter(records)
    plain = [[head] if head[0] != ROUTINE else head[2] for head in heads]
    tensors = [
        [shared_handle(core, next(new), *each) for each in some] for some in plain
    ]  # all, before anything can fail
    values: list[Any] = []
    for name, head, some in zip(names, heads, tensors, strict=True):
        if head[0] != ROUTINE:
            values += some
        else:
            from ..linking.linked import Bindings  # imported late: few sessions need routines
            from .publishing import routine_from_answer

            _, devices, _, convention = head
            values.append(routine_from_answer(core, name, Bindings(devices, some), convention, rest))
    return values


def shared_handle(core: Core, id_: int, meta: Any, home: str) -> Tensor:
    """A handle to a tensor that other sessions may write to."""
    tensor = Tensor(core, id_, None if meta is None else Meta.of(*meta), home)
    mark_shared(tensor)
    return tensor
