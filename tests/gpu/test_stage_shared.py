"""The stage of shared memory, over the fake of CUDA's runtime in all its processes."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..daemon import Daemon
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from . import fake, stage_shared
from .over_fake import FakeClient, fake_daemon
from .stage import Given


def test_all_of_it_holds_over_the_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def daemon_with(device: str) -> Iterator[Daemon]:
        with fake_daemon(tmp_path, f'devices = ["cpu:0", {{name = "{device}"}}]\n') as daemon:
            yield daemon

    monkeypatch.setenv(fake.VARIABLE, "1")  # sizes are small
    monkeypatch.setattr(stage_shared, "daemon_with", daemon_with)
    monkeypatch.setattr(stage_shared, "Puppet", FakeClient)
    monkeypatch.setattr(stage_shared, "TURNS", 2)
    options = argparse.Namespace(
        device="cuda:0", until=time.monotonic() + 100, chosen="", part="0/1", record=tmp_path / "record", done=None
    )
    with installed(Gpu(seed=1, memory=1 << 30)):
        given = Given(options)
        stage_shared.work(given)
        given.record.finish()
    events = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert not [event for event in events if event["event"] == "failed"]
    assert len([event for event in events if event["event"] == "passed"]) == 4
    assert len([event for event in events if event["event"] == "figure"]) == 3
