"""Data that a call of a run refuses after its launch: whose call it was.

A kernel that positions are data for goes on with others, and what it was given is judged behind its launch
(`interpreter.ops.positions`). The launcher tells the whole task of a refusal; a run has to know the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....interpreter.ops.positions import LATE, Check


class DataRefusal(Exception):  # noqa: N818 - what a call does with its data
    """What is wrong with the data of one call, by its place."""

    def __init__(self, place: int, error: BaseException) -> None:
        super().__init__(place)
        self.place = place
        self.error = error


def in_call(place: int, check: Check) -> Check:
    """A check that says whose data it has refused."""
    least, most, judge = check

    def judge_call(least: Any, most: Any) -> None:
        try:
            judge(least, most)
        except Exception as error:
            raise DataRefusal(place, error) from None

    return least, most, judge_call


def note_checks(checks: Iterable[tuple[int, Check]]) -> None:
    """Have the checks of calls looked at behind the launch that this thread is in the middle of."""
    for place, check in checks:
        if LATE.checks is not None:
            LATE.checks.append(in_call(place, check))
