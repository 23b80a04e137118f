"""A second of the random load; `make soak` runs an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from .load import Footprint, slope, soak


def test_the_load_is_right_and_leaves_nothing(tmp_path: Path) -> None:
    """Values on every tier are right, and the memory of ended sessions is free."""
    steps, found = list(soak(1.0, tmp_path, seed=1))[-1]
    assert steps
    assert found.descriptors < 64


def test_growth_is_per_hour_and_without_the_beginning() -> None:
    start = [Footprint(float(second), 10 * second, 0, 0) for second in range(4)]
    later = [Footprint(float(second), 100 + 2 * second, 0, 0) for second in range(4, 12)]
    assert slope(start + later) == pytest.approx(7200.0)


def test_memory_that_was_given_back_for_a_while_is_no_growth() -> None:
    taken = [Footprint(float(second), 50 if 4 <= second < 7 else 100, 0, 0) for second in range(12)]
    assert slope(taken) == 0.0
