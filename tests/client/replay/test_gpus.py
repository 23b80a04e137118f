"""Recordings of GPUs, on a fake of CUDA's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.replay.bisect import bound_for, opened_sides
from tensord.client.replay.differences import BOUND_OF_GPUS
from tensord.client.replay.sides import spec_of
from tensord.interpreter.recordings.reader import RecordingReader

from ...streams.fake_cuda.gpu import Gpu
from ...streams.fake_cuda.module import installed


@pytest.fixture
def cupy() -> Iterator[Any]:
    with installed(Gpu(seed=3, memory=1 << 30)):
        import cupy

        yield cupy


@pytest.fixture
def gpu_session(cupy) -> Iterator[Any]:
    del cupy
    with td.connect("local", devices=["cpu:0", "cuda:0"]) as session:
        yield session


def test_what_ran_on_a_gpu_runs_there_again_and_without_one(gpu_session, recorded, played):
    session = gpu_session
    early = session.asarray(np.arange(8.0), device="cuda:0") * 2
    with recorded(session):
        x = session.asarray(np.linspace(-1, 1, 8), device="cuda:0")
        y = session.xp.tanh(x + early)
        y += 1
        (y @ y).numpy()
        y.to_device("cpu:0").numpy()
    for sides in (("vm", "serial"), ("cpu:0", "vm"), ("cuda:0", "sim:0")):
        player = played(*sides, within=BOUND_OF_GPUS)
        assert (player.findings, player.fetched, player.unknown) == ([], 2, 0)


def test_an_array_of_the_gpu_is_read_where_it_is_given(cupy, gpu_session, recorded, played):
    values = np.arange(5.0)
    with recorded(gpu_session):
        x = gpu_session.asarray(cupy.array(values), device="cuda:0")
        assert (x * 3).tolist() == [0, 3, 6, 9, 12]
    player = played("serial", "cpu:0")
    assert (player.findings, player.fetched, player.unknown) == ([], 1, 0)


def test_the_bound_is_that_of_gpus_where_there_is_one(gpu_session, recorded, tmp_path):
    with recorded(gpu_session):
        gpu_session.asarray([1.0], device="cuda:0").numpy()
    with RecordingReader(tmp_path / "x.rec") as reader:
        for texts, wanted in ((("vm", "serial"), BOUND_OF_GPUS), (("cpu:0", "serial"), 0.0)):
            with opened_sides(reader, [spec_of(text) for text in texts], {}) as sides:
                assert bound_for(sides, None) == wanted
                assert bound_for(sides, 3.0) == 3.0
