"""Runs with control flow in random programs. They are drawn as programs, since only a run decides on its steps.

`interpreted` executes such a run on the oracle.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from tensord.interpreter.errors import CancelledError, TensordError
from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.numbers import CONSTANT, DRAW, PARAMETER, evaluate
from tensord.interpreter.programs.program import CASE, COND, PRINT, REPEAT, WHILE, effects_of
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from .handles import Client, Handle
from .steps import CAPTURED, LINKED, RANDOM, SEED, WAYS, Routine

if TYPE_CHECKING:
    from .programs import Generator

DEEPEST = 3  # levels of blocks
UNARY = ("negative", "square", "abs", "positive", "logical_not", "relu")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "bitwise_xor", "greater", "equal", "logical_and")
IN_PLACE = ("add", "subtract", "multiply", "maximum")
VIEWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("getitem", {"index": (("slice", None, None, -1),)}),
    ("getitem", {"index": ("...", ("slice", 0, 2, None))}),
    ("transpose", {}),
    ("reshape", {"shape": (-1,)}),
    ("flip", {}),
)


class Flows:
    """Emits the FLOW steps of one generator."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.rng = generator.rng
        self.routines: dict[int, list[Routine]] = {}  # session -> those with control flow

    def emit(self, client: Client) -> None:
        """Add some runs of a new routine, or of an old one."""
        known = self.routines.setdefault(client.number, [])
        if known and self.rng.random() < 0.1:
            self.generator.offers.forget(client, known)
        if not known or self.rng.random() < 0.6:
            routine = self.draw(client)
            if routine is None:
                return
            known.append(routine)
        routine = self.rng.choice(known[-3:])
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.run(client, routine)

    def draw(self, client: Client) -> Routine | None:
        """A routine on metas that the client's tensors have."""
        make = self.generator
        fitting = [id_ for id_ in client.handles if self.is_certain(client, id_)]
        if not fitting:
            return None
        if not client.chains:
            make.chain(client)
        devices = list(make.world.devices)
        drawing = Drawing(make, client, Builder(), devices)
        way = self.rng.choice(WAYS) if make.honest else LINKED
        for id_ in self.rng.choices(fitting, k=self.rng.randint(1, 3)):
            drawing.values.append(drawing.builder.parameter(*self.form(client, id_)))
        captured = self.rng.sample(fitting, min(len(fitting), self.rng.randint(0, 2)))
        for id_ in captured:
            drawing.values.append(drawing.builder.captured(*self.form(client, id_), f"c{id_}"))
        drawing.steps(self.rng.randint(1, 5))
        with suppress(TensordError):
            drawing.construct()
        drawing.steps(self.rng.randint(0, 3))
        program = drawing.builder.finish(drawing.made(self.rng.randint(0, 3)))
        make.runs.keys += 1
        keeps = self.rng.random() < 0.3
        return Routine(make.runs.keys, program, tuple(devices[: program.devices]), tuple(captured), keeps, way)

    def form(self, client: Client, id_: int) -> tuple[Meta, int]:
        """The meta of a tensor, and the slot of its home."""
        handle = client.handles[id_]
        assert handle.meta is not None
        return handle.meta, self.generator.world.devices.index(handle.home)

    def is_certain(self, client: Client, id_: int) -> bool:
        """Whether the tensor's meta is known, and timing does not decide whether it has a value."""
        return self.generator.runs.is_known(client, id_) and self.is_decided(client, id_)

    def is_decided(self, client: Client, id_: int) -> bool:
        """Whether timing does not decide if the tensor has a value."""
        value = self.generator.sessions[client.number].tensors[id_].value
        cancelled = [isinstance(error, CancelledError) for error in value.errors]
        return all(cancelled) or not any(cancelled) if value.array is None else not cancelled

    def run(self, client: Client, routine: Routine) -> None:
        """Add a run on tensors with the metas and homes of its parameters; one tensor may serve several parameters."""
        make, program = self.generator, routine.program
        if not all(self.may_use(client, routine, id_) for id_ in routine.captured):
            return
        homes = [routine.devices[source.device] for source in program.parameters]
        inputs = [self.pick(client, s.meta, home) for s, home in zip(program.parameters, homes, strict=True)]
        fresh = (client.new(), client.new())
        given = [self.rng.randint(0, 3) for _ in program.number_parameters]
        numbers = tuple(evaluate(program.numbers, given, SEED, self.calls(client, routine)))
        client.ids += program.inner
        outputs = tuple(client.new() for _ in program.results)
        effects = []
        for step, _ in effects_of(program):
            make.count += 1
            chain = make.own_chain(client) if routine.obtained else client.chains[dict(step.attributes)["chain"]]
            raises = make.risky and self.rng.random() < 0.1
            effects.append((chain, make.count, raises and not (make.honest and step.op == PRINT)))
        make.add(client, "FLOW", routine, fresh, tuple(inputs), numbers, outputs, tuple(effects))
        for value, id_ in zip(program.results, outputs, strict=True):
            client.handles[id_] = Handle(program.metas[value], routine.devices[program.homes[value]])

    def calls(self, client: Client, routine: Routine) -> Sequence[int]:
        """The numbers of the random calls of a run: those of the session, if it draws itself, in the order of steps."""
        program = routine.program
        if routine.way == LINKED and not routine.obtained:
            return range(program.draws)
        if routine.way != CAPTURED and routine.obtained:
            client.drawn += program.draws
            return range(client.drawn - program.draws, client.drawn)
        slots = dict.fromkeys(slot for slot, number in enumerate(program.numbers) if number.op == DRAW)
        found = dict.fromkeys(slots, 0)
        for step in program.steps:
            if draws(step):
                slot = next(~operand for operand in step.operands if ~operand in slots)
                found[slot] = client.drawn
                client.drawn += 1
        return list(found.values())

    def pick(self, client: Client, meta: Meta, home: str) -> int:
        """A handle with this meta and home, or that of a new upload."""
        known = [id_ for id_, handle in client.handles.items() if (handle.meta, handle.home) == (meta, home)]
        fitting = [id_ for id_ in known if self.is_certain(client, id_)]
        if fitting and self.rng.random() < 0.8:
            return self.rng.choice(fitting[-3:])
        return self.upload(client, meta, home)

    def may_use(self, client: Client, routine: Routine, id_: int) -> bool:
        """Whether the client still has this captured tensor, and it is certain."""
        if routine.obtained:
            return self.is_decided(client, id_)
        return id_ in client.handles and self.is_certain(client, id_)

    def upload(self, client: Client, meta: Meta, home: str) -> int:
        """Upload an array of this meta."""
        id_ = client.new()
        values = np.array([self.rng.randint(-3, 3) for _ in range(meta.size)])
        self.generator.add(client, "UPLOAD", id_, values.reshape(meta.shape).astype(meta.dtype), home)
        client.handles[id_] = Handle(meta, home)
        return id_


def draws(step: programs.Step) -> bool:
    """Whether a step, or one of its blocks, draws random numbers."""
    return step.op == RANDOM or any(map(draws, (inner for block in step.blocks for inner in block.steps)))


class Drawing:
    """Draws the steps of a program, or of a block in one.

    `values`: the values that steps can read; `numbers`: slots of ints; `given`: slots in the enclosing program of
    further numbers that the block needs.
    """

    def __init__(
        self, make: Generator, client: Client, builder: Builder, devices: Sequence[str], around: Drawing | None = None
    ) -> None:
        self.around = around
        self.make = make
        self.client = client
        self.rng: random.Random = make.rng
        self.builder = builder
        self.devices = devices
        self.depth: int = 0 if around is None else around.depth + 1
        self.callbacks: Iterator[int] = itertools.count() if around is None else around.callbacks
        self.values: list[int] = []
        self.numbers: list[int] = []
        self.given: list[int] = []
        self.drawn: int | None = None  # the slot of the random call of the outermost step that is being made

    def line(self, *, may_fail: bool = False) -> int:
        """The line of the next step, which may be chosen to fail."""
        make = self.make
        make.count += 1
        world = make.world
        injects = make.risky and not (make.honest or world.inline) and world.devices == ("cpu:0", "sim:0", "sim:1")
        if may_fail and injects and self.rng.random() < 0.08:
            make.failing.add((self.client.number + 1, make.count))
        return make.count

    def steps(self, count: int) -> None:
        """Draw `count` steps, except those whose operands the op refuses."""
        kinds: list[Callable[[], Any]] = [self.unary, self.binary, self.binary, self.in_place, self.in_place, self.view]
        kinds += [self.reduction, self.move, self.effect, self.print, self.number, self.draw]
        kinds += [self.construct] * (self.depth < DEEPEST) + [self.boom] * self.make.risky
        for _ in range(count if self.values else 0):
            try:
                self.rng.choice(kinds)()
            except TensordError:
                continue  # the builder has added nothing

    def pick(self) -> int:
        return self.rng.choice(self.values[-4:] if self.rng.random() < 0.5 else self.values)

    def op(self, name: str, operands: Sequence[int], attributes: Any = None, into: Sequence[int] | None = None) -> int:
        """An op on the device of one of its operands, or on any."""
        slots = [self.builder.homes[operand] for operand in operands if operand >= 0]
        slot = slots[0] if slots and self.rng.random() < 0.8 else self.rng.randrange(len(self.devices))
        if any(op == name for _, op in self.make.world.missing):
            slot = 0
        may_fail = find(name).view is None
        made = self.builder.op(name, operands, attributes, slot, into, self.line(may_fail=may_fail))
        self.keep(made, into or ())
        return made[0]

    def keep(self, made: Sequence[int], into: Sequence[int]) -> None:
        """Make a step's results readable, and the values that it overwrites unreadable."""
        self.values = [value for value in self.values if value not in into] + list(made)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def unary(self) -> None:
        self.op(self.rng.choice(UNARY), [self.pick()])

    def operand(self) -> int:
        return ~self.rng.choice(self.numbers) if self.numbers and self.rng.random() < 0.3 else self.pick()

    def binary(self) -> None:
        self.op(self.rng.choice(BINARY), [self.pick(), self.operand()])

    def in_place(self) -> None:
        x = self.pick()
        operands = [x, self.operand()] if self.rng.random() < 0.7 else [self.pick(), x]
        self.op(self.rng.choice(IN_PLACE), operands, None, [x if self.rng.random() < 0.8 else self.pick()])

    def view(self) -> None:
        name, attributes = self.rng.choice(VIEWS)
        self.op(name, [self.pick()], attributes)

    def reduction(self) -> None:
        x = self.pick()
        meta = self.builder.metas[x]
        ops = ["max", "min", "any", "all"] + ["sum"] * (meta is not None and meta.dtype.kind != "f")
        self.op(self.rng.choice(ops), [x], {"axis": self.rng.choice((None, 0, -1))})

    def move(self) -> None:
        self.values.append(self.builder.move(self.pick(), self.rng.randrange(len(self.devices)), self.line()))

    def effect(self) -> None:
        chain = self.rng.randrange(min(len(self.client.chains), 3))
        values = [self.pick() for _ in range(self.rng.randint(0, 2))]
        self.builder.effect(next(self.callbacks), values, chain, self.line())

    def print(self) -> None:
        chain = self.rng.randrange(min(len(self.client.chains), 3))
        value, line = self.pick(), self.line()
        self.builder.print([str(line), None], [value], " ", chain, line)

    def number(self) -> None:
        if self.depth == 0 and self.rng.random() < 0.5:
            self.numbers.append(self.builder.number("int", PARAMETER))
        else:
            self.numbers.append(self.constant(self.rng.randint(0, 3)))

    def constant(self, value: int) -> int:
        return self.builder.number("int", CONSTANT, value=value)

    def draw(self) -> None:
        call = [~self.call()] if self.depth else []
        operands = [~self.constant(SEED), *call, ~self.builder.number("int", DRAW)]
        self.op(RANDOM, operands, {"low": -3, "high": 4, "shape": (4,)})

    def call(self) -> int:
        """The slot of the one random call that all blocks of the outermost step share."""
        if self.drawn is None and self.around is None:
            self.drawn = self.builder.number("int", DRAW)
        elif self.drawn is None and self.around is not None:
            self.given.append(self.around.call())
            self.drawn = self.builder.number("int", PARAMETER)
        assert self.drawn is not None
        return self.drawn

    def boom(self) -> None:
        x = self.pick()
        self.op("model_boom", [x], None, [x] if self.rng.random() < 0.4 else None)

    # -- control flow --------------------------------------------------------------------------------------------------

    def construct(self) -> None:
        """Draw a step of control flow."""
        self.drawn = self.drawn if self.depth else None
        self.rng.choice((self.cond, self.case, self.repeat, self.repeat, self.while_loop, self.while_loop))()

    def truth(self) -> int:
        return self.op("any", [self.pick()])

    def index(self) -> int:
        """A tensor that is one of two integers."""
        integer = self.op("astype", [self.truth()], {"dtype": "int64"})
        return self.op("add", [integer, ~self.constant(self.rng.choice((-1, 0, 0, 0, 1)))])

    def cond(self) -> None:
        self.choose(COND, self.truth(), 2)

    def case(self) -> None:
        self.choose(CASE, self.index(), self.rng.randint(1, 3))

    def choose(self, op: str, head: int, count: int) -> None:
        arguments = [self.pick() for _ in range(self.rng.randint(1, 2))]
        wanted = [self.form(value) for value in self.rng.sample(arguments, self.rng.randint(0, len(arguments)))]
        blocks = [self.block(arguments, wanted) for _ in range(count)]
        self.close(op, [head, *arguments], blocks)

    def repeat(self) -> None:
        arguments = [self.pick() for _ in range(self.rng.randint(1, 2))]
        kind = self.rng.random()
        if kind < 0.3 and self.numbers:
            head = ~self.rng.choice(self.numbers)
        else:
            head = ~self.constant(self.rng.randint(0, 3)) if kind < 0.7 else self.index()
        body = self.block(arguments, [self.form(value) for value in arguments])
        self.close(REPEAT, [head, *arguments], [body])

    def while_loop(self) -> None:
        """Draw a loop whose test counts rounds, or reads the loop's state; in the second case it has a bound."""
        counter = self.op("full", [~self.constant(0)], {"shape": (), "dtype": "int64"})
        arguments = [counter, *(self.pick() for _ in range(self.rng.randint(0, 2)))]
        counts = self.rng.random() < 0.7
        most = None if counts and self.rng.random() < 0.8 else self.rng.randint(0, 3)
        test = self.block(arguments, [], lambda drawing: drawing.test(counts=counts))
        forms = [self.form(value) for value in arguments]
        body = self.block(arguments, forms, lambda drawing: drawing.increment())
        self.close(WHILE, arguments, [test, body], {"max_iterations": most})

    def test(self, *, counts: bool) -> list[int]:
        """The result of a test. The counter is the first parameter."""
        value = self.newest(0)
        if counts:
            return [self.op("less", [value, ~self.constant(self.rng.randint(0, 3))])]
        return [self.op("any", [self.pick() if self.values else value])]

    def increment(self) -> list[int]:
        """The counter of the next round."""
        return [self.op("add", [self.newest(0), ~self.constant(1)])]

    def newest(self, value: int) -> int:
        return self.builder.newest[self.builder.variables[value]]

    def form(self, value: int) -> tuple[Meta | None, int]:
        return self.builder.metas[value], self.builder.homes[value]

    def block(
        self,
        arguments: Sequence[int],
        wanted: Sequence[tuple[Meta | None, int]],
        first: Callable[[Drawing], list[int]] | None = None,
    ) -> tuple[programs.Program, list[int]]:
        """A block that returns the results of `first`, then results of the wanted metas and homes; and the block's own
        captures and numbers from outside."""
        inner = Drawing(self.make, self.client, self.builder.block(), self.devices, self)
        for value in arguments:
            meta, home = self.form(value)
            assert meta is not None
            inner.values.append(inner.builder.parameter(meta, home))
        if first is not None:
            del inner.values[0]  # the counter, which other steps must not write
        captured = self.rng.sample(self.values, min(len(self.values), self.rng.randint(0, 2)))
        for value in captured:
            meta, home = self.form(value)
            assert meta is not None
            inner.values.append(inner.builder.captured(meta, home))
        numbers = self.rng.sample(self.numbers, min(len(self.numbers), self.rng.randint(0, 1)))
        inner.numbers = [inner.builder.number("int", PARAMETER) for _ in numbers]
        inner.steps(self.rng.randint(0, 4))
        results = first(inner) if first else []
        for meta, home in wanted[len(results) :]:
            results.append(inner.result(meta, home, results))
        return inner.builder.finish(results), [*captured, *[~slot for slot in (*numbers, *inner.given)]]

    def result(self, meta: Meta | None, home: int, taken: Sequence[int]) -> int:
        """A value with this meta and home that a step has made; if there is none, a copy of another value."""
        builder, outside = self.builder, len(self.builder.parameters) + len(self.builder.captures)
        fitting = [v for v in self.values if self.form(v) == (meta, home) and builder.variables[v] >= outside]
        fitting = [value for value in fitting if value not in taken]
        if fitting and self.rng.random() < 0.8:
            return self.rng.choice(fitting)
        source = self.rng.choice([value for value in self.values if builder.metas[value] is meta])
        return builder.move(source, home, self.line())

    def close(
        self,
        op: str,
        operands: Sequence[int],
        blocks: Sequence[tuple[programs.Program, list[int]]],
        attributes: Any = (),
    ) -> None:
        """Add the step."""
        given = [value for _, own in blocks for value in own]
        bodies = [block for block, _ in blocks]
        made = self.builder.construct(op, [*operands, *given], bodies, dict(attributes), self.line())
        self.keep(made, self.builder.steps[-1].into or ())

    def made(self, count: int) -> list[int]:
        """Some values that steps have made, of different variables."""
        outside = {*range(len(self.builder.parameters) + len(self.builder.captures))}
        found = [value for value in self.values if self.builder.variables[value] not in outside]
        return self.rng.sample(found, min(len(found), count))
