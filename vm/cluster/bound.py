"""Become another program that ends with its parent: `python -I -S bound.py PARENT PROGRAM ARGUMENTS...`.

The kernel sends SIGKILL to a process that has asked for it (PR_SET_PDEATHSIG) when the thread that started it ends, and
the request outlives an exec. It is made here and not between fork and exec in the parent, where other threads may hold
any lock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        sys.exit(f"cannot be bound to the parent's end: {os.strerror(ctypes.get_errno())}")
    if os.getppid() == int(parent):  # else the parent ended before the request
        os.execv(command[0], command)  # noqa: S606 - the program of the parent's choice, without a shell


if __name__ == "__main__":
    main()
