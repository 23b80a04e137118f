"""The poisoned values of one run: errors spread from values to the results that depend on them, op by op.

A result that depends on no poisoned value is healthy, even if the same kernel computes a poisoned one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....interpreter.errors import TensordError
from ..compiling.recipe import KernelStep, Recipe


class PoisonedValues:
    """The errors of a run's poisoned values, by the values' numbers in the recipe.

    `origins`: the errors that arose in the run itself, not in an operand.
    """

    __slots__ = ("errors", "origins", "recipe")

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.errors: dict[int, TensordError] = {}
        self.origins: list[TensordError] = []

    def error_of(self, value: int) -> TensordError | None:
        """The error of a value; for a view, the error of its base."""
        bases, errors = self.recipe.bases, self.errors
        while value in bases and value not in errors:
            value = bases[value]
        return errors.get(value)

    def spread(self, call: KernelStep) -> int:
        """Poison the results of a call that depend on a poisoned value; return the number of healthy results."""
        for result, reads in zip(call.results, call.reads, strict=True):
            found = next(filter(None, map(self.error_of, reads)), None)
            if found is not None:
                self.errors[result] = found
        return sum([result not in self.errors for result in call.results])

    def blame(self, results: Iterable[int], error: TensordError) -> None:
        """Poison those of the results that are healthy with an error that arose in the run."""
        self.errors.update({result: error for result in results if result not in self.errors})
        self.origins.append(error)
