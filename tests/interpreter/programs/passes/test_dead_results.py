"""Dead results are removed, unless their computation has an observable effect."""

from __future__ import annotations

from tensord.interpreter.programs.passes.needless import dead_results

from .conftest import MATRIX, Writer, ops


def test_what_nobody_reads_is_left_out_and_what_only_it_reads(builder: Writer) -> None:
    dead = builder.call("exp", builder.call("add", 0, 1))
    builder.call("sum", builder.move(dead, 1))
    kept = builder.call("multiply", 0, 1)
    program = dead_results(builder.finish([kept]))
    assert ops(program) == ["multiply"]
    assert program.results == (3,)
    assert program.steps[0].location == 4


def test_a_program_without_dead_results_is_itself(builder: Writer) -> None:
    program = builder.finish([builder.call("exp", builder.call("add", 0, 1))])
    assert dead_results(program) is program


def test_what_may_fail_on_data_stays_with_what_it_reads(builder: Writer) -> None:
    builder.call("inv", builder.call("add", 0, 1))
    builder.call("power", 2, 2)
    builder.call("masked_select", 0, builder.call("less", 0, 1))
    assert ops(dead_results(builder.finish([]))) == ["add", "inv", "power", "less", "masked_select"]


def test_effects_stay_with_what_they_read(builder: Writer) -> None:
    builder.print([None], [builder.call("add", 0, 1)])
    builder.effect(0, [builder.call("subtract", 0, 1)])
    builder.effect(0, [])
    program = builder.finish([])
    assert dead_results(program) is program


def test_a_write_to_a_tensor_from_outside_stays(builder: Writer) -> None:
    captured = builder.captured(MATRIX)
    for target in (0, captured):
        builder.call("exp", 1, into=target)
    program = builder.finish([])
    assert dead_results(program) is program


def test_a_write_to_a_tensor_inside_is_needed_as_its_value_is(builder: Writer) -> None:
    inside = builder.call("add", 0, 1)
    builder.call("exp", 0, into=inside)
    returned = builder.call("subtract", 0, 1)
    newer = builder.call("exp", 1, into=returned)
    program = dead_results(builder.finish([newer]))
    assert ops(program) == ["subtract", "exp"]
    assert program.steps[1].into == (3,)


def test_an_integer_whose_range_is_checked_before_a_run_stays(builder: Writer) -> None:
    number, constant, seed = builder.number("int", "parameter"), builder.constant(1), builder.number("int", "seed")
    real = builder.number("float", "parameter")
    builder.call("add", 2, ~number)
    builder.call("add", 2, constant)
    builder.call("add", 0, ~real)
    builder.call("uniform", ~seed, ~builder.number("int", "draw"), shape=(2,))
    program = dead_results(builder.finish([]))
    assert ops(program) == ["add"]
    assert program.steps[0].operands == (2, ~number)
    assert program.draws == 1
