"""Applies all rules to a trace, and sorts their findings by cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ..recorded.records import Records
from .compiling import kernels_compiled
from .evictions import repeated_evictions
from .finding import Evidence, Finding, Rule
from .moves import repeated_moves, round_trips, through_the_host
from .reads import waits_amid_work
from .sharing import sessions_that_delay
from .small_ops import repeated_small_ops
from .uploads import uploads_in_loops

RULES: Final[tuple[Rule, ...]] = (
    round_trips,
    through_the_host,
    repeated_moves,
    uploads_in_loops,
    repeated_small_ops,
    waits_amid_work,
    repeated_evictions,
    sessions_that_delay,
    kernels_compiled,
)
MINOR: Final = 200  # a finding that costs less than 1 / MINOR of the time is only counted


@dataclass(frozen=True, slots=True)
class Advice:
    """The findings, the costliest first.

    `minor`: how many more there are, which cost too little. `length`: of the trace, in nanoseconds.
    """

    findings: tuple[Finding, ...]
    minor: int
    length: int


def advise(trace: Records, chosen: Collection[int] | None = None) -> Advice:
    """The advice on a trace. With `chosen`, only findings that involve one of these instructions."""
    evidence = Evidence(trace)
    findings = [one for rule in RULES for one in rule(evidence) if one.cost > 0]
    if chosen is not None:
        wanted = set(chosen)
        findings = [one for one in findings if not wanted.isdisjoint(one.instructions)]
    worth = [one for one in findings if one.cost * MINOR >= evidence.length]
    ordered = sorted(worth, key=lambda one: (-one.cost, one.rule, one.instructions))
    return Advice(tuple(ordered), len(findings) - len(worth), evidence.length)
