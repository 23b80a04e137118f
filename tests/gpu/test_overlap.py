"""Overlap of copies and kernels, from times."""

from __future__ import annotations

import pytest

from ..each_case import each_case
from .overlap import Times, seconds_of


@each_case(
    ("copies", "kernels", "both", "part"),
    [
        (10, 10, 10, 1.0),
        (10, 10, 20, 0.0),
        (10, 100, 105, 0.5),
        (100, 10, 105, 0.5),
        (10, 20, 19, 1.0),
        (10, 20, 31, 0.0),
    ],
)
def test_the_part_of_the_shorter_one_that_ran_under_the_other(copies, kernels, both, part):
    assert Times([copies], [kernels], [both]).overlap == part


def test_the_best_of_several_runs_counts():
    assert Times([20, 10], [10, 30], [90, 10]).overlap == 1.0


def test_what_is_made_lives_until_the_end_and_the_time_does_not_include_its_release():
    ticks = iter([1.0, 3.5])
    said: list[str] = []

    class Made:
        def __del__(self) -> None:
            said.append("released")

    assert seconds_of(lambda: next(ticks), Made, lambda: said.append("end")) == pytest.approx(2.5)
    assert said == ["end", "released"]
