"""The calling convention of a routine: which of its nested arguments are a program's parameters and numbers, and how
its results are assembled. It is plain data, which a published routine carries: nothing is ever pickled.

A client makes a convention from a captured call (`client/capture/binding`, `client/capture/results`) and encodes it to
publish the routine; the daemon stores the plain data; another client, or the daemon that checks it, decodes it. Decoded
data are untrusted: `decode` bounds their size, and checks every slot against the program.

A convention is a tree of nodes. On the wire a node is an array:

    ["parameter" | "captured" | "result", n, null]   a tensor: the program's parameter n, captured tensor n, result n
    ["number", n, value]                             of an argument: the nth number that a run is given; of a result:
                                                     the number in slot n. With a value: it has to be that one
    ["fixed", value, null]                           a text, bool, number or None
    ["global", label, [], nodes]                     a global tensor of parts; `label` says how they lie
    [kind, label, names, nodes]                      a container: dict, list, tuple, slice, named (a named tuple),
                                                     fields (a dataclass); `label` is the name of its class
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from ..errors import MetadataTypeError, ProtocolError
from ..layouts.text import parse_layout_text
from ..types.meta import SCALAR_TYPES, Scalar
from ..wire.forms import shown
from .program import CHARACTERS_PER_STEP, RECORDS_PER_STEP, SURROGATE, Program

PARAMETER: Final = "parameter"
CAPTURED: Final = "captured"
RESULT: Final = "result"
NUMBER: Final = "number"
FIXED: Final = "fixed"
GLOBAL: Final = "global"
SLOTS: Final = frozenset((PARAMETER, CAPTURED, RESULT, NUMBER))
LABELLED_KINDS: Final = frozenset(("named", "fields"))  # containers whose members have identifiers as names
CONTAINER_KINDS: Final = frozenset(("dict", "list", "tuple", "slice", GLOBAL)) | LABELLED_KINDS

MAX_NODES: Final = 1 << 12  # of a convention: some milliseconds, during which no other session is served
MAX_DEPTH: Final = 16  # levels of containers
MAX_TEXT_LENGTH: Final = 1 << 16  # characters of all its texts
MAX_ERROR_LENGTH: Final = 200  # characters of an error
FIXED_TYPES: Final = frozenset((str, type(None), *SCALAR_TYPES.values()))  # types of fixed values
KEY_TYPES: Final = frozenset((str, bool, int, float, type(None)))  # of dicts


class ArgumentSlot(NamedTuple):
    """A tensor or a number of the program. `value`: the required value of an argument's number, if it was fixed."""

    what: str
    slot: int
    value: Scalar | None = None


class Fixed(NamedTuple):
    """A value that is the same at every call. In a convention that is not sent it may be any object."""

    value: Any


class Other(NamedTuple):
    """Stands for an argument without a meaning in other programs: the name of its class."""

    kind: str


class Nested(NamedTuple):
    """A container. `names`: the keys of a dict, the names of members; empty for the others."""

    kind: str
    label: str
    names: tuple[Any, ...]
    members: tuple[Node, ...]


Node: TypeAlias = ArgumentSlot | Fixed | Nested


class CallingConvention(NamedTuple):
    """How a routine is called. `positional`, `keywords`: its arguments by name; `result`: the returned values."""

    name: str
    positional: tuple[tuple[str, Node], ...]
    keywords: tuple[tuple[str, Node], ...]
    result: Node

    @property
    def arguments(self) -> tuple[tuple[str, Node], ...]:
        """All arguments, by name."""
        return self.positional + self.keywords


def weight_of(wire: Sequence[Any]) -> int:
    """The weight of a convention in a session's quota of steps."""
    nodes = characters = 0
    for value in leaves(wire):
        nodes += 1
        characters += len(value) if type(value) is str else 0
    return nodes // RECORDS_PER_STEP + characters // CHARACTERS_PER_STEP


def leaves(wire: Any) -> Iterator[Any]:
    """All leaves of nested lists."""
    pending = [wire]
    while pending:
        item = pending.pop()
        if type(item) in (tuple, list):
            pending.extend(item)
        else:
            yield item


# -- to the wire -------------------------------------------------------------------------------------------------------


def encode(convention: CallingConvention) -> tuple[Any, ...]:
    """The wire form of a convention. MetadataTypeError, which names the argument, for values that cannot be sent."""
    arguments = [
        (tuple(name for name, _ in given), tuple(encode_node(node, f"the argument {name}", 0) for name, node in given))
        for given in (convention.positional, convention.keywords)
    ]
    result = encode_node(convention.result, "the result", 0)
    wire = (convention.name, *arguments[0], *arguments[1], result)
    if count(wire[2]) + count(wire[4]) + count((result,)) > MAX_NODES:
        raise MetadataTypeError(f"its arguments and results have more than {MAX_NODES} parts")
    texts = [value for value in leaves(wire) if type(value) is str]
    if sum(map(len, texts)) > MAX_TEXT_LENGTH or any(map(SURROGATE.search, texts)):
        message = (
            f"the texts among its arguments and results are longer than {MAX_TEXT_LENGTH} characters, or no Unicode"
        )
        raise MetadataTypeError(message)
    return wire


def count(nodes: Sequence[Any]) -> int:
    """The number of these nodes and of those inside them."""
    return sum(1 + (count(node[3]) if node[0] in CONTAINER_KINDS else 0) for node in nodes)


def encode_node(node: Node, path: str, depth: int) -> tuple[Any, ...]:
    """The wire form of a node."""
    if isinstance(node, ArgumentSlot):
        return tuple(node)
    if isinstance(node, Fixed):
        if type(node.value) not in FIXED_TYPES or (type(node.value) is int and node.value.bit_length() > 63):
            kind = node.value.kind if isinstance(node.value, Other) else type(node.value).__name__
            raise MetadataTypeError(f"{path} is a {kind}, which has no meaning in other programs")
        return (FIXED, node.value, None)
    if depth == MAX_DEPTH:
        raise MetadataTypeError(f"{path} is nested more than {MAX_DEPTH} levels deep")
    for name in node.names:
        if type(name) not in KEY_TYPES:
            raise MetadataTypeError(f"{path} has the key {shown(name)}: a text or a number can travel")
    paths = [f"{path}.{name}" for name in node.names or range(len(node.members))]
    members = tuple(encode_node(member, at, depth + 1) for member, at in zip(node.members, paths, strict=True))
    return (node.kind, node.label, node.names, members)


# -- from the wire -----------------------------------------------------------------------------------------------------


def decode(wire: Any, program: Program) -> CallingConvention:
    """The convention in untrusted plain data, for that program; ProtocolError if it is invalid."""
    try:
        found = Decoder(program).convention(wire)
    except (ValueError, TypeError, LookupError) as error:
        raise ProtocolError(f"a calling convention is damaged: {str(error)[:MAX_ERROR_LENGTH]}") from None
    return found


class Decoder:
    """Decodes one convention. Notes the slots in its arguments, since each parameter and each number of the program has
    to be among them. `_bounds`: how many slots of each kind a node may refer to."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes = 0
        self._found: set[tuple[str, int]] = set()
        self._bounds = {
            PARAMETER: len(program.parameters),
            NUMBER: len(program.number_parameters),
        }

    def convention(self, wire: Any) -> CallingConvention:
        """The whole convention."""
        if sum(len(value) for value in leaves(wire) if type(value) is str) > MAX_TEXT_LENGTH:
            raise ValueError("its texts are too long")
        name, positional_names, positional_nodes, keyword_names, keyword_nodes, result = wire
        positional = self._arguments(positional_names, positional_nodes)
        keywords = self._arguments(keyword_names, keyword_nodes)
        names = [argument for argument, _ in positional + keywords]
        if len(set(names)) < len(names):
            raise ValueError("two arguments have one name")
        if len(self._found) < sum(self._bounds.values()):
            raise ValueError("no argument stands for some parameter of the program")
        program = self._program  # the result may also refer to other tensors and numbers of the program
        self._bounds |= {CAPTURED: len(program.captured), RESULT: len(program.results), NUMBER: len(program.numbers)}
        return CallingConvention(text(name), positional, keywords, self._node(result, 0))

    def _arguments(self, names: Any, nodes: Any) -> tuple[tuple[str, Node], ...]:
        return tuple((text(name), self._node(node, 0)) for name, node in zip(names, nodes, strict=True))

    def _node(self, wire: Any, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError("it is too large, or too deep")
        what = text(wire[0])
        if what in SLOTS:
            return self._slot(*wire)
        if what == FIXED:
            _, value, _ = wire
            if type(value) not in FIXED_TYPES:
                raise TypeError(f"{shown(value)} cannot be fixed")
            return Fixed(value)
        return self._nested(*wire, depth=depth)

    def _slot(self, what: str, index: Any, value: Any) -> ArgumentSlot:
        if type(index) is not int or not 0 <= index < self._bounds.get(what, 0):
            raise ValueError(f"the program has no {what} {shown(index)}")
        if value is not None and (what != NUMBER or type(value) not in SCALAR_TYPES.values()):
            raise TypeError(f"{shown(value)} is not a number")
        self._found.add((what, index))
        return ArgumentSlot(what, index, value)

    def _nested(self, kind: str, label: Any, names: Any, members: Any, *, depth: int) -> Nested:
        if kind not in CONTAINER_KINDS:
            raise ValueError(f"unknown container {shown(kind)}")
        keys = tuple(names)
        if (kind == "slice" and len(members) != 3) or (keys and len(keys) != len(members)):
            raise ValueError(f"a {kind} of {len(members)} members")
        if kind == GLOBAL and prod(parse_layout_text(text(label))[0]) != len(members):
            raise ValueError(f"{shown(label)} has another number of parts")
        if kind in LABELLED_KINDS and not (is_identifier(label) and all(may_be_member(kind, key) for key in keys)):
            raise ValueError(f"{shown(label)} has members without names")
        if kind in LABELLED_KINDS or kind == "dict":
            if (
                len(keys) != len(members)
                or not all(type(key) in KEY_TYPES for key in keys)
                or len(set(keys)) < len(keys)
            ):
                raise ValueError(f"the members of a {kind} have no names of their own")
        elif keys:
            raise ValueError(f"the members of a {kind} have no names")
        return Nested(kind, text(label), keys, tuple(self._node(member, depth + 1) for member in members))


def text(value: Any) -> str:
    """A text, or TypeError."""
    if type(value) is not str:
        raise TypeError(f"{shown(value)} is not text")
    return value


def is_identifier(value: Any) -> bool:
    """Return whether it is a valid class name."""
    return type(value) is str and value.isidentifier() and not keyword.iskeyword(value)


def may_be_member(kind: str, name: Any) -> bool:
    """Return whether it is a valid name of a member. Some names with a leading underscore are Python's own."""
    return is_identifier(name) and not name.startswith("_" if kind == "named" else "__")
