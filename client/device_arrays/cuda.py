"""CUDA in this process: CuPy, which is imported when it is first needed, and waiting for a device."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

NO_CUPY = "CuPy cannot be imported in this process (install tensord[cuda12] or tensord[cuda13])"


def cupy() -> Any:
    """CuPy, or None where it cannot be imported."""
    try:
        import cupy
    except Exception:  # it needs a driver that fits, or raises what it likes
        return None
    return cupy


def synchronize(ordinal: int) -> None:
    """Wait until the device has done all that this process has launched there, whatever the stream.

    An error is that of a lost device, which has done all it ever will.
    """
    found = cupy()
    with suppress(Exception), found.cuda.Device(ordinal):
        found.cuda.runtime.deviceSynchronize()
