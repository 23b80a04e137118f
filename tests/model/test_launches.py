"""Random programs on sim devices that launch: each order of launches, work and completions from a seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tensord.streams.launching.launch_stream import LaunchStream
from tensord.streams.sim.launching_sim import LaunchingSimDevice
from tensord.streams.sim.sim_queue import SimQueue
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.admission.inline_launches import InlineLaunches
from tensord.vm.scheduler.fences import Fences

from ..compiled import replaces_parts
from .programs import LAUNCHING
from .run import REPLAY, failures

PROGRAMS = 4  # `make model-long LAUNCHING=1` runs any number
CROWDED = 5
FIRST = (7, 20)  # short programs that show all of the mutants together


@pytest.mark.parametrize(("programs", "crowded"), [(PROGRAMS, False), (CROWDED, True)], ids=["roomy", "crowded"])
def test_random_programs_give_what_serial_execution_gives(programs: int, crowded: bool) -> None:
    seen: Counter[str] = Counter()
    wrong = failures(range(programs), LAUNCHING, seen=seen, crowded=crowded)
    text = "\n".join(
        f"{REPLAY.format(seed=seed, piece=HANDLES_PER_STEP)} --launching{' --crowded' * crowded}\n    {problems[0]}"
        for seed, problems in wrong
    )
    assert not wrong, f"{len(wrong)} programs went wrong; to run them again:\n{text}"
    assert seen["launched"]


def nothing(*_what: Any) -> None:
    """No stream waits."""


def complete_at_once(self: Any, *given: Any) -> None:
    """A launch counts as complete when it is launched."""
    number(self, *given)
    result = given[-1]
    result.written = result.touched = 0


def forget_number(self: Any, buffer: Any) -> None:
    """The reuse of freed memory does not depend on its users."""
    free(self, buffer)
    buffer.behind = 0


number, free = InlineLaunches.launched, LaunchingSimDevice.free

MUTANTS = [
    (Fences, "order", nothing),
    (Fences, "order_barrier", nothing),
    (Fences, "order_memory", nothing),
    (InlineLaunches, "launched", complete_at_once),
    (LaunchingSimDevice, "free", forget_number),
    (SimQueue, "wait_event", nothing),
    (LaunchStream, "wait_for", nothing),
    (LaunchStream, "_await", nothing),
]


@replaces_parts
@pytest.mark.parametrize(("where", "what", "mutant"), MUTANTS, ids=[f"{m[0].__name__}.{m[1]}" for m in MUTANTS])
def test_what_lacks_a_fence_or_a_number_goes_wrong(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, mutant: Any
) -> None:
    monkeypatch.setattr(where, what, mutant)
    assert any(failures([seed], LAUNCHING) for seed in (*FIRST, *range(100)))
