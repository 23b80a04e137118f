"""The number of a daemon's GPU in this process, which may see other GPUs, or in another order."""

from __future__ import annotations


def number_of(bus_id: str) -> int | None:
    """The number of the GPU with that bus id; None if it is not visible here, or without CuPy."""
    try:
        import cupy

        return int(cupy.cuda.runtime.deviceGetByPCIBusId(bus_id))
    except Exception:  # CuPy cannot be imported, CUDA does not work, or the GPU is missing
        return None
