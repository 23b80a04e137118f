"""Unfolding of control flow: fetches the truth values, indices and counts, one after the other, and runs the blocks
that they choose.

The run waits for each of these values, and so does its session, but no other session. If a test or a count fails, the
results and the written tensors of the step get its error. An index without a block, and a loop that reaches its bound,
are errors of the same kind.

A cancellation, and the end of the session, stop a loop between two rounds. The tensors that the loop writes are then
in an intermediate state, so they are poisoned, even if other sessions hold them. A loop that has not begun has written
nothing.

The random draws of a block belong to the one random call of the outermost step. A draw's number consists of the number
of the block among those that have run there, and the draw's position in the block.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias

from ....interpreter.errors import CancelledError, KernelError, KernelIndexError, MetadataError, TensordError
from ....interpreter.programs.constructs import FORMS, MAX_ITERATIONS, layout_of, results_of
from ....interpreter.programs.numbers import DRAW, PARAMETER
from ....interpreter.programs.passes.table import SEGMENT_PASSES
from ....interpreter.programs.program import CASE, WHILE, Step
from ....interpreter.types.meta import Meta, Scalar
from ....interpreter.wire.message_kinds import EFFECT, RELEASE, TO_DEVICE
from ....interpreter.wire.messages import Message
from ...model.linked import LinkedBlock, SessionProgram
from ...model.unfolding import Answer
from .run import RunIds, StepResults, UnfoldedRun

PAUSE: Final[Message] = (RELEASE, ())  # a message that does nothing: a turn may end here
POSITION_BITS: Final = 16  # bits of a draw's number for its position in its block

# Yields messages, and returns ids of new tensors.
Unfolded: TypeAlias = Generator[Message, None, list[int]]


class Failed(Exception):  # noqa: N818 - a signal inside this module
    """A step has no results, because of its own error, or because of an answer with an error."""

    def __init__(self, error: TensordError | None, answer: Answer | None = None) -> None:
        super().__init__()
        self.error = error
        self.answer = answer


class RunningConstruct:
    """A step with blocks in one run, from its first message to its last one.

    `given`: the ids and numbers of its operands; `effects`: the index of its first side effect.
    """

    def __init__(
        self, run: UnfoldedRun, routine: SessionProgram, position: int, given: Sequence[Any], effects: int, where: int
    ) -> None:
        step = self.step = routine.program.steps[position]
        if position not in routine.nested:
            routine.nested[position] = linked_blocks(routine, step)
        self.run = run
        self.routine = routine
        self.blocks = routine.nested[position]
        self.head = 0 if FORMS[step.op].head else None
        first = 0 if self.head is None else 1
        self.arguments = given[first : first + len(step.blocks[0].parameters)]
        self.given = given
        self.effects = effects
        self.where = where
        self.rounds = 0
        self.begun = False  # whether a block of a loop that may write has run
        self.written: Sequence[int] = ()

    def unfold(self, ids: RunIds, variables: Sequence[int]) -> Generator[Message]:
        """All messages of the step. `variables`: its results, which get ids at the end, since ids rise."""
        run, results = self.run, results_of(self.step.blocks[-1])
        self.written = [ids[variable] for variable in variables[len(results) :]]
        if not run.open:
            run.drawn = 0
        run.open.append(self)
        try:
            found = yield from self.loop() if FORMS[self.step.op].loops else self.choice()
            run.engine.rename([(id_, ids[variable]) for id_, variable in zip(found, variables, strict=False)])
        except Failed as failed:
            error, answer = failed.error, failed.answer
            why = run.engine.stopped() if self.begun else None
            if why is not None:
                error, answer = self.stopped(why), None
            homes = [(meta, self.routine.devices[home]) for meta, home in results]
            made = [(ids[variable], *each) for variable, each in zip(variables, homes, strict=False)]
            run.engine.fail(error, answer, StepResults(made, self.written, self.begun), self.step.op, self.where)
        finally:
            run.open.pop()
        if not run.open:
            yield from self.end_effects()

    def stop(self, why: TensordError) -> None:
        """End the step when its session ends: poison the tensors that a loop writes, for other holders, too."""
        if self.begun:
            results = StepResults((), self.written, begun=True)
            self.run.engine.fail(self.stopped(why), None, results, self.step.op, self.where)

    def stopped(self, why: TensordError) -> TensordError:
        """The error for the tensors that a stopped loop has written."""
        return CancelledError(f"{why.message} in the middle of a {self.step.op}; rounds begun: {self.rounds}")

    def end_effects(self) -> Generator[Message]:
        """Answer the requests of side effects, which stay open as long as their blocks may run again."""
        count = sum(block.routine.program.effects[-1] for block in self.blocks)
        for chain, _, request in self.run.effects[self.effects : self.effects + count]:
            if request:
                yield (EFFECT, (), chain, None, request, self.where, False, False, (), (), "")

    def choice(self) -> Unfolded:
        """Run the block that a truth value or an index selects."""
        value, count = (yield from self.decision()), len(self.blocks)
        index = int(value) if self.step.op == CASE else int(not value)
        if not 0 <= index < count:
            raise Failed(KernelIndexError(f"{CASE}: the index {index} is out of range for {count} blocks"))
        return (yield from self.block(self.blocks[index], self.arguments))

    def loop(self) -> Unfolded:
        """Run the body until the test or the count ends the loop."""
        body, count = self.blocks[-1], (yield from self.decision())
        state: list[int] = []
        for argument, source in zip(self.arguments, body.routine.program.parameters, strict=True):
            state.append(self.run.new.take())
            yield (TO_DEVICE, argument, state[-1], self.routine.devices[source.device], self.where)
        try:
            while (yield from self.runs_again(state, count)):
                self.rounds += 1
                before, state = state, (yield from self.block(body, state))
                yield (RELEASE, tuple(before))
        except Failed:
            yield (RELEASE, tuple(state))
            raise
        return state

    def runs_again(self, state: Sequence[int], count: Any) -> Generator[Message, None, bool]:
        """Whether the body runs once more. `count`: the number of rounds; None for a loop with a test."""
        run, rounds, most = self.run, self.rounds, dict(self.step.attributes).get(MAX_ITERATIONS)
        if self.step.op != WHILE and rounds >= int(count):
            return False  # the loop is complete, even if the session is being stopped
        if (error := run.engine.stopped()) is not None:
            raise Failed(error)
        if self.step.op == WHILE:
            program = self.step.blocks[0]
            (test,) = yield from self.block(self.blocks[0], state)
            answer = yield from self.fetch(test)
            yield (RELEASE, (test,))
            if not value_of(answer, program.metas[program.results[0]]):
                return False
        if most is not None and rounds >= most:
            raise Failed(KernelError(f"{WHILE}: its test is still true after max_iterations={most} rounds"))
        certain = 1 if self.step.op == WHILE else int(count) - rounds  # the known number of rounds to come
        if certain > run.engine.iterations - run.iterations:
            message = f"{self.step.op}: a run has at most {run.engine.iterations} rounds of loops (quota iterations)"
            raise Failed(KernelError(message))
        run.iterations += 1
        return True

    def block(self, block: LinkedBlock, inputs: Sequence[int]) -> Unfolded:
        """Run a block on these tensors and on its captured ones, and return the ids of its results."""
        run, routine, program = self.run, block.routine, block.routine.program
        run.drawn += 1
        if FORMS[self.step.op].loops and (
            block is self.blocks[-1] or program.written
        ):  # a test that writes counts, too
            self.begun = True
        captured = [self.given[position] for position in block.values[len(inputs) :]]
        ids = RunIds(program, (*inputs, *captured), run.new.newest, run.new)
        numbers = self.numbers(block)
        yield from run.program(routine, ids, numbers, self.effects + block.effects)
        yield PAUSE
        return [ids[variable] for variable in program.returned]

    def numbers(self, block: LinkedBlock) -> list[Scalar]:
        """The numbers of a block, with 0 for constants."""
        given = iter([self.given[position] for position in block.numbers])
        numbers: list[Scalar] = []
        draws = 0
        for number in block.routine.program.numbers:
            if number.op == DRAW:
                numbers.append(self.run.drawn << POSITION_BITS | draws)
                draws += 1
            else:
                numbers.append(next(given) if number.op == PARAMETER else 0)
        return numbers

    def decision(self) -> Generator[Message, None, Any]:
        """The truth value, index or count of the step; None for a loop with a test."""
        if self.head is None:
            return None
        given, operand = self.given[self.head], self.step.operands[self.head]
        if operand < 0:
            return given
        return value_of((yield from self.fetch(given)), self.routine.program.metas[operand])

    def fetch(self, id_: int) -> Generator[Message, None, Answer]:
        """Ask for a value, and yield pauses until the answer arrives."""
        answer = self.run.engine.ask(id_, self.step.op, self.where)
        while not answer.done:
            yield PAUSE
        return answer


def value_of(answer: Answer, meta: Meta | None) -> Any:
    """The value of an answer; Failed if the answer is an error, or its meta is not that of the program."""
    if answer.error is not None:
        raise Failed(None, answer)
    value = answer.value
    if meta is None or (value.shape, value.dtype) != (meta.shape, meta.dtype):
        found = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
        raise Failed(MetadataError(f"the program decides by {meta}; this value is {found}"))
    return value


def linked_blocks(routine: SessionProgram, step: Step) -> tuple[LinkedBlock, ...]:
    """The blocks of a step, linked to the devices of the routine."""
    blocks: list[LinkedBlock] = []
    effects = 0
    for block, given in zip(step.blocks, layout_of(step.op, range(len(step.operands)), step.blocks).given, strict=True):
        name = f"{routine.name}/{step.op}[{len(blocks)}]"
        linked = SessionProgram(block, routine.devices, (), routine.location, name, routine.passes & SEGMENT_PASSES)
        blocks.append(LinkedBlock(linked, given.values, given.numbers, effects))
        effects += block.effects[-1]
    return tuple(blocks)
