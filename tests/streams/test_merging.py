"""Merges piece by piece, and of operands read in place, on host devices and on devices that launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.streams import merging
from tensord.streams.merging import merged_bytes
from tensord.streams.stream import StreamKind

from .conftest import FakeTask

SHAPE = (5, 7)
META = Meta.of(SHAPE, "float32")
DEVICES = [("cpu", {}), ("sim", {}), ("sim", {"launches": True})]
IDS = ["cpu", "sim", "launching"]


def on(device: Any, values: Any) -> Any:
    """An array in the device's memory."""
    array = device.bind(device.allocate(META.nbytes), META)
    np.asarray(array)[...] = values
    return array


def run_on(device: Any, reports: Any, work: Callable[[], object]) -> Any:
    """Execute on the stream of transfers between peers; the task, once it is reported."""
    before = len(reports.ids)
    task = FakeTask(before, work)
    device.copy_stream(StreamKind.P2P).submit([task])
    reports.wait(before + 1)
    return task


@pytest.mark.parametrize(("kind", "options"), DEVICES, ids=IDS)
@pytest.mark.parametrize("function", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("pieces", [True, False])
def test_a_merge_gives_what_the_function_gives(
    open_device: Any, reports: Any, monkeypatch: Any, kind: str, options: Any, function: str, pieces: bool
) -> None:
    monkeypatch.setattr(merging, "MERGE_PIECE_BYTES", 4 * 16)  # 16 elements: a piece is two rows
    one, two = (open_device(f"{kind}:{n}", **options) for n in range(2))
    rng = np.random.default_rng(1)
    mine, theirs = (rng.standard_normal(SHAPE).astype("float32") for _ in range(2))
    base, source, target = on(one, mine), on(two, theirs), on(one, 0)
    receive = one.peer_copy if pieces else None
    task = run_on(one, reports, lambda: one.merge(target, base, source, function, receive))
    assert task.error is None
    expected = getattr(np, function)(mine, theirs)
    assert np.asarray(target).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("kind", "options"), DEVICES, ids=IDS)
def test_a_stream_keeps_one_buffer_of_one_piece(
    open_device: Any, reports: Any, monkeypatch: Any, kind: str, options: Any
) -> None:
    monkeypatch.setattr(merging, "MERGE_PIECE_BYTES", 4 * 16)
    made: list[int] = []
    one, two = (open_device(f"{kind}:{n}", **options) for n in range(2))
    workspace = one.workspace

    def noted(nbytes: int) -> Any:
        made.append(nbytes)
        return workspace(nbytes)

    monkeypatch.setattr(one, "workspace", noted)
    base, source = on(one, 1), on(two, 2)
    for _ in range(3):
        assert run_on(one, reports, partial(one.merge, base, base, source, "add", one.peer_copy)).error is None
    assert np.asarray(base).tolist() == np.full(SHAPE, 7).tolist()
    assert made == [2 * 7 * 4]


def test_the_bytes_that_are_set_aside_are_those_of_the_largest_piece() -> None:
    assert merged_bytes((10,), 4) == 40
    assert merged_bytes((1 << 20, 8), 4) == 1 << 20
    assert merged_bytes((), 8) == 8


def test_a_merge_on_a_sim_device_takes_no_array_of_the_wrong_memory(open_device: Any, reports: Any) -> None:
    one, two = open_device("sim:0"), open_device("sim:1")
    source = np.ones(SHAPE, "float32")
    base, target = on(one, 1), on(one, 0)
    task = run_on(one, reports, lambda: one.merge(target, base, source, "add", one.peer_copy))
    assert task.error is not None
    assert run_on(two, reports, lambda: one.merge(target, base, source, "add", one.copy_in)).error is None
    assert np.asarray(target).tolist() == np.full(SHAPE, 2).tolist()
