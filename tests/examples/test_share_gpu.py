"""The example of one GPU for three processes: over the fake of CUDA's runtime in each of them, and without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ..gpu import fake

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "share_gpu.py"), *arguments]
    path = os.pathsep.join([environment.pop("site", ""), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=env)  # noqa: S603


def test_all_three_have_the_same_weights_on_the_gpu(tmp_path: Path) -> None:
    fake.prepare(tmp_path)
    done = run(site=str(tmp_path), **{fake.VARIABLE: "1"})
    assert done.returncode == 0, done.stderr + done.stdout
    error = re.search(r"train: trained 200 steps; the largest error of a weight is ([\d.e+-]+)", done.stdout)
    assert error, done.stdout
    assert float(error[1]) < 1e-3
    assert re.search(r"notebook: looked at the weights on cuda:0 \d+ times with (cupy|torch)", done.stdout), done.stdout
    apart = re.search(r"server: predicted [\d,]+ rows on cuda:0; the last ones are ([\d.e+-]+) off", done.stdout)
    assert apart, done.stdout
    assert float(apart[1]) < 1e-2


def test_without_a_gpu_it_says_what_is_lacking() -> None:
    done = run()
    assert done.returncode == 1
    assert re.search(r"^share_gpu: this example needs a GPU, and this machine lacks (CuPy|a GPU)", done.stderr)


def test_a_device_that_there_is_not_is_named(tmp_path: Path) -> None:
    fake.prepare(tmp_path)
    done = run("--device", "cuda:7", site=str(tmp_path), **{fake.VARIABLE: "1"})
    assert "this machine lacks a GPU that could be cuda:7" in done.stderr
