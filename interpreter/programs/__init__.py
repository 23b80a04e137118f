"""Programs: ops in order, captured once, to be run as one message. They know no session, no device and no tensor.

- `program`: what a program is: steps, values, the variables behind the values; its records and its digest
- `numbers`: Python numbers as a program has them: parameters, constants, and arithmetic among them
- `constructs`: steps of control flow, whose blocks are programs: what they are given, and what has to fit
- `builder`: makes a program step by step, and checks each step as a call is checked; the only way to make one
- `records`: a program as it travels; and hostile records back to a program
- `text`: a program as people read it; `parse`: such a text back to a program, through the builder; `tokens`: its lines
- `convention`: how a routine is called: its nested arguments and results, as plain data that can travel
- `facts`: what a program's steps read, make and change, for passes and compilers
- `fusion`: which steps are computed together, piece by piece; `rows`: and reductions with them
- `passes/`: programs made simpler, bit for bit; `inlining`: the steps of a program as steps of another
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
