"""Programs with control flow as functions of a client's: they issue their steps through the public surface.

Called as it is, such a function issues its ops one by one, and each step of control flow by a message; a routine
captures it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.numbers import CONSTANT, PARAMETER
from tensord.interpreter.programs.program import CASE, COND, EFFECT, MOVE, PRINT, WHILE

from .interpreted import Parts
from .steps import RANDOM, Routine

Function = Callable[[Sequence[Tensor], Sequence[Any]], list[Tensor]]


class Issuing:
    """Issues the steps of one routine. `chains` and `callbacks` are those of its side effects, by slot."""

    def __init__(
        self, session: Any, routine: Routine, chains: Sequence[int], callbacks: Mapping[int, Callable[..., None]]
    ) -> None:
        self.session = session
        self.program = routine.program
        self.devices = routine.devices
        self.chains = chains
        self.callbacks = callbacks

    def whole(self, captured: Sequence[Tensor]) -> Function:
        """The routine as a function of tensors and numbers."""

        def function(inputs: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
            return self.steps(self.program, (*inputs, *captured), numbers)

        return function

    def steps(self, program: programs.Program, outside: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
        """Issue the steps of a program or block; returns its results. `numbers`: the given numbers."""
        tensors = dict(enumerate(outside))  # by variable
        rest = iter(numbers)
        values = [next(rest) if n.op == PARAMETER else n.value if n.op == CONSTANT else None for n in program.numbers]
        for step in program.steps:
            given = [tensors[program.variables[o]] if o >= 0 else values[~o] for o in step.operands]
            into = [tensors[program.variables[value]] for value in step.into or ()]
            made = self.step(step, given, into)
            tensors |= {program.variables[value]: tensor for value, tensor in enumerate(made, step.first)}
        return [tensors[program.variables[value]] for value in program.results]

    def step(self, step: programs.Step, given: Sequence[Any], into: list[Tensor]) -> Sequence[Tensor]:
        """Issue a step; its results."""
        session, attributes = self.session, dict(step.attributes)
        if step.blocks:
            return [*self.construct(step, given, attributes), *into]
        if step.op == EFFECT:
            session.effect(self.callbacks[attributes["callback"]], *given, chain=self.chains[attributes["chain"]])
            return ()
        if step.op == PRINT:
            texts, rest = attributes["parts"], iter(given)
            parts = [next(rest) if text is None else text for text in texts]
            session.print(*parts, sep=attributes["sep"], chain=self.chains[attributes["chain"]])
            return ()
        device = self.devices[step.device]
        if step.op == MOVE:
            return [given[0].to_device(device)]
        if step.op == RANDOM:  # with the session's own numbers
            low, high, shape = attributes["low"], attributes["high"], attributes["shape"]
            return [session.random.integers(low, high, shape, device=device)]
        out = None if step.into is None else into
        made: list[Tensor] = session.call(step.op, given, attributes, out=out, device=device)
        return made

    def construct(self, step: programs.Step, given: Sequence[Any], attributes: Mapping[str, Any]) -> list[Tensor]:
        """Issue a step of control flow; returns the results of its functions."""
        session, parts = self.session, Parts(step, given, repeat(None))
        functions = [
            self.function(block, captured, numbers)
            for block, (captured, numbers, _) in zip(step.blocks, parts.own, strict=True)
        ]
        if step.op == COND:
            return listed(session.cond(parts.head, *functions, *parts.arguments))
        if step.op == CASE:
            return listed(session.case(parts.head, functions, *parts.arguments))
        if step.op == WHILE:
            most = attributes["max_iterations"]
            return listed(session.while_loop(*functions, *parts.arguments, max_iterations=most))
        return listed(session.repeat(parts.head, *functions, *parts.arguments))

    def function(
        self, block: programs.Program, captured: Sequence[Tensor], numbers: Sequence[Any]
    ) -> Callable[..., Any]:
        """A block as a function of its parameters."""

        def function(*arguments: Tensor) -> Any:
            results = self.steps(block, (*arguments, *captured), numbers)
            return results[0] if len(results) == 1 else results

        return function


def listed(value: Any) -> list[Tensor]:
    """One tensor, or several, as a list."""
    return [value] if isinstance(value, Tensor) else list(value)
