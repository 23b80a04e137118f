"""Strikes each program at every checkpoint: `python -m tests.interrupts.run --help`."""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import tensord as td
from tests.daemon import Daemon

from .check import STRIKES, checkpoints, handlers_that_raise, strike
from .programs import PROGRAMS, World

SESSIONS = ("vm", "serial", "daemon")


def open_world(kind: str, folder: Path, stack: ExitStack) -> World:
    """A session of that kind, and its world."""
    if kind == "daemon":
        daemon = stack.enter_context(Daemon.start(folder, "--device", "cpu:0", "--device", "sim:0"))
        session = td.connect(daemon.address)
    else:
        session = td.connect(
            "local:struck", devices=["cpu:0", "sim:0", "sim:1"], engine="serial" if kind == "serial" else "vm"
        )
    stack.callback(session.close)
    return World(session, folder)


def say(what: str) -> None:
    """Print a line."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main() -> int:
    """Strike, and print the faults; 1 if there are any."""
    parser = argparse.ArgumentParser(description="Strike small programs wherever Python may raise.")
    parser.add_argument("--session", choices=SESSIONS, action="append")
    parser.add_argument("--program", choices=list(PROGRAMS), action="append")
    parser.add_argument("--strike", choices=list(STRIKES), action="append")
    parser.add_argument("--each", action="store_true", help="every passage of a checkpoint, not its first one alone")
    parser.add_argument("--sample", type=int, default=0, help="so many checkpoints of each program, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bad = 0
    for kind in options.session or SESSIONS:
        for name in options.program or PROGRAMS:
            bad += check_program(kind, name, options)
    return 1 if bad else 0


def check_program(kind: str, name: str, options: argparse.Namespace) -> int:
    """Strike one program in one kind of session."""
    program, tally, wrong = PROGRAMS[name], Counter[str](), 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, handlers_that_raise():
        world = open_world(kind, Path(folder), stack)
        program(world)  # imports and captures that happen once
        gc.collect()
        gc.freeze()
        found = [checkpoint for checkpoint in checkpoints(program, world) if options.each or not checkpoint.before]
        if options.sample and options.sample < len(found):
            found = random.Random(options.seed).sample(found, options.sample)
        for checkpoint in found:
            for how in options.strike or STRIKES:
                what = strike(program, world, checkpoint, how)
                tally[(what and what.split(":")[0][:60]) or "fine"] += 1
                if what and what != "passed by":
                    wrong += 1
                    say(f"{kind} {name} {how} at {checkpoint}: {what}")
                    try:
                        world.session.close()
                    except BaseException as error:
                        say(f"   close: {type(error).__name__}: {error}")
                    world = open_world(kind, Path(folder), stack)
                    program(world)
    say(f"{kind} {name}: {len(found)} checkpoints, {dict(tally)}, {time.monotonic() - began:.1f} s")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
