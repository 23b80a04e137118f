"""Runs with control flow on the oracle: their steps are executed as by a client that reads each value on which they
depend. The code shares nothing with the unfolding of the engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensord.interpreter.errors import KernelError, KernelIndexError, TensordError
from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.numbers import CONSTANT, DRAW
from tensord.interpreter.programs.program import CASE, COND, EFFECT, MOVE, PRINT, REPEAT, WHILE
from tensord.interpreter.wire.messages import Effect, NamedMessage, ToDevice, encode_message
from tensord.vm.serial.values import define

from .oracle import Oracle
from .steps import Encoder, Step, lines_of, told

DRAWS = 1 << 16  # draws of one block in a random call


class Failed(Exception):  # noqa: N818 - it ends a step, and is no error of the test
    """A step has these errors instead of results."""

    def __init__(self, errors: tuple[TensordError, ...]) -> None:
        super().__init__()
        self.errors = errors


class Interpreter:
    """One run. The ids of its inner values follow those of its results."""

    def __init__(self, oracle: Oracle, session: Any, encoder: Encoder, step: Step) -> None:
        self.oracle = oracle
        self.session = session
        self.encoder = encoder
        self.step = step
        self.routine, _, self.inputs, self.numbers, self.outputs, self.effects = step.fields
        self.newest = max(session.newest, *self.outputs, 0)
        self.drawn = 0

    def run(self) -> None:
        """Execute all steps; then give the results their ids, and release the inner values."""
        session, program = self.session, self.routine.program
        if session.cancelled is not None:  # the run is refused
            self.oracle.receive(session, self.encoder.messages(self.step))
            return
        for line in (self.step.number, *lines_of(program)):
            self.send(told(line))
        before, newest = {*session.tensors}, session.newest
        found = self.program(program, (*self.inputs, *self.routine.captured), self.numbers, self.effects, 0)
        results = [session.tensors.pop(id_) for id_ in found]
        for id_ in session.tensors.keys() - before:
            self.oracle.drop(session, id_)
        session.newest = newest
        for id_, tensor in zip(self.outputs, results, strict=True):
            define(session, id_, tensor)

    def send(self, message: NamedMessage) -> None:
        self.oracle.receive(self.session, [encode_message(message)])

    def new(self) -> int:
        self.newest += 1
        return self.newest

    def program(
        self,
        program: programs.Program,
        outside: Sequence[int],
        numbers: Sequence[Any],
        effects: Sequence[tuple[int, int, bool]],
        depth: int,
    ) -> list[int]:
        """Execute the steps of a program or block; return the ids of its results. `effects`: those of its steps."""
        ids = dict(enumerate(outside))  # by variable
        rest = iter(effects)
        for step in program.steps:
            given = [ids[program.variables[o]] if o >= 0 else numbers[~o] for o in step.operands]
            made: Sequence[int] = [ids[program.variables[value]] for value in step.into or ()]
            if step.blocks:
                mine = [next(rest) for _ in range(sum(block.effects[-1] for block in step.blocks))]
                made = [*self.construct(step, given, made, mine, depth), *made]
            elif step.op in (EFFECT, PRINT):
                self.effect(next(rest), given, step.location, tolerant=step.op == PRINT, again=depth > 0)
            elif step.op == MOVE:
                made = [self.new()]
                self.send(ToDevice(given[0], made[0], self.routine.devices[step.device], step.location))
            else:
                made = made or [self.new() for _ in step.results]
                self.call(program, step, given, made)
            for value, id_ in enumerate(made, step.first):
                ids[program.variables[value]] = id_
        return [ids[program.variables[value]] for value in program.results]

    def call(self, program: programs.Program, step: programs.Step, given: Sequence[Any], made: Sequence[int]) -> None:
        metas = tuple([program.number_types[~o] if o < 0 else program.metas[o] for o in step.operands])
        targets = None if step.into is None else tuple([program.metas[value] for value in step.into])
        device = self.routine.devices[step.device]
        fields = (step.op, step.attributes, metas, device, targets, tuple(given), tuple(made), 0)
        for message in self.encoder.call(Step(self.step.number, self.step.session, "CALL", fields, step.location)):
            self.send(message)

    def effect(
        self, effect: tuple[int, int, bool], given: Sequence[int], location: int, *, tolerant: bool, again: bool
    ) -> None:
        """Execute a side effect. If its outermost step may repeat it, the request is answered at that step's end."""
        chain, number, raises = effect
        callback = self.encoder.noting(self.step.session, chain, number, raises)
        self.send(Effect(tuple(given), chain, callback, 0 if again else number, location, tolerant))

    # -- control flow --------------------------------------------------------------------------------------------------

    def construct(
        self, step: programs.Step, given: Sequence[Any], written: Sequence[int], effects: Sequence[Any], depth: int
    ) -> list[int]:
        """Execute a step with blocks; return the ids of its results."""
        if depth == 0:
            self.drawn = 0
        parts, last = Parts(step, given, effects), step.blocks[-1]
        try:
            found = (self.choose if step.op in (COND, CASE) else self.loop)(parts, depth)
        except Failed as failed:
            found = [self.new() for _ in last.results]
            for id_, value in zip(found, last.results, strict=True):
                home = self.routine.devices[last.homes[value]]
                self.oracle.poison(self.session, id_, failed.errors, last.metas[value], home)
            for id_ in written:
                self.oracle.poison_value(self.session.tensors[id_], failed.errors)
        for chain, number, _ in effects if depth == 0 else ():
            self.send(Effect((), chain, None, number, step.location))
        return found

    def choose(self, parts: Parts, depth: int) -> list[int]:
        """Execute one block."""
        step, value = parts.step, self.value(parts.head)
        index = int(value) if step.op == CASE else (0 if value else 1)
        if not 0 <= index < len(step.blocks):
            self.fail(step, KernelIndexError("no block"))
        return self.block(parts, index, parts.arguments, depth)

    def loop(self, parts: Parts, depth: int) -> list[int]:
        """Execute the body, which is the last block, in each round of the loop."""
        step, count, state = parts.step, 0, []
        if step.op == REPEAT:
            count = parts.head if step.operands[0] < 0 else int(self.value(parts.head))
        for id_, source in zip(parts.arguments, step.blocks[-1].parameters, strict=True):
            state.append(self.new())
            self.send(ToDevice(id_, state[-1], self.routine.devices[source.device], step.location))
        rounds, most = 0, dict(step.attributes).get("max_iterations")
        while rounds < count if step.op == REPEAT else self.value(*self.block(parts, 0, state, depth)):
            if most is not None and rounds >= most:
                self.fail(step, KernelError("still true"))
            rounds += 1
            state = self.block(parts, -1, state, depth)
        return state

    def block(self, parts: Parts, number: int, inputs: Sequence[int], depth: int) -> list[int]:
        """Execute a block of a step; return the ids of its results."""
        captured, numbers, effects = parts.own[number]
        program = parts.step.blocks[number]
        return self.program(program, (*inputs, *captured), self.numbers_of(program, numbers), effects, depth + 1)

    def numbers_of(self, program: programs.Program, given: Sequence[Any]) -> list[Any]:
        """The numbers of a block that runs now."""
        self.drawn += 1
        rest, draws, found = iter(given), 0, []
        for number in program.numbers:
            if number.op == CONSTANT:
                found.append(number.value)
            elif number.op == DRAW:
                found.append(self.drawn * DRAWS + draws)
                draws += 1
            else:
                found.append(next(rest))
        return found

    def value(self, id_: int) -> Any:
        """The truth value, index or count of a step."""
        value = self.session.tensors[id_].value
        if value.array is None:
            raise Failed(value.errors)
        return value.array

    def fail(self, step: programs.Step, error: TensordError) -> None:
        """Fail the step with an error of its own."""
        raise Failed((self.oracle.rejected(self.session, error, step.location, step.op),))


class Parts:
    """The operands of a step with blocks. `own`: for each block, its captured tensors, numbers and side effects."""

    def __init__(self, step: programs.Step, given: Sequence[Any], effects: Iterable[Any]) -> None:
        rest, more = iter(given), iter(effects)
        self.step = step
        self.head: Any = None if step.op == WHILE else next(rest)
        self.arguments = [next(rest) for _ in step.blocks[0].parameters]
        self.own = [
            (
                [next(rest) for _ in block.captured],
                [next(rest) for _ in block.number_parameters],
                [next(more) for _ in range(block.effects[-1])],
            )
            for block in step.blocks
        ]
