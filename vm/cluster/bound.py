"""Becomes another program that ends with its parent: `python -I -S bound.py PARENT PROGRAM ARGUMENTS...`.

A process can ask the kernel to send it SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG), and the
request outlives an exec. The request is made here, and not in the parent between fork and exec, where other threads
may hold any lock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        sys.exit(f"cannot ask to end with the parent: {os.strerror(ctypes.get_errno())}")
    if os.getppid() == int(parent):  # otherwise the parent ended before the request
        os.execv(command[0], command)  # noqa: S606 - the program of the parent's choice, without a shell


if __name__ == "__main__":
    main()
