"""The types of routines, for type checkers. mypy reads this file: a wrong `assert_type` is an error."""

from __future__ import annotations

from typing import Any, assert_type

import tensord as td


def test_a_routine_has_the_signature_of_its_function(session):
    def scaled(x: td.Tensor, by: float = 2.0, *, plus: int = 0) -> td.Tensor:
        return x * by + plus

    typed: td.Session = session
    x = typed.asarray([1.0])
    routine = typed.routine(scaled)
    assert_type(routine(x, 3.0, plus=1), td.Tensor)
    assert routine(x, by=3.0, plus=1).tolist() == [4.0]
    assert_type(routine.program(x, plus=2), td.Program)
    eager = typed.routine(eager=True)(scaled)
    assert_type(eager(x), td.Tensor)
    assert eager(x).tolist() == [2.0]
    if session is None:  # read, not run
        routine(x, "text")  # type: ignore[arg-type]
        routine(x, minus=1)  # type: ignore[call-arg]
        eager()  # type: ignore[call-arg]
        td.routine(scaled)("text")  # type: ignore[arg-type]
        assert_type(td.routine(passes="none")(scaled)(x), td.Tensor)


def test_a_routine_that_is_a_method_has_the_signature_without_its_object(session):
    typed: td.Session = session

    class Net:
        @typed.routine
        def forward(self, x: td.Tensor, n: int) -> tuple[td.Tensor, int]:
            return x * n, n

    net, x = Net(), typed.asarray([1.0])
    result = net.forward(x, 2)
    assert_type(result, tuple[td.Tensor, int])
    assert result[0].tolist() == [2.0]
    assert_type(net.forward.program(x, n=3), td.Program)
    if session is None:
        net.forward(2, x)  # type: ignore[arg-type]


def test_a_function_without_annotations_takes_and_gives_anything(session):
    typed: td.Session = session
    routine = typed.routine(lambda x: x * 2)
    found: Any = routine(typed.asarray([1.0]))
    assert found.tolist() == [2.0]
