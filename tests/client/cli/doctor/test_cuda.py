"""The doctor's findings on a GPU that CuPy can open: each trouble is named, with a remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.doctor import cuda as doctor_cuda
from tensord.client.cli.doctor.findings import CheckResult, Level

from ....each_case import each_case

GIB = 1 << 30


def cupy(**changes: Any) -> Any:
    """The parts of CuPy that the doctor looks at. `changes`: the parts that are wrong."""
    runtime = {
        "runtimeGetVersion": lambda: changes.get("runtime", 13_000),
        "driverGetVersion": lambda: changes.get("driver", 13_010),
        "getDeviceCount": lambda: 1,
        "memGetInfo": lambda: (changes.get("free", 70 * GIB), 80 * GIB),
    }
    cuda = {
        "runtime": SimpleNamespace(**runtime),
        "Device": lambda _: nullcontext(),
        "alloc_pinned_memory": changes.get("pin", lambda _: None),
    }
    arrays = {"ones": np.ones, "eye": np.eye, "linalg": np.linalg, "fft": np.fft}
    return SimpleNamespace(cuda=SimpleNamespace(**cuda), arange=changes.get("arange", np.arange), **arrays)


def failing(message: str) -> Any:
    def fail(*_: object) -> None:
        raise RuntimeError(message)

    return fail


def one(findings: Any) -> CheckResult:
    (found,) = findings
    assert found.advice or found.level in {Level.OK, Level.NOTE}
    return found


def test_a_gpu_that_is_well(monkeypatch):
    rows = [{"index": "0", "name": "H100", "mig.mode.current": "Disabled", "compute_mode": "Default"}]
    monkeypatch.setattr(doctor_cuda, "nvidia_smi", lambda: rows)
    monkeypatch.setattr("tensord.streams.cuda.driver.missing", lambda: None)
    found = list(doctor_cuda.check_cuda(cupy()))
    assert {finding.level for finding in found} == {Level.OK}
    assert "70 GiB of 80 GiB free" in [finding.message for finding in found]


def test_a_runtime_that_is_newer_than_the_driver():
    found = one(doctor_cuda.check_runtime(cupy(runtime=13_000, driver=12_080)))
    assert (found.level, found.message) == (Level.WARN, "CuPy uses CUDA 13.0, the driver is for up to 12.8")
    assert "tensord[cuda12]" in found.advice


def test_bindings_that_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda", None)
    found = one(doctor_cuda.check_graphs(cupy()))
    assert (found.level, found.check) == (Level.WARN, "cuda graphs")
    assert "cuda-bindings cannot be imported" in found.message
    assert "pip install cuda-bindings" in found.advice


def test_memory_that_somebody_else_holds():
    assert one(doctor_cuda.check_memory(cupy(free=GIB))).level is Level.WARN


def test_kernels_that_cannot_be_compiled():
    found = one(doctor_cuda.check_kernels(cupy(arange=failing("cannot open source file cuda_fp16.h\nmore"))))
    assert found.level is Level.WARN
    assert found.message.endswith("RuntimeError: cannot open source file cuda_fp16.h")
    assert "[ctk]" in found.advice


def test_kernels_that_give_wrong_values():
    assert one(doctor_cuda.check_kernels(cupy(arange=np.zeros))).level is Level.WARN


def test_libraries_that_are_missing():
    broken = cupy()
    broken.linalg = SimpleNamespace(cholesky=failing("libcusolver.so.12: cannot open shared object file"))
    broken.fft = SimpleNamespace(fft=failing(""))
    found = one(doctor_cuda.check_libraries(broken))
    assert found.level is Level.WARN
    assert (
        found.message
        == "cusolver: RuntimeError: libcusolver.so.12: cannot open shared object file; cufft: RuntimeError"
    )
    assert "nvidia-cusolver nvidia-cufft" in found.advice


def test_pinned_memory_that_cannot_be_had(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text(f"{2 * GIB}\n")
    monkeypatch.setattr(doctor_cuda, "_MEMORY_LIMITS", (tmp_path / "none", limit))
    assert (
        one(doctor_cuda.check_pinned(cupy())).message
        == "64 MiB can be allocated, within this container's 2 GiB of memory"
    )
    found = one(doctor_cuda.check_pinned(cupy(pin=failing("out of memory"))))
    assert (found.level, "memlock" in found.advice) == (Level.WARN, True)


@pytest.mark.parametrize(("text", "bytes_"), [("max\n", 0), ("9223372036854771712", 0), ("4096", 4096)])
def test_a_limit_of_memory_that_is_none(tmp_path, text, bytes_):
    (tmp_path / "limit").write_text(text)
    assert doctor_cuda.limit_in(tmp_path / "limit") == bytes_


@each_case(
    ("mig", "mode", "level", "word"),
    [
        ("Enabled", "Default", Level.WARN, "MIG"),
        ("[N/A]", "Prohibited", Level.WARN, "forbids all programs"),
        ("Disabled", "Exclusive_Process", Level.NOTE, "one process"),
        ("Disabled", "Default", Level.OK, "whole"),
    ],
)
def test_modes(mig, mode, level, word):
    row = {"index": "0", "name": "H100", "mig.mode.current": mig, "compute_mode": mode}
    found = one(doctor_cuda.check_modes([row]))
    assert found.level is level
    assert word in found.message


def test_what_the_drivers_tool_says(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    said = SimpleNamespace(stdout="0, NVIDIA H100 80GB HBM3, Disabled, Default\n\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    assert doctor_cuda.nvidia_smi() == [
        {"index": "0", "name": "NVIDIA H100 80GB HBM3", "mig.mode.current": "Disabled", "compute_mode": "Default"}
    ]
    monkeypatch.setattr(subprocess, "run", failing_with(subprocess.TimeoutExpired("nvidia-smi", 10)))
    assert doctor_cuda.nvidia_smi() is None
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert one(doctor_cuda.check_modes(doctor_cuda.nvidia_smi())).level is Level.NOTE


def failing_with(error: Exception) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
