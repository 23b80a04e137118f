"""An exception from outside arrives wherever it strikes a program, and the session and its machine go on.

A sample of checkpoints of each program; `python -m tests.interrupts.run` strikes at all of them.
"""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

import tensord as td
from tests.daemon import Daemon

from .check import STRIKES, Program, checkpoints, handlers_that_raise, strike
from .programs import PROGRAMS, World

DEVICES = ("cpu:0", "sim:0", "sim:1")

CHECKPOINTS = 6  # of each program in each kind of session


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_machine_in_this_process_goes_on(program: Program, tmp_path: Path) -> None:
    with td.connect("local:struck", devices=DEVICES) as session:
        strike_at_some_places(program, World(session, tmp_path), seed=11)
        assert not session.trace().verify()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_serial_machine_goes_on(program: Program, tmp_path: Path) -> None:
    with td.connect("local:struck", devices=DEVICES, engine="serial") as session:
        strike_at_some_places(program, World(session, tmp_path), seed=12)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_session_on_a_daemon_goes_on(program: Program, tmp_path: Path, daemon: Daemon) -> None:
    with td.connect(daemon.address) as session:
        strike_at_some_places(program, World(session, tmp_path), seed=13)


def strike_at_some_places(program: Program, world: World, *, seed: int) -> None:
    """Strike at some checkpoints, each in another way."""
    gc.collect()
    with handlers_that_raise():
        program(world)  # imports and captures that happen once
        found = [checkpoint for checkpoint in checkpoints(program, world) if not checkpoint.before]
        rng = random.Random(seed)
        chosen = rng.sample(found, min(CHECKPOINTS, len(found)))
        # For a program that, with other timing, does not reach most of the chosen ones.
        others = rng.sample(found, min(CHECKPOINTS, len(found)))
        struck = 0
        for number, checkpoint in enumerate((*chosen, *others)):
            if number >= len(chosen) and struck > len(chosen) / 2:
                break
            how = list(STRIKES)[number % len(STRIKES)]
            what = strike(program, world, checkpoint, how)
            assert what in ("", "passed by"), f"{how} at {checkpoint}: {what}"
            struck += not what
        assert struck > len(chosen) / 2, f"passed by all but {struck} checkpoints"
