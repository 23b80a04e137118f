"""File descriptors of this process, which are counted like memory: libzmq aborts a process that runs out of them.

libzmq takes a failure for a fault of the program where it makes a context, and where it accepts a connection over ipc
(EMFILE; `ipc_listener.cpp`). So a process stays below its limit: the daemon shares its descriptors out
(vm/service/descriptors.py), a client looks whether there are enough before it makes a context.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

UNLIMITED: Final = 1 << 20  # descriptors, where the system sets no limit
_OURS: Final = Path("/proc/self/fd")


def descriptor_limit() -> int:
    """How many descriptors this process may have open at a time."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def descriptors_open() -> int:
    """How many descriptors this process has open."""
    return _OURS.stat().st_size or sum(1 for _ in _OURS.iterdir()) - 1  # before Linux 6.2 we list them, with one more


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_descriptors(count: int) -> None:
    """OSError (EMFILE) unless that many descriptors can be opened now. Finds out by opening them."""
    found: list[int] = []
    try:
        with open(os.devnull, "rb") as source:  # noqa: PTH123 - the shortest way to a descriptor
            found.extend(os.dup(source.fileno()) for _ in range(count - 1))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        told = f"Too many open files: the limit is {descriptor_limit()}; raise it (ulimit -n), or close some"
        raise OSError(errno.EMFILE, told) from None
    finally:
        for descriptor in found:
            os.close(descriptor)
