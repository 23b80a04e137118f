"""Overlap of copies and kernels, from spans of time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..each_case import each_case
from .overlap import busy, overlap


def record(stream: str, started: int, finished: int) -> Any:
    return SimpleNamespace(stream=f"cuda:0/{stream}0", started=1 + started, finished=1 + finished)


@each_case(
    ("copies", "kernels", "part"),
    [
        ([(0, 10)], [(0, 10)], 1.0),
        ([(0, 10)], [(10, 20)], 0.0),
        ([(0, 10)], [(5, 100)], 0.5),
        ([(0, 10), (5, 20)], [(0, 40)], 1.0),
        ([(0, 10), (20, 30)], [(5, 25)], 0.5),
        ([], [(0, 10)], 0.0),
    ],
)
def test_the_part_of_the_shorter_one_that_ran_under_the_other(copies, kernels, part):
    records = [record("h2d", *span) for span in copies] + [record("compute", *span) for span in kernels]
    assert overlap(records, "h2d", "compute") == part


def test_what_did_not_run_is_not_counted():
    never = SimpleNamespace(stream="cuda:0/h2d0", started=0, finished=0)
    assert busy([never, record("d2h", 1, 2), record("h2d", 3, 4)], "h2d") == [(4, 5)]  # type: ignore[list-item]
