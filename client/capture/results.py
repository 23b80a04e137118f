"""Turns the results of a program's run into a value of the structure that the captured function returned.

`CapturedResults` describes the returned value as a tree of `Node`s (`interpreter/programs/convention`); `maker` makes
the function that builds such a value after each run. The leaves of the tree:

- a symbolic tensor or number: an argument, a result or a number of the program. A tensor that occurs several times is
  one result of the program. A NumPy scalar has its present value, and is then a part of the routine's key.
- any other object, tensors from outside of the capture included: the same object in each run. When a routine
  is published, `linking/linked_routine.portable` replaces these tensors by the program's captured tensors.

Two callers use `maker`. A routine rebuilds the containers of its own function (`like`), such as instances of its
dataclasses. A linked routine may come from another process, whose classes are unknown here, so it builds named tuples
and `SimpleNamespace`s with the same fields.
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

# (the program's results, the tensors given as arguments, the program's numbers by slot) -> the returned value
Make: TypeAlias = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]
NOT_RUN_YET = (GeneratorType, CoroutineType, AsyncGeneratorType)  # objects whose code runs after the capture


class CapturedResults:
    """The results of a captured function. `variables`: the program's variables that a run has to return; `node`: the
    description; `make`: the function that builds the value from these results.
    """

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
        inside = None if is_fixed(value) else members(value)
        if inside is not None:
            return nested(value, inside, [self._node(member) for _, member in inside])
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
    """Return whether the value is a tensor from outside of the capture, the same object in each run."""
    if type(value) is GlobalTensor:
        return not any(type(part) is SymbolicTensor for part in value._parts)
    return is_plain_tensor(value)


def maker(node: Node, like: Any = None, captured: Sequence[Tensor] = ()) -> Make:
    """A function that makes the described value, with containers of the classes in `like`, or plain ones.

    `like`: the value that the captured function returned. `captured`: the program's captured tensors.
    """
    if isinstance(node, Fixed):
        value = node.value
        return lambda *_: value
    if isinstance(node, Nested):
        inside = [member for _, member in members(like) or ()] if like is not None else [None] * len(node.members)
        makers = [maker(member, value, captured) for member, value in zip(node.members, inside, strict=True)]
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
    """A function that builds a plain container from its members: without the class, which may belong to another
    program, but with its fields."""
    names = node.names
    if node.kind == GLOBAL:
        return partial(of_published, node.label)
    if node.kind == "list":
        return list
    if node.kind == "slice":
        return lambda parts: slice(*parts)
    if node.kind == "dict":
        return lambda parts: dict(zip(names, parts, strict=True))
    if node.kind == "named":
        make: Callable[[list[Any]], Any] = named_tuple(node.label, names)._make
        return make
    return lambda parts: SimpleNamespace(**dict(zip(names, parts, strict=True)))


@lru_cache(256)
def named_tuple(label: str, names: tuple[str, ...]) -> Any:
    return namedtuple(label, names)  # noqa: PYI024 - its fields are known at run time alone
