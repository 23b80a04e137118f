"""Programs: ops in order, captured once, to be run as one message. They know no session, no device and no tensor.

- `program`: a program: its steps, its values, the variables behind the values; its records and its digest
- `numbers`: Python numbers in a program: parameters, constants, and arithmetic among them
- `constructs`: steps of control flow, whose blocks are programs: their operands, and their checks
- `builder`: makes a program step by step, and checks each step as a call is checked; the only way to make one
- `records`: a program as messages carry it; and untrusted records back to a program
- `text`: a program as people read it; `parse`: such a text back to a program, through the builder; `tokens`: its lines
- `convention`: how a routine is called: its nested arguments and results, as plain data in messages
- `facts`: the values that a program's steps read, make and change, for passes and compilers
- `fusion`: finds steps that are computed together, piece by piece; `rows`: includes reductions
- `passes/`: simplify programs, bit for bit; `inlining`: the steps of a program as steps of another
"""

from __future__ import annotations

from .program import Program


def _read(text: str) -> Program:
    from .parse import parse  # late: most processes read no text

    return parse(text)


def _write(program: Program) -> str:
    from .text import text_of

    return text_of(program)


Program._reads, Program._writes = staticmethod(_read), staticmethod(_write)  # noqa: SLF001 - no names for users
