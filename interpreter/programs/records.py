"""A program as plain records, as it travels: one for each line of its text; and hostile records back to a program.

    ["number", kind, op, operands, value, name]
    ["parameter" | "captured", (shape, dtype), device, name]
    [op, operands, attributes, device, into]             the metas of results are inferred again; into is null for
                                                         new tensors, device is -1 for a print and an effect
    ["return", values]

A step's record travels with one more field, its location. The digest of a program is made of the rest (`program`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MetadataError, ProtocolError, TensordError
from ..wire.forms import depth_exceeds, shown
from ..wire.messages import decode_meta
from .program import EFFECT, MOVE, NO_DEVICE, PRINT, Program, records_of

if TYPE_CHECKING:
    from .builder import Builder

SEQUENCES = (tuple, list)
NO_STEPS = frozenset(("number", "parameter", "captured", "return"))
DEEPEST = 8  # levels of an attribute
LONGEST = 200  # characters of an error
LOCATIONS = (str, int, type(None))
# The attributes of steps that are no ops: all of them, since these have no defaults.
ATTRIBUTES = {MOVE: (), PRINT: ("chain", "parts", "sep"), EFFECT: ("callback", "chain")}


def wire_records(program: Program, number: Callable[[Any], Any] = lambda text: text) -> Iterator[tuple[Any, ...]]:
    """All records of a program as they travel: those of its steps with their locations, which `number` translates."""
    locations = (number(step.location) for step in program.steps)
    for record in records_of(program):
        yield record if record[0] in NO_STEPS else (*record, next(locations))


def add_record(builder: Builder, record: Any) -> Program | None:
    """Add what a record says, from outside and not to be trusted; the program, if it is the last one.

    ProtocolError for a damaged record; and what the builder raises.
    """
    if type(record) not in SEQUENCES or not record or type(record[0]) is not str:
        raise ProtocolError(f"{shown(record)} is no record of a program")
    try:
        return _add(builder, record[0], record[1:])
    except TensordError:
        raise
    except Exception as error:  # whatever an op makes of what it does not expect
        message = str(error)[:LONGEST]
        raise ProtocolError(f"the record {shown(record[0])} of a program is damaged: {message}") from None


def _add(builder: Builder, what: str, fields: Sequence[Any]) -> Program | None:
    if what == "number":
        kind, op, operands, value, name = fields
        builder.number(kind, op, sequence(operands), value, name)
    elif what in ("parameter", "captured"):
        wire, device, name = fields
        meta = decode_meta(wire)
        if meta is None or isinstance(meta, type):
            raise MetadataError(f"a {what} tensor has a shape and a dtype")
        (builder.parameter if what == "parameter" else builder.captured)(meta, device, name)
    elif what == "return":
        (results,) = fields
        return builder.finish(sequence(results))
    else:
        operands, attributes, device, into, location = fields
        _add_step(builder, what, sequence(operands), attributes, device, into, location)
    return None


def _add_step(
    builder: Builder, op: str, operands: tuple[Any, ...], attributes: Any, device: Any, into: Any, location: Any
) -> None:
    if depth_exceeds(attributes, DEEPEST):
        raise ProtocolError(f"attributes nested more than {DEEPEST} levels deep")
    if type(location) not in LOCATIONS:
        raise TypeError(f"{shown(location)} is no location")
    given = dict(attributes)
    if op not in ATTRIBUTES:
        builder.op(op, operands, given, device, None if into is None else sequence(into), location)
        return
    if into is not None or sorted(given) != [*ATTRIBUTES[op]] or (op != MOVE and device != NO_DEVICE):
        raise ProtocolError(f"{op} has the attributes {list(ATTRIBUTES[op])}, and writes nothing")
    if op == MOVE:
        (value,) = operands
        builder.move(value, device, location)
    elif op == PRINT:
        builder.print(sequence(given["parts"]), operands, given["sep"], given["chain"], location)
    else:
        builder.effect(given["callback"], operands, given["chain"], location)


def sequence(values: Any) -> tuple[Any, ...]:
    """A list of anything; TypeError for what only looks like one, such as bytes."""
    if type(values) not in SEQUENCES:
        raise TypeError(f"{shown(values)} is no list")
    return tuple(values)
