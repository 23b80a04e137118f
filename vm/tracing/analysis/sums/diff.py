"""Compares two traces, per op and line: what is slower, more frequent, new, or gone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from .....interpreter.opcodes import traits_of
from ...record import Record
from ..recorded.text import kind_of
from .sites import Ops, matching_lines
from .stats import StatsRow, row

Key: TypeAlias = tuple[str, str]  # op and location
_LINE: Final = re.compile(r"(?<=:)\d+$")  # at the end of the name of an automatic routine: "run auto:train.py:31"


@dataclass(frozen=True, slots=True)
class Change:
    """One op at one line in two traces. `before`, `after`: its row in each; empty if the trace does not have it.
    `location`: the line in the second trace; `was`: the line in the first."""

    op: str
    location: str
    was: str
    before: StatsRow
    after: StatsRow

    @property
    def kind(self) -> str:
        """Which traces have the op: "new" (only the second), "gone" (only the first) or "both"."""
        return "new" if not self.before.count else "gone" if not self.after.count else "both"

    @property
    def slower(self) -> float:
        """By how many nanoseconds all calls together took longer because each took longer; 0 if a trace has no such
        calls."""
        before, after = self.before, self.after
        return (after.mean - before.mean) * after.count if before.count and after.count else 0.0

    @property
    def more(self) -> float:
        """How many more nanoseconds were spent because there were more calls.

        `slower` and `more` add up to the difference.
        """
        return self.after.total - self.before.total - self.slower if self.before.count != self.after.count else 0.0

    @property
    def moved(self) -> int:
        """How many more bytes were moved."""
        return self.after.moved - self.before.moved


def diff(before: Sequence[Record], after: Sequence[Record], lines: Mapping[str, str] | None = None) -> list[Change]:
    """The changes from one trace to another, per op and line; the largest slowdown first. `lines`: from a line of the
    first trace to the same line of the second, as `same_lines` returns; by default derived from these records."""
    old, new = (by_op_and_line(records) for records in (before, after))
    lines = same_lines(before, after) if lines is None else lines
    pairs = {key: (key[0], lines[key[1]]) for key in old if key[1] in lines and (key[0], lines[key[1]]) in new}
    both = [Change(op, location, was[1], old[was], new[op, location]) for was, (op, location) in pairs.items()]
    removed = [Change(op, "", was, row, StatsRow(op)) for (op, was), row in old.items() if (op, was) not in pairs]
    met = set(pairs.values())
    added = [
        Change(op, location, "", StatsRow(op), row) for (op, location), row in new.items() if (op, location) not in met
    ]
    return sorted((*both, *removed, *added), key=lambda change: (change.slower, change.more), reverse=True)


def same_lines(before: Iterable[Record], after: Iterable[Record]) -> dict[str, str]:
    """From a line of the first trace to the same line of the second."""
    return dict(matching_lines(ops_of(before), ops_of(after)))


def ops_of(records: Iterable[Record]) -> Ops:
    """The ops of each line, without releases."""
    found: dict[str, set[str]] = defaultdict(set)
    for op, location in map(key_of, filter(is_shown, records)):
        found[location].add(op)
    return {location: frozenset(ops) for location, ops in found.items()}


def is_shown(record: Record) -> bool:
    """Whether the instruction is shown. Releases are not."""
    return traits_of(record.opcode).category != "release"


def key_of(record: Record) -> Key:
    """The op and line under which an instruction is counted."""
    return _LINE.sub("*", kind_of(record)), record.location


def by_op_and_line(records: Iterable[Record]) -> dict[Key, StatsRow]:
    """The sums per op and line, without releases and instructions that never finished, whose time is unknown."""
    groups: dict[Key, list[Record]] = defaultdict(list)
    for record in filter(is_shown, records):
        if record.finished:
            groups[key_of(record)].append(record)
    return {key: row(key[0], some) for key, some in groups.items()}
