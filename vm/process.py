"""Facts about the process of a virtual machine, for answers to status requests: ids, uptime, descriptors, memory."""

from __future__ import annotations

import os
import time

from ..interpreter.wire.descriptors import descriptor_limit, descriptors_open


class MachineProcess:
    """The ids and resources of the machine's process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.uid = os.getuid()
        self._started = time.time()

    def uptime(self) -> float:
        """Seconds since the machine was made."""
        return max(0.0, time.time() - self._started)

    def descriptors(self) -> dict[str, int]:
        """The number of open descriptors, and the limit of that number."""
        return {"open": descriptors_open(), "limit": descriptor_limit()}


def resident_memory() -> int:
    """The resident memory of this process in bytes, shared memory included; 0 if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - half the time of Path
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
