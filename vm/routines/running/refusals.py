"""Late refusals of data: finds the call of a run whose data were refused after its launch.

A kernel that takes positions as data replaces invalid ones, and the positions are checked after the launch
(`interpreter.ops.positions`). The launcher reports a refusal to the whole task, so each check of a run names its call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....interpreter.ops.positions import LATE_CHECKS, Check


class DataRefusal(Exception):  # noqa: N818 - what a call does with its data
    """The error of one call's data. `call`: the index of the call in the segment."""

    def __init__(self, call: int, error: BaseException) -> None:
        super().__init__(call)
        self.call = call
        self.error = error


def in_call(call: int, check: Check) -> Check:
    """Wrap a check, so that a refusal names the call."""
    least, most, judge = check

    def judge_call(least: Any, most: Any) -> None:
        try:
            judge(least, most)
        except Exception as error:
            raise DataRefusal(call, error) from None

    return least, most, judge_call


def note_checks(checks: Iterable[tuple[int, Check]]) -> None:
    """Add the checks of calls to those of the launch that this thread is making."""
    for call, check in checks:
        if LATE_CHECKS.checks is not None:
            LATE_CHECKS.checks.append(in_call(call, check))
