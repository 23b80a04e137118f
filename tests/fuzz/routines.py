"""Programs of steps, as text and as records: sound ones come back as they were, mangled ones do no harm."""

from __future__ import annotations

import random

from tensord.interpreter.programs.parse import parse
from tensord.interpreter.programs.records import wire_records

from ..interpreter.programs.mangling import built, check_records, check_text, mangled_records, mangled_text
from ..interpreter.programs.programs import random_program


def try_program(rnd: random.Random) -> None:
    """A random program, and what is left of it with errors in it."""
    program = random_program(rnd, rnd.randrange(16))
    assert parse(str(program)) == program
    assert built(wire_records(program)) == program
    check_text(mangled_text(str(program), rnd))
    check_records(mangled_records(list(wire_records(program)), rnd))


def try_text(source: bytes) -> None:
    """Any characters, behind the first line of a text."""
    check_text("tensord program 1\n" + source.decode("utf-8", "surrogateescape"))
