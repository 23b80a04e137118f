"""The checks of `tensord doctor` on a machine with CuPy and a GPU: the CUDA runtime, memory, kernels, libraries,
graphs, page-locked memory, and modes of the GPUs.

Each check yields findings and raises nothing; a finding that is not all right has advice. `cupy`: the module, which the
caller has imported.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..drawing.figures import size
from .findings import CheckResult, judged, note, ok, warn

# For each library a call that needs it: CuPy loads a library at its first use.
_CALLS_OF_LIBRARIES: Mapping[str, Callable[[Any], object]] = {
    "cublas": lambda cupy: cupy.ones((2, 2)) @ cupy.ones((2, 2)),
    "cusolver": lambda cupy: cupy.linalg.cholesky(cupy.eye(2)),
    "cufft": lambda cupy: cupy.fft.fft(cupy.ones(4)),
}
_PINNED_BYTES = 64 << 20  # that must be available page-locked: staging takes up to four times as much
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_QUERY = ("index", "name", "mig.mode.current", "compute_mode")
_SMI_SECONDS = 10


def check_cuda(cupy: Any) -> Iterator[CheckResult]:
    for check in (check_runtime, check_memory, check_kernels, check_libraries, check_graphs, check_pinned):
        yield from check(cupy)
    yield from check_modes(nvidia_smi())


def check_runtime(cupy: Any) -> Iterator[CheckResult]:
    """The CUDA version of CuPy, whose major number may not be higher than that of the driver."""
    runtime, driver = cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.runtime.driverGetVersion()
    text = f"CuPy uses CUDA {dotted(runtime)}, the driver is for up to {dotted(driver)}"
    advice = f'update the driver, or pip install "tensord[cuda{driver // 1000}]"'
    yield judged("cuda runtime", text, doubtful=runtime // 1000 > driver // 1000, advice=advice)


def check_memory(cupy: Any) -> Iterator[CheckResult]:
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(ordinal):
            free, total = cupy.cuda.runtime.memGetInfo()
        text = f"{size(free)} of {size(total)} free"
        advice = "nvidia-smi shows which processes hold the rest"
        yield judged(f"cuda:{ordinal}", text, doubtful=free < total // 10, advice=advice)


def check_kernels(cupy: Any) -> Iterator[CheckResult]:
    """Check that kernels can be compiled, which needs NVRTC and CUDA's headers."""
    try:
        total = int((cupy.arange(3) + 1).sum())
    except Exception as error:
        advice = "install the toolkit's headers and NVRTC with CuPy: pip install 'cupy-cuda13x[ctk]' (or cuda12x)"
        yield warn("cuda kernels", f"CuPy cannot compile one: {first_line(error)}", advice)
        return
    if total == 6:
        yield ok("cuda kernels", "compiled and run")
    else:
        yield warn(
            "cuda kernels", f"1 + 2 + 3 is {total} there", "the GPU or its driver is broken: dmesg, nvidia-smi -q"
        )


def check_libraries(cupy: Any) -> Iterator[CheckResult]:
    lacking = {}
    for name, use in _CALLS_OF_LIBRARIES.items():
        try:
            use(cupy)
        except Exception as error:
            lacking[name] = f"{name}: {first_line(error)}"
    if lacking:
        packages = " ".join(f"nvidia-{name}" for name in lacking)
        yield warn(
            "cuda libraries", "; ".join(lacking.values()), f"pip install {packages}, for the CUDA that CuPy uses"
        )
    else:
        yield ok("cuda libraries", ", ".join(_CALLS_OF_LIBRARIES))


def check_graphs(_cupy: Any) -> Iterator[CheckResult]:
    """Check that routines can run as CUDA graphs, which needs NVIDIA's bindings of the driver."""
    from ....streams.cuda.driver import missing

    reason = missing()
    if reason is None:
        yield ok("cuda graphs", "cuda-bindings is installed")
    else:
        advice = "routines launch op after op; pip install cuda-bindings, for the CUDA that CuPy uses"
        yield warn("cuda graphs", reason, advice)


def check_pinned(cupy: Any) -> Iterator[CheckResult]:
    """Page-locked host memory, through which all copies go."""
    bounded = min((limit for path in _MEMORY_LIMITS if (limit := limit_in(path))), default=0)
    within = f", within this container's {size(bounded)} of memory" if bounded else ""
    try:
        cupy.cuda.alloc_pinned_memory(_PINNED_BYTES)
    except Exception as error:
        advice = "give the container more memory; `ulimit -l unlimited`, or --ulimit memlock=-1 for a container"
        yield warn("pinned memory", f"{size(_PINNED_BYTES)} cannot be allocated{within}: {first_line(error)}", advice)
    else:
        yield ok("pinned memory", f"{size(_PINNED_BYTES)} can be allocated{within}")


def check_modes(gpus: list[dict[str, str]] | None) -> Iterator[CheckResult]:
    """GPU modes in which less of a GPU is available than expected."""
    if gpus is None:
        yield note("gpu modes", "nvidia-smi is missing or does not answer, so MIG and compute mode are unknown")
        return
    for gpu in gpus:
        name = f"gpu {gpu['index']}"
        if gpu["mig.mode.current"] == "Enabled":
            advice = "a cuda device is one MIG instance: choose it with CUDA_VISIBLE_DEVICES=MIG-..., see nvidia-smi -L"
            yield warn(name, f"{gpu['name']} is split (MIG)", advice)
        elif gpu["compute_mode"] == "Prohibited":
            yield warn(
                name,
                f"{gpu['name']}: its compute mode forbids all programs",
                f"nvidia-smi -i {gpu['index']} -c DEFAULT",
            )
        elif gpu["compute_mode"] == "Exclusive_Process":
            yield note(name, f"{gpu['name']} allows one process at a time: while the daemon runs, others are refused")
        else:
            yield ok(name, f"{gpu['name']}, whole, for any number of processes")


def nvidia_smi() -> list[dict[str, str]] | None:
    """The report of nvidia-smi on each GPU; None if there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SMI_SECONDS)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(_QUERY, row, strict=True)) for row in rows if len(row) == len(_QUERY)] or None


def limit_in(path: Path) -> int:
    """A control group's memory limit in bytes, 0 for none."""
    with suppress(OSError, ValueError):
        found = int(path.read_text())
        return found if found < 1 << 60 else 0
    return 0


def dotted(number: int) -> str:
    """A version as text: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
