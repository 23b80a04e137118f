"""Periods: repeated calls with tensors and numbers as variables.

A *position* is an index into the list of all operands and results of the calls (`history.values_in`). Two sequences of
calls have the same *form* if their signatures and lines are the same, and the same positions share a tensor: one made
by the same call of the sequence, or one from outside. The tensors from outside, and the numbers, may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from ...interpreter.wire.locations import LINE_LIMIT
from ...interpreter.wire.messages import Message
from .history import LOCATION, CallSequence, flat, signature_in, values_in

Signatures: TypeAlias = Mapping[int, Message]  # SIGNATURE messages by number
Get: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]
Results: TypeAlias = tuple[bool, ...]  # for each new tensor: it has a handle at the end of the period
NUMBER = -1  # instead of the first position, for a number

OP, ATTRIBUTES, METAS, DEVICE, TARGETS = range(2, 7)  # of a SIGNATURE message


class PeriodForm(NamedTuple):
    """The form of calls. `tokens`: of the calls; `counts`: operands and results of each; `first`: for each position,
    the first position of its tensor in program order, or `NUMBER`."""

    tokens: tuple[int, ...]
    counts: tuple[tuple[int, int], ...]
    first: tuple[int, ...]

    def positions(self) -> Iterable[tuple[int, range, range]]:
        """Signature, positions of operands and positions of results of each call."""
        operand, result = 0, sum(inputs for inputs, _ in self.counts)
        for token, (inputs, outputs) in zip(self.tokens, self.counts, strict=True):
            yield signature_in(token), range(operand, operand + inputs), range(result, result + outputs)
            operand, result = operand + inputs, result + outputs


def form_of(stretch: CallSequence, signatures: Signatures) -> PeriodForm:
    """The form of calls that were sent."""
    values = flat(stretch.operands, stretch.results)
    counts = zip(map(len, stretch.operands), map(len, stretch.results), strict=True)
    form = PeriodForm(tuple(stretch.tokens), tuple(counts), ())
    firsts = [NUMBER] * len(values)
    known: dict[int, int] = {}
    for number, operands, results in form.positions():
        for position, meta in zip(operands, signatures[number][METAS], strict=True):
            if type(meta) is not str:
                firsts[position] = known.setdefault(values[position], position)
        for position in results:
            firsts[position] = known.setdefault(values[position], position)
    return form._replace(first=tuple(firsts))


class OperandPositions(NamedTuple):
    """The positions of outside tensors (where they occur first), of numbers, and of new tensors; in program order."""

    outside: tuple[int, ...]
    numbers: tuple[int, ...]
    made: tuple[int, ...]


class Period:
    """A form that is expected to occur again. `outside`, `numbers`, `made`: functions that get the values at these
    positions.

    `programs`: the linked programs, by the set of new tensors that are results. `seen`: how often the other sets were
    wanted. `missed`: how many times in a row it began and did not become a run; `runs`: how often it became one.
    `name`: for people.
    """

    def __init__(self, form: PeriodForm, signatures: Signatures) -> None:
        self.form = form
        self.name = ""
        self.tokens = list(form.tokens)
        outside: list[int] = []
        made: list[int] = []
        numbers: list[int] = []
        for number, operands, results in form.positions():
            numbers += [position for position in operands if form.first[position] == NUMBER]
            new = signatures[number][TARGETS] is None
            outside += [
                position for position in (*operands, *(() if new else results)) if form.first[position] == position
            ]
            made += results if new else ()
        again = [position for position, first in enumerate(form.first) if first not in (NUMBER, position)]
        self.positions = OperandPositions(tuple(outside), tuple(numbers), tuple(made))
        self.outside, self.numbers, self.made = map(getter, self.positions)
        self._again, self._first = getter(again), getter([form.first[position] for position in again])
        self.programs: dict[Results, Any] = {}
        self.seen: dict[Results, int] = {}
        self.missed = 0
        self.runs = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def values(self, calls: Sequence[Message]) -> list[Any] | None:
        """The values of calls with the period's tokens; None unless they have its form and share one span."""
        values = values_in(calls)
        if self._again(values) != self._first(values):
            return None
        return values if is_in_one_span(calls) else None


def getter(positions: Sequence[int]) -> Get:
    """A function that takes the values at these positions as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[position] for position in positions])


def is_in_one_span(calls: Sequence[Message]) -> bool:
    """Return whether all calls were issued in one span, or all outside of spans."""
    locations = list(map(LOCATION, calls))
    if max(locations) < LINE_LIMIT:
        return True
    spans = {location // LINE_LIMIT for location in locations}
    return len(spans) == 1
