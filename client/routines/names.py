"""The names in a function's code: globals, attributes, imported modules.

A text may name an attribute, too (`getattr(net, "rate")`), so texts that can be names count as names. `computed` finds
accesses by names that the code computes.
"""

from __future__ import annotations

import dis
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dis import Instruction
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from ..locations.frames import OWNERS, PROGRAM
from .computed import FRAME_NAMES, SELF_ASKING, computed_accesses, module_accesses, read_apart

MAX_CACHED_CODES: Final = 1024  # code objects whose names are cached
_HAS_NAME: Final = frozenset(dis.hasname)
_CELLS: Final = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "DELETE_DEREF")
_ALL_CELLS: Final = frozenset(("locals", "vars", "dir", "eval", "exec"))  # functions that may read all variables
GLOBAL, VARIABLE, ATTRIBUTE = "global", "variable", "attribute"
_VALUES: Final = {  # the kind of value that an instruction with this prefix loads
    "LOAD_FAST": VARIABLE,
    "LOAD_DEREF": VARIABLE,
    "LOAD_GLOBAL": GLOBAL,
    "LOAD_NAME": GLOBAL,
    "LOAD_ATTR": ATTRIBUTE,
}
_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT")
_FIELD: Final = re.compile(r"[.\[](\w+)")  # of a format text: "{0.rate}"


class Import(NamedTuple):
    """A module that code imports: its name, and the number of packages upwards at which the name begins."""

    name: str
    level: int


class Path(NamedTuple):
    """The variable, and the attributes of it, by which code reaches the object that it asks; and the expression that
    asks."""

    names: tuple[str, ...]
    expression: str


class CodeNames(NamedTuple):
    """The names that code reads, without inner functions. `attributes` also has other names. `cells`: of closures.

    By computed names the code `asks` for attributes of an object, and for `modules`; `frames`: it reads frames and
    globals of functions. These are expressions. `paths`: where it asks for attributes of the object at a path. `bare`:
    variables and attributes that it uses as values, and not only for a named attribute, with their kinds.
    """

    attributes: frozenset[str]
    globals: tuple[str, ...]
    imports: tuple[Import, ...]
    cells: frozenset[str]
    asks: tuple[str, ...]
    modules: tuple[str, ...]
    frames: tuple[str, ...]
    paths: Mapping[int, Path]
    bare: frozenset[tuple[str, str]]


@lru_cache(maxsize=MAX_CACHED_CODES)
def names_of(code: CodeType) -> CodeNames:
    """The names that the code itself reads."""
    instructions = list(read_apart(dis.get_instructions(code)))
    asked = list(computed_accesses(instructions))
    read = frozenset(read_in(instructions))
    texts = frozenset(texts_in(code.co_consts))
    return CodeNames(
        read | texts,
        tuple(dict.fromkeys(each.argval for each in instructions if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))),
        tuple(dict.fromkeys(imported(instructions))),
        frozenset(
            code.co_freevars if read & _ALL_CELLS else (each.argval for each in instructions if each.opname in _CELLS)
        ),
        (*expressions(code, (each.offset for each in asked if not each.path)), *texts & SELF_ASKING),
        expressions(code, (each.offset for each in module_accesses(instructions))),
        expressions(
            code, (each.offset for each in instructions if each.opcode in _HAS_NAME and each.argval in FRAME_NAMES)
        ),
        {each.offset: Path(each.path, expression_at(code, each.offset) or "getattr") for each in asked if each.path},
        frozenset(bare_in(instructions)),
    )


def bare_in(code: Sequence[Instruction]) -> Iterator[tuple[str, str]]:
    """The variables and attributes, with their kinds, that are used for more than one of their named attributes."""
    for instruction, behind in zip(code, (*code[1:], None), strict=True):
        kind = next((kind for opname, kind in _VALUES.items() if instruction.opname.startswith(opname)), None)
        named = behind is not None and behind.opname.endswith(("_ATTR", "_METHOD")) and behind.argval not in SELF_ASKING
        if kind is not None and not named:
            yield kind, str(instruction.argval)


def expressions(code: CodeType, offsets: Iterable[int]) -> tuple[str, ...]:
    """The source texts of the instructions at these offsets."""
    return tuple(dict.fromkeys(expression_at(code, each) or name_at(code, each) for each in offsets))


def name_at(code: CodeType, offset: int) -> str:
    """A name for an expression without a source text."""
    instruction = next((each for each in dis.get_instructions(code) if each.offset == offset), None)
    named = instruction is not None and instruction.opcode in _HAS_NAME
    return str(instruction.argval) if instruction is not None and named else "getattr"


def read_in(code: Sequence[Instruction]) -> Iterator[str]:
    """The names that instructions read. Names that are only stored may change, since the code stores them again."""
    for instruction in code:
        if instruction.opcode in _HAS_NAME and not instruction.opname.startswith(("STORE_", "DELETE_")):
            yield instruction.argval
        elif instruction.opname == "MATCH_CLASS" and instruction.arg:
            yield "__match_args__"


def texts_in(values: Any) -> Iterator[str]:
    """The names among constant texts, including parts of dotted ones."""
    for value in values:
        if isinstance(value, str):
            parts = value.split(".")
            if all(part.isidentifier() for part in parts):
                yield from (value, *parts)
            elif "{" in value:
                yield from _FIELD.findall(value)
        elif isinstance(value, tuple | frozenset):
            yield from texts_in(value)


def within(code: CodeType) -> Iterator[CodeType]:
    """The code, and the code of its inner functions."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from within(each)


def imported(code: Sequence[Instruction]) -> Iterator[Import]:
    """The imports among instructions. The level is the last constant but one."""
    constants: list[Any] = [0, 0]
    for instruction in code:
        if instruction.opname in _CONSTANTS:
            constants = [constants[1], instruction.argval]
        elif instruction.opname == "IMPORT_NAME":
            level = constants[0]
            yield Import(instruction.argval, level if isinstance(level, int) else 0)


# -- the source of expressions, for errors that name them --------------------------------------------------------------


def expression_of(frame: FrameType | None) -> str:
    """The text of the program's current call; "" without its source."""
    while frame is not None and OWNERS[frame.f_code.co_filename] is not PROGRAM:
        frame = frame.f_back
    return "" if frame is None else expression_at(frame.f_code, frame.f_lasti, frame.f_globals)


def expression_at(code: CodeType, offset: int, names: dict[str, Any] | None = None) -> str:
    """The source text of an instruction; "" without its source. `names`: the globals of its module."""
    line, end, first, last = next(islice(code.co_positions(), offset // 2, None), (None, None, None, None))
    if line is None or first is None or last is None or line != end:
        return ""
    text = linecache.getline(code.co_filename, line, names)
    return text.encode()[first:last].decode(errors="replace")
