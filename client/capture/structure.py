"""Nested arguments and results: dicts, lists, tuples, named tuples, dataclasses and slices of tensors and numbers.

`Arguments` is the key by which a call is looked up: a flat tuple, each part of which says how many entries follow, so
that two structures never have the same key:

- for a tensor: its meta and its home; for a number: its type (NumPy's scalars count as numbers)
- for a global tensor: its form, and then its parts, which are tensors
- for a string, a bool, None: the value; for a container: its type, and the names or the number of its members
- for any other object: its id(); after a lookup the objects have to be compared, too

The order is that of the structure, and the same in `Arguments`, `members` and `replaced`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from struct import pack
from typing import Any, Final

import numpy as np

from ...interpreter.errors import MetadataTypeError, TensordError
from ...interpreter.schema.promotion import WIRE_INTEGERS
from ...interpreter.types.meta import SCALAR_TYPES, Scalar
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located
from ..tensor.operators import GLOBALS, SCALARS
from ..tensor.tensor import Tensor

NUMBERS: Final = frozenset((int, float, complex))
TRUE, FALSE, NONE = ("True",), ("False",), ("None",)


class Arguments:
    """The key of a call's arguments, and their contents: tensors, numbers and other objects, in order."""

    __slots__ = ("key", "numbers", "objects", "tensors")

    def __init__(self, first: Iterable[Any], values: Iterable[Any]) -> None:
        """Arguments; the key begins with `first`."""
        self.key: list[Any] = list(first)
        self.tensors: list[Tensor] = []
        self.numbers: list[Any] = []
        self.objects: list[Any] = []
        self.add(values)

    def add(self, values: Iterable[Any]) -> None:
        """Add arguments. The hot path of a routine's call."""
        key = self.key
        for value in values:
            kind = type(value)
            if kind is Tensor:
                key.append(value._meta)
                key.append(value._home)
                self.tensors.append(value)
            elif kind in NUMBERS:
                key.append(kind)
                self.numbers.append(value)
            elif kind is dict:
                key.append((dict, *value, *map(type, value)))
                self.add(value.values())
            elif kind is tuple or kind is list:
                key.append((kind, len(value)))
                self.add(value)
            else:
                self._add_other(value)

    def _add_other(self, value: Any) -> None:
        if value is None or value is True or value is False:
            self.key.append(NONE if value is None else TRUE if value else FALSE)
        elif type(value) is GlobalTensor:
            self.key.append((GlobalTensor, value._form))
            self.add(value._parts)
        elif isinstance(value, str):
            self.key.append(value if type(value) is str else (str, str(value)))
        elif is_number(value):
            self.key.append(type(value))
            self.numbers.append(value)
        elif isinstance(value, np.ndarray):
            message = "a NumPy array is not an argument of a routine: make a tensor from it with session.asarray"
            raise located(MetadataTypeError(message))
        else:
            named_members = members(value)
            if named_members is None:
                self.key.append(id(value))
                self.objects.append(value)
            else:
                self.key.append((type(value), *(name for name, _ in named_members)))
                self.add(each for _, each in named_members)


def exact(value: Any) -> Any:
    """A value that is equal for numbers with the same bits and type: NaN equals NaN, and 0.0 differs from -0.0."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if type(value) is float:
        return pack("d", value)
    return pack("dd", value.real, value.imag) if type(value) is complex else value


def is_number(value: Any) -> bool:
    """Return whether the value is a Python number, or a NumPy scalar that stands for one."""
    kind = type(value.item()) if isinstance(value, np.number) else type(value)
    return kind in NUMBERS


def is_named(value: Any) -> bool:
    """Return whether the value is a named tuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_make")


def is_plain_tensor(value: Any) -> bool:
    """Return whether the value is a tensor other than a global one, which is a container of its parts."""
    return isinstance(value, Tensor) and type(value) not in GLOBALS


def members(value: Any) -> list[tuple[Any, Any]] | None:
    """The members of a container by name or position; None for any other value."""
    if type(value) is GlobalTensor:
        return list(enumerate(value._parts))
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list) or type(value) is tuple:
        return list(enumerate(value))
    if is_named(value):
        return list(zip(value._fields, value, strict=True))
    if is_dataclass(value) and not isinstance(value, type):
        return [(each.name, getattr(value, each.name)) for each in fields(value) if hasattr(value, each.name)]
    if type(value) is slice:
        return [("start", value.start), ("stop", value.stop), ("step", value.step)]
    return None


def rebuilt(value: Any, with_members: Iterable[Any]) -> Any:
    """A container like `value` with other members."""
    given = list(with_members)
    if type(value) in (list, tuple):
        return type(value)(given)
    if type(value) is slice:
        return slice(*given)
    if type(value) is GlobalTensor:
        return GlobalTensor(value._form, given)
    if is_named(value):
        return value._make(given)
    made = copy.copy(value)
    if isinstance(value, dict):
        made.update(zip(value, given, strict=True))
    elif isinstance(value, list):
        made[:] = given
    else:
        for (name, _), each in zip(members(value) or (), given, strict=True):
            object.__setattr__(made, name, each)
    return made


def joined(path: str, name: Any) -> str:
    """The name of a member: "params.w", "layers.0"."""
    return f"{path}.{name}" if path else str(name)


def short(name: str) -> str:
    """The name, shortened as in programs."""
    return "".join(letter if letter.isprintable() else "_" for letter in name[:256])


class StructureCopies:
    """Copies of nested arguments with other leaves. `changed` finds containers whose members were replaced since."""

    def __init__(self) -> None:
        self._made: list[tuple[str, Any, list[Any]]] = []  # name, container, its members

    def replaced(self, value: Any, name: str, leaf: Callable[[Any, str], Any]) -> Any:
        """A copy in which `leaf(member, name)` replaces each member that is no container."""
        named_members = None if is_plain_tensor(value) or type(value) in SCALARS else members(value)
        if named_members is None:
            return leaf(value, name)
        made = rebuilt(value, [self.replaced(each, joined(name, key), leaf) for key, each in named_members])
        self._made.append((name, made, contents_of(made)))
        return made

    def changed(self) -> Iterator[str]:
        """The names of containers whose members have changed."""
        for name, made, before in self._made:
            now = contents_of(made)
            if len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
                yield name


def contents_of(container: Any) -> list[Any]:
    """The members of a container, with the keys of a dict."""
    keys = container if isinstance(container, dict) else ()
    return [*keys, *(each for _, each in members(container) or ())]


class Located:
    """`with LOCATED:` adds the user's line to errors that are raised inside."""

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TensordError):
            located(error)


LOCATED: Final = Located()


def plain_number(value: Any) -> Scalar:
    """A NumPy scalar as a Python number."""
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    return number


def kind_of(value: Any) -> str:
    return type(plain_number(value)).__name__


def is_representable(value: Any) -> bool:
    """Return whether a program can represent this number."""
    return type(value).__name__ in SCALAR_TYPES and (type(value) is not int or value in WIRE_INTEGERS)
