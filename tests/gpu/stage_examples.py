"""The examples on the device, each as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .bundle import ROOT
from .stage import Given, main

EPOCHS = 10
ACCURACY = 0.95  # of the test digits
CLOSE = 1e-2  # weights after so many epochs of float32, relative to the largest


def example(name: str, *options: str, timeout: float) -> str:
    """The output of the example; AssertionError if it fails."""
    command = [sys.executable, str(ROOT / "examples" / name), *options]
    done = subprocess.run(  # noqa: S603 - our own command
        command, capture_output=True, text=True, timeout=max(1.0, timeout), check=False, cwd=ROOT
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-1000:] or done.stdout[-1000:]}"
    return done.stdout


def train(given: Given, device: str, folder: Path) -> float:
    """Train the digits there; the accuracy."""
    options = ("--device", device, "--epochs", str(EPOCHS), "--out", str(folder))
    said = example("train_digits.py", *options, timeout=given.remaining)
    found = re.search(r"test accuracy ([\d.]+)%", said)
    assert found, said
    return float(found[1]) / 100


def digits(given: Given) -> None:
    """It learns, and its weights are those of the same training on the CPU but for rounding."""
    with tempfile.TemporaryDirectory(prefix="tdg-") as folder:
        accuracy = train(given, given.device, Path(folder, "device"))
        given.record.figure("test accuracy", round(accuracy, 4), epochs=EPOCHS)
        assert accuracy >= ACCURACY, f"test accuracy {accuracy:.2%}"
        on_cpu = train(given, "cpu:0", Path(folder, "cpu"))
        given.record.figure("test accuracy on cpu:0", round(on_cpu, 4), epochs=EPOCHS)
        found, expected = (np.load(Path(folder, name, "weights.npz")) for name in ("device", "cpu"))
        apart = max(float(np.abs(found[n] - expected[n]).max() / np.abs(expected[n]).max()) for n in expected.files)
    given.record.figure("largest difference of the weights, relative", apart)
    assert apart <= CLOSE, f"the weights are {apart:.1e} apart, {CLOSE:.0e} at most"


def work(given: Given) -> None:
    """One check for each example."""
    with given.record.check("train_digits"):
        digits(given)
    larger = (
        ["--batch", "8", "--tokens", "256", "--width", "512", "--heads", "8"] if given.is_real else ["--batch", "2"]
    )
    for size in ([], larger):
        with given.record.check(" ".join(["transformer_block", *size])):
            example("transformer_block.py", "--device", given.device, *size, timeout=given.remaining)


if __name__ == "__main__":
    main(work)
