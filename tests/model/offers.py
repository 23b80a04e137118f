"""Routines under names in random programs: one session publishes, another looks up and runs on tensors of its own.

A published routine can be used after its session has published another object under the name, released the routine, or
ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tensord.interpreter.programs import program as programs

from .handles import Client
from .runs import Recorded
from .steps import Routine, blocks_inside

if TYPE_CHECKING:
    from .programs import Generator

Offered: TypeAlias = Recorded | Routine  # without and with control flow


class Offers:
    """Emits the OFFER and OBTAIN steps of one generator."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.rng = generator.rng

    def offer(self, client: Client, name: str) -> None:
        """Publish a routine that others may run, if the session has one by now."""
        if client.cancelled:
            return
        if not (known := list(self.fitting(client))):
            self.rng.choice((self.generator.runs.emit, self.generator.flows.emit))(client)
            known = list(self.fitting(client))
        if known:
            self.publish(client, name, known)
            if self.generator.risky and self.rng.random() < 0.3:
                self.generator.close(client)
            others = [each for each in self.generator.clients if not each.closed]
            for each in self.rng.sample(others, self.rng.randint(1, len(others))):
                self.obtain(each, name)

    def publish(self, client: Client, name: str, known: Sequence[Offered]) -> None:
        """Publish one of these; one that writes to its arguments, or fails, is preferred."""
        make = self.generator
        (chosen,) = self.rng.choices(known, [5 if is_telling(routine_of(one).program) else 1 for one in known])
        routine = routine_of(chosen)
        inputs = tuple(
            [make.flows.upload(client, s.meta, routine.devices[s.device]) for s in routine.program.parameters]
        )
        numbers = tuple([self.rng.randint(0, 1) for _ in routine.program.number_parameters])
        make.add(client, "OFFER", name, routine, (client.new(), client.new()), inputs, numbers)
        make.names[name] = chosen

    def fitting(self, client: Client) -> Iterator[Offered]:
        """The client's routines that call nothing back, and whose captured tensors it still has."""
        make = self.generator
        for one in (*make.runs.recorded.get(client.number, ()), *make.flows.routines.get(client.number, ())):
            routine = routine_of(one)
            held = all(id_ in client.handles and make.flows.is_certain(client, id_) for id_ in routine.captured)
            if held and not routine.obtained and not routine.program.callbacks:
                yield one

    def obtain(self, client: Client, name: str) -> None:
        """Look a routine up, and run it."""
        make, offered = self.generator, self.generator.names[name]
        if client.cancelled or not isinstance(offered, Recorded | Routine):
            return
        make.runs.keys += 1
        captured = tuple([client.new() for _ in routine_of(offered).captured])
        routine = replace(routine_of(offered), key=make.runs.keys, captured=captured, obtained=True)
        make.add(client, "OBTAIN", name, routine, self.rng.random() < 0.3)
        if isinstance(offered, Recorded):
            recorded = replace(offered, routine=routine)
            make.runs.recorded.setdefault(client.number, []).append(recorded)
        else:
            make.flows.routines.setdefault(client.number, []).append(routine)
        for _ in range(self.rng.randint(1, 3)):
            if isinstance(offered, Recorded):
                make.runs.again(client, recorded)
            else:
                make.flows.run(client, routine)

    def forget(self, client: Client, known: list[Recorded] | list[Routine]) -> None:
        """Release a routine. A session links its own routine again for a later run; a looked-up one is gone."""
        index = self.rng.randrange(len(known))
        routine = routine_of(known[index])
        if routine.obtained:
            del known[index]
        self.generator.add(client, "FORGET", routine.key, routine.captured if routine.obtained else ())


def is_telling(program: programs.Program) -> bool:
    """Whether the program writes to tensors from outside, or fails."""
    steps = (step for one in (program, *blocks_inside(program)) for step in one.steps)
    return bool(program.written) or any(step.op.startswith("model_") for step in steps)


def routine_of(one: Offered) -> Routine:
    return one.routine if isinstance(one, Recorded) else one
