"""Steps of each device stand together, in an order that gives the same values."""

from __future__ import annotations

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.passes.devices import devices
from tensord.interpreter.programs.program import Program

from .conftest import MATRIX, ops


def on_two() -> tuple[Builder, int, int]:
    """A builder with a matrix on d0 and one on d1."""
    builder = Builder()
    return builder, builder.parameter(MATRIX), builder.parameter(MATRIX, 1)


def shown(program: Program) -> str:
    """`sqrt0 sqrt1 print`: the ops with their devices."""
    return " ".join([f"{step.op}{step.device}" if step.device >= 0 else step.op for step in program.steps])


def both(builder: Builder, name: str, values: list[int], into: bool = False) -> list[int]:
    """An op on each device."""
    return [builder.op(name, [v], {}, n, [v] if into else None)[0] for n, v in enumerate(values)]


def test_steps_of_two_devices_in_turn_become_two_rows() -> None:
    builder, *values = on_two()
    for name in ("sqrt", "exp", "tanh"):
        values = both(builder, name, values)
    program = devices(builder.finish(values))
    assert shown(program) == "sqrt0 exp0 tanh0 sqrt1 exp1 tanh1"
    assert [step.operands for step in program.steps] == [(0,), (2,), (3,), (1,), (5,), (6,)]
    assert program.results == (4, 7)
    assert devices(program) is program


def test_the_steps_of_one_device_stay_as_they_are() -> None:
    builder = Builder()
    value = builder.parameter(MATRIX)
    program = builder.finish(list(builder.op("exp", builder.op("sqrt", [value]))))
    assert devices(program) is program


def test_no_step_passes_one_that_is_no_op() -> None:
    builder, *values = on_two()
    values = both(builder, "exp", both(builder, "sqrt", values))
    builder.print([None], [values[0]])
    values = both(builder, "tan", both(builder, "sin", values))
    assert shown(devices(builder.finish(values))) == "sqrt0 exp0 sqrt1 exp1 print sin0 tan0 sin1 tan1"


def test_what_needs_a_collective_goes_behind_what_does_not() -> None:
    builder, *weights = on_two()
    others = [builder.parameter(MATRIX), builder.parameter(MATRIX, 1)]
    sums = builder.collective("all_reduce", weights, {"reduction": "sum"})
    for n, (weight, total) in enumerate(zip(weights, sums, strict=True)):
        builder.op("subtract", [weight, total], {}, n, [weight])
    values = both(builder, "exp", both(builder, "sqrt", others))
    program = devices(builder.finish(values))
    assert shown(program) == "all_reduce sqrt0 exp0 sqrt1 exp1 subtract0 subtract1"


def test_a_write_stays_behind_what_reads_the_old_value() -> None:
    builder, *values = on_two()
    moved = builder.move(values[0], 1)
    read = builder.op("add", [values[0], values[0]], {}, 0)[0]
    late = builder.op("sqrt", [moved], {}, 1)[0]
    also = builder.op("add", [moved, values[0]], {}, 0)[0]  # reads what the last step writes, and waits for the move
    more = both(builder, "exp", [read, late])
    builder.op("exp", [read], {}, 0, [values[0]])
    program = devices(builder.finish([also, *more]))
    order = shown(program).split()
    assert sorted(order) == sorted(["to_device1", "add0", "sqrt1", "add0", "exp0", "exp1", "exp0"])
    (write,) = [position for position, step in enumerate(program.steps) if step.into]
    readers = [position for position, step in enumerate(program.steps) if 0 in step.operands and step.into is None]
    assert max(readers) < write


def test_a_step_that_reads_from_another_device_stays_behind_what_makes_it() -> None:
    builder, *values = on_two()
    values = both(builder, "sqrt", values)
    crossed = builder.op("add", [values[1], values[0]], {}, 0)[0]
    there = builder.op("exp", [values[1]], {}, 1)[0]
    back = builder.op("add", [crossed, there], {}, 0)[0]
    program = devices(builder.finish([back, *builder.op("tanh", [there], {}, 1)]))
    assert shown(program) == "sqrt0 sqrt1 exp1 tanh1 add0 add0"


def test_an_order_that_has_no_fewer_rows_is_left_alone() -> None:
    builder, *values = on_two()
    moved = builder.move(values[0], 1)
    values = [builder.op("sqrt", [values[0]])[0], builder.op("exp", [values[0]])[0]]
    last = builder.op("add", [moved, moved], {}, 1)
    program = builder.finish([*values, *last])
    assert devices(program) is program
    assert ops(program) == ["to_device", "sqrt", "exp", "add"]
