"""Programs for tests, and the messages that link and run them in a session of a bare engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.numbers import CONSTANT, PARAMETER, evaluate
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import wire_records
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import Release
from tensord.interpreter.wire.program_messages import Link, ProgramPart, Run

from .bare_engine import Client

ONE = Meta.of((1,), "float64")
LINE = 1


def chain_of(length: int, *, meta: Meta = ONE) -> Program:
    """The program x -> -x, repeated `length` times."""
    builder = Builder()
    value = builder.parameter(meta)
    for _ in range(length):
        (value,) = builder.op("negative", [value], location=LINE)
    return builder.finish([value] if length else [])


def accumulate() -> Program:
    """(x, y, n; captured w): x += y * n; returns x + w. It prints x in between."""
    builder = Builder()
    x, y = builder.parameter(ONE), builder.parameter(ONE)
    n = builder.number("float", PARAMETER)
    (product,) = builder.op("multiply", [y, ~n], location=LINE)
    (x,) = builder.op("add", [x, product], into=[x], location=LINE)
    builder.effect(0, [x], location=LINE)
    w = builder.captured(ONE)
    (total,) = builder.op("add", [x, w], location=LINE)
    return builder.finish([total])


def increment() -> Program:
    """(x): x += 1."""
    builder = Builder()
    x = builder.parameter(ONE)
    builder.op("add", [x, ~builder.number("float", CONSTANT, value=1.0)], into=[x], location=LINE)
    return builder.finish([])


def line_of(location: Any) -> Any:
    """The location of a step as it travels: a program's text names numbers of lines."""
    return int(location) if isinstance(location, str) and location.isdecimal() else location


def parts_of(id_: int, program: Program, size: int = 64) -> list[ProgramPart]:
    """The messages that send a program, `size` records in each."""
    records = list(wire_records(program, line_of))
    return [ProgramPart(id_, tuple(records[start : start + size])) for start in range(0, len(records), size)]


def link(
    client: Client,
    program: Program,
    captured: Sequence[int] = (),
    devices: Sequence[str] = ("cpu:0",),
    *,
    keeps: bool = False,
    name: str = "",
    passes: Sequence[str] = ("all",),
) -> int:
    """The id of a routine; the program is released, as a client does."""
    program_id, routine = client.new(), client.new()
    parts = parts_of(program_id, program)
    slots = tuple(devices)[: program.devices]
    client.send(*parts, Link(routine, program_id, slots, tuple(captured), LINE, name, tuple(passes)))
    if not keeps:
        client.send(Release((program_id,)))
    return routine


def run_message(
    client: Client,
    routine: int,
    program: Program,
    inputs: Sequence[int] = (),
    numbers: Sequence[Any] = (),
    effects: Sequence[Any] = (),
) -> Run:
    """A run with these values of the number parameters; its outputs are the newest ids of the client."""
    client.ids += program.inner
    outputs = tuple([client.new() for _ in program.results])
    return Run(routine, tuple(inputs), tuple(evaluate(program.numbers, numbers)), outputs, tuple(effects), LINE)


def run(
    client: Client,
    routine: int,
    program: Program,
    inputs: Sequence[int] = (),
    numbers: Sequence[Any] = (),
    effects: Sequence[Any] = (),
) -> tuple[int, ...]:
    """Send a run; the ids of its results."""
    message = run_message(client, routine, program, inputs, numbers, effects)
    client.send(message)
    return tuple(message.outputs)
