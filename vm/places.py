"""From places, as clients name them, to open files and real paths; `VmSession.open_file` opens files on each driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..interpreter.errors import FileError, MetadataError, ProtocolError
from ..interpreter.files.on_wire import checked_path, checked_place
from ..interpreter.files.open_file import OpenFile, OutputFile, open_below, open_own, open_peer


def open_own_place(place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """A file that this very process has open: [descriptor, name]."""
    return open_own(*checked_place(place), writes=writes)


def open_peer_place(pid: int, place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """A file that the client with that pid has open: [descriptor, name]."""
    return open_peer(pid, *checked_place(place), writes=writes)


def open_below_place(directories: Sequence[Path], place: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:
    """A file of the machine's, below one of these directories: [path, raw]."""
    if writes:
        raise ProtocolError("files are saved by clients on the machine's host, over ipc")
    return open_below(directories, checked_path(place))


def real_path(path: str) -> Path:
    """The real path of a directory. MetadataError unless it is whole: the daemon's own folder means nothing to its
    clients. FileError if it leads nowhere."""
    if not path.startswith("/"):
        raise MetadataError(f"a directory of checkpoints is named by its whole path, not {path!r}")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FileError(f"{path!r}: is no path of a directory: {error}; name another one") from None
