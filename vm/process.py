"""The machine's process, as answers tell of it."""

from __future__ import annotations

import os
import time

from ..interpreter.wire.descriptors import descriptor_limit, descriptors_open


class Process:
    """Its ids, the time since the machine was made, and what it takes of the system."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.uid = os.getuid()
        self._started = time.time()

    def uptime(self) -> float:
        """Seconds since the machine was made."""
        return max(0.0, time.time() - self._started)

    def descriptors(self) -> dict[str, int]:
        """How many descriptors it has open, and how many it may have."""
        return {"open": descriptors_open(), "limit": descriptor_limit()}


def resident_memory() -> int:
    """Bytes of this process in memory, shared ones included; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - half the time of Path
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
