"""A pool's memory beside the memory in use: cached blocks, their rounding, and memory that no limit counts."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.vm.reporting.memory.extents import Walk
from tensord.vm.reporting.memory.pools import pool_row
from tests.vm.bare_engine import Bare


@pytest.fixture
def bare():
    return Bare()


def row_of(bare):
    walk = Walk(bare.engine)
    held = sum(extent.nbytes for part in walk.slices() for extent in part)
    (device,) = bare.engine.devices.values()
    return pool_row(device, held, walk.rounding[device.name], walk.idle)


def test_blocks_have_more_than_was_asked_for(bare):
    bare.client().upload(np.ones(9))
    row = row_of(bare)
    assert (row["allocated"], row["rounding"], row["cached"]) == (72, 128 - 72, 0)


def test_freed_blocks_are_told_apart_with_the_largest_of_them(bare):
    client = bare.client()
    client.release(*[client.upload(np.ones(count)) for count in (8, 16, 16)])
    row = row_of(bare)
    assert (row["allocated"], row["rounding"]) == (0, 0)
    assert (row["cached"], row["cached_blocks"], row["largest_cached"]) == (64 + 128 + 128, 3, 128)


def test_bytes_without_a_holder_are_unaccounted(bare):
    assert bare.device.allocate(64) is not None
    assert row_of(bare)["unaccounted"] == 64


def test_memory_of_routines_that_no_run_has_is_told_apart(make_session, machine_of):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones((250, 250)))  # its product goes to a stream
    small = session.asarray(np.ones(8))

    @session.routine
    def forward(x):
        return ((x + 1.0) @ x) * x + x

    tiny = session.routine(lambda x: ((x @ x) + x) * x)
    for _ in range(4):
        forward(x).wait()
        tiny(small).wait()
    session.sync()
    (pool,) = session.stats(by="device")["memory"]["pools"]
    assert pool["unaccounted"] == 0
    assert pool["run_arena"] > 1 << 20
    assert pool["idle_arenas"] == []  # the pool keeps the blocks that replays are bound to
    backend = machine_of(session).devices["cpu:0"]
    with machine_of(session).locked():
        backend.pool.trim(0)
    (pool,) = session.stats(by="device")["memory"]["pools"]
    assert [idle["routine"].rpartition(".")[2] for idle in pool["idle_arenas"]] == ["forward"]
    assert pool["idle_arenas"][0]["bytes"] >= 250 * 250 * 8
    assert (pool["unaccounted"], pool["cached"]) == (0, 0)
