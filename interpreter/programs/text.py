"""A program as text: a line for each number, each outside tensor and each step, and one for the results.

The grammar is in docs/programs.md, and `parse` reads it. A text contains everything except default attributes, so that
the program comes back with the same digest. Unprintable characters in strings are escaped: a text has no other control
characters than the ends of its lines.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from ..collectives.request import CollectiveRequest
from ..schema.indexing import spelt_slice
from ..schema.opdef import REGISTRY, REQUIRED
from ..types.meta import Meta
from ..wire.limits import Limits
from .constructs import MAX_ITERATIONS, layout
from .numbers import CONSTANT, PARAMETER, Number
from .program import COLLECTIVES, EFFECT, NO_DEVICE, PRINT, WHILE, Program, Source, Step

VERSION: Final = 1
HEADER: Final = "tensord program"
LOCATION_COLUMN: Final = 64  # the column of locations, unless the step is longer
INDENT: Final = "    "  # of the lines of a block
MAX_LOCATION_LENGTH: Final = Limits().text  # characters of a location
BARE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # a name that needs no quotes
USUAL_NAN_BITS: Final = 0x7FF8000000000000  # the bits of the usual one
ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def text_of(program: Program) -> str:
    """The text of a program, without a newline at its end."""
    return "\n".join(lines_of(program))


def lines_of(program: Program) -> Iterator[str]:
    """The lines of a program's text."""
    yield f"{HEADER} {VERSION}"
    yield from block_lines(program)


def block_lines(program: Program, column: int = LOCATION_COLUMN) -> Iterator[str]:
    """The lines of a program, or a block, without the first one. Locations begin at the column."""
    for slot, number in enumerate(program.numbers):
        yield number_line(slot, number)
    for value, source in enumerate(program.parameters):
        yield source_line("parameter", value, source)
    for value, source in enumerate(program.captured, len(program.parameters)):
        yield source_line("captured", value, source)
    for step in program.steps:
        yield step_line(step, column)
        if step.blocks:
            yield from lines_of_blocks(step, column)
    yield f"return {values_text(program.results)}".rstrip()


def lines_of_blocks(step: Step, column: int) -> Iterator[str]:
    """The lines of a step's blocks, each after one with its captured tensors and numbers."""
    _, arguments, given = layout(step)
    for block, (values, numbers) in zip(step.blocks, given, strict=True):
        yield f"block {', '.join(operand_texts((*values[len(arguments) :], *numbers)))}".rstrip()
        for line in block_lines(block, max(column - len(INDENT), 2)):
            yield INDENT + line
    yield "end"


def number_line(slot: int, number: Number) -> str:
    """The line of a number."""
    line = f"number ${slot}{name_text(number.name)}: {number.kind}"
    if number.op == PARAMETER:
        return line
    if number.op == CONSTANT:
        return f"{line} = {attribute_text(number.value)}"
    return f"{line} = {number.op} {', '.join(f'${operand}' for operand in number.operands)}".rstrip()


def source_line(what: str, value: int, source: Source) -> str:
    """The line of an outside tensor."""
    return f"{what} %{value}{name_text(source.name)}: {meta_text(source.meta)} on d{source.device}"


def step_line(step: Step, column: int = LOCATION_COLUMN) -> str:
    """The line of a step, with its location if that is a text."""
    results = ", ".join(f"%{value}: {meta_text(meta)}" for value, meta in enumerate(step.results, step.first))
    parts = [
        f"{results} =" if results else "",
        step.op,
        ", ".join(shown_operands(step)),
        attributes_text(shown_attributes(step)),
        "" if step.into is None else f"into {values_text(step.into)}",
        "" if step.device == NO_DEVICE else f"on d{step.device}",
    ]
    line = " ".join(filter(None, parts))
    if type(step.location) is not str or not step.location:
        return line
    return f"{line.ljust(column - 2)}  # {printable(step.location[:MAX_LOCATION_LENGTH])[:MAX_LOCATION_LENGTH]}"


def shown_operands(step: Step) -> Iterator[str]:
    """Values and numbers; for a print also its texts, in order; for a construct the operands of all blocks."""
    operands: Sequence[int] = step.operands
    if step.blocks:
        head, arguments, _ = layout(step)
        operands = arguments if head is None else (head, *arguments)
    texts = operand_texts(operands)
    if step.op == PRINT:
        yield from (next(texts) if part is None else quoted(part) for part in dict(step.attributes)["parts"])
    yield from texts


def operand_texts(operands: Sequence[int]) -> Iterator[str]:
    """Values and numbers."""
    return iter([f"%{operand}" if operand >= 0 else f"${~operand}" for operand in operands])


def shown_attributes(step: Step) -> Iterator[tuple[str, Any]]:
    """The attributes that differ from their defaults."""
    usual = defaults(step.op)
    for name, value in step.attributes:
        if not (name in usual and usual[name] == repr(value)) and (step.op, name) != (PRINT, "parts"):
            yield name, value


@cache
def defaults(op: str) -> dict[str, str]:
    """The normal forms of an op's defaults, as `repr` shows them, which distinguishes 1, 1.0 and True."""
    if op in NON_OP_DEFAULTS:
        return {name: repr(value) for name, value in NON_OP_DEFAULTS[op].items()}
    if op not in REGISTRY:
        return {}
    known = [attribute for attribute in REGISTRY[op].attributes if attribute.default is not REQUIRED]
    return {attribute.name: repr(attribute.check(attribute.default)) for attribute in known}


# Of the steps that are no ops; `parse` restores them.
NON_OP_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    PRINT: {"sep": " ", "chain": 0},
    EFFECT: {"chain": 0},
    WHILE: {MAX_ITERATIONS: None},
    **dict.fromkeys(COLLECTIVES, CollectiveRequest()._asdict()),
}


# -- values ------------------------------------------------------------------------------------------------------------


def values_text(values: Sequence[int]) -> str:
    """Values by number."""
    return ", ".join(f"%{value}" for value in values)


def name_text(name: str) -> str:
    """A name, with a space in front; quoted unless it is an identifier."""
    if not name:
        return ""
    return f" {name if BARE_NAME.fullmatch(name) else quoted(name)}"


def meta_text(meta: Meta | None) -> str:
    """`float32[2, 3]`, or `?` for a meta that depends on data."""
    return "?" if meta is None else repr(meta)


def attributes_text(attributes: Iterator[tuple[str, Any]]) -> str:
    """`{axis: 1}`; empty if there are none."""
    shown = ", ".join(f"{name}: {attribute_text(value)}" for name, value in attributes)
    return f"{{{shown}}}" if shown else ""


def attribute_text(value: Any) -> str:
    """The value of an attribute or a constant.

    A number in the normal form of an attribute looks like the number: the attribute's check makes that form again.
    """
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, complex):
        return f"complex({float_text(value.real)}, {float_text(value.imag)})"
    return tuple_text(value) if isinstance(value, tuple) else str(value)


def tuple_text(value: tuple[Any, ...]) -> str:
    """A tuple in brackets, or the value that its first element announces: a slice, a float, a complex number."""
    kinds = tuple(map(type, value[1:]))
    if value[:1] == ("slice",) and len(value) == 4 and {int, type(None)}.issuperset(kinds):
        return spelt_slice(*value[1:])
    if value[:1] == ("float",) and kinds == (float,):
        return float_text(value[1])
    if value[:1] == ("complex",) and kinds == (float, float):
        return attribute_text(complex(*value[1:]))
    return f"[{', '.join(map(attribute_text, value))}]"


def float_text(value: float) -> str:
    """Python's text, which reads back exactly; an unusual NaN with its bits."""
    if value == value:  # noqa: PLR0124 - a NaN is not
        return repr(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return "nan" if bits == USUAL_NAN_BITS else f'nan("{bits:016x}")'


def quoted(text: str) -> str:
    """A string in quotes, with escapes for unprintable characters."""
    return '"' + "".join(ESCAPES.get(letter) or printable(letter) for letter in text) + '"'


def printable(text: str) -> str:
    """The text with escapes for unprintable characters alone."""
    return (
        text if text.isprintable() else "".join(letter if letter.isprintable() else escape(letter) for letter in text)
    )


def escape(letter: str) -> str:
    """A character by its number, as Python escapes it."""
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
