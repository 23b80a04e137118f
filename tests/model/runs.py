"""Runs in random programs: steps that are drawn like any others, and sent as one message.

The first run of a routine is recorded: its steps are drawn and executed one by one, a program is built of them, and
handles that outlive the run get new ids. A later run has the same steps with other tensors and numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensord.interpreter.programs.builder import MAX_SLOTS, Builder
from tensord.interpreter.programs.numbers import CONSTANT, PARAMETER, evaluate
from tensord.interpreter.programs.passes.table import PASS_NAMES
from tensord.interpreter.types.meta import Meta

from .execution import rename
from .handles import Client, Handle
from .steps import Routine, Step

if TYPE_CHECKING:
    from .programs import Generator


@dataclass(frozen=True)
class Recorded:
    """A routine with the data for its later runs.

    `steps`: those of the first run; `parameters`, `captured`: the ids of its inputs there, and of its captured tensors;
    `results`: the ids inside, and the handles, of values that outlive the run; `slots`: the number slot of each
    operand, by (step's number, position).
    """

    routine: Routine
    steps: tuple[Step, ...]
    parameters: tuple[int, ...]
    captured: tuple[int, ...]
    results: tuple[tuple[int, Meta | None, str], ...]
    slots: Mapping[tuple[int, int], int]


class Runs:
    """Emits the RUN steps of one generator."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.rng = generator.rng
        self.recorded: dict[int, list[Recorded]] = {}  # session -> its routines
        self.keys = 0
        self.device: str | None = None  # the one device of all steps of a routine, if there is one

    def stay(self, client: Client) -> None:
        """Add many runs of a routine on one device that launches."""
        self.device = self.rng.choice(self.generator.launching)
        found = self.record(client)
        if found is not None:
            self.recorded.setdefault(client.number, []).append(found)
            for _ in range(self.rng.randint(3, 9)):
                self.again(client, found)
        self.device = None

    def emit(self, client: Client) -> None:
        """Add the first run of a new routine, and further ones; or more runs of an old routine."""
        known = self.recorded.setdefault(client.number, [])
        if known and self.rng.random() < 0.5:
            routine = self.rng.choice(known)
        else:
            found = self.record(client)
            if found is None:
                return
            known.append(routine := found)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            self.again(client, routine)

    def forget(self, client: Client) -> None:
        """Release a routine. A later run links it again."""
        known = self.recorded.get(client.number)
        if known:
            self.generator.offers.forget(client, known)

    # -- the first run ---------------------------------------------------------------------------------------------

    def record(self, client: Client) -> Recorded | None:
        """Draw some steps, and make a run of them."""
        make, fresh = self.generator, (client.new(), client.new())
        if not client.chains:
            make.chain(client)
        handles = client.handles
        client.handles = {id_: handle for id_, handle in handles.items() if self.is_known(client, id_)}
        hidden = {id_: handle for id_, handle in handles.items() if id_ not in client.handles}
        outside = dict(client.handles)
        inner = make.collect(lambda: self.draw(client))
        alive = {id_: handle for id_, handle in client.handles.items() if id_ not in outside}
        released = tuple(id_ for id_ in outside if id_ not in client.handles)
        client.handles = {id_: handle for id_, handle in {**hidden, **client.handles}.items() if id_ not in alive}
        if not inner:
            return None
        self.keys += 1
        build = Building(self.rng, self.keys, {id_: (h.meta, h.home) for id_, h in outside.items()}, client.chains)
        build.captures = self.device is None  # if a captured tensor is released, each later run fails
        routine = build.routine(inner, tuple(alive))
        results = tuple((id_, handle.meta, handle.home) for id_, handle in alive.items())
        found = Recorded(routine, tuple(inner), tuple(build.parameters), routine.captured, results, build.slots)
        self.add(client, found, fresh, tuple(inner), found.parameters, build.values_of_numbers(), released)
        return found

    def is_known(self, client: Client, id_: int) -> bool:
        """Whether the client knows the right meta of a tensor."""
        meta = client.handles[id_].meta
        tensor = self.generator.sessions[client.number].tensors.get(id_)
        return meta is not None and tensor is not None and tensor.meta is meta

    def draw(self, client: Client) -> None:
        """Draw some steps of the kinds that a program can have; often several on one device, which can be a segment."""
        make = self.generator
        ops = (make.unary, make.binary, make.binary, make.in_place, make.in_place, make.matmul, make.reduction)
        others = (make.view, make.view, make.setitem, make.join, make.where, make.dynamic, make.create, make.move)
        rest = (self.repeat, self.repeat, make.release, make.side_effect)
        kinds = (*ops, *others, *rest, *((make.boom, make.split) if make.risky else ()))
        if self.device is not None:
            kinds = (*ops, make.view, make.release)
        devices = (None, *make.world.devices) if self.device is None else (self.device,)
        make.staying = self.rng.choice(devices)
        for _ in range(self.rng.choice((0, 1, 2, 3, 4, 6, 8, 16))):
            self.rng.choice(kinds)(client)
            if self.rng.random() < 0.2:
                make.staying = self.rng.choice(devices)
        make.staying = None

    def repeat(self, client: Client) -> None:
        """Repeat a call of the run on the same operands."""
        calls = [step.fields for step in self.generator.sinks[-1] if step.kind == "CALL" and step.fields[4] is None]
        if not calls:
            return
        op, attributes, metas, _, _, inputs, _, _ = self.rng.choice(calls)
        scalars = tuple(slot for slot, meta in enumerate(metas) if isinstance(meta, type))
        if all(slot in scalars or id_ in client.handles for slot, id_ in enumerate(inputs)):
            self.generator.call(client, op, inputs, dict(attributes), scalars=scalars)

    def add(
        self,
        client: Client,
        recorded: Recorded,
        fresh: tuple[int, int],
        inner: tuple[Step, ...],
        inputs: tuple[int, ...],
        numbers: tuple[Any, ...],
        released: tuple[int, ...] = (),
        ids: Mapping[int, int] | None = None,
    ) -> None:
        """Append a run whose steps the oracle has executed. `ids`: its inner ids by those of the first run."""
        make = self.generator
        renamed = []
        for id_, meta, home in recorded.results:
            renamed.append((id_ if ids is None else ids[id_], output := client.new()))
            client.handles[output] = Handle(meta, home)
        rename(make.sessions[client.number], tuple(renamed))
        fields = (recorded.routine, fresh, inner, inputs, numbers, tuple(renamed), released)
        make.sinks[-1].append(make.step(client, "RUN", *fields))

    # -- later runs ------------------------------------------------------------------------------------------------

    def again(self, client: Client, recorded: Recorded) -> None:
        """Run the routine with other tensors of the same metas, and other numbers. One tensor may serve as several
        parameters."""
        routine, program = recorded.routine, recorded.routine.program
        if self.generator.honest and not (routine.obtained or client.handles.keys() >= {*routine.captured}):
            return  # a real client's routine would keep its captured tensors
        inputs = tuple([self.pick(client, source.meta) for source in program.parameters])
        fresh = (client.new(), client.new())
        ids = dict(zip(recorded.parameters, inputs, strict=True))
        ids |= dict(zip(recorded.captured, routine.captured, strict=True))
        given = [self.rng.randint(0, 1) for _ in program.number_parameters]
        numbers = tuple(evaluate(program.numbers, given))
        inner = tuple(self.substituted(client, recorded, ids, numbers))
        make = self.generator
        for step in inner:
            make.expected.execute(step)
        self.add(client, recorded, fresh, inner, inputs, numbers, ids=ids)

    def pick(self, client: Client, meta: Meta) -> int:
        """A handle with this meta, more often a recent one, or that of a new upload."""
        fitting = [id_ for id_, handle in client.handles.items() if handle.meta is meta and self.is_known(client, id_)]
        if self.device is not None:
            fitting = [id_ for id_ in fitting if client.handles[id_].home == self.device]
        if fitting and self.rng.random() < 0.8:
            return self.rng.choice(fitting[-3:])
        id_, device = client.new(), self.device or self.generator.device()
        values = np.array([self.rng.randint(-3, 3) for _ in range(meta.size)])
        self.generator.add(client, "UPLOAD", id_, values.reshape(meta.shape).astype(meta.dtype), device)
        client.handles[id_] = Handle(meta, device)
        return id_

    def substituted(
        self, client: Client, recorded: Recorded, ids: dict[int, int], numbers: Sequence[Any]
    ) -> Iterator[Step]:
        """The steps of the first run, with other ids and numbers; `ids` gets those of the values inside."""
        make, outside = self.generator, frozenset(ids)

        def mine(id_: int) -> int:
            return ids[id_] if id_ in ids else ids.setdefault(id_, client.new())

        for step in recorded.steps:
            fields: tuple[Any, ...] = ()
            if step.kind == "CALL":
                op, attributes, metas, device, targets, inputs, outputs, released = step.fields
                slots = [(step.number, position) for position in range(len(inputs))]
                given = tuple(
                    numbers[recorded.slots[slot]] if slot in recorded.slots else mine(value)
                    for slot, value in zip(slots, inputs, strict=True)
                )
                for position, id_ in enumerate((*inputs, *outputs)):
                    if id_ in outside and (step.number, position) not in recorded.slots:
                        released &= ~(1 << position)
                fields = (op, attributes, metas, device, targets, given, tuple(map(mine, outputs)), released)
            elif step.kind == "TO_DEVICE":
                id_, output, device = step.fields
                fields = (mine(id_), mine(output), device)
            elif step.kind == "EFFECT":
                fields = (tuple(map(mine, step.fields[0])), *step.fields[1:])
            else:
                fields = (tuple(mine(id_) for id_ in step.fields[0] if id_ not in outside),)
            yield make.step(client, step.kind, *fields, line=step.number)


class Building:
    """Builds a program of recorded steps. `outside`: meta and home of each tensor that exists before the run."""

    def __init__(
        self, rng: Any, key: int, outside: Mapping[int, tuple[Meta | None, str]], chains: Sequence[int]
    ) -> None:
        self.rng = rng
        self.key = key
        self.outside = outside
        self.chains = chains
        self.builder = Builder()
        self.values: dict[int, int] = {}  # id -> value
        self.devices: list[str] = []
        self.parameters: list[int] = []
        self.captured: list[int] = []
        self.slots: dict[tuple[int, int], int] = {}
        self.given: list[int] = []  # of the number parameters
        self.captures = True

    def routine(self, steps: Sequence[Step], results: tuple[int, ...]) -> Routine:
        """The routine of these steps. `results`: the ids of the values that outlive the run."""
        used = dict.fromkeys(id_ for step in steps for id_ in used_by(step) if id_ in self.outside)
        for id_ in used:
            meta, home = self.outside[id_]
            if (self.rng.random() < 0.75 or not self.captures) and meta is not None:
                self.parameters.append(id_)
                self.values[id_] = self.builder.parameter(meta, self.slot(home), f"p{id_}")
        for step in steps:
            self.add(step)
        program = self.builder.finish([self.values[id_] for id_ in results])
        devices, captured = tuple(self.devices[: program.devices]), tuple(self.captured)
        keeps, passes = self.rng.random() < 0.3, random_passes(self.rng)
        return Routine(self.key, program, devices, captured, keeps, passes=passes)

    def values_of_numbers(self) -> tuple[Any, ...]:
        """The values of all numbers in the first run."""
        return tuple(evaluate(self.builder.numbers, self.given))

    def slot(self, device: str) -> int:
        """A slot for the device, in some cases a second one for the same device."""
        known = [slot for slot, name in enumerate(self.devices) if name == device]
        if not known or (self.rng.random() < 0.2 and len(self.devices) < MAX_SLOTS):
            known = [len(self.devices)]
            self.devices.append(device)
        return self.rng.choice(known)

    def value(self, id_: int) -> int:
        """The value of a tensor. A tensor from outside that is no parameter is captured at its first use."""
        if id_ not in self.values:
            meta, home = self.outside[id_]
            assert meta is not None
            self.captured.append(id_)
            self.values[id_] = self.builder.captured(meta, self.slot(home), f"c{id_}")
        return self.values[id_]

    def number(self, value: int) -> int:
        """A number of this value: a constant, a parameter, or one that is computed from a number that is 0 or 1."""
        kind = self.rng.random()
        if kind < 0.3:
            return self.builder.number("int", CONSTANT, value=value)
        if kind < 0.6:
            self.given.append(value)
            return self.builder.number("int", PARAMETER)
        self.given.append(1)
        operands = (self.builder.number("int", PARAMETER), self.builder.number("int", CONSTANT, value=value))
        return self.builder.number("int", "mul", operands)

    def add(self, step: Step) -> None:
        """Add a step to the program, unless the step concerns the client alone."""
        if step.kind == "CALL":
            self.add_call(step)
        elif step.kind == "TO_DEVICE":
            id_, output, device = step.fields
            self.values[output] = self.builder.move(self.value(id_), self.slot(device), step.number)
        elif step.kind == "EFFECT":
            ids, chain, _ = step.fields
            values, count = [self.value(id_) for id_ in ids], sum(one.op == "effect" for one in self.builder.steps)
            self.builder.effect(count, values, self.chains.index(chain) % MAX_SLOTS, step.number)

    def add_call(self, step: Step) -> None:
        op, attributes, metas, device, targets, inputs, outputs, _ = step.fields
        operands = []
        for position, (meta, value) in enumerate(zip(metas, inputs, strict=True)):
            if isinstance(meta, type):
                self.slots[step.number, position] = slot = self.number(value)
                operands.append(~slot)
            else:
                operands.append(self.value(value))
        into = None if targets is None else [self.value(id_) for id_ in outputs]
        made = self.builder.op(op, operands, dict(attributes), self.slot(device), into, step.number)
        self.values |= dict(zip(outputs, made, strict=True))


def random_passes(rng: random.Random) -> tuple[str, ...]:
    """In most cases all passes, otherwise some of them, or none."""
    if rng.random() < 0.6:
        return ("all",)
    found = tuple(name for name in PASS_NAMES if name != "devices" and rng.random() < 0.5)
    return (*found, "devices") if len(found) % 2 else found  # without a draw, so that seeds keep their programs


def used_by(step: Step) -> Sequence[int]:
    """The ids of tensors that a step reads, or writes in place."""
    if step.kind == "CALL":
        _, _, metas, _, targets, inputs, outputs, _ = step.fields
        read = [id_ for id_, meta in zip(inputs, metas, strict=True) if not isinstance(meta, type)]
        return (*read, *(outputs if targets is not None else ()))
    if step.kind == "TO_DEVICE":
        return step.fields[:1]
    return step.fields[0] if step.kind == "EFFECT" else ()
