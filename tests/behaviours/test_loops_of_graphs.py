"""Loops whose bodies have become graphs, over the fake of CUDA's runtime: rounds, errors inside, cancellation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.main import main
from tensord.interpreter.errors import CancelledError, KernelError

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .looking_inside import assert_sound, machine_of, run_until_graph, until

SIZE, ROUNDS = 16, 12
CUDA: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session(gpu: Gpu) -> Iterator[Any]:  # noqa: ARG001 - it has to be there before
    with td.connect("local", devices=CUDA) as one:
        yield one


def put(session: Any, values: Any) -> Any:
    return session.asarray(np.asarray(values), device="cuda:0").wait()


def body(x: Any) -> Any:
    return (x * 0.5 + 1.0) * 1.25


def after(values: Any, rounds: int) -> Any:
    for _ in range(rounds):
        values = body(values)
    return values


def test_each_round_of_a_repeat_is_one_launch(gpu: Gpu, session: Any) -> None:
    x = put(session, np.arange(1.0 * SIZE))
    routine = session.routine(lambda x: session.repeat(ROUNDS, body, x))
    run_until_graph(gpu, session, lambda: routine(x))
    routine(x).wait()
    gpu.calls.clear()
    np.testing.assert_array_equal(routine(x).numpy(), after(np.arange(1.0 * SIZE), ROUNDS))
    assert gpu.calls["graphLaunch"] == ROUNDS
    assert gpu.calls["launchKernel"] <= 1  # the copy of the state
    (piece,) = routine.report()["pieces"]
    assert piece["blocks"][0][0]["graph"]["nodes"] >= 3
    assert_sound(session)


def test_each_round_of_a_while_loop_is_a_launch_and_a_look(gpu: Gpu, session: Any) -> None:
    xp = session.xp

    def small(x: Any) -> Any:
        return xp.sum(x * 2.0) < 1000.0

    routine = session.routine(lambda x: session.while_loop(small, lambda x: (x + 1.0) * 1.5, x))
    x, expected = put(session, np.arange(1.0 * SIZE)), np.arange(1.0 * SIZE)
    rounds = 0
    while (expected * 2.0).sum() < 1000.0:
        expected, rounds = (expected + 1.0) * 1.5, rounds + 1
    for _ in range(8):
        run_until_graph(gpu, session, lambda: routine(x))
    gpu.calls.clear()
    np.testing.assert_array_equal(routine(x).numpy(), expected)
    assert gpu.calls["graphLaunch"] == 2 * rounds + 1  # the test, too
    assert session.trace().verify() == []
    assert_sound(session)


def test_what_a_round_refuses_fails_the_loop_with_its_line_and_nothing_else(gpu: Gpu, session: Any) -> None:
    """The positions rise from round to round, beyond the end of the table in the last ones."""
    xp = session.xp

    def step(table: Any, positions: Any, total: Any) -> Any:
        return table, positions + 1, total + xp.take(table, positions) * 0.5

    routine = session.routine(lambda *state: session.repeat(ROUNDS, step, *state)[2])
    table, total = put(session, np.arange(20.0)), put(session, np.zeros(2))
    near, far = put(session, np.array([0, 3])), put(session, np.array([0, 10]))
    run_until_graph(gpu, session, lambda: routine(table, near, total))
    expected = sum(np.arange(20.0)[np.array([0, 3]) + n] * 0.5 for n in range(ROUNDS))
    failed, healthy = routine(table, far, total), routine(table, near, total)
    with pytest.raises(KernelError, match=r"take.*index 20 is out of bounds") as caught:
        failed.numpy()
    assert "step" in str(caught.value.location)
    np.testing.assert_array_equal(healthy.numpy(), expected)
    assert_sound(session)


def test_a_loop_of_graphs_is_cancelled_between_two_rounds(gpu: Gpu, session: Any) -> None:
    x, w = put(session, np.arange(1.0 * SIZE)), put(session, np.zeros(SIZE))

    def step(x: Any) -> Any:
        nonlocal w
        w += 1.0
        return body(x)

    routine = session.routine(lambda x, n: session.repeat(n, step, x))
    run_until_graph(gpu, session, lambda: routine(x, put(session, np.asarray(ROUNDS))))
    begun = gpu.calls["graphLaunch"]
    found = routine(x, put(session, np.asarray(10**6)))
    session.flush()
    until(session, lambda: gpu.calls["graphLaunch"] > begun)
    session.cancel()
    session.restart()
    with pytest.raises(CancelledError, match=r"in the middle of a repeat_loop; rounds begun: \d+"):
        found.numpy()
    with pytest.raises(CancelledError, match="in the middle"):
        w.numpy()
    w = put(session, np.zeros(SIZE))
    np.testing.assert_array_equal(session.repeat(3, body, x).numpy(), after(np.arange(1.0 * SIZE), 3))
    assert not machine_of(session).engine.live


def test_a_trace_names_the_ops_inside_of_a_graph(
    gpu: Gpu, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = put(session, np.arange(1.0 * SIZE))
    routine = session.routine(body, passes="none")
    run_until_graph(gpu, session, lambda: routine(x))
    routine(x).wait()
    trace = session.trace()
    trace.save(tmp_path / "run.trace")
    last = max(record.id for record in trace.records if record.part)
    with pytest.raises(SystemExit):
        main(["trace", "show", str(tmp_path / "run.trace"), "--id", str(last), "--inside"])
    rows = capsys.readouterr().out.splitlines()
    inside = [line for line in rows if line.split() and line.split()[0].startswith(f"{last}/")]
    assert [next(op for op in ("multiply", "add") if op in line) for line in inside] == ["multiply", "add", "multiply"]
