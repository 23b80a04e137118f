"""One daemon per address: the lock, the socket's directory and mode, and the cleanup.

Theory of operation. The process that has the flock on an address's lock file owns the address: only this process may
remove the socket file, bind, and remove the socket file again. The kernel releases the lock however the process ends,
so a crash leaves a stale socket file and a stale lock file, neither of which blocks a later daemon.

**The unlink race.** A lock file that is unlinked at exit can lead to two owners: a second starter has opened the file
and waits for the lock, the first unlinks the file and exits, the second gets the lock of a file without a name, and a
third makes a new file and locks that. So the lock file is unlinked only while its lock is held, and a starter that gets
a lock checks that the path still leads to the locked file; if not, the starter releases the lock and begins again.

**Looks.** A client checks whether a daemon runs by taking a *shared* lock for a moment
(interpreter/wire/addresses.py). A starter could mistake such a client for a daemon. So a starter that is refused the
exclusive lock tries the shared one, which a client's shared lock permits, and a daemon's exclusive lock does not.

**Modes.** The directory is this user's and 0700. libzmq makes the socket with the mode that the umask leaves, so the
socket is bound under `private()`; `tensord doctor` checks its mode. A umask belongs to the process: bind before threads
exist that make files. libzmq unlinks any file at the path before it binds, so anything but a socket is refused here
first.

Rejected: a pid file without a lock (pids are reused), connecting to the socket and waiting for an answer (a busy daemon
does not answer), fcntl locks (lost when any descriptor of the file is closed).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from ....interpreter.wire.addresses import Address, lock_path, parse, pid_of
from .errors import StartError

LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
RETRY_PAUSE = 0.001  # seconds until a client has released its shared lock


class Instance:
    """An address that this process holds; a context manager. Close it after the sockets, and after their context."""

    def __init__(self, address: str) -> None:
        """Take the address; StartError if another process has it or its directory is not private."""
        self.address = address
        self.parsed = parse(address)
        self.lock: Path | None = None if _is_unnamed(self.parsed) else lock_path(address)
        self._descriptor: int | None = None
        if self.lock is not None:
            make_private(self.lock.parent)
            self._descriptor = _locked(self.lock, address)
        try:
            self._clear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the socket and the lock file, in this order, and release the lock."""
        if self._descriptor is None or self.lock is None:
            return
        with suppress(StartError):  # another file is there, which must not be removed
            self._clear()
        if _leads_to(self.lock, self._descriptor):
            self.lock.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _clear(self) -> None:
        """Remove the socket file. Called only under the lock, so the file is stale, or our own."""
        if self.parsed.kind != "ipc":
            return
        path = Path(self.parsed.path)
        if exists(path):
            path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_directories(address: str) -> None:
    """StartError if the socket or the lock of an address cannot be made in its directory; changes nothing."""
    parsed = parse(address)
    if _is_unnamed(parsed):
        return
    directory = lock_path(address).parent
    if os.path.lexists(directory):
        check_private(directory)
    elif not os.access(directory.parent, os.W_OK | os.X_OK):
        raise _cannot_make(directory, errno.EACCES if directory.parent.is_dir() else errno.ENOENT)
    if parsed.kind == "ipc":
        exists(Path(parsed.path))


def exists(path: Path) -> bool:
    """Whether there is a socket file; StartError if another file is in its place."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise StartError(f"{path} exists and is not a socket: remove it, or choose another --address")
    return True


@contextmanager
def private() -> Iterator[None]:
    """A block in which files and sockets are made for this user alone. It affects the whole process, so use it before
    there are threads."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def make_private(directory: Path) -> None:
    """Make a directory with mode 0700, or check that an existing one has it; StartError says which chmod to run."""
    with suppress(FileExistsError):
        try:
            directory.mkdir(mode=0o700)
            directory.chmod(0o700)  # in spite of the umask
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            raise _cannot_make(directory, error.errno) from None
    check_private(directory)


def _cannot_make(directory: Path, number: int | None) -> StartError:
    return StartError(
        f"cannot make the directory {directory} ({os.strerror(number or errno.EIO)}): make it with mode 0700, "
        "set XDG_RUNTIME_DIR, or choose another --address"
    )


def check_private(directory: Path) -> None:
    """StartError unless a directory is this user's alone."""
    status = directory.lstat()
    if stat.S_ISLNK(status.st_mode) and status.st_uid == os.getuid():
        status = directory.stat()
    another = f"choose another directory, as in --address ipc:///tmp/tensord-{os.getuid()}/socket"
    if not stat.S_ISDIR(status.st_mode):
        raise StartError(f"{directory} is not a directory: {another}")
    if status.st_uid != os.getuid():
        raise StartError(f"{directory} belongs to uid {status.st_uid}, not to {os.getuid()}: {another}")
    if status.st_mode & stat.S_ISVTX:
        raise StartError(f"{directory} is shared by everybody: {another}")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise StartError(f"{directory} may be entered by others (mode {mode:04o}): run chmod 700 {directory}")
    if status.st_mode & 0o700 != 0o700:
        raise StartError(f"{directory} cannot be used by its owner: run chmod 700 {directory}")


def _is_unnamed(address: Address) -> bool:
    """Whether the system chooses the tcp port, which no other process can have then."""
    return address.kind == "tcp" and not address.port


def _locked(path: Path, address: str) -> int:
    """The descriptor of the locked lock file, with our pid in the file."""
    while True:
        try:
            descriptor = os.open(path, LOCK_FLAGS, 0o600)
        except OSError as error:
            raise StartError(f"cannot open the lock file {path}: {error.strerror}") from None
        locked = False
        try:
            locked = _take(descriptor, address) and _leads_to(path, descriptor)
            if locked:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        finally:
            if not locked:
                os.close(descriptor)


def _take(descriptor: int, address: str) -> bool:
    """Take the exclusive lock; False to try again, StartError if a daemon has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = pid_of(address)
        if pid is None:  # the daemon has just ended
            return False
        who = f"process {pid}" if pid else "another process"
        raise StartError(
            f"a daemon listens on {address} already: {who}. Stop it, or choose another --address"
        ) from None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    time.sleep(RETRY_PAUSE)  # only a client's check
    return False


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether the path still names the open file."""
    with suppress(OSError):
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    return False
