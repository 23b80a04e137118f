"""Opening the files, and resolving the paths, that clients name. `SessionFiles.open` is one of the openers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..interpreter.errors import FileError, MetadataError, ProtocolError
from ..interpreter.files.on_wire import checked_descriptor, checked_path
from ..interpreter.files.open_file import OpenFile, OutputFile, open_below, open_own, open_peer


def open_own_file(reference: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file of this process's client. `reference`: [descriptor, name]."""
    return open_own(*checked_descriptor(reference), writes=writes)


def open_peer_file(pid: int, reference: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file that the client process `pid` has open. `reference`: [descriptor, name]."""
    return open_peer(pid, *checked_descriptor(reference), writes=writes)


def open_file_below(directories: Sequence[Path], reference: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file of the machine, below one of these directories, for reading. `reference`: [path, raw]."""
    if writes:
        raise ProtocolError("files are saved by clients on the machine's host, over ipc")
    return open_below(directories, checked_path(reference))


def real_path(path: str) -> Path:
    """Resolve the path of a directory.

    MetadataError for a relative path, since clients do not know the daemon's working directory; FileError for a path
    that cannot be resolved.
    """
    if not path.startswith("/"):
        raise MetadataError(f"the path of a directory of checkpoints must be absolute, not {path!r}")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FileError(f"{path!r}: is not the path of a directory: {error}; name another one") from None
