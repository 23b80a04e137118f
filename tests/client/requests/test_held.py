"""`session.stats(by=...)` on memory: rows that sum up to the pools, and the bytes that a session's end would free."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tensord import ProtocolError
from tensord.vm.reporting.memory.extents import STREAM, TENSOR
from tensord.vm.reporting.memory.held import KEYS

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0"])


@anywhere
def test_rows_sum_up_to_what_the_devices_have_allocated(session):
    kept = [session.asarray(np.ones(1000), device=device) for device in ("cpu:0", "sim:0", "sim:0")]
    kept.append(kept[0] @ kept[0].to_device("cpu:0"))
    session.publish("w", kept[1])
    session.sync()
    for by in KEYS:
        found = session.stats(by=by)
        memory = found["memory"]
        assert memory["by"] == by
        assert sum(row["bytes"] for row in memory["rows"]) == memory["total"]
        allocated = {name: device["allocated"] for name, device in found["devices"].items()}
        assert {pool["device"]: pool["allocated"] for pool in memory["pools"]} == allocated
        assert memory["total"] == sum(allocated.values()) == 3 * 8000 + 8
        assert json.loads(json.dumps(found)) == found


@anywhere
def test_a_session_is_told_what_its_end_would_free(session):
    kept = [session.asarray(np.ones(1000), device=device) for device in ("cpu:0", "sim:0")]
    session.publish("w", kept[0])
    session.sync()
    assert session.stats(by="session")["session"]["freed"] == {"sim:0": 8000}
    session.unpublish("w")
    assert session.stats(by="session")["session"]["freed"] == {"cpu:0": 8000, "sim:0": 8000}


@anywhere
def test_without_a_question_there_is_no_walk(session):
    assert "memory" not in session.stats()
    assert "freed" not in session.stats()["session"]


@anywhere
def test_one_cannot_sum_up_by_just_anything(session):
    with pytest.raises(ProtocolError, match="memory is summed up by session, name, device, location, not by 'size'"):
        session.stats(by="size")


def test_a_line_of_the_program_is_told_with_its_age(make_session):
    session = make_session(devices=["cpu:0"])
    kept = session.asarray(np.ones(1000))
    (row,) = session.stats(by="location")["memory"]["rows"]
    assert "test_held.py" in row["key"]
    assert 0 < row["age"] < 60
    assert kept.shape == (1000,)


def test_the_most_that_a_session_ever_had_is_told(make_session):
    session = make_session(devices=["cpu:0"])
    large = session.asarray(np.ones(1000))
    large.wait()
    large.release()
    small = session.asarray(np.ones(10))
    small.wait()
    about = session.stats()["session"]
    assert (about["bytes"], about["peak"]) == (80, 8000)


def test_rows_sum_up_while_much_is_under_way(make_session, machine_of):
    """Runs, transfers, views, and results without handles, while a stream stands still and while it moves."""
    session = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 1 << 20}])
    device = machine_of(session).devices["sim:0"]

    @session.routine
    def step(x):
        return ((x + 1.0) @ x) * x

    rng, values, seen = random.Random(0), [session.asarray(np.ones((60, 60)), device="sim:0")], set()
    device.hold("compute")
    for turn in range(120):
        if turn == 60:
            device.resume("compute")
        x = rng.choice(values)
        made = rng.choice([step, lambda x: x + x, lambda x: x.T, lambda x: x.to_device("cpu:0") + 1.0, len])(x)
        values.append(session.asarray(np.ones((60, 60)), device="sim:0") if isinstance(made, int) else made)
        del values[: max(0, len(values) - 6)]
        if turn % 4 == 0:
            memory = session.stats(by=rng.choice(list(KEYS)))["memory"]
            assert [pool["unaccounted"] for pool in memory["pools"]] == [0, 0]
            assert sum(row["bytes"] for row in memory["rows"]) == memory["total"]
            seen |= {sort for row in memory["rows"] for sort in row["sorts"]}
    assert {TENSOR, STREAM} < seen
