"""File descriptors of this process, which are counted like memory: libzmq aborts a process that runs out of them.

libzmq treats a missing descriptor as a bug of the program when it makes a context, and when it accepts a connection
over ipc (EMFILE; `ipc_listener.cpp`). So a process stays below its limit: the daemon divides its descriptors
(vm/service/descriptors.py), and a client checks whether there are enough before it makes a context.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

UNLIMITED: Final = 1 << 20  # descriptors, if the system sets no limit
_OWN_DESCRIPTORS: Final = Path("/proc/self/fd")


def descriptor_limit() -> int:
    """The number of descriptors that this process may have open at a time."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def descriptors_open() -> int:
    """The number of descriptors that this process has open."""
    return (
        _OWN_DESCRIPTORS.stat().st_size or sum(1 for _ in _OWN_DESCRIPTORS.iterdir()) - 1
    )  # listing them, before Linux 6.2, opens one more


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_descriptors(count: int) -> None:
    """OSError (EMFILE) unless that many descriptors can be opened now. Opens them to find out."""
    descriptors: list[int] = []
    try:
        with open(os.devnull, "rb") as source:  # noqa: PTH123 - the shortest way to a descriptor
            descriptors.extend(os.dup(source.fileno()) for _ in range(count - 1))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        message = f"Too many open files: the limit is {descriptor_limit()}; raise it (ulimit -n), or close some"
        raise OSError(errno.EMFILE, message) from None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
