"""Routines of global tensors: arguments, results, captured tensors, control flow; and in other sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.global_tensors.tensor import GlobalTensor
from tensord.interpreter.programs.convention import decode, encode

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0", "sim:1"])


@pytest.fixture
def pair():
    return td.placement(["sim:0", "sim:1"])


def test_a_routine_does_what_its_function_does(session, pair):
    xp, found = session.xp, []
    for make in (lambda function: function, session.routine):
        w = session.global_tensor(np.eye(3), pair)
        batch = {
            "x": session.global_tensor(ROWS, pair, td.split(0)),
            "y": session.global_tensor(ROWS, pair, td.split(1)),
        }

        @make
        def step(batch, rate, w=w):
            z = xp.matmul(batch["y"], w)
            w -= rate * xp.matmul(batch["x"].T, z)
            batch["y"] += 1
            batch["x"][1:3] = batch["x"][:2, :1] - 1
            return {"z": z, "w": w, "sum": xp.sum(z), "rate": rate}

        results = [step(batch, rate) for rate in (1e-3, 2e-3, 3e-3)]
        assert all(type(each["z"]) is GlobalTensor and each["w"] is w for each in results)
        found.append(
            [
                [(each["z"].tolist(), each["z"].layout, each["sum"].item(), each["rate"]) for each in results],
                w.tolist(),
                [batch["x"].tolist(), batch["y"].tolist()],
            ]
        )
    assert found[0] == found[1]


def test_the_steps_of_each_device_are_segments(session, pair):
    xp, found, devices = session.xp, [], []
    for passes in ("", "none", "all"):
        w, x = (session.global_tensor(ROWS / 9, pair, layout) for layout in (td.broadcast, td.split(0)))

        def step(x, w=w):
            y = xp.tanh(x * 2 + 1)
            gradient = xp.sum(y * x, axis=0)  # the rows are split, so this is summed up on all devices
            w -= 1e-3 * gradient
            return xp.exp(-y) + x

        run: Any = session.routine(step, passes=passes) if passes else step
        found.append([run(x).numpy().tobytes() for _ in range(3)] + [w.numpy().tobytes()])
        pieces = run.report()["pieces"] if passes else []
        devices.append({each["device"] for each in pieces if each["how"] == "segment"})
    assert found[0] == found[1] == found[2]
    assert devices == [set(), set(), {"sim:0", "sim:1"}]


def test_another_layout_is_another_kind_of_argument(session, pair):
    double = session.routine(lambda x: x * 2)
    x = session.global_tensor(ROWS, pair, td.split(0))
    for value in (x, x, x.to_global(layout=td.split(1)), x.to_device("sim:0"), x + 1):
        np.testing.assert_array_equal(double(value).numpy(), value.numpy() * 2)
    assert double.captures == 3 + (x + 1).layout.count(td.broadcast)


def test_what_is_made_or_uploaded_inside_may_be_global(session, pair):
    def make(x):
        return x + session.global_tensor([1.0, 2.0, 3.0], pair), session.xp.zeros((2, 2), device=pair), x.device

    for made, zeros, device in (session.routine(make)(session.global_tensor(ROWS, pair)) for _ in range(2)):
        np.testing.assert_array_equal(made.numpy(), ROWS + np.array([1.0, 2.0, 3.0]))
        assert (zeros.tolist(), device) == ([[0.0] * 2] * 2, pair)


def test_a_symbolic_global_tensor_has_no_value(session, pair):
    x = session.global_tensor(ROWS, pair)
    for ask in (lambda x: x.numpy(), lambda x: x.wait(), lambda x: float(x[0, 0]), lambda x: x.is_ready()):
        with pytest.raises(td.CaptureError):
            session.routine(ask)(x)
    kept = []
    session.routine(lambda x: kept.append(x + 1))(x)
    with pytest.raises(td.CaptureError, match="capture that has ended"):
        _ = kept[0] + 1
    assert "of a capture" in repr(kept[0])


def test_control_flow_takes_global_tensors(session, pair):
    xp = session.xp
    x = session.global_tensor(ROWS, pair, td.split(0))
    for sign in (1, -1):
        made = session.cond(xp.sum(x) * sign > 0, lambda x: x + 1, lambda x: x - 1, x)
        np.testing.assert_array_equal(made.numpy(), ROWS + sign)
    count, grown = session.while_loop(lambda _, x: xp.sum(x) < 1000, lambda n, x: (n + 1, x * 2), session.asarray(0), x)
    assert (count.item(), grown.layout) == (4, (td.split(0),))
    np.testing.assert_array_equal(grown.numpy(), ROWS * 16)
    np.testing.assert_array_equal(session.repeat(3, lambda x: x + x, x).numpy(), ROWS * 8)


def test_branches_come_to_the_layouts_of_the_first(session, pair):
    xp = session.xp
    x = session.global_tensor(ROWS[::-1], pair, td.split(0))
    for chosen, expected in ((0, ROWS), (1, ROWS[::-1]), (2, ROWS[::-1] * 2)):
        index = session.asarray(chosen)
        ways = [lambda x: (xp.sort(x, axis=0), x), lambda x: (x, x), lambda x: (x.to_global(layout=td.split(1)) * 2, x)]
        made, same = session.case(index, ways, x)
        np.testing.assert_array_equal(made.numpy(), expected)
        assert (made.layout, same.layout) == (xp.sort(x, axis=0).layout, (td.split(0),))
    made = session.cond(session.asarray(True), lambda x: x, lambda x: xp.sort(x, axis=0), x)
    assert made.layout == (td.split(0),)


def test_a_global_and_a_plain_result_are_told_apart(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    with pytest.raises(
        td.MetadataError, match=r"a global tensor, float64\[4, 3\] split\(0\) on sim:0, sim:1, and \w*Tensor"
    ):
        session.cond(session.asarray(True), lambda x: [x], lambda x: [x.to_device("sim:0")], x)


def test_a_published_routine_takes_and_makes_global_tensors(make_session, tmp_path, pair):
    address = f"local:{tmp_path.name}"
    mine = make_session(address, devices=["cpu:0", "sim:0", "sim:1"])
    other = make_session(address, devices=None)
    w = mine.global_tensor(np.eye(3), pair, td.split(1))
    x = mine.global_tensor(ROWS, pair, td.split(0))
    mine.publish("step", mine.routine(lambda x: (mine.xp.matmul(x, w), w)).link(x))
    try:
        made, captured = other.lookup("step")(other.global_tensor(ROWS, pair, td.split(0)))
        np.testing.assert_array_equal(made.numpy(), ROWS)
        assert (captured.placement, captured.layout, captured.tolist()) == (pair, (td.split(1),), np.eye(3).tolist())
        wrong = [(other.global_tensor(ROWS, pair, td.split(1)), r"a global tensor, 2: split\(1\)")]
        for value, what in (*wrong, (other.asarray(ROWS), "Tensor")):
            with pytest.raises(
                td.MetadataError, match=rf"is a global tensor, 2: split\(0\) at the capture, not {what}"
            ):
                other.lookup("step")(value)
    finally:
        mine.unpublish("step")


@pytest.mark.parametrize(
    "label", ["3: split(0)", "2: split(0), broadcast", "0: broadcast", "2: sliced", "", "1x2: broadcast"]
)
def test_a_convention_with_a_damaged_label_is_refused(session, pair, label):
    linked = session.routine(lambda x: x).link(session.global_tensor(ROWS, pair, td.split(0)))
    wire = encode(linked._convention)
    assert decode(wire, linked.program) == linked._convention
    name, names, ((kind, _, keys, members),), *rest = wire
    with pytest.raises(td.ProtocolError, match="damaged"):
        decode((name, names, ((kind, label, keys, members),), *rest), linked.program)


def test_the_dag_of_a_routine_is_sound(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    step = session.routine(lambda x: session.xp.matmul(x.T, x).to_global(layout=td.split(1)))
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), ROWS.T @ ROWS)
    session.sync()
    assert session.trace().verify() == []


def test_where_periods_are_sought_ops_on_global_tensors_are_groups_as_ever(pair):
    with td.connect("local", devices=["cpu:0", "sim:0", "sim:1"], routines="auto") as session:
        x: td.Tensor = session.global_tensor(ROWS, pair, td.split(0))
        y, plain = x.copy(), session.asarray(ROWS, "sim:0")
        for _ in range(40):
            x = ((x + y) * 0.5 - y) * 0.5
            for _ in range(3):
                plain = (plain + 1.0) * 0.5 - 0.5
        assert plain.shape == ROWS.shape
        session.sync()
        expected = ROWS
        for _ in range(40):
            expected = ((expected + ROWS) * 0.5 - ROWS) * 0.5
        np.testing.assert_array_equal(x.numpy(), expected)
        periods = session.stats()["periods"]
        assert [each["calls"] for each in periods["each"]] == [9]  # those of the plain tensor alone
