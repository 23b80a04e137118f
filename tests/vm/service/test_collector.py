"""What the garbage collector of the daemon does in one go."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tensord.vm.service.daemon import COLLECTOR

LOOKED_AT = 250_000  # objects in one go, but for the oldest generation


@pytest.fixture(autouse=True)
def as_in_the_daemon() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*COLLECTOR)
    yield
    gc.set_threshold(*before)


def test_a_collection_of_what_is_young_looks_at_a_bounded_number_of_objects() -> None:
    """All of them live on, as what is compiled of a program does."""
    looked_at: dict[int, list[int]] = {0: [], 1: [], 2: []}
    made: list[list[None]] = []
    last = {0: 0, 1: 0}  # how many there were when that generation was collected

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generation = info["generation"]
            looked_at[generation].append(len(made) - last[min(generation, 1)])
            last.update(dict.fromkeys(range(min(generation, 1) + 1), len(made)))

    gc.callbacks.append(note)
    try:
        made.extend([] for _ in range(1_200_000))
    finally:
        gc.callbacks.remove(note)
    assert looked_at[0]
    assert looked_at[1]
    assert max(looked_at[0] + looked_at[1]) <= LOOKED_AT
    assert not looked_at[2]
