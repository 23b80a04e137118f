"""The stages of the proof, in order: what each one runs, and its share of the time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_OF_A_PART = 4 << 30  # bytes of the host that each process of a stage may take
PARTS = 12  # processes of a stage at most


@dataclass(frozen=True)
class Stage:
    """One stage. `group`: stages of one group share a log. `module` is run with `arguments`, and is told the device,
    the file for its records, and until when it may run. `share`: of the whole time, in relation to others.
    `real`: it needs a CUDA device; others take any. `needs`: modules without which it cannot run. `split`: it may be
    several processes, each with a part of the work: what takes longest there is compiling kernels.
    """

    name: str
    group: str
    title: str
    module: str
    share: float
    arguments: tuple[str, ...] = ()
    real: bool = False
    needs: tuple[str, ...] = ()
    split: bool = False

    def commands(self, device: str, records: Sequence[Path], until: float) -> list[list[str]]:
        """A command for each of its parts."""
        parts = len(records)
        given = ["--device", device, "--until", f"{until:.1f}"]
        return [
            [
                sys.executable,
                "-m",
                self.module,
                *self.arguments,
                *given,
                "--record",
                str(record),
                *part_of(index, parts),
            ]
            for index, record in enumerate(records)
        ]


def part_of(index: int, parts: int) -> list[str]:
    """What tells a process its part of the work."""
    return ["--part", f"{index}/{parts}"] if parts > 1 else []


STAGES = (
    Stage("ops", "1-ops", "every op against NumPy on the CPU", "tests.gpu.stage_ops", 110, split=True),
    Stage(
        "alone",
        "2-behaviours",
        "tests for any device, with nothing but the device",
        "tests.gpu.stage_tests",
        60,
        ("alone",),
        split=True,
    ),
    Stage(
        "beside",
        "2-behaviours",
        "tests for an accelerator, with cpu:0 and the device",
        "tests.gpu.stage_tests",
        60,
        ("beside",),
        split=True,
    ),
    Stage("programs", "2-behaviours", "random programs against the serial engine", "tests.gpu.stage_programs", 30),
    Stage(
        "device",
        "3-device",
        "streams, events, overlap, staging, pools, full memory",
        "tests.gpu.stage_device",
        35,
    ),
    Stage("daemon", "3-device", "two processes, a kernel that faults", "tests.gpu.stage_daemon", 35),
    Stage("examples", "4-programs", "digits, a transformer block", "tests.gpu.stage_examples", 20, needs=("sklearn",)),
    Stage(
        "scikit-learn",
        "4-programs",
        "PCA and Ridge on tensors",
        "tests.gpu.stage_tests",
        25,
        ("scikit-learn",),
        needs=("sklearn",),
    ),
    Stage(
        "conformance",
        "4-programs",
        "the array API standard",
        "tests.gpu.stage_tests",
        50,
        ("conformance",),
        split=True,
        needs=("array_api_strict",),
    ),
    Stage("bench", "5-bench", "how fast, against the array module alone", "tests.gpu.stage_bench", 40),
    Stage(
        "sanitizer", "5-bench", "a small program under compute-sanitizer", "tests.gpu.stage_sanitizer", 25, real=True
    ),
)
NAMES = tuple(stage.name for stage in STAGES)


def limit_of(stage: Stage, later: Sequence[Stage], remaining: float) -> float:
    """Seconds that a stage may take, if so much time is left for it and those that come later."""
    return remaining * stage.share / (stage.share + sum(one.share for one in later))
