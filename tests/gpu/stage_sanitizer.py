"""A small program of many ops on the GPU under compute-sanitizer: no kernel accesses memory out of bounds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import traceback

import numpy as np

import tensord

from .record import Skip
from .stage import Given, main

TOOLS = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
ERRORS = 9  # its exit status if it has found an error
PROGRAM = "small program"


def program(device: str) -> None:
    """Uploads, elementwise ops, reductions, views, partial writes, selections, and back."""
    with tensord.connect("local", devices=["cpu:0", device]) as session:
        values = np.linspace(-1, 1, 1000, dtype=np.float32).reshape(10, 100)
        x = session.asarray(values, device=device)
        y = (x * 2 + 1)[::2, ::-1]
        x[2:4] = 0
        assert np.allclose(y.numpy(), (values * 2 + 1)[::2, ::-1])
        assert abs(float(x.sum().numpy()) - float(np.delete(values, [2, 3], 0).sum())) < 1e-3
        assert np.array_equal(session.call("sort", [y])[0].numpy(), np.sort((values * 2 + 1)[::2, ::-1]))


def sanitize(given: Given, tool: str) -> None:
    """The program in a process of its own, under the tool."""
    own = [sys.executable, "-m", "tests.gpu.stage_sanitizer", PROGRAM]
    own += ["--device", given.device, "--until", "0", "--record", "/dev/null"]
    command = [tool, "--tool", "memcheck", "--error-exitcode", str(ERRORS), "--launch-timeout", "0", *own]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=max(1.0, given.remaining), check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{tool} had not ended after {given.seconds:.0f} s; a larger --budget helps") from error
    sys.stdout.write(done.stdout + done.stderr)
    if "Device not supported" in done.stdout:
        raise Skip("compute-sanitizer does not support this device here")
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-1500:]}"


def work(given: Given) -> None:
    """The tool's run, or the program itself."""
    if given.chosen == PROGRAM:
        try:
            program(given.device)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        return
    with given.record.check("memcheck"):
        tool = next((found for name in TOOLS if (found := shutil.which(name))), None)
        if tool is None:
            raise Skip("compute-sanitizer is not installed")
        sanitize(given, tool)


if __name__ == "__main__":
    main(work)
