"""Random programs over two machines that send each other values: they get the serial machine's values, and no
instruction waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest

from tensord.vm.admission.node_transfers import Half

from ..compiled import replaces_parts
from .nodes import MODES, Run, check

SEEDS = range(8)
BREAKS = (58,)  # of "full": each node waits for memory that the other one would free


@pytest.mark.parametrize("mode", MODES)
def test_values_of_two_machines_are_those_of_one_serial_machine(mode: str) -> None:
    assert not [problem for seed in SEEDS for problem in check(seed, mode)]


def test_waits_for_memory_in_a_circle_over_both_machines_end() -> None:
    seen: Counter[str] = Counter()
    assert not [problem for seed in BREAKS for problem in check(seed, "full", seen)]
    assert seen["broken"]


def test_such_a_circle_would_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "end_waits", lambda _self: False)
    assert all("wait, and no action is left" in str(check(seed, "full")) for seed in BREAKS)


@replaces_parts
def test_a_half_that_is_withdrawn_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Half, "withdraw", lambda _self, _error: None)
    assert [problem for seed in SEEDS for problem in check(seed, "cancels")]


def test_the_programs_have_values_errors_and_transfers() -> None:
    seen: Counter[str] = Counter()
    for mode in MODES:
        for seed in range(5):
            check(seed, mode, seen)
    assert all(seen[what] for what in ("values", "failed", "moves", "lost", "cancelled"))
