"""A program's properties: its digest, its writes, the values that die with each step."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given

import tensord as td
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

from .programs import PROGRAMS

VECTOR = Meta.of((3,), "float32")
MATRIX = Meta.of((3, 3), "float32")


def small(location: object = None, name: str = "x", device: int = 0, constant: object = 1.0) -> Program:
    builder = Builder()
    slot = builder.number(type(constant).__name__, "constant", value=constant)  # type: ignore[arg-type]
    builder.parameter(VECTOR, device, name)
    (made,) = builder.op("add", [0, ~slot], device=device, location=location)
    return builder.finish([made])


def test_it_is_public():
    assert td.Program is Program


def test_the_digest_is_of_all_but_the_locations():
    assert small().digest == small("train.py:3").digest == small(7).digest
    others = {
        small().digest,
        small(name="y").digest,
        small(device=1).digest,
        small(constant=2.0).digest,
        small(constant=1j).digest,
    }
    assert len(others) == 5
    assert len(small().digest) == 32


def test_the_digest_tells_equal_values_of_different_types_apart():
    def summed(**attributes: object) -> Program:
        builder = Builder()
        builder.parameter(MATRIX)
        return builder.finish(builder.op("sum", [0], attributes))

    assert len({summed(axis=1).digest, summed(axis=(1,)).digest, summed(axis=None).digest}) == 3

    def filled(start: float) -> str:
        builder = Builder()
        return builder.finish(builder.op("arange", [], {"start": start, "stop": 3})).digest

    assert filled(1) != filled(1.0)


def test_programs_are_compared_by_their_digests():
    assert small() == small("elsewhere")
    assert small() != small(name="y")
    assert small() != small().digest
    assert {small(): 1}[small("elsewhere")] == 1
    assert repr(small()) == f"<tensord.Program {small().digest[:12]}: 1 steps>"


def test_the_digest_is_the_same_in_every_process():
    """Otherwise no cache of two processes would ever agree."""
    text = "tensord program 1\nparameter %0 x: float32[3] on d0\n%1: float32[3] = exp %0 on d0\nreturn %1"
    code = f"from tensord import Program; print(Program.parse({text!r}).digest)"
    other = {**os.environ, "PYTHONHASHSEED": "1"}  # this process has another one
    done = subprocess.run([sys.executable, "-c", code], env=other, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == f"{Program.parse(text).digest}\n"


def test_slots_are_counted():
    builder = Builder()
    builder.parameter(VECTOR, 1)
    builder.op("exp", [0], device=4)
    builder.print([None], [0], chain=2)
    builder.effect(5, [0])
    program = builder.finish([])
    assert (program.devices, program.chains, program.callbacks, program.inputs) == (5, 3, 6, 1)


def test_a_program_of_nothing_has_no_slots():
    program = Builder().finish([])
    assert (program.devices, program.chains, program.callbacks, program.inputs) == (0, 0, 0, 0)
    assert program.last_uses == program.written == program.number_parameters == ()


def test_numbers_that_a_run_is_given_and_takes_are_known():
    builder = Builder()
    builder.number("float", "parameter", name="rate")
    builder.number("int", "draw")
    builder.number("int", "constant", value=1)
    builder.number("int", "parameter", name="n")
    builder.number("int", "draw")
    program = builder.finish([])
    assert [number.name for number in program.number_parameters] == ["rate", "n"]
    assert program.draws == 2


def test_what_is_written_are_the_tensors_from_outside_that_have_newer_values():
    builder = Builder()
    for _ in range(3):
        builder.parameter(VECTOR)
    builder.captured(VECTOR)
    (made,) = builder.op("exp", [0])
    builder.op("exp", [0], into=[made])
    builder.op("exp", [0], into=[2])
    builder.op("exp", [0], into=[3])
    assert builder.finish([]).written == (2, 3)


def test_a_variable_dies_with_the_last_step_that_uses_it():
    builder = Builder()
    x = builder.parameter(VECTOR)
    (a,) = builder.op("exp", [x])
    (b,) = builder.op("add", [a, x])
    (c,) = builder.op("add", [b, a], into=[b])  # the second value of b's variable
    (d,) = builder.op("sqrt", [c])
    builder.op("sin", [x])  # unused
    program = builder.finish([d])
    assert program.last_uses == ((), (), (a,), (b,), (5,))


def test_what_a_step_makes_twice_or_takes_twice_dies_once():
    builder = Builder()
    builder.parameter(MATRIX)
    first, second = builder.op("qr", [0])
    builder.op("add", [second, second])
    assert builder.finish([]).last_uses == ((first,), (second, 3))


@given(PROGRAMS)
def test_each_variable_that_is_not_kept_dies_once_and_is_used_no_more(program):
    dead: set[int] = set()
    for step, dying in zip(program.steps, program.last_uses, strict=True):
        made = range(step.first, step.first + len(step.results))
        used = {program.variables[value] for value in (*step.operands, *made) if value >= 0}
        assert not used & dead
        assert set(dying) <= used
        assert len(set(dying)) == len(dying)
        dead.update(dying)
    kept = {*range(program.inputs), *(program.variables[value] for value in program.results)}
    assert dead == set(program.variables) - kept


@given(PROGRAMS)
def test_the_values_of_a_variable_share_meta_and_home(program):
    for value, variable in enumerate(program.variables):
        assert variable <= value
        assert program.metas[variable] is program.metas[value]
        assert program.homes[variable] == program.homes[value]
