"""The memory of the service: connections that send messages without end are cut before it is spent.

Theory of operation. libzmq shows a message to nobody before its last part has come, and keeps the parts without
limit: no high-water mark counts them, since those count whole messages. So one peer that never ends a message fills
the memory of the service, and that is the one thing that no limit of ours sees. What can be seen from outside: the
process's resident memory, and per connection whether the kernel holds bytes that libzmq has not read yet, and whether
a complete message came. While memory is short, a connection that has bytes to read at most looks, and completes
nothing between them, is one that fills it. Shutting down its socket makes libzmq see the end of the connection, upon
which it throws the half message away.

Guarantees. Nobody is cut while memory is not short, and no idle peer ever. A peer that completes messages is cut only
if memory runs out so fast that nobody else explains it better. An honest upload of one large frame may be cut, if it
takes longer than a few looks just when memory runs out.

A descriptor's number is reused as soon as libzmq closes it, and the monitor tells us later. So a connection is known by
its inode as well, and what is cut is a duplicate that was looked at first.

Rejected: a limit of frames per message in libzmq (there is none), RLIMIT_AS (an allocation that fails in libzmq aborts
the process), reading messages ourselves (a proxy in front of every byte). `MemoryMax` of the service manager stands
behind this: it kills the process, which is better than the machine's choice.

Measured with glibc 2.36, x86-64, a limit of 400 MiB, one peer sending parts of 1 MiB, 64 KiB or 1000 bytes at some
1 GB/s: the memory of a cut connection does not go back by itself (423, 94 and 361 MB stayed resident), since blocks of
up to 32 MiB come from the heap of the I/O thread once one was freed. malloc_trim gives it back (27 MB, the baseline).
It takes 0.1 ms where there is nothing to give, and up to 140 ms after hundreds of MiB in small parts; so it is called
only while memory is short, and once after connections ended. mallopt(M_MMAP_THRESHOLD) would also do it for large
parts, but would slow every large frame by its page faults.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Final

PERIOD: Final = 0.05  # seconds between two checks
WATCHED_FROM: Final = 0.5  # share of the limit from which connections are looked at
SHORT_FROM: Final = 0.8  # share from which memory is short
SETTLED: Final = 5  # checks after which libzmq has let go of a connection
PATIENCE: Final = 3  # looks at which a connection had bytes to read, before it is suspect

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = Path("/proc/self/statm")


class Watched:
    """A connection: its inode, looks since its last complete message, how many of them found unread bytes.

    A `silent` has never completed a message.
    """

    __slots__ = ("busy", "inode", "looks", "silent")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.looks = 0
        self.busy = 0
        self.silent = True


class MemoryGuard:
    """Call `accepted` and `closed` as monitors say, `heard` with each complete message, `check` each `PERIOD`.

    `limit`: bytes. The other arguments are how to look and to cut; tests replace them.
    """

    def __init__(
        self,
        limit: int,
        *,
        resident: Callable[[], int] | None = None,
        unread: Callable[[int], int] | None = None,
        inode: Callable[[int], int] | None = None,
        cut: Callable[[int, int], bool] | None = None,
        trim: Callable[[], None] | None = None,
    ) -> None:
        self.limit = limit
        self.cuts = 0
        self._resident = resident or resident_memory
        self._unread = unread or unread_bytes
        self._inode = inode or socket_inode
        self._cut = cut or cut_connection
        self._trim = trim or give_back
        self._last: int | None = None
        self._untidy = 0  # checks until freed memory is given back
        self._watched: dict[int, Watched] = {}
        self._heard: set[int] = set()
        # On the path of every message, so no more than this: heard(fd).
        self.heard: Callable[[int], None] = self._heard.add

    def accepted(self, fd: int) -> None:
        """A connection was made."""
        if inode := self._inode(fd):
            self._watched[fd] = Watched(inode)

    def closed(self, fd: int) -> None:
        """A connection is gone, and what it had sent is freed."""
        self._watched.pop(fd, None)
        self._untidy = SETTLED

    def check(self) -> list[int]:
        """Look, and cut if memory runs out; the descriptors of the connections that were cut, for the log."""
        self._tidy_up()
        memory = self._resident()
        before, self._last = memory if self._last is None else self._last, memory
        self._forget(everybody=memory < self.limit * WATCHED_FROM)
        if memory < self.limit * WATCHED_FROM:
            return []
        self._look()
        if _expected(memory, before) < self.limit * SHORT_FROM:
            return []
        self._trim()  # what was freed counts as resident until then
        self._last = memory = self._resident()
        expected = _expected(memory, before)
        if expected < self.limit * SHORT_FROM:
            return []
        return self._cut_off(self._suspects(urgent=expected > self.limit))

    def _tidy_up(self) -> None:
        """A while after a connection ended libzmq has freed what it had sent."""
        if self._untidy:
            self._untidy -= 1
            if not self._untidy:
                self._trim()

    def _forget(self, *, everybody: bool) -> None:
        """Those who completed a message begin anew; everybody does while there is room."""
        for fd in self._heard & self._watched.keys():
            watched = self._watched[fd]
            watched.looks = watched.busy = 0
            watched.silent = False
        self._heard.clear()
        for watched in self._watched.values() if everybody else ():
            watched.looks = watched.busy = 0

    def _look(self) -> None:
        for fd, watched in list(self._watched.items()):
            if self._inode(fd) != watched.inode:
                del self._watched[fd]  # closed; the monitor will say so, too
                continue
            watched.looks += 1
            watched.busy += self._unread(fd) > 0

    def _suspects(self, *, urgent: bool) -> list[int]:
        """The connections with bytes to read at most looks, and at several; if urgent, silent ones after the first
        look.

        If it is urgent and there are none, whoever had bytes to read most often.
        """
        watched = self._watched.items()
        found = [
            fd for fd, w in watched if 2 * w.busy >= w.looks and w.busy >= (1 if urgent and w.silent else PATIENCE)
        ]
        if urgent and not found:
            most = max((w.busy for _, w in watched), default=0)
            found = [fd for fd, w in watched if most and w.busy == most]
        return found

    def _cut_off(self, suspects: list[int]) -> list[int]:
        done = [fd for fd in suspects if self._cut(fd, self._watched[fd].inode)]
        for fd in suspects:
            del self._watched[fd]
        self.cuts += len(done)
        self._untidy = SETTLED if done else self._untidy
        return done


def _expected(memory: int, before: int) -> int:
    """Memory at the next check: what comes until a cut takes effect has to fit as well."""
    return memory + 2 * max(memory - before, 0)


def resident_memory() -> int:
    """Bytes of this process in memory, shared ones included."""
    return int(_STATM.read_bytes().split()[1]) * _PAGE


def _malloc_trim() -> Callable[[int], object] | None:
    """glibc's malloc_trim, where the C library is glibc."""
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


_trim_heap: Final = _malloc_trim()


def give_back() -> None:
    """Return freed memory to the system: glibc keeps it where a later block lies behind it."""
    if _trim_heap is not None:
        _trim_heap(0)


def unread_bytes(fd: int) -> int:
    """Bytes that the kernel holds of a connection; 0 if it is gone."""
    try:
        answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


def socket_inode(fd: int) -> int:
    """What tells a socket from a later one with the same descriptor; 0 if it is none."""
    try:
        found = os.fstat(fd)
    except OSError:
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def cut_connection(fd: int, inode: int) -> bool:
    """End a connection, if it is still that one."""
    try:
        copy = socket.socket(fileno=os.dup(fd))
    except OSError:
        return False
    with copy:
        if socket_inode(copy.fileno()) != inode:
            return False
        try:
            copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True
