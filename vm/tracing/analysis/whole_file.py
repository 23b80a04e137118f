"""Files that are there whole or not at all: written beside their place under another name, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def partial_of(path: Path) -> Path:
    """The name under which a file is written."""
    return path.with_name(f"{path.name}.partial")


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write the file, replacing what was there. Raises OSError with the path, and then leaves what was there.

    A device or a pipe, which cannot be replaced, is written through.
    """
    target = Path(path)
    regular = target.is_file() or not target.exists()
    written = partial_of(target.resolve()) if regular else target
    try:
        written.write_bytes(content.encode() if isinstance(content, str) else content)
        if regular:
            written.replace(target.resolve())
    except BaseException as error:
        if regular:
            with suppress(OSError):
                written.unlink()
        if isinstance(error, OSError):
            raise named(error, target) from None
        raise


def named(error: OSError, path: Path) -> OSError:
    """The error, about that path."""
    return OSError(error.errno, error.strerror or os.strerror(error.errno or 0), str(path))
