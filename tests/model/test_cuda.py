"""Random programs on CUDA devices over the fake runtime: each order of launches, work and completions from a seed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tensord.streams.launching import launcher
from tensord.streams.launching.launch_stream import Burst, LaunchStream
from tensord.streams.stream import StreamKind
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.admission.inline_launches import InlineLaunches
from tensord.vm.scheduler.fences import Fences

from ..compiled import replaces_parts
from ..streams.fake_cuda.gpu import Stream
from .programs import GPUS
from .run import REPLAY, failures

PROGRAMS = 5  # `make model-long GPUS=1` runs any number
FIRST = (2, 39, 10, 13)  # short programs that show all of the mutants together


def test_random_programs_on_gpus_give_what_serial_execution_gives() -> None:
    wrong = failures(range(PROGRAMS), GPUS)
    text = "\n".join(
        f"{REPLAY.format(seed=seed, piece=HANDLES_PER_STEP)} --gpus\n    {problems[0]}" for seed, problems in wrong
    )
    assert not wrong, f"{len(wrong)} programs went wrong; to run them again:\n{text}"


def no_wait(_stream: Any, _event: Any) -> None:
    """A stream does not wait for another one's event."""


def no_await(_stream: Any, _burst: Any) -> None:
    """Each launch counts as done at once."""


def never_deferred(stream: Any, task: Any) -> bool:
    """A copy from the host's memory does not wait until the host has the bytes."""
    return stream.kind is not StreamKind.H2D and is_deferred(stream, task)


def keeps_nothing(burst: Any, **given: Any) -> None:
    """The memory that a launch needs is free at once."""
    init_burst(burst, **given)
    burst.keep = deque(maxlen=0)


def orders_nothing(*_what: Any) -> None:
    """No instruction waits for launches made at admission."""


def reached_at_once(self: Any, *given: Any) -> None:
    """A launch counts as complete when it is launched."""
    number_launch(self, *given)
    result = given[-1]
    result.written = result.touched = 0


init_burst, is_deferred, number_launch = Burst.__init__, launcher.is_deferred, InlineLaunches.launched


# Functions that are not replaced where they are compiled.
LAUNCHES = [
    pytest.param(*mutant, marks=replaces_parts)
    for mutant in [
        (Fences, "order", orders_nothing),
        (Fences, "order_barrier", orders_nothing),
        (InlineLaunches, "launched", reached_at_once),
    ]
]


@pytest.mark.parametrize(
    ("where", "what", "mutant"),
    [
        (Stream, "wait_event", no_wait),
        (LaunchStream, "_await", no_await),
        (launcher, "is_deferred", never_deferred),
        (Burst, "__init__", keeps_nothing),
        *LAUNCHES,
    ],
)
def test_the_fake_shows_what_a_gpu_would_do_to_broken_code(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, mutant: Any
) -> None:
    """Without a wait, or with memory that is free too early, some orders give wrong values."""
    monkeypatch.setattr(where, what, mutant)
    assert any(failures([seed], GPUS) for seed in (*FIRST, *range(40)))
