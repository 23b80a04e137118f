"""Segments that run inline: the operands that allow it, and the numbers that segments get."""

from __future__ import annotations

import numpy as np

import tensord as td
from tensord.interpreter.programs.program import Program

from ...each_case import each_case
from ..bare_engine import Bare
from ..programs import link, run

UPDATE = """\
tensord program 1
parameter %0 x: float64[1] on d0
parameter %1 y: float64[1] on d0
parameter %2 z: float64[1] on d0
%3: float64[1] = add %0, %2 into %0 on d0
%4: float64[1] = add %1, %2 into %1 on d0
%5: float64[1] = add %3, %4 on d0
return %5"""


@each_case(
    ("names", "at_once", "expected"),
    [("xyz", True, 18.0), ("xxz", False, 36.0), ("xyx", False, 8.0), ("xyX", False, 8.0), ("Xyx", False, 8.0)],
)
def test_what_is_written_has_one_name_alone_in_the_run(names: str, at_once: bool, expected: float) -> None:
    client = Bare().client()
    program = Program.parse(UPDATE)
    routine = link(client, program)
    warm = [client.upload([1.0]) for _ in range(3)]
    run(client, routine, program, warm)  # op by op
    ids = {name: client.upload([value]) for name, value in (("x", 2.0), ("y", 0.0), ("z", 8.0))}
    client.publish("x", ids=[ids["x"]])
    ids["X"] = client.lookup("x")
    before = client.bare.engine.scheduler.retired
    (result,) = run(client, routine, program, [ids[name] for name in names])
    client.bare.drain()
    assert (client.bare.engine.scheduler.retired == before + 1) == at_once
    assert client.fetch(result) == [expected]


def test_a_number_reaches_the_calls_of_every_dtype_that_take_it() -> None:
    single, double = np.array([1, -3], "float32"), np.array([1, -3], "float64")

    def function(x: td.Tensor, y: td.Tensor, number: float) -> tuple[td.Tensor, ...]:
        return x * number, y * number, number + x, x * 0.7, y * 0.7, y / number

    with td.connect("local", devices=["cpu:0"]) as session:
        routine = session.routine(function)
        operands = session.asarray(single), session.asarray(double)
        for number in (0.1, 0.1, 0.1, -0.0, 0.0, 1e300, 0.1, float("nan"), 0.1):
            with np.errstate(all="ignore"):
                expected = function(single, double, number)  # type: ignore[arg-type]
            found = [tensor.numpy() for tensor in routine(*operands, number)]
            assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]  # type: ignore[attr-defined]
