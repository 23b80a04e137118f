"""Files that are there whole or not at all: written beside their place under another name, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def partial_of(path: Path) -> Path:
    """The name under which a file is written."""
    return path.with_name(f"{path.name}.partial")


def write_whole(path: str | Path, content: str | bytes, *, mode: int | None = None, new: bool = False) -> None:
    """Write the file, replacing what was there. Raises OSError with the path, and then leaves what was there.

    `mode`: of the file, from the first byte on; by default as the umask says. `new`: FileExistsError if there is a file
    already. A device or a pipe, which cannot be replaced, is written through.
    """
    target = Path(path)
    regular = target.is_file() or not target.exists()
    written = partial_of(target.resolve()) if regular else target
    try:
        if regular and mode is not None:
            _make(written, mode)
        written.write_bytes(content.encode() if isinstance(content, str) else content)
        if regular:
            (_give_name if new else os.replace)(written, target.resolve())
    except BaseException as error:
        if regular:
            with suppress(OSError):
                written.unlink()
        if isinstance(error, OSError):
            raise named(error, target) from None
        raise


def _make(path: Path, mode: int) -> None:
    """Make an empty file with that mode in the place of whatever is there: a process may have that open."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    path.chmod(mode)


def _give_name(written: Path, target: Path) -> None:
    """Rename the file unless there is one of that name."""
    target.hardlink_to(written)
    written.unlink()


def named(error: OSError, path: Path) -> OSError:
    """The error, about that path."""
    return OSError(error.errno, error.strerror or os.strerror(error.errno or 0), str(path))
