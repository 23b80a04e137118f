"""From a run's results to what the function returned: nested, with numbers, the caller's own tensors, other objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

from ...interpreter.errors import CaptureError
from ..locations import located
from ..tensor import Tensor
from .numbers import SymbolicNumber
from .structure import members, rebuilt
from .symbolic import SymbolicTensor

if TYPE_CHECKING:
    from .capture import Capture

# (a run's results, its tensors, the numbers of the program) -> what the function returned
Make: TypeAlias = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]
LAZY = (GeneratorType, CoroutineType, AsyncGeneratorType)


class Results:
    """What a captured function returned: `make` makes it for a run, which returns `variables`."""

    def __init__(self, capture: Capture, value: Any) -> None:
        self.variables: list[int] = []
        self._capture = capture
        self.make = self._maker(value)

    def _maker(self, value: Any) -> Make:
        if type(value) is SymbolicTensor:
            return self._tensor(value)
        if type(value) is SymbolicNumber:
            return self._number(value)
        found = None if isinstance(value, Tensor) else members(value)
        if found is not None:
            return container(value, [self._maker(each) for _, each in found])
        if isinstance(value, LAZY):
            message = f"a routine returns tensors, numbers and containers of them, not a {type(value).__name__}"
            raise located(CaptureError(f"{message}, whose code would run when the capture is over"))
        return lambda *_: value

    def _tensor(self, tensor: SymbolicTensor) -> Make:
        tensor._check()
        variable = tensor._variable
        if self._capture.is_parameter(tensor):
            return lambda _, tensors, __: tensors[variable]
        if variable not in self.variables:
            self.variables.append(variable)
        place = self.variables.index(variable)
        return lambda results, _, __: results[place]

    def _number(self, number: SymbolicNumber) -> Make:
        number._check()
        if not number._kept():
            value = number._fixed()
            return lambda *_: value
        slot = number._slot
        return lambda _, __, numbers: numbers[slot]


def container(value: Any, makers: Sequence[Make]) -> Make:
    """Makes a container like that one."""
    kind = type(value)
    if kind is tuple:
        return lambda *given: tuple([make(*given) for make in makers])
    return lambda *given: rebuilt(value, [make(*given) for make in makers])
