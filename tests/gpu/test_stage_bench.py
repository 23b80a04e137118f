"""The rows about routines, over the fake: they run, and measure what they name."""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from . import fake
from .over_fake import fake_daemon
from .record import Skip

ROOT = Path(__file__).parents[2]
IN_PROCESS = ("captured chain, embedded", "polynomial", "transformer block")  # training is the daemon's


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT)  # the rows use what is in bench and examples
    from . import routine_rows
    from . import rows as rows_of_all
    from .stage import Given

    monkeypatch.setenv(fake.VARIABLE, "1")  # sizes are small
    monkeypatch.setattr(routine_rows, "OPS", 20)
    options = argparse.Namespace(
        device="cuda:0", until=time.monotonic() + 60, chosen="", part="0/1", record=tmp_path / "record", done=None
    )
    monkeypatch.setattr(rows_of_all, "TURNS", 1)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # in daemons
    with threadpool_limits(limits=1), installed(Gpu(seed=1, memory=1 << 30)):
        given = Given(options)
        yield routine_rows.RoutineRows(given)
        given.record.close()


def events(rows: Any, folder: Path, event: str) -> list[dict[str, Any]]:
    rows.given.record.close()
    lines = (json.loads(line) for line in (folder / "record").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_row_in_one_process_is_a_run_of_graphs(rows: Any, tmp_path: Path, name: str) -> None:
    dict(rows.all())[name]()
    assert events(rows, tmp_path, "note") == []
    (figure,) = events(rows, tmp_path, "figure")
    assert figure["must"] > 0
    assert figure["value"] > 0


def test_the_rows_through_a_daemon_share_it(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def daemon(_rows: Any) -> Iterator[str]:
        with fake_daemon(tmp_path, 'devices = ["cpu:0", "cuda:0"]\n') as running:
            yield running.address

    monkeypatch.setattr(type(rows), "daemon", daemon)
    dict(rows.all())["through a daemon"]()
    found = {figure["name"]: figure for figure in events(rows, tmp_path, "figure")}
    assert len(found) == 4
    assert found["runs that were found in a plain loop"]["value"] > 0


def test_without_pytorch_its_row_is_skipped(rows: Any) -> None:
    with pytest.raises(Skip, match="PyTorch"):
        rows.beside_torch()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_step_of_pytorch_is_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    import torch

    from bench.training import RATE, numpy_step
    from examples.train_digits import initial_parameters

    from .routine_rows import torch_step

    layers = initial_parameters(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    images, labels = rng.normal(size=(8, 64)).astype(np.float32), rng.integers(0, 10, 8)
    theirs = [[torch.tensor(one) for one in pair] for pair in layers]
    torch_step(torch, theirs, torch.tensor(images), torch.tensor(labels))
    numpy_step(layers, images, labels, RATE)
    for found, expected in zip(theirs, layers, strict=True):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5)


def test_a_row_is_judged_by_its_must_and_its_aim(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from .rows import Row

    monkeypatch.setattr(type(rows.given), "is_real", True)
    row = Row("part of a copy", "GB/s", 0.85, 0.97, rate=True)
    rows.state(row, 9.8, 10.0)
    rows.state(row, 9.0, 10.0)
    with pytest.raises(AssertionError, match=r"8.5 wanted"):
        rows.state(row, 8.0, 10.0)
    assert [figure["met"] for figure in events(rows, tmp_path, "figure")] == ["aim", "must", "missed"]
