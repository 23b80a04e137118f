"""Calls by a calling convention: nested arguments become a program's tensors and numbers.

`DescribedArguments` makes the convention of a captured call. `BoundArguments` checks a later call against a convention,
which may come from another session, and takes its tensors and numbers in the order of the program's parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, Final, NoReturn, cast

from ...interpreter.errors import MetadataError, MetadataOverflowError, MetadataTypeError
from ...interpreter.programs.convention import (
    GLOBAL,
    PARAMETER,
    ArgumentSlot,
    CallingConvention,
    Fixed,
    Nested,
    Node,
    Other,
)
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import SCALAR_TYPES, Meta
from ..calls.checks import own
from ..core.core import Core
from ..global_tensors.published import label_of
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .numbers import SymbolicNumber, fixed
from .structure import exact, is_named, is_number, is_plain_tensor, joined, members, plain_number
from .symbolic import SymbolicTensor

CONTAINERS: Final = {"dict": dict, "list": list, "tuple": tuple, "slice": slice}


class DescribedArguments:
    """Makes the convention of arguments. `leaves`: numbers that are parameters; `fixed`: numbers with fixed values."""

    def __init__(self, leaves: Sequence[int], fixed: Collection[int]) -> None:
        self._leaves = {leaf: position for position, leaf in enumerate(leaves)}
        self._fixed = fixed
        self._tensors: dict[int, int] = {}  # by id()
        self._numbers = 0

    def node(self, value: Any) -> Node:
        if is_plain_tensor(value):
            return ArgumentSlot(PARAMETER, self._tensors.setdefault(id(value), len(self._tensors)))
        if is_number(value):
            return self._number(plain_number(value))
        named_members = members(value)
        if named_members is not None:
            return nested(value, named_members, [self.node(each) for _, each in named_members])
        plain = value is None or isinstance(value, str | bool)
        return Fixed((str(value) if isinstance(value, str) else value) if plain else Other(type(value).__name__))

    def _number(self, value: Any) -> Node:
        leaf, self._numbers = self._numbers, self._numbers + 1
        position = self._leaves.get(leaf)
        if position is None:
            return Fixed(value)
        return ArgumentSlot("number", position, value if leaf in self._fixed else None)


def nested(value: Any, named_members: Sequence[tuple[Any, Any]], nodes: Sequence[Node]) -> Nested:
    if type(value) is GlobalTensor:
        return Nested(GLOBAL, label_of(value._form), (), tuple(nodes))
    for kind, container in CONTAINERS.items():
        if isinstance(value, container) and not is_named(value):
            names = tuple(name for name, _ in named_members) if kind == "dict" else ()
            return Nested(kind, "", names, tuple(nodes))
    kind = "named" if is_named(value) else "fields"
    return Nested(kind, type(value).__name__, tuple(name for name, _ in named_members), tuple(nodes))


class BoundArguments:
    """The tensors and numbers of one call, in the order of the program's parameters. MetadataError, or
    MetadataTypeError, at the user's line for arguments that do not fit."""

    def __init__(
        self,
        core: Core,
        program: Program,
        convention: CallingConvention,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.tensors: list[Any] = [None] * len(program.parameters)
        self.numbers: list[Any] = [None] * len(program.number_parameters)
        self._core = core
        self._program = program
        given = by_name(convention, args, kwargs)
        for name, node in convention.arguments:
            self._take(node, given[name], name)

    def _take(self, node: Node, value: Any, path: str) -> None:
        if isinstance(node, Fixed):
            value = fixed(value)
            if type(value) is not type(node.value) or exact(value) != exact(node.value):
                self._refuse(path, f"was {node.value!r}", value)
        elif isinstance(node, Nested):
            for name, member, given in zip(
                node.names or range(len(node.members)), node.members, self._members(node, value, path), strict=True
            ):
                self._take(member, given, joined(path, name))
        elif node.what == PARAMETER:
            self._tensor(node.slot, value, path)
        else:
            self._number(node, value, path)

    def _tensor(self, index: int, value: Any, path: str) -> None:
        tensor, source, before = own(self._core, value), self._program.parameters[index], self.tensors[index]
        meta = tensor._meta
        if meta is not source.meta:
            if type(meta) is not Meta:
                refuse_symbolic(tensor)
                raise located(MetadataError(f"{path} has a shape that depends on data: wait for it first (.wait())"))
            raise located(MetadataError(f"{path} is {source.meta}, not {meta}"))
        if before is not None and before is not tensor:
            raise located(
                MetadataError(f"{path} and {source.name} were the same tensor at the capture, but are not now")
            )
        self.tensors[index] = tensor

    def _number(self, node: ArgumentSlot, value: Any, path: str) -> None:
        kind = SCALAR_TYPES[self._program.number_parameters[node.slot].kind]
        if not (is_number(value) or type(value) is SymbolicNumber):
            self._refuse(path, f"is {kind.__name__}", value)
        number = as_kind(path, plain_number(value), kind)
        if node.value is not None and exact(fixed(number)) != exact(node.value):
            self._refuse(path, f"was {node.value!r}", value)
        self.numbers[node.slot] = number

    def _members(self, node: Nested, value: Any, path: str) -> list[Any]:
        """The members of a container of the captured kind, in the order of the capture."""
        self._check_kind(node, value, path)
        named_members = list(vars(value).items()) if isinstance(value, SimpleNamespace) else members(value) or []
        if not node.names:
            before, now = f"{len(node.members)} members", f"{len(named_members)}"
            fits = len(named_members) == len(node.members)
        else:
            before, now = ", ".join(map(str, node.names)), ", ".join(str(name) for name, _ in named_members) or "none"
            fits = len(named_members) == len(node.names) and {name for name, _ in named_members} == set(node.names)
        if not fits:
            raise located(MetadataTypeError(f"{path} had {before} at the capture, and has {now} now"))
        by_name = dict(named_members)
        return [by_name[name] for name in node.names] if node.names else [each for _, each in named_members]

    def _check_kind(self, node: Nested, value: Any, path: str) -> None:
        """Check the kind of container. Classes do not travel: a named tuple or dataclass with the same members fits."""
        if node.kind == GLOBAL:
            if type(value) is not GlobalTensor or label_of(value._form) != node.label:
                self._refuse(path, f"is {a_global_tensor(node.label)}", value)
        elif node.kind in CONTAINERS:
            if not isinstance(value, CONTAINERS[node.kind]) or is_named(value):
                self._refuse(path, f"is a {node.kind}", value)
        elif not isinstance(value, SimpleNamespace) and not (is_named(value) or is_dataclass(value)):
            self._refuse(path, f"is a {node.label}, with {', '.join(node.names)}", value)

    def _refuse(self, path: str, expected: str, value: Any) -> NoReturn:
        if type(value) is SymbolicNumber:
            value = value._symbol.value
        if type(value) is GlobalTensor:
            shown = a_global_tensor(label_of(value._form))
        else:
            shown = repr(value) if is_number(value) or isinstance(value, str | bool) else type(value).__name__
        message = f"{path} {expected} at the capture, not {shown:.60}: the routine runs only for such arguments"
        raise located(MetadataTypeError(message))


def a_global_tensor(label: str) -> str:
    """The description of a global tensor in an error. `label`: the layout of its parts."""
    return f"a global tensor, {label}"


def refuse_symbolic(tensor: Tensor) -> None:
    """CaptureError for a symbolic tensor whose shape depends on data: a capture cannot wait for the shape."""
    if type(tensor) is SymbolicTensor:
        tensor._known_meta()


def by_name(convention: CallingConvention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, positional ones first, as in Python; MetadataTypeError if they do not match."""
    names = [name for name, _ in convention.arguments]
    given = dict(zip([name for name, _ in convention.positional], args, strict=False))
    if len(args) > len(convention.positional) or given.keys() & kwargs.keys() or {*given, *kwargs} != set(names):
        raise located(MetadataTypeError(f"{convention.name} takes {signature(convention)}, as it was captured"))
    return given | dict(kwargs)


def signature(convention: CallingConvention) -> str:
    """The signature in Python's notation."""
    keywords = [f"{name}=" for name, _ in convention.keywords]
    return f"({', '.join([*(name for name, _ in convention.positional), *keywords])})"


def as_kind(name: str, value: Any, kind: Any) -> Any:
    """The number as that type: ints and bools are accepted for floats, as in Python. A symbolic number is kept if it
    has the type, or is an int for a float; otherwise it becomes fixed."""
    if type(value) is kind:
        return value
    if type(value) is SymbolicNumber and type(value._symbol.value) is int and kind is float:
        value = cast(Any, value) * 1.0
    if type(value) is SymbolicNumber and type(value._symbol.value) is kind:
        return value
    if (kind in (float, complex) and isinstance(value, int | float)) or (kind is int and isinstance(value, int)):
        try:
            return kind(value)
        except OverflowError:
            raise located(MetadataOverflowError(f"the number {name} is too large for a {kind.__name__}")) from None
    raise located(MetadataTypeError(f"the number {name} is {kind.__name__}, not {value.__class__.__name__}"))
