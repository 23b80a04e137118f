"""Random programs against the serial engine, any number of them.

    python -m tests.model.run --seed 0 --programs 100000

runs the programs of so many seeds, beginning with `--seed`, and prints those that fail, each with the command that
runs it again. With `--shrink`, steps are removed from a failing program for as long as it still fails. With
`--gpus` the programs run on CUDA devices, over the fake of CUDA's runtime; with `--launching` on sim devices that
launch; with `--crowded`, in so little memory that values have to be evicted; with `--collectives`, on four sim devices
that compute together, or on the devices of the other option. The programs of seeds from 1048576 on make host calls,
too.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tensord.interpreter.collectives import choice, ring
from tensord.streams import merging
from tensord.vm.admission.cancellation import HANDLES_PER_STEP

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .check import check
from .expected import Expected
from .ops import failing_ops
from .programs import CROWDED, FOUR, GPUS, LAUNCHING, SIMS, Devices, prepared
from .steps import Program

REPLAY = "python -m tests.model.run --seed {seed} --programs 1 --piece {piece} --shrink"
SHOWN = 5  # problems of one program
KINDS = {SIMS: "", GPUS: " --gpus", LAUNCHING: " --launching", FOUR: " --collectives"}


@contextmanager
def small_chunks(seed: int) -> Iterator[None]:
    """Send the small values of programs around rings, for two seeds of three, and merge them in pieces."""
    chunk, slices = (0, 8, choice.MIN_CHUNK_BYTES)[seed % 3], (8, ring.SLICED_CHUNK_BYTES)[seed % 2]
    with (
        patch.object(choice, "MIN_CHUNK_BYTES", chunk),
        patch.object(ring, "SLICED_CHUNK_BYTES", slices),
        patch.object(merging, "MERGE_PIECE_BYTES", 16),
    ):
        yield


def problems_of(
    program: Program, piece: int = HANDLES_PER_STEP, expected: Expected | None = None, seen: Counter[str] | None = None
) -> list[str]:
    """The problems of a run of the program, including an exception that it raises."""
    try:
        if program.world.devices != GPUS:
            return check(program, piece=piece, expected=expected, seen=seen)
        with installed(Gpu(program.seed, peers=program.world.peer)):
            return check(program, piece=piece, expected=expected, seen=seen)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return [f"raised {type(error).__name__}: {error} at {last.filename}:{last.lineno}"]


def make(
    seed: int, devices: Devices = SIMS, *, crowded: bool = False, collects: bool = False
) -> tuple[Program, Expected]:
    """The program of a seed, and its expected results."""
    with failing_ops(), np.errstate(all="ignore"):
        return prepared(seed, devices=devices, crowded=crowded, collects=collects)


def failures(
    seeds: Iterable[int],
    devices: Devices = SIMS,
    piece: int = HANDLES_PER_STEP,
    seen: Counter[str] | None = None,
    *,
    crowded: bool = False,
    collects: bool = False,
) -> list[tuple[int, list[str]]]:
    """The seeds whose programs fail, with their problems. `seen`: as for `check`."""
    found = []
    for number in seeds:
        program, expected = make(number, devices, crowded=crowded, collects=collects)
        found.append((number, problems_of(program, piece, expected, seen)))
    return [(number, problems) for number, problems in found if problems]


def kind_of(problems: list[str]) -> str:
    """The text of the first problem without its numbers."""
    return re.sub(r"[^A-Za-z]+", " ", problems[0])[:60] if problems else ""


def shrink(program: Program, piece: int) -> Program:
    """Remove steps, many at a time and then one by one, as long as the program still fails in the same way."""
    kind = kind_of(problems_of(program, piece))
    size = len(program.steps) // 2
    while size:
        start = 0
        while start < len(program.steps):
            fewer = program.steps[:start] + program.steps[start + size :]
            smaller = replace(program, steps=fewer)
            if kind_of(problems_of(smaller, piece)) == kind:
                program = smaller
            else:
                start += size
        size //= 2
    return program


def show(console: Console, program: Program, problems: list[str], piece: int) -> None:
    """Print a failing program."""
    console.print(f"[bold red]seed {program.seed}[/]: {len(program.steps)} steps in {program.world}", highlight=False)
    for problem in problems[:SHOWN]:
        console.print(f"  {problem}", markup=False, highlight=False)
    world = program.world
    gpus = KINDS[world.devices] + " --crowded" * (world.tight == CROWDED)
    console.print(f"  again: {REPLAY.format(seed=program.seed, piece=piece)}{gpus}", markup=False, highlight=False)


def shrink_and_show(console: Console, program: Program, piece: int) -> None:
    """Print the shortest failing program that removing steps has found."""
    smaller = shrink(program, piece)
    console.print(f"shrunk to {len(smaller.steps)} steps:")
    for step in smaller.steps:
        console.print(f"  {step}", markup=False, highlight=False)
    for problem in problems_of(smaller, piece)[:SHOWN]:
        console.print(f"  {problem}", markup=False, highlight=False)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="random programs against the serial engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument(
        "--piece", type=int, default=HANDLES_PER_STEP, help="handles of ended sessions that are released at once"
    )
    parser.add_argument("--shrink", action="store_true", help="shorten the programs that fail")
    parser.add_argument("--gpus", action="store_true", help="on CUDA devices over a fake of CUDA's runtime")
    parser.add_argument("--launching", action="store_true", help="on sim devices that launch")
    parser.add_argument("--crowded", action="store_true", help="where values are evicted, in a fifth of the memory")
    parser.add_argument("--collectives", action="store_true", help="with collectives, some of them around rings")
    given = parser.parse_args()
    others = FOUR if given.collectives else SIMS
    devices = GPUS if given.gpus else LAUNCHING if given.launching else others
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed = 0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("programs", total=given.programs)
        for seed in range(given.seed, given.seed + given.programs):
            with small_chunks(seed) if given.collectives else nullcontext():
                program, expected = make(seed, devices, crowded=given.crowded, collects=given.collectives)
                if problems := problems_of(program, given.piece, expected):
                    failed += 1
                    show(console, program, problems, given.piece)
                    if given.shrink:
                        shrink_and_show(console, program, given.piece)
            progress.update(task, advance=1, description=f"programs ({failed} failed)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
