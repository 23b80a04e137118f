"""The number that a GPU of a daemon's has in this process, which may see other GPUs, or in another order."""

from __future__ import annotations


def number_of(bus_id: str) -> int | None:
    """The number of the GPU with that bus id; None if it is not seen here, or if there is no CuPy."""
    try:
        import cupy

        return int(cupy.cuda.runtime.deviceGetByPCIBusId(bus_id))
    except Exception:  # CuPy cannot be imported, or CUDA does not work, or does not have it
        return None
