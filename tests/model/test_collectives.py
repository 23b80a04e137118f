"""Random programs with collectives, in random interleavings: rings and direct ones, over overlapping sets of devices.

Each value is the serial engine's, bit for bit; nothing gets stuck; a failure anywhere is an error of all results.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.admission.collective_group import CollectiveGroup

from ..compiled import replaces_parts
from .programs import FOUR, GPUS, LAUNCHING, Devices
from .run import REPLAY, failures, make, small_chunks
from .steps import Program, Step

PROGRAMS: dict[str, tuple[Devices, tuple[int, ...], bool]] = {  # `make model-long COLLECTIVES=1` runs as many as wanted
    "four": (FOUR, (0, 1, 3, 4, 7, 126), False),
    "crowded": (FOUR, (1, 10, 14, 17), True),
    "launching": (LAUNCHING, (0, 1, 4), False),
    "gpus": (GPUS, (0, 1), False),
}
FIRST = (1, 3, 6)  # programs that show a step which waits too little


def wrong_in(seeds: tuple[int, ...], devices: Devices, *, crowded: bool, seen: Counter[str]) -> list[str]:
    found = []
    for seed in seeds:
        with small_chunks(seed):
            for _, problems in failures((seed,), devices, seen=seen, crowded=crowded, collects=True):
                again = REPLAY.format(seed=seed, piece=HANDLES_PER_STEP)
                found.append(f"{again} --collectives{' --crowded' * crowded}\n    {problems[0]}")
    return found


@pytest.mark.parametrize("which", PROGRAMS)
def test_random_collectives_give_what_serial_execution_gives(which: str) -> None:
    devices, seeds, crowded = PROGRAMS[which]
    assert not wrong_in(seeds, devices, crowded=crowded, seen=Counter())


def collectives_of(program: Program) -> list[Step]:
    return [one for step in program.steps for one in (step, *step.inner) if one.kind == "COLLECTIVE"]


def test_the_programs_have_collectives_of_every_sort() -> None:
    """Sorts that no program has would remain untested."""
    found: Counter[str] = Counter()
    for seed in range(60):
        with small_chunks(seed):
            program = make(seed, FOUR, collects=True)[0]
        world, steps = program.world, collectives_of(program)
        for kind, _, outputs, _, given in (step.fields for step in steps):
            found.update((kind, given["merge"], given["reduction"], f"{len(outputs)} ranks"))
        sessions = {step.session for step in steps}
        found.update(
            {
                "of several sessions": len(sessions) > 1,
                "in groups": any(step.kind == "ATOMIC" and collectives_of_group(step) for step in program.steps),
                "with peer access": bool(steps) and world.peer,
                "without peer access": bool(steps) and not world.peer,
                "with faults": bool(steps) and bool(world.faults),
                "in little memory": bool(steps) and world.tight > 0,
                "cancelled": bool(steps) and any(step.kind == "cancel" for step in program.steps),
            }
        )
    assert len(found) == 5 + 2 + 3 + 4 + 7
    assert not {what for what, count in found.items() if not count}


def collectives_of_group(group: Step) -> list[Step]:
    return [inner for inner in group.fields if inner.kind == "COLLECTIVE"]


def forget_tokens(self: Any, *_position: Any) -> list[Any]:  # noqa: ARG001
    """A step waits for no chunk."""
    return []


@replaces_parts
def test_a_step_that_waits_for_no_chunk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CollectiveGroup, "tokens_read", forget_tokens)
    assert wrong_in(FIRST, FOUR, crowded=False, seen=Counter())
