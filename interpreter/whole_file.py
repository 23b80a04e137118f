"""Files that are complete or absent: written under another name in the same directory, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def partial_of(path: Path) -> Path:
    """A name, visible to people, for a file that takes long to write: `x.trace.1f2e3d4c.partial`."""
    return path.with_name(f"{path.name}.{os.urandom(4).hex()}.partial")  # others may write a file of the same name


def write_whole(path: str | Path, content: str | bytes, *, mode: int | None = None, new: bool = False) -> None:
    """Write the file, replacing an existing one. Raises OSError with the path, and then leaves the existing file.

    `mode`: of the file, from the first byte on; by default that of the existing file, or as the umask says. `new`:
    FileExistsError if there is a file already. Files that cannot be replaced are written directly: a device, a pipe, a
    file in a directory that may not be changed.
    """
    target, data = Path(path), content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target.resolve(), data, mode, new=new)
    except OSError as error:
        raise named(error, target) from None


def _replace(target: Path, data: bytes, mode: int | None, *, new: bool) -> None:
    written = target.with_name(f".{target.name}.{os.urandom(4).hex()}")  # a name that no other process uses
    if mode is None and target.exists():
        mode = target.stat().st_mode & 0o777
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(written, flags, 0o666 if mode is None else mode))
        except PermissionError:
            if new or not target.exists():
                raise
            target.write_bytes(data)
            return
        if mode is not None:
            written.chmod(mode)
        written.write_bytes(data)
        (_give_name if new else os.replace)(written, target)
    except BaseException:
        with suppress(OSError):
            written.unlink()
        raise


def _give_name(written: Path, target: Path) -> None:
    """Rename the file unless there is one of that name."""
    target.hardlink_to(written)
    written.unlink()


def named(error: OSError, path: Path) -> OSError:
    """The error, about that path."""
    return OSError(error.errno, error.strerror or os.strerror(error.errno or 0), str(path))
