"""The device memory of graphs is counted, bounded, and given up for values; so is that of long arenas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

import tensord as td
from tensord.streams.cuda import cuda as cuda_device
from tensord.streams.graph import NODE_BYTES
from tensord.vm.routines.running.graphing import SHORT

from ..puppet import eventually
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .looking_inside import assert_sound, device_of, machine_of, run_until_graph

MIB = 1 << 20
LIMIT = 16 * MIB
LONG = 6 << 10  # elements: thirty inner values of them are more than the arena without a limit, 1 MiB
CUDA: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": LIMIT, "cache": MIB, "reserve": MIB}]


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session(gpu: Gpu) -> Iterator[Any]:  # noqa: ARG001 - it has to be there before
    with td.connect("local", devices=CUDA) as one:
        yield one


def put(session: Any, values: Any) -> Any:
    return session.asarray(np.asarray(values, np.float64), device="cuda:0").wait()


def small(x: Any) -> Any:
    return (x + 1.0) * x - 2.0


def long(x: Any) -> Any:
    """A function with an arena of more than 1 MiB."""
    parts = [x * float(n) + 1.0 for n in range(1, 9)]
    total = parts[0]
    for part in parts[1:]:
        total = total * 0.5 + part
    return total


def kept(session: Any) -> int:
    session.sync()
    found: int = session.stats()["devices"]["cuda:0"]["kept_for_runs"]
    return found


def graph_in(routine: Any) -> dict[str, Any]:
    (piece,) = routine.report()["pieces"]
    found: dict[str, Any] = piece["graph"]
    return found


def test_a_graph_counts_and_what_it_had_is_free_when_it_has_gone(gpu: Gpu, session: Any) -> None:
    x = put(session, np.arange(16))
    routine = session.routine(small, passes="none")
    run_until_graph(gpu, session, partial(routine, x))
    row = graph_in(routine)
    assert kept(session) == row["bytes"] + NODE_BYTES * row["nodes"]
    (rows,) = [pool for pool in held_pools(session) if pool["device"] == "cuda:0"]
    assert rows["unaccounted"] == 0
    assert_sound(session)
    del routine
    session.sync()
    small(x).wait()
    assert kept(session) == 0
    assert_sound(session)


def held_pools(session: Any) -> list[dict[str, Any]]:
    from tensord.vm.reporting.memory.held import DEVICE, Sums, held_slices

    engine, nobody = machine_of(session).engine, cast("Any", lambda *_: None)
    slices = list(held_slices(engine, Sums(DEVICE, ""), 10, nobody, nobody))
    found: list[dict[str, Any]] = slices[-1][0]["pools"]
    return found


def test_graphs_are_given_up_for_a_value_that_finds_no_room(gpu: Gpu, session: Any) -> None:
    x = put(session, np.arange(16))
    routine = session.routine(small, passes="none")
    run_until_graph(gpu, session, lambda: routine(x))
    assert kept(session) > 0
    free = LIMIT - session.stats()["devices"]["cuda:0"]["planned"]
    large = session.call("ones", [], {"shape": (free,), "dtype": "uint8"}, device="cuda:0")[0].wait()
    assert kept(session) == 0
    del large
    np.testing.assert_array_equal(routine(x).numpy(), small(np.arange(16.0)))
    run_until_graph(gpu, session, lambda: routine(x))
    assert_sound(session)


def test_a_segment_whose_graphs_find_no_room_says_so_and_runs(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "GRAPH_FRACTION", LIMIT)  # one byte for all graphs
    x = put(session, np.arange(16))
    routine = session.routine(small, passes="none")

    def is_refused() -> bool:
        np.testing.assert_array_equal(routine(x).numpy(), small(np.arange(16.0)))
        return [piece["graph"].get("why") for piece in routine.report()["pieces"]] == [SHORT]

    eventually(is_refused)
    assert kept(session) == 0


def test_the_graph_that_was_idle_for_longest_goes_first(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = put(session, np.arange(16))
    first, second, third = (session.routine(lambda x, n=n: small(x) * float(n), passes="none") for n in range(3))
    run_until_graph(gpu, session, lambda: first(x))
    each = kept(session)
    run_until_graph(gpu, session, lambda: second(x))
    first(x).wait()
    monkeypatch.setattr(cuda_device, "GRAPH_FRACTION", LIMIT / (2 * each))  # room for two
    run_until_graph(gpu, session, lambda: third(x))
    assert kept(session) <= 2 * each
    gpu.calls.clear()
    first(x)
    session.sync()
    assert gpu.calls["graphLaunch"] == 1
    second(x)
    session.sync()
    assert gpu.calls["graphLaunch"] == 1


def test_a_long_arena_is_one_block_for_all_segments_and_they_are_graphs(gpu: Gpu, session: Any) -> None:
    x = put(session, np.ones(LONG))
    assert device_of(session, "cuda:0").run_arena == MIB
    one, other = session.routine(long, passes="none"), session.routine(lambda x: long(x) + 1.0, passes="none")
    for routine in (one, other):
        run_until_graph(gpu, session, partial(routine, x))
    assert all(piece["arena"] > MIB for routine in (one, other) for piece in routine.report()["pieces"])
    assert MIB < kept(session) < 2 * LIMIT // 8
    np.testing.assert_array_equal(one(x).numpy(), long(np.ones(LONG)))
    np.testing.assert_array_equal(other(x).numpy(), long(np.ones(LONG)) + 1.0)
    assert_sound(session)


def test_a_long_arena_is_given_up_for_values_and_runs_go_on(gpu: Gpu, session: Any) -> None:
    x = put(session, np.arange(LONG))
    routine = session.routine(long, passes="none")
    run_until_graph(gpu, session, lambda: routine(x))
    free = LIMIT - session.stats()["devices"]["cuda:0"]["planned"]
    large = session.call("ones", [], {"shape": (free,), "dtype": "uint8"}, device="cuda:0")[0].wait()
    assert kept(session) == 0
    found = routine(x)  # others make room for its memory
    np.testing.assert_array_equal(found.numpy(), long(np.arange(1.0 * LONG)))
    del large, found
    run_until_graph(gpu, session, lambda: routine(x))
    np.testing.assert_array_equal(routine(x).numpy(), long(np.arange(1.0 * LONG)))
    assert_sound(session)


def test_an_arena_beyond_its_share_is_no_graph_and_the_report_says_why(session: Any) -> None:
    x = put(session, np.arange(4 * LONG))
    routine = session.routine(long, passes="none")
    for _ in range(8):
        found = routine(x)
        session.sync()
    np.testing.assert_array_equal(found.numpy(), long(np.arange(4.0 * LONG)))
    assert graph_in(routine)["why"] == "its arena has more than an eighth of the device's memory"
