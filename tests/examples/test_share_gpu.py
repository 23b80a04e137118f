"""The example of one GPU for three processes: over the fake of CUDA's runtime in each of them, and without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ..forked import Forked
from ..gpu import fake
from ..gpu.over_fake import fake_daemon
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed

ROOT = Path(__file__).parents[2]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example as a module, with these options."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return import_module("share_gpu")


class Part(Forked):
    """A part of the example, over a fake of its own."""

    def __init__(self, command: list[str], **_streams: Any) -> None:
        reads, writes = os.pipe()
        env = {**os.environ, fake.VARIABLE: "7"}
        super().__init__(("tests.gpu.fake", "script"), command[1:], env=env, stdout=writes)
        os.close(writes)
        self.stdout = os.fdopen(reads)


def test_all_three_have_the_same_weights_on_the_gpu(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "find_daemon", lambda: None)
    monkeypatch.setattr(example, "own_daemon", lambda config: fake_daemon(tmp_path, config))
    monkeypatch.setattr(example, "subprocess", SimpleNamespace(Popen=Part, PIPE=subprocess.PIPE))
    example.run_all(None, "cuda:0")
    said = capsys.readouterr().out
    error = re.search(r"train: trained 200 steps; the largest error of a weight is ([\d.e+-]+)", said)
    assert error, said
    assert float(error[1]) < 1e-3
    assert re.search(r"notebook: looked at the weights on cuda:0 \d+ times with (cupy|torch)", said), said
    apart = re.search(r"server: predicted [\d,]+ rows on cuda:0; the last ones are ([\d.e+-]+) off", said)
    assert apart, said
    assert float(apart[1]) < 1e-2


def refusal(example: Any, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(sys, "argv", ["share_gpu.py", *options])
    with pytest.raises(SystemExit) as left:
        example.main()
    return str(left.value.code)


def test_without_a_gpu_it_says_what_is_lacking(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert refusal(example, monkeypatch).startswith("share_gpu: this example needs a GPU, and this machine lacks CuPy")


def test_a_device_that_there_is_not_is_named(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(Gpu(seed=1, devices=1, memory=1 << 20)):
        said = refusal(example, monkeypatch, "--device", "cuda:7")
    assert said.endswith("this machine lacks a GPU that could be cuda:7")
