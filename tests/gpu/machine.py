"""The machine of a proof: Python, packages, processor, GPU. In a process of its own, since importing CuPy may crash.

python -m tests.gpu.machine cuda:0      # JSON
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

PACKAGES = (
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "cupy",
    "cuda-bindings",
    "pyzmq",
    "msgpack",
    "structlog",
    "click",
    "rich",
    "scipy",
    "scikit-learn",
    "array-api-strict",
    "array-api-compat",
    "hypothesis",
    "pytest",
    "pytest-timeout",
)
MODULES = ("sklearn", "array_api_strict")
QUERY = "name,driver_version,memory.total,memory.used,mig.mode.current,compute_mode,ecc.mode.current,pcie.link.gen.max"
TOOLS = ("nvidia-smi", "compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")


def describe(device: str) -> dict[str, Any]:
    """The whole description. `missing`: why the device cannot be opened, "" if it can."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "modules": {name: find_spec(name) is not None for name in MODULES},
        "missing": missing(device),
        "nvidia_smi": nvidia_smi(),
        "tools": {name: found for name in TOOLS if (found := shutil.which(name))},
        "gpu": gpu() if device.startswith("cuda") and not missing(device) else None,
    }


def installed(name: str) -> str | None:
    """The version of a distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing(device: str) -> str:
    """Why the device cannot be opened."""
    from tensord.interpreter.errors import MetadataError
    from tensord.streams.catalogue import check_devices

    try:
        check_devices([device])
    except MetadataError as error:
        return str(error)
    return ""


def nvidia_smi() -> dict[str, str] | str:
    """The report of the driver's tool on the first GPU, or the reason why there is none."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    first = done.stdout.splitlines()[0] if done.stdout.strip() else ""
    return dict(zip(QUERY.split(","), (word.strip() for word in first.split(",")), strict=False))


def gpu() -> dict[str, Any]:
    """CuPy's properties of the first GPU."""
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    free, total = runtime.memGetInfo()
    wanted = ("name", "major", "minor", "multiProcessorCount", "asyncEngineCount", "l2CacheSize", "integrated")
    found = {name: properties.get(name) for name in wanted}
    return {
        **{name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()},
        "driver": runtime.driverGetVersion(),
        "runtime": runtime.runtimeGetVersion(),
        "free": free,
        "total": total,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe(sys.argv[1])))
