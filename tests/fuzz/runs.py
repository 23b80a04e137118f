"""Draws programs, links and runs for a writer of hostile programs.

They are mostly sensible; the writer corrupts them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.constructs import FORMS
from tensord.interpreter.programs.numbers import CONSTANT, PARAMETER, evaluate
from tensord.interpreter.programs.program import REPEAT, WHILE, Program
from tensord.interpreter.programs.records import wire_records
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.metas import decode_meta
from tensord.interpreter.wire.program_messages import Convention, Link, ProgramPart, Run

if TYPE_CHECKING:
    from .programs import Client, Writer

OPS = ("add", "multiply", "subtract", "negative", "square", "sum", "matmul", "transpose", "unique_values", "concat")
NOTHING = Builder().finish([])
DEEPEST = 3  # levels of blocks


class Runs:
    """Draws the messages of one writer's clients."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.rnd: random.Random = writer.rnd

    def opening(self, client: Client) -> list[ProgramPart | Link]:
        """A valid program, and a valid link."""
        program, id_, routine = self.draw(client), self.writer.next_id(client), self.writer.next_id(client)
        client.programs[id_] = client.routines[routine] = program
        captured = [self.writer.known(client, wire_of(source.meta)) for source in program.captured]
        parts = ProgramPart(id_, list(wire_records(program, lambda _: 1)))
        return [parts, Link(routine, id_, ["cpu:0"] * program.devices, captured, 1)]

    def program(self, client: Client) -> ProgramPart:
        """The next part of a program that is being sent, or of a new one."""
        rnd = self.rnd
        if not client.parts or rnd.random() < 0.7:
            program = self.draw(client)
            id_ = self.writer.new(client, None)
            client.programs[id_] = program
            client.parts[id_] = list(wire_records(program, lambda _: rnd.choice((0, 1, 2))))
        id_ = rnd.choice(list(client.parts))
        records = client.parts[id_]
        size = len(records) if rnd.random() < 0.8 else rnd.randint(0, len(records))
        client.parts[id_] = records[size:]
        if not client.parts[id_] and rnd.random() < 0.95:
            del client.parts[id_]
        return ProgramPart(id_, records[:size])

    def link(self, client: Client) -> Link:
        """A link of a program, which may exist."""
        id_ = self.rnd.choice(tuple(client.programs)) if client.programs else 1
        program = client.programs.get(id_, NOTHING)
        captured = [self.writer.known(client, wire_of(source.meta)) for source in program.captured]
        routine = self.writer.new(client, None)
        client.routines[routine] = program
        device = "cpu:0" if self.rnd.random() < 0.97 else self.rnd.choice(("sim:7", ""))
        return Link(routine, id_, [device] * program.devices, captured, self.rnd.randint(0, 2))

    def run(self, client: Client) -> Run:
        """A run of a routine, which may exist."""
        rnd, writer = self.rnd, self.writer
        id_ = rnd.choice(tuple(client.routines)) if client.routines and rnd.random() < 0.97 else 1
        program = client.routines.get(id_, NOTHING)
        inputs = [writer.known(client, wire_of(source.meta)) for source in program.parameters]
        numbers = evaluate(program.numbers, [rnd.choice((0, 1, 2**31)) for _ in program.number_parameters])
        client.newest += program.inner if rnd.random() < 0.95 else rnd.randint(0, 3)
        outputs = [writer.new(client, wire_of(program.metas[value])) for value in program.results]
        printed = range(program.effects[-1] + (rnd.random() < 0.03) - (rnd.random() < 0.03))
        effects = [[rnd.choice(client.chains or [1]), None, writer.request(client)] for _ in printed]
        return Run(id_, inputs, numbers, outputs, effects, rnd.randint(0, 2))

    def convention(self, client: Client) -> Convention:
        """The calling convention of a routine, which may exist: mostly correct, sometimes with one number too many."""
        rnd = self.rnd
        id_ = rnd.choice(tuple(client.routines)) if client.routines and rnd.random() < 0.97 else 1
        program = client.routines.get(id_, NOTHING)
        nodes: list[Any] = [("parameter", slot, None) for slot in range(len(program.parameters))]
        nodes += [("number", slot, rnd.choice((None, 1))) for slot in range(len(program.number_parameters))]
        if rnd.random() < 0.1:
            nodes.append(("number", rnd.randint(0, 9), "x"))
        results = [("result", slot, None) for slot in range(len(program.results))]
        names = [f"a{n}" for n in range(len(nodes))]
        keys = rnd.choice((("tuple", ()), ("dict", tuple(range(len(results))))))
        return Convention(id_, ("f", names, nodes, (), (), (keys[0], "", keys[1], results)))

    # -- programs --------------------------------------------------------------------------------------------------

    def draw(self, client: Client) -> Program:
        """A program on metas that tensors of the client have."""
        rnd, builder = self.rnd, Builder(limit=40)
        known = [meta for meta in map(meta_of, client.tensors.values()) if meta is not None]
        values = [
            builder.parameter(rnd.choice(known), rnd.choice((0, 0, 1))) for _ in range(rnd.randint(0, 3)) if known
        ]
        numbers: list[int] = []
        for _ in range(rnd.randint(0, 2)):
            numbers.append(~builder.number("int", PARAMETER))
            numbers.append(~builder.number("int", CONSTANT, value=rnd.choice((0, 3, 2**40))))
        made: list[int] = []
        for _ in range(rnd.choice((0, 1, 3, 6, 12))):
            if rnd.random() < 0.1 and known:
                values.append(builder.captured(rnd.choice(known)))
            try:
                self.add_step(builder, values, made, numbers)
            except TensordError:
                continue  # the builder has refused the step
        return builder.finish(made[-rnd.randint(0, 3) :] if made else [])

    def add_construct(self, builder: Builder, values: list[int], made: list[int]) -> None:
        """Add a step of control flow, whose condition is any value; a loop has a bound."""
        rnd = self.rnd
        op = rnd.choice(tuple(FORMS))
        known = [value for value in values if builder.metas[value] is not None]
        head = [rnd.choice(values)] if FORMS[op].head else []
        if op == REPEAT and rnd.random() < 0.7:
            head = [~builder.number("int", CONSTANT, value=rnd.choice((0, 2, 3, 2**40)))]
        arguments = rnd.choices(known, k=rnd.randint(op == WHILE, 2)) if known else []
        captured = rnd.choices(known, k=rnd.randint(0, 2)) if known else []
        count = rnd.randint(FORMS[op].fewest, min(FORMS[op].most, 3))
        blocks = [self.block(builder, arguments, captured, decides=op == WHILE and n == 0) for n in range(count)]
        attributes = {"max_iterations": rnd.randint(0, 9)} if op == WHILE else {}
        results = builder.construct(op, [*head, *arguments, *captured * count], blocks, attributes)
        written = builder.steps[-1].into or ()
        for old, new in zip(written, results[len(results) - len(written) :], strict=True):
            replace(values, old, new)
            replace(made, old, new)
        made += results[: len(results) - len(written)]
        values += results[: len(results) - len(written)]

    def block(self, builder: Builder, arguments: Sequence[int], captured: Sequence[int], *, decides: bool) -> Program:
        """A block that returns copies of its arguments, or a truth value."""
        inner = builder.block()
        values = [add(builder.metas[n], builder.homes[n]) for add, n in sources(inner, arguments, captured)]
        made: list[int] = []
        for _ in range(self.rnd.randint(0, 3)):
            with suppress(TensordError):
                self.add_step(inner, values, made, [])
        if decides:
            return inner.finish(inner.op("any", values[:1]))
        found = [inner.newest[inner.variables[n]] for n in range(len(arguments))]
        return inner.finish([inner.move(value, inner.homes[value]) for value in found])

    def add_step(self, builder: Builder, values: list[int], made: list[int], numbers: Sequence[int]) -> None:
        """Add one step. `values`: those that can be read; `made`: those of them that steps have made."""
        rnd = self.rnd
        drawn = rnd.random()
        if builder.depth < DEEPEST and rnd.random() > 0.93 and values:
            self.add_construct(builder, values, made)
        elif drawn < 0.1:
            builder.print(["x", None], [rnd.choice(values)]) if values else builder.print(["x"], [])
        elif drawn < 0.2:
            builder.effect(rnd.randint(0, 2), [rnd.choice(values)] if values else [], rnd.randint(0, 1))
        elif drawn < 0.3 and values:
            made.append(builder.move(rnd.choice(values), rnd.randint(0, 1)))
            values.append(made[-1])
        elif values:
            operands = [rnd.choice((*values, *values, *numbers)) for _ in range(rnd.choice((1, 2, 2, 2, 3)))]
            into = [rnd.choice(values)] if rnd.random() < 0.3 else None
            results = builder.op(rnd.choice(OPS), operands, None, rnd.randint(0, 1), into)
            if into is None:
                made += results
                values += results
            else:
                replace(values, into[0], results[0])
                replace(made, into[0], results[0])


def sources(inner: Builder, arguments: Sequence[int], captured: Sequence[int]) -> Iterator[tuple[Any, int]]:
    """The source of each tensor of a block, in order."""
    yield from ((inner.parameter, value) for value in arguments)
    yield from ((inner.captured, value) for value in captured)


def replace(values: list[int], old: int, new: int) -> None:
    """Replace a value after an in-place write: the old value can no longer be read."""
    values[:] = [new if value == old else value for value in values]


def wire_of(meta: Meta | None) -> Any:
    """A meta in the form that the writer keeps."""
    return None if meta is None else [list(meta.shape), meta.dtype.name]


def meta_of(wire: Any) -> Meta | None:
    """The meta, from the form that the writer keeps; None if it is invalid."""
    try:
        meta = decode_meta(wire)
    except (TensordError, TypeError, ValueError):
        return None
    return meta if isinstance(meta, Meta) else None
