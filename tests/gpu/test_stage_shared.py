"""The stage of shared memory, over the fake of CUDA's runtime in all its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import fake

ROOT = Path(__file__).parents[2]


def run(folder: Path, spec: str) -> list[dict[str, Any]]:
    """What the stage says."""
    fake.prepare(folder)
    path = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, fake.VARIABLE: spec}
    record = folder / "record"
    until = f"{time.monotonic() + 100:.1f}"
    options = ["--device", "cuda:0", "--until", until, "--record", str(record)]
    command = [sys.executable, "-m", "tests.gpu.stage_shared", *options]
    subprocess.run(command, env=env, cwd=ROOT, check=False, timeout=110)  # noqa: S603 - our own
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_all_of_it_holds_over_the_fake(tmp_path: Path) -> None:
    events = run(tmp_path, "1")
    assert not [event for event in events if event["event"] == "failed"]
    assert len([event for event in events if event["event"] == "figure"]) == 3
    assert events[-1]["event"] == "finished"
