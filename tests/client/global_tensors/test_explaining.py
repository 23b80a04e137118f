"""`session.explain` reports which parts move, how many bytes, and why; nothing runs."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.client.collectives.collectives import COLLECTIVE_NOTES
from tensord.client.global_tensors.explaining import ROW_NOTES


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0", "sim:1"])


@pytest.fixture
def pair():
    return td.placement(["sim:0", "sim:1"])


def test_each_call_has_a_row_and_nothing_runs(session, pair):
    x = session.global_tensor(np.zeros((4, 8), "float32"), pair, td.split(0))
    y = session.global_tensor(np.zeros((4, 8), "float32"), pair)

    def step(x, y):
        z = x.to_global(layout=td.split(1))
        y += 1
        return y * 2, z.to_global(layout=td.broadcast)

    before = session.stats()["session"]["tensors"]
    explanation = session.explain(step, x, y)
    assert [row["op"] for row in explanation.rows] == ["to_global", "add", "multiply", "to_global"]
    exchange, in_place, product, gather = explanation.rows
    (move,) = exchange["moves"]
    assert (move["what"], move["before"], move["after"], move["bytes"]) == ("all_to_all", "split(0)", "split(1)", 64)
    assert move["devices"] == ["sim:0", "sim:1"]
    assert move["seconds"] == 32 / move["bandwidth"]
    assert (in_place["moves"], in_place["why"], in_place["inputs"]) == ([], "the layouts fit", ["broadcast", "number"])
    assert product["outputs"] == ["broadcast"]
    assert gather["bytes"] == 128
    assert explanation.bytes == 192
    assert "test_explaining.py" in exchange["line"]
    lines = str(explanation).splitlines()
    assert lines[0].split() == ["line", "op", "layouts", "moves", "why"]
    assert "all_to_all of operand 0, 64 B" in lines[1]
    assert lines[-1] == "192 B in all"
    assert y.tolist() == [[0.0] * 8] * 4
    assert session.stats()["session"]["tensors"] == before


def test_a_number_in_a_tensor_of_one_device_goes_to_each(session, pair):
    x, one = session.global_tensor(np.zeros(4), pair, td.split(0)), session.asarray(1.0)
    sent, added = session.explain(lambda x, one: x + one, x, one).rows
    assert (sent["op"], sent["bytes"], added["op"], added["bytes"]) == ("add", 16, "add", 0)
    assert sent["why"] == "a tensor of one device, without dimensions, goes to each device"


@pytest.mark.parametrize("merge", ["copy", "stream"])
def test_collectives_of_plain_tensors_have_rows(session, merge):
    x, y = [session.asarray(np.ones((4, 2)), device=name) for name in ("sim:0", "sim:1")]

    def step(x, y):
        total = td.collectives.all_reduce([x, y], merge=merge)
        td.collectives.all_gather([x, y])
        td.collectives.broadcast(total[0], ["sim:1"])
        return td.collectives.reduce_scatter(total)

    rows = session.explain(step, x, y).rows
    assert [row["op"] for row in rows] == ["all_reduce", "all_gather", "broadcast", "reduce_scatter"]
    assert [row["bytes"] for row in rows] == [128, 128, 64, 64]
    assert (rows[0]["inputs"], rows[2]["outputs"]) == (["sim:0", "sim:1"], ["sim:1"])
    assert "test_explaining.py" in rows[0]["line"]
    (move,) = rows[0]["moves"]
    assert (move["what"], move["devices"], move["seconds"]) == (
        "all_reduce",
        ["sim:0", "sim:1"],
        64 / move["bandwidth"],
    )
    assert "all_reduce of its operands, 128 B" in str(session.explain(step, x, y))
    assert COLLECTIVE_NOTES.note is None


def test_an_op_that_each_device_computes_whole_says_so(session, pair):
    x = session.global_tensor(np.zeros((4, 8)), pair, td.split(0))
    (row,) = session.explain(session.xp.linalg.pinv, x).rows
    assert (row["moves"][0]["what"], row["outputs"]) == ("all_gather", ["broadcast"])
    assert row["why"].startswith("each device computes the whole op")


def test_a_function_that_asks_for_a_value_says_so_and_no_row_is_left(session, pair):
    x = session.global_tensor(np.zeros((4, 8)), pair, td.split(0))
    with pytest.raises(td.CaptureError):
        session.explain(lambda x: x + x.numpy(), x)
    assert ROW_NOTES.rows is None
    assert repr(session.explain(lambda x: x, x)) == "<explanation of 0 calls, which move 0>"
