"""What the code of a function names: globals, attributes, modules that it imports.

An attribute may be named by a text, too (`getattr(net, "rate")`), so texts that can be names count as names.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, Final, NamedTuple

KNOWN: Final = 1024  # code objects whose names are remembered
_GLOBAL, _NAME, _IMPORT, _EXTENDED = (
    dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "EXTENDED_ARG")
)
_CONSTANT: Final = dis.opmap["LOAD_CONST"]
_CELLS: Final = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "DELETE_DEREF")
_SMALL: Final = dis.opmap.get("LOAD_SMALL_INT")  # of Python 3.14


class Import(NamedTuple):
    """A module that code imports: by name, and how many packages upwards the name begins."""

    name: str
    level: int


class Names(NamedTuple):
    """What code reads, without functions inside it: `attributes` has other names, too. `cells`: of closures."""

    attributes: frozenset[str]
    globals: tuple[str, ...]
    imports: tuple[Import, ...]
    cells: frozenset[str]


@lru_cache(maxsize=KNOWN)
def names_of(code: CodeType) -> Names:
    """What the code reads by itself."""
    cells = (each.argval for each in dis.get_instructions(code) if each.opname in _CELLS)
    return Names(
        frozenset(read_in(code)).union(texts_in(code.co_consts)),
        tuple(dict.fromkeys(loaded(code))),
        tuple(dict.fromkeys(imported(code))),
        frozenset(cells),
    )


def read_in(code: CodeType) -> Iterator[str]:
    """The names that instructions read. What is only stored, as by `__init__`, may change: the code does the same."""
    for each in dis.get_instructions(code):
        if each.opcode in dis.hasname and not each.opname.startswith(("STORE_", "DELETE_")):
            yield each.argval


def texts_in(values: Any) -> Iterator[str]:
    """The names that are texts, or parts of a dotted text, among constants."""
    for value in values:
        if isinstance(value, str):
            parts = value.split(".")
            if all(part.isidentifier() for part in parts):
                yield from (value, *parts)
        elif isinstance(value, tuple | frozenset):
            yield from texts_in(value)


def within(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from within(each)


def loaded(code: CodeType) -> Iterator[str]:
    """The names that instructions load from the globals: names of attributes alone are not among them."""
    for opcode, argument in instructions(code):
        if opcode == _GLOBAL:
            yield code.co_names[argument >> 1]
        elif opcode == _NAME:
            yield code.co_names[argument]


def imported(code: CodeType) -> Iterator[Import]:
    """What instructions import. The level is the constant that was loaded as the last but one."""
    constants: list[Any] = [0, 0]
    for opcode, argument in instructions(code):
        if opcode in (_CONSTANT, _SMALL):
            constants = [constants[1], code.co_consts[argument] if opcode == _CONSTANT else argument]
        elif opcode == _IMPORT:
            level = constants[0]
            yield Import(code.co_names[argument], level if isinstance(level, int) else 0)


def instructions(code: CodeType) -> Iterator[tuple[int, int]]:
    """Opcodes with their whole arguments."""
    high = 0
    pairs = iter(code.co_code)
    for opcode, argument in zip(pairs, pairs, strict=True):
        whole = high << 8 | argument
        yield opcode, whole
        high = whole if opcode == _EXTENDED else 0
