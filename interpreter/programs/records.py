"""A program as plain records, as messages carry it: one for each line of its text; and untrusted records back to a
program.

    ["number", kind, op, operands, value, name]
    ["parameter" | "captured", (shape, dtype), device, name]
    [op, operands, attributes, device, into]             the metas of results are inferred again; into is null for
                                                         new tensors, device is -1 for steps without one of their own
    ["block"]                                            the records up to the next "return" are those of a block; all
                                                         blocks of a step come before it
    ["return", values]

In messages a step's record has one more field, its location. The digest of a program is made of the rest (`program`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..collectives.request import CollectiveRequest
from ..errors import MetadataError, ProtocolError, TensordError
from ..schema.infer import InferCache
from ..wire.forms import depth_exceeds, shown
from ..wire.metas import decode_meta
from .builder import MAX_STEPS, Builder
from .program import COLLECTIVES, CONSTRUCTS, EFFECT, HOST_CALL, MOVE, NO_DEVICE, PRINT, Program, Step, records_of

SEQUENCES = (tuple, list)
MAX_ATTRIBUTE_DEPTH = 8  # levels of an attribute
MAX_ERROR_LENGTH = 200  # characters of an error
LOCATION_TYPES = (str, int, type(None))
# The attributes of steps that are no ops: all of them, since these have no defaults.
ATTRIBUTE_NAMES: dict[str, tuple[str, ...]] = {
    MOVE: (),
    PRINT: ("chain", "parts", "sep"),
    EFFECT: ("callback", "chain"),
    HOST_CALL: ("callback", "metas"),
    **dict.fromkeys(COLLECTIVES, tuple(sorted(CollectiveRequest._fields))),
}


def wire_records(program: Program, number: Callable[[Any], Any] = lambda text: text) -> Iterator[tuple[Any, ...]]:
    """All records of a program as messages carry them: those of its steps with their locations, which `number`
    translates."""
    return records_of(program, number)


class RecordsReader:
    """Makes a program of its untrusted records, one by one."""

    def __init__(self, infer: InferCache | None = None, limit: int = MAX_STEPS) -> None:
        self._builders = [Builder(infer, limit)]  # of the program, of a block in it, of a block in that, and so on
        self._blocks: list[list[Program]] = [[]]  # for each of them the blocks of the next step

    @property
    def steps(self) -> int:
        """The number of steps so far, including blocks."""
        return self._builders[0].size.steps

    def weight(self) -> int:
        """Its weight so far in a session's quota of steps."""
        return self._builders[0].weight()

    def add(self, record: Any) -> Program | None:
        """Add a record; returns the program after the last one.

        ProtocolError for a damaged record; and the errors of the builder.
        """
        if type(record) not in SEQUENCES or not record or type(record[0]) is not str:
            raise ProtocolError(f"{shown(record)} is not a record of a program")
        try:
            return self._add(record[0], record[1:])
        except TensordError:
            raise
        except Exception as error:  # an op may raise anything on unexpected fields
            message = str(error)[:MAX_ERROR_LENGTH]
            raise ProtocolError(f"the record {shown(record[0])} of a program is damaged: {message}") from None

    def _add(self, what: str, fields: Sequence[Any]) -> Program | None:
        builder, blocks = self._builders[-1], self._blocks[-1]
        if what == "block":
            () = fields
            self._builders.append(builder.block())
            self._blocks.append([])
            return None
        if what in CONSTRUCTS:
            operands, attributes, device, into, location = fields
            add_construct(builder, what, sequence(operands), blocks, (attributes, device, into, location))
            blocks.clear()
            return None
        if blocks:
            raise ProtocolError(f"blocks come before a step of control flow, not before {shown(what)}")
        if what != "return":
            add(builder, what, fields)
            return None
        (results,) = fields
        program = builder.finish(sequence(results))
        if len(self._builders) == 1:
            return program
        self._builders.pop()
        self._blocks.pop()
        self._blocks[-1].append(program)
        return None


def add(builder: Builder, what: str, fields: Sequence[Any]) -> None:
    """Add a number, an outside tensor, or a step without blocks."""
    if what == "number":
        kind, op, operands, value, name = fields
        builder.number(kind, op, sequence(operands), value, name)
    elif what in ("parameter", "captured"):
        wire, device, name = fields
        meta = decode_meta(wire)
        if meta is None or isinstance(meta, type):
            raise MetadataError(f"a {what} tensor has a shape and a dtype")
        (builder.parameter if what == "parameter" else builder.captured)(meta, device, name)
    else:
        builder.add(step_in(what, fields))


def step_in(op: str, fields: Sequence[Any]) -> Step:
    """An op, a move, a print, an effect or a host call, for the builder to check."""
    operands, attributes, device, into, location = fields
    check_rest(attributes, location)
    given = dict(attributes)
    if op in ATTRIBUTE_NAMES:
        if (
            into is not None
            or sorted(given) != [*ATTRIBUTE_NAMES[op]]
            or (op not in (MOVE, HOST_CALL) and device != NO_DEVICE)
        ):
            raise ProtocolError(f"{op} has the attributes {list(ATTRIBUTE_NAMES[op])}, and writes nothing")
        if op == PRINT:
            given["parts"] = sequence(given["parts"])
    targets = None if into is None else sequence(into)
    return Step(op, sequence(operands), tuple(given.items()), device, targets, 0, (), location)


def add_construct(
    builder: Builder, op: str, operands: tuple[Any, ...], blocks: Sequence[Program], rest: Sequence[Any]
) -> None:
    """Add a step with blocks."""
    attributes, device, into, location = rest
    check_rest(attributes, location)
    builder.construct(op, operands, blocks, dict(attributes), location)
    written = builder.steps[-1].into
    if device != NO_DEVICE or (into if into is None else sequence(into)) != written:
        raise ProtocolError(f"{op} has the device {NO_DEVICE}, and writes {shown(written)}, as its blocks do")


def check_rest(attributes: Any, location: Any) -> None:
    """ProtocolError or TypeError unless these look like the attributes and the location of a step."""
    if depth_exceeds(attributes, MAX_ATTRIBUTE_DEPTH):
        raise ProtocolError(f"attributes nested more than {MAX_ATTRIBUTE_DEPTH} levels deep")
    if type(location) not in LOCATION_TYPES:
        raise TypeError(f"{shown(location)} is not a location")


def sequence(values: Any) -> tuple[Any, ...]:
    """A list of anything; TypeError for similar types, such as bytes."""
    if type(values) not in SEQUENCES:
        raise TypeError(f"{shown(values)} is not a list")
    return tuple(values)
