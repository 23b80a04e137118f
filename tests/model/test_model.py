"""The engine against the serial engine, on random programs in random interleavings.

Behaviours 1, 4, 5, 8, 13 to 17, 28, 32, 35, 39 to 45, as far as values, errors, edges and memory show them. After each
program every value read is the serial engine's, bit for bit, or carries one of the possible errors; the trace has no
missing and no superfluous edge; and the engine holds no instruction, value or memory. After every pass the report of
the holders of memory sums up to the pools, and the end of each session frees the bytes that the report has predicted.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from tensord.interpreter.programs.passes.table import apply
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.reporting.memory.extents import CHECKPOINT, LEFT_OPEN, MAPPED, RUNS, SORTS, TEMPORARIES

from .check import check
from .host_calls import WAYS
from .ops import failing_ops, hungry_ops
from .programs import CALLING, random_program
from .run import REPLAY, failures, make, problems_of
from .steps import (
    FLOW_INPUTS,
    INNER,
    INPUTS,
    NUMBERS,
    RELEASED,
    RENAMED,
    ROUTINE,
    Program,
    Routine,
    Step,
    World,
    blocks_inside,
    lines_of,
)

# Short programs, a tenth of a second each; `make model-long` runs any number of them.
PROGRAMS = (1, 2, 3, 4, 5, 6, 7, 8, 26)
OTHERS = (12, 13, 14, 15, 17, 19, 20, 21, 22, 23)
CROWDED = (1, 2, 4, 6, 7, 8, 9, 12, 14, 15, 20, 22)  # values are evicted in these
CALLS = tuple(CALLING + n for n in (1, 2, 11, 20, 22, 26))
HUNGRY = (5, 6, 7, 10, 12, 13)  # in little memory


def test_random_programs_give_what_serial_execution_gives() -> None:
    """Behaviour 1: random programs over a cpu and two sim devices, completions in any order.

    In half of the runs an ended session releases one handle per pass, as a large one would."""
    seen: Counter[str] = Counter()
    wrong = [
        f"{REPLAY.format(seed=seed, piece=piece)}\n    {problems[0]}"
        for seeds, piece in ((PROGRAMS, HANDLES_PER_STEP), (OTHERS, 1))
        for seed, problems in failures(seeds, piece=piece, seen=seen)
    ]
    assert not wrong, "\n".join([f"{len(wrong)} programs went wrong; to run them again:", *wrong])
    assert not {"on cpu", "on sim", "evicted", "dispatched before what they follow had ended"} - seen.keys(), seen
    # No client maps, these ops have no temporaries, there is no store, and no GPU, which keeps memory for graphs, and
    # whose blocks other processes open.
    unseen = {MAPPED, TEMPORARIES, CHECKPOINT, RUNS, LEFT_OPEN}
    assert not set(SORTS) - unseen - seen.keys(), seen


def test_random_programs_run_in_a_fifth_of_the_memory_that_they_need() -> None:
    """Each instruction by itself must fit, and all values together on all devices."""
    seen: Counter[str] = Counter()
    wrong = failures(CROWDED, seen=seen, crowded=True)
    text = "\n".join(
        f"{REPLAY.format(seed=seed, piece=HANDLES_PER_STEP)} --crowded\n    {problems[0]}" for seed, problems in wrong
    )
    assert not wrong, f"{len(wrong)} programs went wrong; to run them again:\n{text}"
    assert seen["evicted"] > len(CROWDED) // 4
    assert seen["evicted to the store"] > len(CROWDED) // 8
    assert seen["read from a file"] > len(CROWDED) // 4
    assert seen["values in checkpoints"] > len(CROWDED) // 8


@cache
def some() -> tuple[Program, ...]:
    """Some of the programs."""
    with failing_ops(), np.errstate(all="ignore"):
        return tuple([random_program(seed) for seed in range(70)])


def is_changed(routine: Routine) -> bool:
    """Whether the routine's passes change its program."""
    with failing_ops():
        return apply(routine.program, routine.passes) != routine.program


def test_random_programs_with_host_calls_give_what_serial_execution_gives() -> None:
    """Clients answer at random times, in any order, sometimes twice, and may raise or return wrong results."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in CALLS:
        program, expected = make(seed)
        for step in (step for step in program.steps if step.kind == "HOSTCALL"):
            ids, outputs, _, device, way = step.fields
            found.update({way, f"{len(ids)} operands", f"{len(outputs)} results", f"on {device[:3]}"})
        wrong += [f"seed {seed}: {problem}" for problem in problems_of(program, HANDLES_PER_STEP, expected)[:1]]
    assert not wrong, "\n".join(wrong)
    wanted = {*WAYS, "0 operands", "1 operands", "2 operands", "1 results", "2 results", "on cpu", "on sim"}
    assert wanted <= found.keys(), found


def test_the_programs_have_runs_of_every_sort() -> None:
    """A kind of run that no program contains would not be tested."""
    found: Counter[str] = Counter()
    for program in some():
        grouped = [inner for step in program.steps if step.kind == "ATOMIC" for inner in step.fields]
        runs = [step for step in (*program.steps, *grouped) if step.kind == "RUN"]
        found["in groups"] += any(step.kind == "RUN" for step in grouped)
        found["again and again"] += (
            max(Counter((r.session, r.fields[ROUTINE].key) for r in runs).values(), default=0) > 2
        )
        for run in runs:
            routine, inner, inputs = run.fields[ROUTINE], run.fields[INNER], run.fields[INPUTS]
            kinds = {step.kind for step in inner}
            found.update(
                {
                    "aliases": len(set(inputs)) < len(inputs),
                    "changed by passes": is_changed(routine),
                    "some passes alone": "all" not in routine.passes,
                    "captured": bool(routine.captured),
                    "two slots of a device": len(set(routine.devices)) < len(routine.devices),
                    "numbers": bool(run.fields[NUMBERS]),
                    "writes to what is outside": bool(routine.program.written),
                    "results": bool(run.fields[RENAMED]),
                    "shapes that data decide": None in routine.program.metas,
                    "releases behind": bool(run.fields[RELEASED]),
                    "effects": "EFFECT" in kinds,
                    "moves": "TO_DEVICE" in kinds,
                    "failures": any((run.session + 1, step.location) in program.failing for step in inner),
                    "long": len(inner) > 8,
                }
            )
    assert not {what for what, count in found.items() if count < 2}


def test_the_programs_have_control_flow_of_every_sort() -> None:
    found: Counter[str] = Counter()
    for program in some():
        world = program.world
        for flow in (step for step in program.steps if step.kind == "FLOW"):
            routine, inputs = flow.fields[ROUTINE], flow.fields[FLOW_INPUTS]
            blocks = list(blocks_inside(routine.program))
            found.update(step.op for one in (routine.program, *blocks) for step in one.steps)
            found.update(
                {
                    "aliases": len(set(inputs)) < len(inputs),
                    "captured": bool(routine.captured),
                    "nested": routine.program.depth > 2,
                    "writes of blocks": any(step.blocks and step.into for step in routine.program.steps),
                    "numbers of blocks": any(block.number_parameters for block in blocks),
                    "draws of blocks": any(block.draws for block in blocks),
                    "effects of blocks": any(block.effects[-1] for block in blocks),
                    "several devices": len({home for block in blocks for home in block.homes}) > 1,
                    "bounds": any(("max_iterations", 2) in step.attributes for step in routine.program.steps),
                    "failures": any((flow.session + 1, line) in program.failing for line in lines_of(routine.program)),
                    "little memory": world.tight > 0,
                    "compiled": world.patience < 1000,
                }
            )
        found["cancelled"] += any(step.kind == "cancel" for step in program.steps)
    wanted = {"cond", "case", "while_loop", "repeat_loop", "print", "effect", "to_device", "model_boom", "integers"}
    assert not wanted - found.keys()
    assert not {what for what, count in found.items() if count < 2 and not REGISTRY.keys() & {what}}


def test_temporaries_of_kernels_are_planned_like_results() -> None:
    """Behaviour 43: kernels that fit in serial execution get memory, and run together only where both fit."""
    wrong = []
    with hungry_ops():
        for seed in HUNGRY:
            program, expected = make(seed)
            assert program.world.tight
            if problems := problems_of(program, expected=expected):
                wrong.append((seed, problems[0]))
    assert not wrong


PAIR = Meta.of((2,), "int64")
ARANGE = (("start", 0), ("stop", 2), ("step", 1), ("dtype", "int64"))


@pytest.mark.parametrize(("op", "results"), [("model_boom", (3,)), ("model_split", (3, 4))])
def test_a_failure_of_ones_own_that_was_none_is_taken_back_from_all_who_saw_it(
    op: str, results: tuple[int, ...]
) -> None:
    """Errors surface late: the op fails, or one of its results, and a reader finds the error there; then its
    operand turns out to be bad. All get the first cause as their error, in every interleaving."""
    last = results[-1]
    steps = (
        Step(1, 0, "CALL", ("arange", ARANGE, (), "sim:0", None, (), (1,), 0)),
        Step(2, 0, "TO_DEVICE", (1, 2, "sim:1")),
        Step(3, 0, "CALL", (op, (), (PAIR,), "sim:1", None, (2,), results, 1)),
        Step(4, 0, "CALL", ("any", (("axis", -1), ("keepdims", False)), (PAIR,), "cpu:0", None, (last,), (5,), 0)),
        Step(5, 0, "FETCH", (last,)),
    )
    world = World(peer=False, inline=False, late=("cpu:0", "sim:0"))
    program = Program(0, world, steps, frozenset({(1, 1)}))
    assert not [problems for seed in range(25) if (problems := check(program, seed))]
