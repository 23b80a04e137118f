"""Stand-ins for a function's arguments while it is captured: symbolic tensors and numbers, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

from ...interpreter.errors import CaptureError
from ..capture.capture import Capture
from ..capture.structure import StructureCopies, is_number, is_representable, plain_number, short
from ..locations.locations import located
from ..tensor.tensor import Tensor


class Symbols:
    """Stand-ins for the arguments in a capture. `leaves`: the positions of the numbers that are parameters."""

    def __init__(self, capture: Capture, known: frozenset[int]) -> None:
        self.leaves: list[int] = []
        self.look: dict[str, Any] = {}
        self._capture = capture
        self._known = known
        self._tensors: dict[int, tuple[str, Any]] = {}  # by id(): the first name, and the symbolic tensor
        self._numbers: list[tuple[str, Any]] = []
        self._copies = StructureCopies()

    def stand_for(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with symbolic tensors and numbers."""
        names = parameter_names(function, len(args))
        copies = self._copies
        found = [copies.replaced(each, name, self._leaf) for name, each in zip(names, args, strict=True)]
        return found, {name: copies.replaced(each, name, self._leaf) for name, each in kwargs.items()}

    def check(self) -> None:
        """CaptureError if the function has changed the members of an argument."""
        name = next(self._copies.changed(), None)
        if name is not None:
            message = (
                f"the function has changed the members of its argument {name}, which a run would not: write tensors in "
                'place (p["w"] -= step, p["w"][...] = new), or return what is new'
            )
            raise located(CaptureError(message))

    def fixed(self) -> dict[str, tuple[Any, str | None]]:
        """The numbers that the capture depends on, by name, with the lines that asked for them."""
        lines = {**dict.fromkeys(self._known), **self._capture.fixed}
        return {name: (value, lines[leaf]) for leaf, (name, value) in enumerate(self._numbers) if leaf in lines}

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            first, symbol = self._tensors.get(id(value)) or ("", self._capture.parameter(value, short(name)))
            self._tensors.setdefault(id(value), (name, symbol))
            self.look[name] = (value._meta, value._home, first)
            return symbol
        if not is_number(value):
            plain = value is None or isinstance(value, str | bool)
            self.look[name] = repr(value) if plain else f"the {type(value).__name__} at {id(value):#x}"
            return value
        self.look[name] = type(value)
        return self._number(value, name)

    def _number(self, value: Any, name: str) -> Any:
        leaf = len(self._numbers)
        self._numbers.append((name, value))
        if leaf in self._known:
            return value
        if not is_representable(plain_number(value)):
            self._capture.fix(frozenset((leaf,)))
            return value
        self.leaves.append(leaf)
        return self._capture.number(value, leaf, short(name))


def parameter_names(function: Any, given: int) -> list[str]:
    """Names for the given number of positional arguments."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if isinstance(code, CodeType) else []
    if inspect.ismethod(function):
        names = names[1:]
    return names[:given] + [f"args.{position}" for position in range(len(names[:given]), given)]
