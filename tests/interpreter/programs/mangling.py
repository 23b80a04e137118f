"""Texts and records of programs with one or two errors, and checks of how they are read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.parse import parse
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import RecordsReader, wire_records

SNIPPETS: Final = (
    *(
        "%0",
        "$0",
        "%99",
        "$99",
        "d0",
        "d63",
        "d64",
        "?",
        "float32[3]",
        "complex64[]",
        "int8[0, 3]",
        "number",
        "parameter",
    ),
    *(
        "captured",
        "return",
        "print",
        "effect",
        "to_device",
        "into",
        "block",
        "end",
        "cond",
        "on",
        "=",
        ":",
        ",",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        '"',
    ),
    *(
        "\\",
        "#",
        "\n",
        "\r",
        "\t",
        "\0",
        "\ud800",
        "\u2028",
        "-",
        ".",
        "e",
        "1e999",
        "nan",
        "inf",
        "-inf",
        "None",
        "True",
    ),
    *(
        "18446744073709551616",
        "9" * 5000,
        "[" * 50,
        "complex(",
        'nan("',
        "::",
        "0:1",
        "{axis: 0}",
        "exp",
        "add",
        "é",
        " ",
    ),
)
STRANGE: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 63, 64, 2**63, 2**64 - 1, -(2**63), 0.0, 1.5, float("nan"), float("inf"), 1j),
    *("", "x", "int", "float32", "add", "return", "y" * 3000, b"", b"x", (), ((),), (0,), (0, 0), {}, {"axis": 0}),
    *(((3,), "float32"), ((2**62, 2**62), "int8"), (("axis", 0),), tuple(range(100)), ((((((((((0,),),),),),),),),),)),
)


def pick(among: Sequence[Any], rnd: random.Random) -> Any:
    return among[rnd.randrange(len(among))]


def mangled_text(text: str, rnd: random.Random) -> str:
    """A text with a few changes: pieces of it, or others, are inserted, removed or moved."""
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(text) + 1)
        end = min(len(text), at + rnd.randrange(12))
        change = rnd.randrange(5)
        if change == 0:
            text = text[:at] + text[end:]
        elif change == 1:
            text = text[:at] + pick(SNIPPETS, rnd) + text[end:]
        elif change == 2:
            text = text[:at] + chr(pick((rnd.randrange(128), rnd.randrange(0x110000)), rnd)) + text[at:]
        else:
            lines = text.split("\n")
            one, other = rnd.randrange(len(lines)), rnd.randrange(len(lines))
            lines[one] = lines[other]
            text = "\n".join(lines)
    return text


def mangled_record(record: Sequence[Any], rnd: random.Random) -> Any:
    """A record with one change, in a field or deeper."""
    if not rnd.randrange(8):
        return pick(STRANGE, rnd)
    if not isinstance(record, tuple) or not record:
        return pick(STRANGE, rnd)
    at = rnd.randrange(len(record))
    change = rnd.randrange(6)
    if change == 0:
        return record[:at] + record[at + 1 :]
    if change == 1:
        return (*record[:at], pick(STRANGE, rnd), *record[at:])
    if change == 2:
        return list(record)
    return (*record[:at], mangled_record(record[at], rnd), *record[at + 1 :])


def mangled_records(records: list[Any], rnd: random.Random) -> list[Any]:
    """Records, one of which is wrong, missing or moved."""
    at = rnd.randrange(len(records))
    change = rnd.randrange(8)
    if change == 0:
        return records[:at] + records[at + 1 :]
    if change == 1:
        return [*records, records[at]]
    if change == 2:
        return [*records[:at], *[("block",)] * pick((1, 1, 2, 1000), rnd), *records[at:]]
    return [*records[:at], mangled_record(records[at], rnd), *records[at + 1 :]]


# -- checks ------------------------------------------------------------------------------------------------------------


def built(records: Iterable[Any]) -> Program | None:
    """The program of these records; None if they end before it is complete."""
    reader = RecordsReader()
    return next((found for record in records if (found := reader.add(record))), None)


def check_text(text: str) -> None:
    """Check that the text is a program with an equivalent text, or one of tensord's own errors."""
    try:
        program = parse(text)
    except TensordError:
        return
    assert parse(str(program)) == program


def check_records(records: Iterable[Any]) -> None:
    """Check that the records are a program with equivalent records, an incomplete program, or one of tensord's own
    errors."""
    try:
        program = built(records)
    except TensordError:
        return
    assert program is None or built(wire_records(program)) == program
