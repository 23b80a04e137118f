"""Moves are shared and early, and moves to the same device are removed."""

from __future__ import annotations

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.passes.transfers import transfers

from .conftest import MATRIX, Writer, operands, ops


def test_a_value_is_moved_to_a_device_once(builder: Writer) -> None:
    first, second = builder.move(0, 1), builder.move(0, 1)
    builder.print([None, None], [first, second])
    builder.print([None], [builder.move(0, 2)])
    program = transfers(builder.finish([]))
    assert ops(program) == ["to_device", "to_device", "print", "print"]
    assert operands(program) == [(0,), (0,), (3, 3), (4,)]


def test_moves_of_what_is_overwritten_are_two(builder: Writer) -> None:
    first, second = builder.move(0, 1), builder.move(0, 1)
    builder.call("exp", 1, device=1, into=first)
    builder.print([None], [second])
    newer = builder.call("exp", 1, into=0)
    builder.print([None], [builder.move(newer, 1)])
    assert ops(transfers(builder.finish([]))).count("to_device") == 3


def test_the_second_of_two_returned_moves_is_a_copy_where_the_first_is(builder: Writer) -> None:
    builder.call("exp", 1)
    program = transfers(builder.finish([builder.move(0, 1), builder.move(0, 1)]))
    assert operands(program) == [(0,), (1,), (3,)]
    assert [step.device for step in program.steps] == [1, 0, 1]
    assert program.results == (3, 5)


def test_a_move_comes_right_behind_the_stretch_that_makes_its_operand(builder: Writer) -> None:
    total = builder.call("add", 0, 1)
    builder.print([None], [builder.call("sqrt", 1)])
    root = builder.call("sqrt", 0)
    moved = [builder.move(value, 1) for value in (1, root, total, 0)]
    there_and_back = builder.move(moved[0], 2)
    builder.print([None] * 5, [*moved, there_and_back])
    program = transfers(builder.finish([]))
    first = ["to_device"] * 3
    assert ops(program) == [*first, "add", "sqrt", "to_device", "print", "sqrt", "to_device", "print"]
    assert operands(program)[:7] == [(1,), (0,), (3,), (0, 1), (1,), (6,), (7,)]
    assert transfers(program) is program


def test_no_move_cuts_a_stretch_of_steps_on_one_device(builder: Writer) -> None:
    total = builder.call("add", 0, 1)
    root = builder.call("sqrt", total)
    builder.call("exp", root)
    builder.print([None, None], [builder.move(total, 1), builder.move(root, 1)])
    program = builder.finish([])
    assert transfers(program) is program


def test_a_move_comes_no_later_than_it_did(builder: Writer) -> None:
    total = builder.call("add", 0, 1)
    moved = builder.move(total, 1)
    builder.print([None, None], [builder.call("sqrt", total), moved])
    program = builder.finish([])
    assert transfers(program) is program


def test_a_move_does_not_pass_the_write_of_its_operand(builder: Writer) -> None:
    newer = builder.call("exp", 1, into=0)
    builder.print([None], [builder.move(newer, 1)])
    program = builder.finish([])
    assert transfers(program) is program


def test_a_move_to_where_a_value_lives_is_folded_away(builder: Writer) -> None:
    total = builder.call("add", builder.move(0, 0), builder.move(builder.move(1, 0), 0))
    program = transfers(builder.finish([builder.call("sqrt", builder.move(total, 0))]))
    assert ops(program) == ["add", "sqrt"]
    assert operands(program) == [(0, 1), (3,)]


def test_a_copy_that_is_needed_stays(builder: Writer) -> None:
    snapshot, written, returned = (builder.move(0, 0) for _ in range(3))
    builder.call("exp", 1, into=written)
    builder.call("exp", 1, into=0)
    builder.print([None], [snapshot])
    program = transfers(builder.finish([returned]))
    assert ops(program) == ["to_device", "to_device", "exp", "exp", "print"]  # snapshot and returned are one


def test_a_copy_of_what_stays_the_same_is_not_folded_if_it_is_written_or_returned(builder: Writer) -> None:
    written, returned = builder.move(0, 0), builder.move(1, 0)
    builder.call("exp", 1, into=written)
    program = builder.finish([returned])
    assert transfers(program) is program


def test_long_chains_of_moves_are_no_matter() -> None:
    builder = Builder()
    value = builder.parameter(MATRIX)
    for n in range(5000):
        value = builder.move(value, 1 + n % 2)
    program = builder.finish([value])
    assert transfers(program) is program
