"""The stage of collectives, over the fakes of CUDA's runtime and of NCCL."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pytest

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from . import stage_collectives
from .stage import Given


def events_of(tmp_path: Path, gpu: Gpu) -> list[dict[str, Any]]:
    """The stage's report on these GPUs."""
    record = tmp_path / "record"
    options = argparse.Namespace(
        device="cuda:0", until=time.monotonic() + 100, chosen="", part="0/1", record=record, done=None
    )
    with installed(gpu):
        given = Given(options)
        stage_collectives.work(given)
        given.record.finish()
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_all_of_it_holds_over_the_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_collectives, "TURNS", 2)
    monkeypatch.setattr(stage_collectives, "DTYPES", ("int32", "float32"))
    events = events_of(tmp_path, Gpu(seed=1, devices=2, memory=1 << 28, nccl=True))
    assert [event for event in events if event["event"] == "failed"] == []
    assert len([event for event in events if event["event"] == "passed"]) == 8


@pytest.mark.parametrize(("devices", "why"), [(1, "fewer than two GPUs"), (2, "does not find NCCL")])
def test_without_several_gpus_or_nccl_a_note_says_so(tmp_path: Path, devices: int, why: str) -> None:
    events = events_of(tmp_path, Gpu(seed=1, devices=devices, memory=1 << 28))
    assert why in str([event for event in events if event["event"] == "note"])
    assert not [event for event in events if event["event"] == "passed"]
