"""The stages of the proof, in order: the program of each, and its share of the time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_OF_A_PART = 4 << 30  # bytes of the host that each process of a stage may take
PARTS = 16  # processes of a stage at most
OF_AN_OP, OF_A_TEST = 30.0, 50.0  # seconds, the latter longer than pytest's own limit


@dataclass(frozen=True)
class Stage:
    """One stage. `group`: stages of one group share a log. `module` is run with `arguments`, and gets the device, the
    file for its records, and the time until which it may run. `share`: of the whole time, in relation to others.
    `least`: seconds of the usual budget without which it shows nothing, reserved for it in any case. `real`: it needs a
    CUDA device; others take any. `needs`: modules without which it cannot run. `split`: it may be several processes,
    each with a part of the work, most of which is compiling kernels. `fills`: it goes on until its share of the time is
    over, where others end as soon as they can. `each`: seconds that one of its checks may take, 0 without a limit: a
    process with a longer check is ended, and another one goes on behind it. `resumes`: it can leave out checks that an
    earlier run has made. `aside`: it is one process that leaves room on the machine, and runs at the same time as the
    stages behind it.
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
    fills: bool = False
    each: float = 0.0
    resumes: bool = False
    least: float = 0.0
    aside: bool = False

    def commands(self, device: str, records: Sequence[Path], until: float, done: Path | None = None) -> list[list[str]]:
        """A command for each of its parts. `done`: the file with the checks that were made before."""
        parts = len(records)
        given = ["--device", device, "--until", f"{until:.1f}"]
        given += ["--done", str(done)] if done else []
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
    """The options that give a process its part of the work."""
    return ["--part", f"{index}/{parts}"] if parts > 1 else []


# The most telling ones first: a proof that is cut off keeps its findings.
STAGES = (
    Stage("device", "1-device", "streams, events, overlap, staging, pools, full memory", "tests.gpu.stage_device", 35),
    Stage("daemon", "1-device", "two processes, a kernel that faults", "tests.gpu.stage_daemon", 30),
    Stage(
        "hostile",
        "1-device",
        "nothing that is sent loses the device",
        "tests.gpu.stage_hostile",
        60,
        split=True,
        resumes=True,
    ),
    Stage("bench", "2-bench", "how fast, against the array module alone", "tests.gpu.stage_bench", 55),
    Stage(
        "programs",
        "3-behaviours",
        "random programs against the serial engine",
        "tests.gpu.stage_programs",
        25,
        split=True,
        fills=True,
    ),
    Stage(
        "beside",
        "3-behaviours",
        "tests for an accelerator, with cpu:0 and the device",
        "tests.gpu.stage_tests",
        45,
        ("beside",),
        split=True,
        each=OF_A_TEST,
        resumes=True,
    ),
    Stage(
        "ops",
        "4-ops",
        "every op against NumPy on the CPU",
        "tests.gpu.stage_ops",
        150,
        split=True,
        each=OF_AN_OP,
        resumes=True,
    ),
    Stage(
        "graphs",
        "4-ops",
        "CUDA graphs against lists of launches",
        "tests.gpu.stage_graphs",
        25,
        real=True,
        least=25,
    ),
    Stage(
        "shared",
        "1-device",
        "device memory in other processes, and other libraries",
        "tests.gpu.stage_shared",
        20,
        real=True,
        least=25,
    ),
    Stage(
        "collectives",
        "1-device",
        "collectives over NCCL, where there are several GPUs",
        "tests.gpu.stage_collectives",
        10,
        real=True,
        least=5,
    ),
    Stage(
        "fused",
        "4-ops",
        "generated kernels against CuPy's",
        "tests.gpu.stage_fused",
        60,
        real=True,
        least=25,
    ),
    Stage(
        "temporaries",
        "4-ops",
        "what kernels take for temporaries",
        "tests.gpu.stage_temporaries",
        20,
        real=True,
        split=True,
        each=OF_AN_OP,
        resumes=True,
        least=25,
    ),
    Stage(
        "examples",
        "5-programs",
        "digits, a transformer block",
        "tests.gpu.stage_examples",
        25,
        needs=("sklearn",),
        aside=True,
    ),
    Stage(
        "scikit-learn",
        "5-programs",
        "PCA and Ridge on tensors",
        "tests.gpu.stage_tests",
        25,
        ("scikit-learn",),
        resumes=True,
        needs=("sklearn",),
        aside=True,
    ),
    Stage(
        "sanitizer",
        "1-device",
        "a small program under compute-sanitizer",
        "tests.gpu.stage_sanitizer",
        25,
        real=True,
        aside=True,
    ),
    Stage(
        "alone",
        "3-behaviours",
        "tests for any device, with nothing but the device",
        "tests.gpu.stage_tests",
        40,
        ("alone",),
        split=True,
        each=OF_A_TEST,
        resumes=True,
        least=30,
    ),
    Stage(
        "conformance",
        "5-programs",
        "the array API standard",
        "tests.gpu.stage_tests",
        60,
        ("conformance",),
        split=True,
        each=OF_A_TEST,
        resumes=True,
        needs=("array_api_strict",),
        least=35,
    ),
)
NAMES = tuple(stage.name for stage in STAGES)


def stages_for(device: str, only: Sequence[str] = ()) -> tuple[Stage, ...]:
    """The stages that show something on that device, or of these the ones of those names."""
    cuda = device.startswith("cuda")
    return tuple(stage for stage in STAGES if (cuda or not stage.real) and (not only or stage.name in only))


def limit_of(stage: Stage, later: Sequence[Stage], remaining: float) -> float:
    """Seconds that a stage may take, if so much time is left for it and for later stages."""
    return remaining * stage.share / (stage.share + sum(one.share for one in later))
