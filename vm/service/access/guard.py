"""The memory guard: cuts connections that send messages without end before the service runs out of memory.

Theory of operation. libzmq delivers a message only once its last part has arrived, and keeps the parts without limit,
since high-water marks count whole messages only. So a peer that never ends a message fills the memory of the service,
and no other limit prevents that. Three things can be observed: the process's resident memory, whether the kernel holds
bytes of a connection that libzmq has not read yet, and whether a connection has completed a message. While memory is
short, the suspects are the connections that have unread bytes at most checks and complete no message in between.
Shutting down the socket makes libzmq see the end of the connection and drop the incomplete message.

Guarantees. No connection is cut while memory is not short, and an idle connection is never cut. A connection that
completes messages is cut only if memory runs out fast and no other connection is a better suspect. An honest upload of
one large frame may be cut if it takes longer than a few checks while memory runs out.

A descriptor's number is reused as soon as libzmq closes it, and the monitor reports that later. So a connection is
identified by its inode as well, and the shutdown goes to a duplicate whose inode was checked.

libzmq's I/O thread first reports the end of a connection, then frees the received parts, and closes the descriptor
last. On a busy machine, seconds may lie between the first and the last step. So freed memory is returned to the system
once the descriptor is closed.

Rejected: a limit of frames per message in libzmq (there is none), RLIMIT_AS (an allocation that fails in libzmq aborts
the process), reading messages ourselves (a proxy in front of every byte). `MemoryMax` of the service manager is the
last resort: it kills this process, where the machine's out-of-memory killer might choose another.

Measured with glibc 2.36, x86-64, a limit of 400 MiB, one peer sending parts of 1 MiB, 64 KiB or 1000 bytes at some
1 GB/s: the memory of a cut connection stays resident (423, 94 and 361 MB), since blocks of up to 32 MiB come from the
heap of the I/O thread once one was freed. malloc_trim returns that memory to the system (27 MB remain, the baseline).
malloc_trim takes 0.1 ms where nothing can be returned, and up to 140 ms after hundreds of MiB in small parts; so it is
called only while memory is short, and after connections ended. mallopt(M_MMAP_THRESHOLD) would also return large
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
from typing import Final

from ...process import resident_memory

CHECK_INTERVAL: Final = 0.05  # seconds between two checks
WATCHED_FRACTION: Final = 0.5  # fraction of the limit from which connections are checked
SHORT_FRACTION: Final = 0.8  # fraction of the limit from which memory is short
CHECKS_UNTIL_SUSPECT: Final = 3  # checks that find unread bytes before a connection is suspect
CLOSED_INODE: Final = -1  # in place of an inode, if the descriptor is closed already


class WatchedConnection:
    """A watched connection.

    `checks`: how often it was checked since its last complete message; `busy`: how often unread bytes were found then.
    A `silent` connection has never completed a message.
    """

    __slots__ = ("busy", "checks", "inode", "silent")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.checks = 0
        self.busy = 0
        self.silent = True


class MemoryGuard:
    """Cuts suspects. Call `accepted` and `closed` on monitor events, `message_completed` for each message, and `check`
    once per `CHECK_INTERVAL`.

    `limit`: bytes. The other arguments are the system calls, which tests replace.
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
        self._watched: dict[int, WatchedConnection] = {}
        self._ending: dict[int, int] = {}  # ended connections that libzmq has not closed yet: descriptor -> inode
        self._completed: set[int] = set()
        # `message_completed(fd)` is called for every message, so it is a method of the set itself.
        self.message_completed: Callable[[int], None] = self._completed.add

    def accepted(self, fd: int) -> None:
        if inode := self._inode(fd):
            self._watched[fd] = WatchedConnection(inode)

    def closed(self, fd: int) -> None:
        """Stop watching a connection, and await its closing by libzmq, which has freed the received parts by then."""
        watched = self._watched.pop(fd, None)
        if watched is not None:
            self._ending[fd] = watched.inode
        else:  # cut, or ended before it was watched
            self._ending.setdefault(fd, CLOSED_INODE)

    def check(self) -> list[int]:
        """Check memory and connections, and cut suspects if memory runs out; return the descriptors that were cut."""
        self._tidy_up()
        memory = self._resident()
        before, self._last = memory if self._last is None else self._last, memory
        self._forget(everybody=memory < self.limit * WATCHED_FRACTION)
        if memory < self.limit * WATCHED_FRACTION:
            return []
        self._count_unread()
        if _expected(memory, before) < self.limit * SHORT_FRACTION:
            return []
        self._trim()  # freed memory counts as resident until it is trimmed
        self._last = memory = self._resident()
        expected = _expected(memory, before)
        if expected < self.limit * SHORT_FRACTION:
            return []
        suspects = self._suspects(urgent=expected > self.limit)
        done = [fd for fd in suspects if self._cut(fd, self._watched[fd].inode)]
        for fd in suspects:
            self.closed(fd)
        self.cuts += len(done)
        return done

    def _tidy_up(self) -> None:
        """Trim the heap once libzmq has closed ended connections, since it has freed their parts by then."""
        still_open = {fd: inode for fd, inode in self._ending.items() if self._inode(fd) == inode}
        if len(still_open) < len(self._ending):
            self._trim()
        self._ending = still_open

    def _forget(self, *, everybody: bool) -> None:
        """Reset the counts of connections that completed a message, and of all while memory is not short."""
        for fd in self._completed & self._watched.keys():
            watched = self._watched[fd]
            watched.checks = watched.busy = 0
            watched.silent = False
        self._completed.clear()
        for watched in self._watched.values() if everybody else ():
            watched.checks = watched.busy = 0

    def _count_unread(self) -> None:
        for fd, watched in list(self._watched.items()):
            if self._inode(fd) != watched.inode:
                self.closed(fd)  # the monitor will report it, too
                continue
            watched.checks += 1
            watched.busy += self._unread(fd) > 0

    def _suspects(self, *, urgent: bool) -> list[int]:
        """The connections with unread bytes at most checks, and at several of them.

        If urgent, a silent connection is a suspect after the first check; and if there are no suspects, the connections
        that had unread bytes most often are.
        """
        watched = self._watched.items()
        suspects = [
            fd
            for fd, w in watched
            if 2 * w.busy >= w.checks and w.busy >= (1 if urgent and w.silent else CHECKS_UNTIL_SUSPECT)
        ]
        if urgent and not suspects:
            most = max((w.busy for _, w in watched), default=0)
            suspects = [fd for fd, w in watched if most and w.busy == most]
        return suspects


def _expected(memory: int, before: int) -> int:
    """The expected memory at the next check, including bytes that arrive until a cut takes effect."""
    return memory + 2 * max(memory - before, 0)


def _malloc_trim() -> Callable[[int], object] | None:
    """glibc's malloc_trim; None with another C library."""
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


_trim_heap: Final = _malloc_trim()


def give_back() -> None:
    """Return freed memory to the system, since glibc keeps freed memory that lies below a block in use."""
    if _trim_heap is not None:
        _trim_heap(0)


def unread_bytes(fd: int) -> int:
    """The bytes of a connection that the kernel holds; 0 if the connection is gone."""
    try:
        answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


def socket_inode(fd: int) -> int:
    """The inode, which distinguishes a socket from a later one with the same descriptor; 0 if it is not a socket."""
    try:
        found = os.fstat(fd)
    except OSError:
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def connection_of(fd: int) -> socket.socket:
    """A duplicate of the descriptor of libzmq's connection; OSError if that is not a socket any more."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def cut_connection(fd: int, inode: int) -> bool:
    """Shut down a connection; False if its descriptor has been closed or reused."""
    try:
        copy = connection_of(fd)
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
