"""All passes on random programs: the same bits, writes, effects and errors, whatever passes are applied."""

from __future__ import annotations

import itertools

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.programs.passes.table import PASSES, apply
from tensord.interpreter.programs.program import Program

from .random_programs import Maker, inputs_of
from .running import run

SUBSETS = [names for n in range(1, len(PASSES) + 1) for names in itertools.combinations(PASSES, n)]


@pytest.mark.parametrize("seed", range(30))
def test_every_subset_of_passes_keeps_what_a_run_does(seed: int) -> None:
    program = Maker(seed).program(60)
    inputs = inputs_of(program, seed)
    expected = run(program, inputs, (3, 0.25), seed)
    for names in SUBSETS:
        changed = apply(program, names)
        assert run(changed, inputs, (3, 0.25), seed) == expected, names
        assert changed.draws == program.draws


def test_random_programs_give_each_pass_something_to_do() -> None:
    programs = [Maker(seed).program(60) for seed in range(30)]
    for name in PASSES:
        assert sum(apply(program, [name]) is not program for program in programs) > 8, name
    assert sum(bool(run(program, inputs_of(program, 0), (3, 0.25)).errors) for program in programs) > 8


@pytest.mark.parametrize("seed", range(20))
def test_passes_have_nothing_to_do_a_second_time(seed: int) -> None:
    program = Maker(seed).program(60)
    for name in PASSES:
        once = apply(program, [name])
        assert apply(once, [name]) is once, name


def test_passes_are_named() -> None:
    program = Maker(1).program(30)
    assert apply(program, "none") is program
    assert apply(program, []) is program
    assert apply(program) == apply(program, PASSES) == apply(program, "all")
    assert apply(program, "numbers") == apply(program, ["numbers"])
    with pytest.raises(
        MetadataError, match=r"no pass 'nubmers': there are dead_results, numbers, .*\"all\" or \"none\""
    ):
        apply(program, ["nubmers"])


def test_locations_stay() -> None:
    program: Program = Maker(2).program(30)
    changed = apply(program)
    made = {(step.op, step.location) for step in program.steps}
    assert {(step.op, step.location) for step in changed.steps} <= made
