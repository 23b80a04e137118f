"""All passes on random programs: the same bits, writes, effects and errors, for any selection of passes."""

from __future__ import annotations

import itertools

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.programs.passes.table import PASS_NAMES, PASSES, applied, apply, chosen_names
from tensord.interpreter.programs.program import Program

from ....each_case import each_case
from .random_programs import Maker, inputs_of
from .running import run

SUBSETS = [names for n in range(1, len(PASSES) + 1) for names in itertools.combinations(PASSES, n)]


@each_case("seed", range(10))
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


@each_case("seed", range(20))
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
        MetadataError, match=r"unknown pass 'nubmers'; passes: dead_results, numbers, .*\"all\" or \"none\""
    ):
        apply(program, ["nubmers"])


def test_locations_stay() -> None:
    program: Program = Maker(2).program(30)
    changed = apply(program)
    made = {(step.op, step.location) for step in program.steps}
    assert {(step.op, step.location) for step in changed.steps} <= made


def in_a_block(text: str) -> Program:
    """A program of two tensors and these lines."""
    return Program.parse(f"""\
tensord program 1
number $0 n: int
parameter %0 x: float32[4] on d0
parameter %1 w: float32[4] on d0
{text}""")


LOOP = """\
%2: float32[4] = repeat_loop $0, %0
block %1
    parameter %0: float32[4] on d0
    captured %1: float32[4] on d0
    %2: float32[4] = multiply %1, %1 on d0
    %3: float32[4] = multiply %1, %1 on d0
    %4: float32[4] = sqrt %0 on d0
    %5: float32[4] = add %2, %3 on d0
    print "round", %5
    return %5
end
return %2
"""
WRITES_TWICE_GIVEN = """\
%2: float32[4], %3: float32[4] = repeat_loop $0, %0 into %1
block %1, %1
    parameter %0: float32[4] on d0
    captured %1: float32[4] on d0
    captured %2: float32[4] on d0
    %3: float32[4] = sqrt %2 on d0
    %4: float32[4] = add %1, %0 into %1 on d0
    %5: float32[4] = sqrt %2 on d0
    %6: float32[4] = add %3, %5 on d0
    return %6
end
return %2
"""


def test_passes_go_into_blocks_and_nothing_leaves_them() -> None:
    changed = apply(in_a_block(LOOP))
    (loop,) = changed.steps
    (body,) = loop.blocks
    assert [(step.op, step.operands) for step in body.steps] == [("multiply", (1, 1)), ("add", (2, 2)), ("print", (3,))]
    assert apply(changed) is changed


def test_a_block_that_writes_what_it_is_given_twice_stays_as_it_is() -> None:
    program = in_a_block(WRITES_TWICE_GIVEN)
    assert apply(program) is program
    once = in_a_block(WRITES_TWICE_GIVEN.replace("block %1, %1", "block %1, %0"))
    assert [step.op for step in apply(once).steps[0].blocks[0].steps] == ["sqrt", "add", "add"]


def test_the_state_of_a_loop_is_its_own_though_it_is_captured_too() -> None:
    body = WRITES_TWICE_GIVEN.replace("block %1, %1", "block %0, %0").replace("into %1\nblock", "\nblock")
    body = body.replace("%2: float32[4], %3: float32[4] = repeat", "%2: float32[4] = repeat")
    program = in_a_block(body.replace("add %1, %0 into %1", "add %0, %1 into %0"))
    assert [step.op for step in apply(program).steps[0].blocks[0].steps] == ["sqrt", "add", "add"]


def test_what_each_pass_has_done_counts_the_steps_of_blocks() -> None:
    _, done = applied(in_a_block(LOOP), chosen_names("all"))
    assert [(each.name, each.before, each.after, each.changed) for each in done] == [
        ("dead_results", 6, 5, True),
        ("numbers", 5, 5, False),
        ("devices", 5, 5, False),
        ("transfers", 5, 5, False),
        ("common_subexpressions", 5, 4, True),
    ]


def test_all_and_none_may_stand_among_names() -> None:
    assert chosen_names(["none", "fusion"]) == {"fusion"}
    assert chosen_names(("all",)) == chosen_names("all") == frozenset(PASS_NAMES)
