"""A trial of the proof without a GPU: over a fake of CUDA's runtime, in each of its processes, with faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from ..forked import Forked
from . import fake, supervise
from .bundle import ROOT
from .check import main

LOOK = """
import cupy, json
def attempt(name):
    try:
        return float(getattr(cupy, name)(cupy.asarray([1.0])).get()[0])
    except Exception as error:
        return type(error).__name__
print(json.dumps([attempt(name) for name in ("exp", "sinh", "cbrt", "negative")]))
"""


def test_a_process_with_the_site_has_the_fake_with_its_faults(tmp_path):
    fake.prepare(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, fake.VARIABLE: "1,wrong=negative,raises=sinh,missing=cbrt"}
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    exp, sinh, cbrt, negative = json.loads(done.stdout)
    assert exp == pytest.approx(2.718281828)
    assert (sinh, cbrt) == ("RuntimeError", "AttributeError")
    assert negative == pytest.approx(-1.001)


@pytest.mark.parametrize("spec", ["one", "1,burn=exp", "1,wrong=", "1,wrong"])
def test_faults_that_there_are_not_are_refused_with_those_that_there_are(spec, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--fake", spec])
    assert ended.value.code == 2
    assert spec == "one" or "wrong=FUNCTION" in capsys.readouterr().err


def forked(command: list[str], *, stdout: IO[bytes], env: dict[str, str], cwd: Path, **_: Any) -> Forked:
    """A process of a stage, with the package imported."""
    output = stdout.fileno()
    return Forked(("tests.gpu.fake", "main"), command[2:], env=env, cwd=cwd, stdout=output, stderr=output)


def test_a_gpu_that_is_a_fake_is_never_proven(tmp_path, capsys, monkeypatch):
    """One stage in full: its processes find the fake, and its results are no proof."""
    processes = SimpleNamespace(Popen=forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(supervise, "subprocess", processes)
    assert main(["--fake", "1", "--only", "temporaries", "--budget", "3", "--out", str(tmp_path)]) in {0, 1}
    assert "this is no proof: cuda:0 was a fake (1)" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["machine"]["gpu"]["name"] == "a fake of CUDA's runtime"
