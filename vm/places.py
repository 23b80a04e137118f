"""Opening the files, and resolving the paths, that clients name. `VmSession.open_file` is one of these functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..interpreter.errors import FileError, MetadataError, ProtocolError
from ..interpreter.files.on_wire import checked_path, checked_place
from ..interpreter.files.open_file import OpenFile, OutputFile, open_below, open_own, open_peer


def open_own_place(place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file of this process's client. `place`: [descriptor, name]."""
    return open_own(*checked_place(place), writes=writes)


def open_peer_place(pid: int, place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file that the client process `pid` has open. `place`: [descriptor, name]."""
    return open_peer(pid, *checked_place(place), writes=writes)


def open_below_place(directories: Sequence[Path], place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """Open a file of the machine, below one of these directories, for reading. `place`: [path, raw]."""
    if writes:
        raise ProtocolError("files are saved by clients on the machine's host, over ipc")
    return open_below(directories, checked_path(place))


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
