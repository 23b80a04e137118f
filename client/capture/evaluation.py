"""Computes the numbers of a program for each run: from the numbers in the call's arguments, constants and random draws.

Raises `Misfit` if a number of this call differs in type or range from the capture: then the function is captured anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...interpreter.errors import MetadataError
from ...interpreter.programs.numbers import CONSTANT, DRAW, PARAMETER, SEED, evaluate
from ...interpreter.programs.program import Program
from ...interpreter.schema.promotion import WIRE_INTEGERS, check_scalar
from ...interpreter.types.meta import Scalar
from ..calls.signatures import MAX_UNCHECKED_INT
from ..core.core import RandomState
from .capture import RangeCheck
from .structure import plain_number

WITHOUT_ARGUMENT: Final = (CONSTANT, SEED, DRAW)  # numbers that depend on no argument


class Misfit(Exception):  # noqa: N818 - it is caught in this package, and no error
    """The program does not fit the given numbers, because of the number in that slot."""

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot


class Evaluation:
    """Computes the numbers of one program. `leaves`: the positions of its parameters among the numbers in the
    arguments.

    If the numbers are only parameters and constants, they are the arguments' numbers and `_constants`.
    """

    def __init__(
        self, program: Program, leaves: Sequence[int], given: Sequence[Any], ranges: Sequence[RangeCheck]
    ) -> None:
        self._numbers = numbers = program.numbers
        self.leaves = tuple(leaves)
        self._ranges = {each.slot: [one for one in ranges if one.slot == each.slot] for each in ranges}
        self._seeds = [slot for slot, number in enumerate(numbers) if number.op == SEED]
        self._drawn = [slot for slot, number in enumerate(numbers) if number.op == DRAW]
        self._ints = [
            slot for slot, number in enumerate(numbers) if number.kind == "int" and number.op not in WITHOUT_ARGUMENT
        ]
        parameters, rest = numbers[: len(leaves)], numbers[len(leaves) :]
        simple = all(number.op == PARAMETER for number in parameters) and all(each.op == CONSTANT for each in rest)
        self._constants: list[Any] | None = [number.value for number in rest] if simple else None
        as_given = len(leaves) == len(given) and all(plain_number(value) is value for value in given)
        self._taken = None if as_given else self.leaves

    def values(self, given: Sequence[Any], state: RandomState) -> list[Scalar]:
        """The program's numbers for these numbers of the arguments; takes the run's random calls. Misfit if they do not
        fit."""
        if not self._numbers:
            return []
        if self._taken is not None:
            given = [plain_number(given[leaf]) for leaf in self._taken]
        numbers = self._computed(given) if self._constants is None else [*given, *self._constants]
        for slot in self._ints:
            if not 0 <= numbers[slot] <= MAX_UNCHECKED_INT:
                self._check(slot, numbers[slot])
        if self._drawn:
            seed, calls = state.take(len(self._drawn))
            for slot in self._seeds:
                numbers[slot] = seed
            for slot, call in zip(self._drawn, calls, strict=True):
                numbers[slot] = call
        return numbers

    def _computed(self, given: Sequence[Any]) -> list[Any]:
        numbers = self._numbers
        draws = (0,) * len(self._drawn)
        try:
            return list(evaluate(numbers, given, 0, draws))
        except Exception:  # as Python raises it; or the type differs from the capture
            raise Misfit(self._culprit(given, draws)) from None

    def _culprit(self, given: Sequence[Any], draws: Sequence[int]) -> int:
        for end in range(1, len(self._numbers) + 1):
            try:
                evaluate(self._numbers[:end], given, 0, draws)
            except Exception:
                return end - 1
        raise AssertionError  # it has failed above

    def _check(self, slot: int, value: Any) -> None:
        if value not in WIRE_INTEGERS:
            raise Misfit(slot)
        for each in self._ranges.get(slot, ()):
            try:
                check_scalar(each.op, value, each.metas, each.attributes)
            except MetadataError:
                raise Misfit(slot) from None

    def leaves_of(self, slot: int) -> frozenset[int]:
        """The positions of the numbers in the arguments from which a number is computed."""
        number = self._numbers[slot]
        if number.op == PARAMETER:
            before = sum(each.op == PARAMETER for each in self._numbers[:slot])
            return frozenset((self.leaves[before],))
        return frozenset[int]().union(*map(self.leaves_of, number.operands))
