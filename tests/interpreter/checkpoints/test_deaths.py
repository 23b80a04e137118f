"""A process that is killed at any system call leaves the last generation whole, no lock, and orphans that are found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensord.interpreter.checkpoints.layout import FORMAT_FILE

from .histories import STEPS, Play, check_goes_on, check_whole, small_files

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_files():
        yield


def test_the_last_generation_survives_a_kill_at_every_call(memory):
    command = [sys.executable, "-m", "tests.interpreter.checkpoints.dying", str(memory)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)  # noqa: S603
    model = Play(memory / "model")
    model.play(STEPS)
    numbers = [0, *model.expected]
    died = sorted(memory.glob("[0-9]*"), key=lambda folder: int(folder.name))
    seen = set()
    for folder in died:
        committed = list(map(int, (folder / "committed").read_text().split()))
        count = len(committed)
        assert committed == numbers[1 : count + 1]
        path = folder / "checkpoints"
        if count or (path / FORMAT_FILE).exists():
            # the one that was being committed may be there, if its manifest was
            number = check_whole(path, model.expected, numbers[count : count + 2])
            seen.add(number - numbers[count])
        else:
            number = 0
        check_goes_on(path, model.expected, number)
    assert committed == numbers[1:]
    assert len(died) > 80
    assert seen == {0, 1}, "no process died between a manifest and its flush"
