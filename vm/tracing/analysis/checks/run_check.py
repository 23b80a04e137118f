"""Checks what is inside of runs: what a routine was compiled to, and the times of a run's calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ...record import Record
from ..inside.insides import Insides


def wrong_segment(insides: Insides, routine: int, first: int) -> Iterator[str]:
    """What is wrong with the segment of a routine that has this first step."""
    known, segment = insides.routines.get(routine), insides.segments.get((routine, first))
    if known is None or segment is None:
        return
    from .inside_check import check_segment  # loads NumPy and the ops

    program = insides.program(routine)
    if program is None or program.digest != known.ran:
        yield f"the program of {known.title} is not the one that was compiled"
        return
    for problem in check_segment(program, segment):
        yield f"{known.title}: {problem}"


def wrong_times(insides: Insides, record: Record) -> Iterator[str]:
    """What is wrong with the times of a run's calls: each comes after the one before, all while it ran."""
    segment = insides.segment(record)
    if not record.stamps or segment is None:
        return
    if len(record.stamps) != 2 * len(segment.calls):
        yield f"{len(record.stamps)} times of {len(segment.calls)} calls"
        return
    times = (record.started, *record.stamps, *((record.finished,) if record.finished else ()))
    for number, (before, after) in enumerate(pairwise(times)):
        if after < before:
            yield f"the calls inside: time {number} is {before - after} ns before the one before it"
