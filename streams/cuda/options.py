"""Facts about the device kind "cuda" that are needed before a device is open: its options, and whether it is available.

Importing this module does not import CuPy, which takes a second: the command line, checks of a configuration and
docs/devices.md read the options also where there is no GPU. Options that other kinds share are in `streams/options`,
which also reads their values and describes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from ..device import Eviction
from ..host.host import GIB, physical_memory
from ..options import (
    CACHE,
    CEILING,
    COMPUTE_STREAMS,
    EVICTION,
    FLOOR,
    LAUNCH_BLOCKING,
    MEMORY,
    MISSING_OPS,
    PEER,
    Option,
    flag,
    parse_size,
)

RESERVE: Final = Option(
    "bytes", parse_size, "allocated from the GPU when it is opened; allocations within the reserve need no driver call"
)
PINNED: Final = Option("bytes", parse_size, "page-locked host memory for copies, at most; beyond it copies are slower")
NCCL: Final = flag(
    "collectives by NCCL with other GPUs that have it too, where NCCL is installed; its sums have an order of their own"
)


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """Options of a cuda device; the `Option` of each field explains it. `memory`: 0 stands for five sixths of the
    memory that is free when the device is opened."""

    memory: Annotated[int, MEMORY, "5/6 of what is free when it is opened"] = 0
    cache: Annotated[int, CACHE] = 2 << 30
    eviction: Annotated[Eviction, EVICTION] = Eviction.COST
    floor: Annotated[int, FLOOR] = 0
    ceiling: Annotated[int | str, CEILING] = 0
    compute_streams: Annotated[int, COMPUTE_STREAMS] = 1
    missing: Annotated[frozenset[str], MISSING_OPS] = frozenset()
    peer: Annotated[bool, PEER] = True
    launch_blocking: Annotated[bool, LAUNCH_BLOCKING] = False
    reserve: Annotated[int, RESERVE, "1 GiB, but at most `memory`"] = GIB
    nccl: Annotated[bool, NCCL] = True
    pinned: Annotated[int, PINNED, "4 GiB, but at most a quarter of the machine's memory"] = field(
        default_factory=lambda: min(4 * GIB, physical_memory() // 4)
    )


def available(ordinal: int = 0) -> str | None:
    """The reason why this CUDA device cannot be opened; None if it can."""
    try:
        import cupy
    except Exception as error:
        return f"CuPy cannot be imported ({type(error).__name__}: {error}); install tensord[cuda12] or tensord[cuda13]"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return f"CUDA does not work ({error})"
    return None if ordinal < count else f"there are {count} CUDA devices"
