"""Programs of steps, as text and as records: valid ones are read back unchanged; corrupted ones do no harm."""

from __future__ import annotations

import random

from tensord.interpreter.programs.parse import parse
from tensord.interpreter.programs.records import wire_records

from ..interpreter.programs.mangling import built, check_records, check_text, mangled_records, mangled_text
from ..interpreter.programs.programs import random_program


def try_program(rnd: random.Random) -> None:
    """Try a random program, then the same program with errors."""
    program = random_program(rnd, rnd.randrange(16))
    assert parse(str(program)) == program
    assert built(wire_records(program)) == program
    check_text(mangled_text(str(program), rnd))
    check_records(mangled_records(list(wire_records(program)), rnd))


def try_text(source: bytes) -> None:
    """Try any characters, after the first line of a text."""
    check_text("tensord program 1\n" + source.decode("utf-8", "surrogateescape"))
