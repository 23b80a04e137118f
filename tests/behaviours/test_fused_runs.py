"""Runs of routines whose elementwise steps are one generated kernel, over the fake of CUDA's runtime."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td

from ..each_case import each_case
from ..streams.cuda.loops_of_cupy import LOOPS
from ..streams.fake_cuda.generated import give_kernels
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .looking_inside import assert_sound, device_of, until

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

DEVICES: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]
VALUES = np.linspace(-3, 3, 1000, dtype=np.float32)


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[list[str]]:
    """The names of the generated kernels that are launched."""
    with installed(Gpu(seed=3, memory=1 << 30)) as gpu:
        yield give_kernels(gpu, sys.modules["cupy"], LOOPS, tmp_path)


@pytest.fixture
def session(launched: list[str]) -> Iterator[Any]:  # noqa: ARG001 - the fake is there first
    with td.connect("local", devices=DEVICES) as opened:
        yield opened


def put(session: Any, value: Any) -> Any:
    """A tensor on the GPU."""
    return session.asarray(value, device="cuda:0").wait()


def compiled(session: Any) -> None:
    """Wait until all requested kernels are compiled."""
    sources = device_of(session, "cuda:0")._fused.sources
    until(session, lambda: sources._admitted <= sources.compiled.keys())


def warm(session: Any, function: Callable[..., Any], *operands: Any) -> Any:
    """A routine that has run as many times as it takes to have its kernels compiled and loaded."""
    routine = session.routine(function)
    for _ in range(4):
        routine(*operands)
        session.sync()
        compiled(session)
    return routine


def polynomial(x: Any) -> Any:
    return ((x * 2 + 1) * x - 3) * x


def chosen(xp: Any) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        big = x > y
        return xp.where(big, xp.maximum(x, 0.5) / y, x - y), big

    return run


def test_a_run_is_one_launch_once_its_kernel_is_compiled(session: Any, launched: list[str]) -> None:
    x, f = put(session, VALUES), session.routine(polynomial)
    expected = polynomial(VALUES)
    for _ in range(3):
        np.testing.assert_array_equal(f(x).numpy(), expected)
    compiled(session)
    np.testing.assert_array_equal(f(x).numpy(), expected)
    launched.clear()
    for _ in range(5):
        np.testing.assert_array_equal(f(x).numpy(), expected)
    assert set(launched) == {"fused_packs"}
    assert 0 < len(launched) <= 6  # finally by a graph, whose capture is one more call
    assert_sound(session)


def test_a_graph_has_other_operands_and_numbers_put_into_the_node_of_a_fusion(
    session: Any, launched: list[str]
) -> None:
    f = session.routine(lambda x, a: (x * a + 1) * x)
    for n in range(20):
        values, number = VALUES + np.float32(n), np.float32(n % 5)
        np.testing.assert_array_equal(f(put(session, values), float(number)).numpy(), (values * number + 1) * values)
        compiled(session)
    (piece,) = f.report()["pieces"]
    assert piece["graph"]["nodes"] == 1
    launched.clear()
    f(put(session, VALUES), 2.0).numpy()
    assert launched == []
    assert_sound(session)


def test_results_are_the_same_before_and_after(session: Any, launched: list[str]) -> None:
    rng = np.random.default_rng(1)
    x, y = (put(session, rng.normal(size=(30, 7)).astype(np.float32)) for _ in range(2))
    function = chosen(session.xp)
    f, expected = session.routine(function), [one.numpy().tobytes() for one in function(x, y)]
    for _ in range(4):
        assert [one.numpy().tobytes() for one in f(x, y)] == expected
        compiled(session)
    assert launched[-1] == "fused_packs"
    assert_sound(session)


def test_a_step_in_place_reads_before_it_writes(session: Any, launched: list[str]) -> None:
    def step(weights: Any, gradient: Any, rate: float) -> None:
        weights -= gradient * rate + weights * 0.25

    w, g = put(session, VALUES), put(session, np.ones_like(VALUES))
    f, expected = session.routine(step), VALUES
    for _ in range(6):
        f(w, g, 0.5)
        expected = expected - (np.float32(0.5) + expected * np.float32(0.25))
        np.testing.assert_array_equal(w.numpy(), expected)
        compiled(session)
    assert launched[-1] == "fused_packs"
    assert_sound(session)


def test_operands_of_another_layout_are_computed_step_by_step(session: Any, launched: list[str]) -> None:
    square = VALUES[:900].reshape(30, 30)
    x = put(session, square)
    f = warm(session, polynomial, x)
    launched.clear()
    np.testing.assert_array_equal(f(x.T).numpy(), polynomial(square.T))
    assert "fused_packs" not in launched
    assert_sound(session)


def test_the_report_shows_the_source_and_whether_it_is_compiled(session: Any) -> None:
    f = warm(session, polynomial, put(session, VALUES))
    (piece,) = f.report(source=True)["pieces"]
    ((kernel),) = piece["kernels"]
    assert kernel["compiled"]
    assert [line.partition("//")[2].strip() for line in kernel["source"].splitlines() if "const float v" in line] == [
        "multiply",
        "add",
        "multiply",
        "subtract",
        "multiply",
    ]


@each_case("blocking", [True, False])
def test_with_launch_blocking_nothing_is_fused(launched: list[str], blocking: bool) -> None:
    devices: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "launch_blocking": blocking}]
    with td.connect("local", devices=devices) as session:
        x = put(session, VALUES)
        f = warm(session, polynomial, x)
        launched.clear()
        np.testing.assert_array_equal(f(x).numpy(), polynomial(VALUES))
        assert ("fused_packs" in launched) != blocking
