"""The checks of `tensord doctor` on NVIDIA GPUs: why there is no cuda device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....interpreter.errors import TensordError
from ..drawing.figures import count, plural, size
from .findings import CheckResult, installed, note, ok, warn

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_CUPY = {"cupy-cuda11x": 11, "cupy-cuda12x": 12, "cupy-cuda13x": 13, "cupy": 0}


def nvidia_cards(root: Path = Path("/sys/bus/pci/devices")) -> int:
    cards = 0
    for device in root.iterdir() if root.is_dir() else ():
        with suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            cards += vendor == _NVIDIA and (device / "class").read_text().startswith(_DISPLAY)
    return cards


def has_cuda() -> bool:
    """Return whether there can be cuda devices: CuPy is installed, and a GPU is present."""
    return any(map(installed, _CUPY)) and bool(nvidia_cards() or next(Path("/dev").glob("nvidia[0-9]*"), None))


def driver_version() -> tuple[int | None, str]:
    """The CUDA version that the driver supports (12080 is 12.8), or None and the reason."""
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return None, f"libcuda.so.1 cannot be loaded ({error})"
    version = ctypes.c_int()
    if code := cuda.cuInit(0):
        return None, f"the driver does not start (cuInit: error {code})"
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return version.value, ""


def check_gpu() -> Iterator[CheckResult]:
    """NVIDIA GPUs: the card, its device files, the driver, CuPy."""
    cards = nvidia_cards()
    nodes = [node for node in sorted(Path("/dev").glob("nvidia[0-9]*")) if node.name[6:].isdigit()]
    if not cards and not nodes:
        yield note("gpu", "no NVIDIA GPU in this machine; cpu and sim devices work")
        return
    yield from check_nodes(cards, nodes)
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        yield warn("gpu", "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    driver, problem = driver_version()
    if driver is None:
        yield warn("nvidia driver", problem, "install the NVIDIA driver; in a container, start it with --gpus all")
        return
    yield ok("nvidia driver", f"for CUDA up to {driver // 1000}.{driver % 1000 // 10}")
    yield from check_cupy(driver)


def check_nodes(cards: int, nodes: list[Path]) -> Iterator[CheckResult]:
    """Check that the device files exist, and that we may open them."""
    if not nodes:
        yield warn(
            "gpu", f"{count(cards)} on the bus, but no /dev/nvidia0",
            "load the driver (nvidia-modprobe); in a container, start it with --gpus all",
        )  # fmt: skip
        return
    closed = [str(node) for node in (Path("/dev/nvidiactl"), *nodes) if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        advice = "join the group that owns them (often `video` or `render`) and log in again"
        yield warn("gpu", f"no permission to use {', '.join(closed)}", advice)
    else:
        yield ok("gpu", f"{count(len(nodes))} NVIDIA, which this user may use")


def check_cupy(driver: int) -> Iterator[CheckResult]:
    """CuPy: exactly one package, for this driver, and working."""
    packages = {name: number for name in _CUPY if (number := installed(name)) is not None}
    wanted = f'pip install "tensord[cuda{13 if driver >= 13_000 else 12}]"'
    if not packages:
        yield warn("cupy", "is not installed, so there are no cuda devices", wanted)
        return
    listed = ", ".join(f"{name} {number}" for name, number in packages.items())
    if len(packages) > 1:
        yield warn("cupy", f"several are installed: {listed}", f"pip uninstall {' '.join(packages)}; then {wanted}")
        return
    (name,) = packages
    if _CUPY[name] > driver // 1000:
        yield warn(
            "cupy",
            f"{listed} is for a newer CUDA than the driver's {driver // 1000}",
            f"pip uninstall {name}; then {wanted}",
        )
        return
    from ....streams.cuda.options import available

    reason = available()
    if reason:
        yield warn("cupy", f"{listed} does not work: {reason}", wanted)
    else:
        import cupy

        from .cuda import check_cuda

        yield ok("cupy", listed)
        yield from check_cuda(cupy)


NAME: Final = "kernel cache"


def check_kernels(directory: Path | None = None) -> Iterator[CheckResult]:
    """The kernel cache: its directory and size; by default that of a daemon without configuration."""
    from ....streams.cuda import kernel_cache

    try:
        directory = kernel_cache.directory_of() if directory is None else directory
        kernel_cache.check(directory)
    except TensordError as error:
        what, _, advice = error.message.partition(": ")
        yield warn(NAME, what, advice)
        return
    cached = kernel_cache.cached_kernels(directory)
    if cached.kernels:
        yield ok(NAME, f"{directory}: {plural(cached.kernels, 'kernel')}, {size(cached.nbytes)}")
    else:
        yield note(NAME, f"{directory} has no kernel yet", "tensord warm compiles kernels before they are needed")
