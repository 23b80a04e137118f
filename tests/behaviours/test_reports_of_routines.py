"""Reports on steps that are in no segment, segments that are no graph, and blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed

CUDA: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]
SIZE = 16


@pytest.fixture
def cuda() -> Iterator[Any]:
    with installed(Gpu(seed=1, memory=1 << 30)), td.connect("local", devices=CUDA) as session:
        yield session


def put(session: Any, values: Any, device: str = "cuda:0") -> Any:
    return session.asarray(np.asarray(values), device=device).wait()


def report_of(session: Any, function: Any, *operands: Any, runs: int = 3) -> Any:
    """The report of a function that was run so many times."""
    routine = session.routine(function, passes="none")
    for _ in range(runs):
        routine(*operands)
        session.sync()
    return routine.report()


def reasons(report: Any) -> dict[str, str]:
    """The reason why each step is alone, by its op."""
    return {piece["op"]: piece["why"] for piece in report["pieces"] if piece["how"] == "op by op"}


def test_each_step_that_is_alone_has_its_reason(cuda: Any) -> None:
    xp, linalg, fft = cuda.xp, cuda.xp.linalg, cuda.xp.fft

    def step(x: Any) -> Any:
        y = x * 2.0 + 1.0
        roots = linalg.solve(y, x)
        waves = fft.fft(roots + y)
        cuda.print("sum", xp.sum(y))
        there = y.to_device("cpu:0")
        chosen = xp.nonzero(y)[0]
        return waves, there + 1.0, chosen, cuda.repeat(2, lambda z: z * 2.0 + 1.0, y)

    report = report_of(cuda, step, put(cuda, np.eye(SIZE) * 3.0))
    found = reasons(report)
    assert found["solve"] == "its solver waits for the device"
    assert found["fft"] == "plans of FFTs belong to a thread"
    assert found["print"] == "a print, by the host"
    assert found["to_device"] == "a move to a device"
    assert found["nonzero"] == "a shape depends on data"
    assert found["repeat_loop"] == "control flow, which each run decides"
    assert f"op by op solve: {found['solve']}" in str(report)


def test_a_callback_and_a_lone_step_have_their_reasons(cuda: Any) -> None:
    def step(x: Any) -> Any:
        y = x + 1.0
        cuda.effect(lambda _value: None, y)
        return y * 2.0

    report = report_of(cuda, step, put(cuda, np.arange(1.0 * SIZE)))
    assert reasons(report)["effect"] == "a callback, on the host"
    assert reasons(report)["add"] == "no step next to it can join it"


def test_a_block_of_control_flow_has_pieces_of_its_own(cuda: Any) -> None:
    report = report_of(cuda, lambda x: cuda.repeat(9, lambda z: z * 0.5 + 1.0, x), put(cuda, np.arange(SIZE) * 1.0))
    (piece,) = (piece for piece in report["pieces"] if piece["op"] == "repeat_loop")
    ((body,),) = piece["blocks"]
    assert (body["how"], body["calls"]) == ("segment", 2)
    assert "    block 0:\n" in str(report)


def test_runs_that_went_op_by_op_are_counted_with_the_reason(cuda: Any) -> None:
    x = put(cuda, np.arange(2.0 * SIZE))
    routine = cuda.routine(lambda x: x.reshape((4, 4)) * 2.0 + 1.0)
    for _ in range(3):
        routine(x[:SIZE])
    packed = x[:SIZE] + 0.0
    for _ in range(3):
        routine(packed)
    cuda.sync()
    (piece,) = routine.report()["pieces"][-1:]
    assert piece["turned_away"] == {"an operand was not as it was compiled for": 2}
    assert "2 runs op by op: an operand was not as it was compiled for" in str(routine.report())


def test_a_write_to_positions_is_a_part_of_a_graph(cuda: Any) -> None:
    """The write neither looks at its positions nor sorts them; of several values for one position the last one wins."""
    x, values = put(cuda, np.zeros(SIZE)), put(cuda, np.arange(6.0))
    indices = put(cuda, np.array([3, 1, 3, -1, 1, 3]))

    def step(x: Any, values: Any, indices: Any) -> Any:
        y = x + 1.0
        y[indices] = values * 2.0
        return y - 1.0

    report = report_of(cuda, step, x, values, indices, runs=12)
    assert all("nodes" in piece["graph"] for piece in report["pieces"])
    found = cuda.routine(step)(x, values, indices).numpy()
    expected = np.zeros(SIZE)
    expected[[3, 1, -1]] = 9.0, 7.0, 5.0
    np.testing.assert_array_equal(found, expected)
