"""From a run's results to a value as the captured function returned it.

The value may nest results of the run, arguments, captured tensors, numbers of the program, and objects that are the
same in each run. A `Node` describes the value; `maker` turns the description into a function that makes it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...interpreter.errors import CaptureError
from ...interpreter.programs.convention import (
    CAPTURED,
    GLOBAL,
    NUMBER,
    PARAMETER,
    RESULT,
    ArgumentSlot,
    Fixed,
    Nested,
    Node,
)
from ..global_tensors.published import of_published
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .binding import nested
from .numbers import SymbolicNumber
from .structure import is_plain_tensor, members, rebuilt
from .symbolic import SymbolicTensor

if TYPE_CHECKING:
    from .capture import Capture

# (a run's results, its tensors, the numbers of the program) -> the returned value
Make: TypeAlias = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]
NOT_RUN_YET = (GeneratorType, CoroutineType, AsyncGeneratorType)  # objects whose code runs after the capture


class CapturedResults:
    """A captured function's result: `make` makes it for a run, which returns `variables`; `node` describes it."""

    def __init__(self, capture: Capture, value: Any) -> None:
        self.variables: list[int] = []
        self._capture = capture
        self.node = self._node(value)
        self.make = maker(self.node, value)

    def _node(self, value: Any) -> Node:
        if type(value) is SymbolicTensor:
            return self._tensor(value)
        if type(value) is SymbolicNumber:
            value._symbol.check()
            return (
                ArgumentSlot(NUMBER, value._symbol.number) if value._symbol.is_scalar else Fixed(value._symbol.fixed())
            )
        found = None if is_fixed(value) else members(value)
        if found is not None:
            return nested(value, found, [self._node(each) for _, each in found])
        if isinstance(value, NOT_RUN_YET):
            message = f"a routine must return tensors, numbers or containers of these, not {type(value).__name__}"
            raise located(CaptureError(f"{message}, whose code would run after the capture has ended"))
        return Fixed(value)

    def _tensor(self, tensor: SymbolicTensor) -> Node:
        tensor._symbol.check()
        variable = tensor._symbol.variable
        if tensor._symbol.is_parameter:
            return ArgumentSlot(PARAMETER, variable)
        if variable not in self.variables:
            self.variables.append(variable)
        return ArgumentSlot(RESULT, self.variables.index(variable))


def is_fixed(value: Any) -> bool:
    """Return whether the value is a tensor from outside of the capture, the same in each run."""
    if type(value) is GlobalTensor:
        return not any(type(part) is SymbolicTensor for part in value._parts)
    return is_plain_tensor(value)


def maker(node: Node, like: Any = None, captured: Sequence[Tensor] = ()) -> Make:
    """A function that makes the described value, with containers like `like`, or plain ones."""
    if isinstance(node, Fixed):
        value = node.value
        return lambda *_: value
    if isinstance(node, Nested):
        inside = [each for _, each in members(like) or ()] if like is not None else [None] * len(node.members)
        makers = [maker(member, each, captured) for member, each in zip(node.members, inside, strict=True)]
        return container(node, like, makers)
    slot = node.slot
    if node.what == PARAMETER:
        return lambda _, tensors, __: tensors[slot]
    if node.what == RESULT:
        return lambda results, _, __: results[slot]
    if node.what == CAPTURED:
        tensor = captured[slot]
        return lambda *_: tensor
    return lambda _, __, numbers: numbers[slot]


def container(node: Nested, like: Any, makers: Sequence[Make]) -> Make:
    if node.kind == "tuple":
        return lambda *given: tuple([make(*given) for make in makers])
    if like is not None:
        return lambda *given: rebuilt(like, [make(*given) for make in makers])
    build = builder(node)
    return lambda *given: build([make(*given) for make in makers])


def builder(node: Nested) -> Callable[[list[Any]], Any]:
    """A function that builds a container from its members. Classes of other programs are unknown here; fields are
    not."""
    names = node.names
    if node.kind == GLOBAL:
        return partial(of_published, node.label)
    if node.kind == "list":
        return list
    if node.kind == "slice":
        return lambda found: slice(*found)
    if node.kind == "dict":
        return lambda found: dict(zip(names, found, strict=True))
    if node.kind == "named":
        make: Callable[[list[Any]], Any] = named_tuple(node.label, names)._make
        return make
    return lambda found: SimpleNamespace(**dict(zip(names, found, strict=True)))


@lru_cache(256)
def named_tuple(label: str, names: tuple[str, ...]) -> Any:
    return namedtuple(label, names)  # noqa: PYI024 - its fields are known at run time alone
