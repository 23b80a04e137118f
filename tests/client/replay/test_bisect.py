"""The first op that differs: bisecting names a kernel that is wrong on one kind of device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.replay.bisect import bisect
from tensord.client.replay.sides import spec_of
from tensord.interpreter.errors import MetadataError

from ...own_ops import own_ops_end


@pytest.fixture(autouse=True)
def planted() -> Iterator[Any]:
    """An op whose kernel for `sim` is wrong in elements beyond 6."""
    with own_ops_end():

        @td.op(name="replay_tests.planted", version="1", infer=lambda x, *, scale: x)  # noqa: ARG005
        def planted(x: td.Tensor, *, scale: float = 1.0) -> td.Tensor:
            return x * scale

        @planted.kernel("sim")
        def planted_on_sim(x: td.Tensor, *, scale: float = 1.0) -> td.Tensor:
            found = np.array(x * scale)
            found[found > 6] += 0.5
            return found  # type: ignore[return-value]

        yield planted


def bisected(path, first, second, **options):
    return bisect(path, [spec_of(first), spec_of(second)], {}, **options)


def work(session, planted):
    x = session.asarray([1.0, 2.0, 3.0])
    y = planted(x, scale=2.0) + 1  # not wrong yet
    with session.span("step 7"):
        z = planted(y, scale=1.5)
    return (z * z).sum()


@pytest.mark.parametrize("sides", [("sim:0", "cpu:0"), ("cpu:0", "sim:0"), ("sim:0", "serial")])
def test_a_wrong_kernel_is_named_with_its_line_operands_and_difference(session, planted, recorded, tmp_path, sides):
    with recorded(session):
        work(session, planted).numpy()
    found = bisected(tmp_path / "x.rec", *sides)
    assert found is not None
    finding = found.finding
    assert finding.op == "replay_tests.planted"
    assert "test_bisect.py:45 in work" in finding.line
    assert finding.span == "step 7"
    assert (finding.difference.size, finding.difference.elements, finding.difference.of) == (0.5, 2, 3)
    assert finding.difference.place == (1,)
    assert found.attributes == "scale=1.5"
    (operand,) = found.operands
    assert (operand.device, operand.equal) == ("cpu:0", True)
    assert [value.tolist() for value in operand.values] == [[3, 5, 7]] * 2
    wrong = 0 if sides[0].startswith("sim") else 1
    assert found.results[wrong].tolist() == [4.5, 8.0, 11.0]
    assert found.results[1 - wrong].tolist() == [4.5, 7.5, 10.5]


def test_without_a_difference_there_is_nothing(session, planted, recorded, tmp_path):
    with recorded(session):
        work(session, planted).numpy()
    assert bisected(tmp_path / "x.rec", "cpu:0", "serial") is None


def test_inside_of_a_routine_the_op_is_named(session, planted, recorded, tmp_path):
    routine = session.routine(lambda x: planted(planted(x) * 4, scale=0.5) + 1)
    with recorded(session):
        x = session.asarray([1.0, 2.0])
        for _ in range(3):
            x = routine(x)
        x.numpy()
    found = bisected(tmp_path / "x.rec", "sim:0", "cpu:0")
    assert found is not None
    assert found.finding.op == "replay_tests.planted"
    assert "in a run of the routine" in found.inside
    assert found.operands[0].equal


def test_an_argument_that_a_routine_overwrites_is_a_result(session, planted, recorded, tmp_path):
    """The second run would differ in its first op, and the op that is wrong be taken for right."""

    @session.routine
    def step(w):
        total = (w * 1.0).sum()
        session.call("multiply", [planted(w), 2.0], out=[w])
        return total

    with recorded(session):
        w = session.asarray([3.0, 7.0])
        for _ in range(3):
            step(w).numpy()
    found = bisected(tmp_path / "x.rec", "sim:0", "cpu:0")
    assert found is not None
    assert found.finding.op == "replay_tests.planted"
    assert found.operands[0].equal


def test_a_write_in_place_is_looked_at_with_what_was_there_before(session, recorded, tmp_path):
    with recorded(session):
        x = session.asarray([10.0])
        y = session.asarray([3.0])
        x += y
        session.call("replay_tests.planted", [x], {"scale": 1.0}, out=[y])
        y.numpy()
    found = bisected(tmp_path / "x.rec", "sim:0", "cpu:0")
    assert found is not None
    assert [one.values[0].tolist() for one in found.operands] == [[13.0], [3.0]]
    assert [value.tolist() for value in found.results] == [[13.5], [13.0]]


def test_a_step_that_is_asked_for_is_looked_at_in_place_of_the_first(session, planted, recorded, tmp_path):
    with recorded(session):
        work(session, planted).numpy()
    path = tmp_path / "x.rec"
    first = bisected(path, "sim:0", "cpu:0")
    assert first is not None
    later = bisected(path, "sim:0", "cpu:0", at=first.finding.step.number + 2)
    assert later is None or later.finding.step.number > first.finding.step.number
    again = bisected(path, "sim:0", "cpu:0", at=first.finding.step.number)
    assert again is not None
    assert again.finding.difference == first.finding.difference
    with pytest.raises(MetadataError, match="there is no step 999"):
        bisected(path, "sim:0", "cpu:0", at=999)


def test_within_a_bound_floats_may_differ(session, planted, recorded, tmp_path):
    with recorded(session):
        work(session, planted).numpy()
    assert bisected(tmp_path / "x.rec", "sim:0", "cpu:0", within=1e16) is None
