"""CUDA in this process: imports CuPy at its first use, and waits for a device."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

NO_CUPY = "CuPy cannot be imported in this process (install tensord[cuda12] or tensord[cuda13])"


def cupy() -> Any:
    """CuPy, or None where it cannot be imported."""
    try:
        import cupy
    except Exception:  # the driver may not fit, and CuPy may raise anything
        return None
    return cupy


def synchronize(ordinal: int) -> None:
    """Wait until the device has done everything that this process has launched there, on any stream.

    An error means a lost device, which does nothing more.
    """
    cp = cupy()
    with suppress(Exception), cp.cuda.Device(ordinal):
        cp.cuda.runtime.deviceSynchronize()
