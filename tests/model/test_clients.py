"""Random programs through the client's surface, on a virtual machine with threads, against the serial engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.program import EFFECT, PRINT, effects_of

from .clients import Clients
from .expected import Expected
from .flows import draws
from .ops import failing_ops
from .programs import LAUNCHING, prepared
from .steps import ROUTINE, WAYS, Program, Step, blocks_inside

# Short programs that together cover the tests below; two publish a value that fails and outlives its session.
SEEDS = (7, 145, 157, 180, 195, 240, 247, 261, 268, 293)


@cache
def made(seed: int) -> tuple[Program, Expected]:
    with failing_ops(), np.errstate(all="ignore"):
        return prepared(seed, honest=True)


def program_of(seed: int) -> Program:
    return made(seed)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_give_what_serial_execution_gives(seed: int, make_session: Callable[..., Any]) -> None:
    """Behaviour 1, with real workers; one machine shared by up to three sessions."""
    program, expected = made(seed)
    with failing_ops(), np.errstate(all="ignore"):
        wrong = Clients(program, f"local:model-{seed}", make_session, expected).run(program)
    assert not wrong, f"seed {seed}: {wrong[:3]}"


@pytest.mark.parametrize("seed", range(4))
def test_threads_of_devices_that_launch_give_what_serial_execution_gives(
    seed: int, make_session: Callable[..., Any]
) -> None:
    with failing_ops(), np.errstate(all="ignore"):
        program, expected = prepared(seed, honest=True, devices=LAUNCHING)
        wrong = Clients(program, f"local:launching-{seed}", make_session, expected).run(program)
    assert not wrong, f"seed {seed}: {wrong[:3]}"


def test_the_programs_have_control_flow_of_every_sort_in_every_way() -> None:
    """Issued op by op, captured by a routine, and linked as a program."""
    found: Counter[tuple[str, str]] = Counter()
    for program in map(program_of, SEEDS):
        flows = [step for step in program.steps if step.kind == "FLOW"]
        again = Counter((flow.session, flow.fields[ROUTINE].key) for flow in flows)
        for flow in flows:
            routine = flow.fields[ROUTINE]
            effects = {step.op for step, depth in effects_of(routine.program) if depth}
            steps = list(steps_inside(routine.program))
            mine = {
                "again": again[flow.session, routine.key] > 1,
                "nested": routine.program.depth > 2,
                "writes of blocks": any(step.blocks and step.into for step in routine.program.steps),
                "prints of blocks": PRINT in effects,
                "effects of blocks": EFFECT in effects,
                "draws of blocks": any(map(draws, steps)),
                "failures": any(step.op == "model_boom" for step in steps),
                "captured tensors": bool(routine.captured),
                "numbers": bool(routine.program.number_parameters),
                "cancelled": any(step.kind == "cancel" for step in program.steps),
                **dict.fromkeys((step.op for step in routine.program.steps if step.blocks), True),
            }
            found.update((routine.way, sort) for sort, there in mine.items() if there)
    sorts = {sort for _, sort in found}
    assert len(sorts) == 14
    assert not {(way, sort) for way in WAYS for sort in sorts if not found[way, sort]}


def steps_inside(program: programs.Program) -> Iterator[programs.Step]:
    """The steps of the program, and those of its blocks."""
    for one in (program, *blocks_inside(program)):
        yield from one.steps


def test_the_programs_have_published_routines_of_every_sort() -> None:
    found: Counter[str] = Counter()
    for program in map(program_of, SEEDS):
        offered: dict[str, Step] = {}
        obtained: dict[int, Step] = {}  # by key -> the published routine
        closed: set[int] = set()
        for step in program.steps:
            if step.kind == "OFFER":
                found["published again"] += step.fields[0] in offered
                offered[step.fields[0]] = step
            elif step.kind == "OBTAIN":
                name, routine, snapshot = step.fields
                obtained[routine.key] = offered[name]
                found["snapshots"] += bool(snapshot and routine.captured)
            elif step.kind == "close":
                closed.add(step.session)
            elif step.kind in {"RUN", "FLOW"} and (routine := step.fields[ROUTINE]).key in obtained:
                publisher = obtained[routine.key].session
                found.update(
                    {
                        step.kind: True,
                        routine.way: True,
                        "of another session": publisher != step.session,
                        "of a session that has ended": publisher in closed,
                        "captured tensors": bool(routine.captured),
                        "writes to what is outside": bool(routine.program.written),
                        "failures": any(inner.op.startswith("model_") for inner in steps_inside(routine.program)),
                        "prints": bool(routine.program.effects[-1]),
                    }
                )
    assert len(found) == 13
    assert not {what for what, count in found.items() if not count}
