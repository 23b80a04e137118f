"""The files that a session has open, and where its client may open files and store checkpoints.

Closing a file does not affect values that lie in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from ...interpreter.errors import ProtocolError
from ...interpreter.files.open_file import OpenFile, OutputFile

Chain = TypeVar("Chain")  # the engine's object that orders the writes to a file


class FileOpener(Protocol):
    """Opens the file to which the session's client refers. `reference`: of a FILE message."""

    def __call__(self, reference: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile: ...


def refuse_files(reference: Sequence[Any], *, writes: bool) -> OpenFile | OutputFile:  # noqa: ARG001 - as declared
    """The default of `SessionFiles.open`: refuse, since the client cannot name files."""
    raise ProtocolError("this connection loads and saves no files")


class SessionFiles(Generic[Chain]):
    """The files of one session of either engine, by the client's numbers.

    `loading`: open for LOAD; `writing`: open for WRITE, each with its chain; `opened`: all that are open, or in which
    values lie. `open` opens the files that the client names. `may_store`: the session may write and restore checkpoints
    in any directory of the machine's user; otherwise only below the directories in `stores`.
    """

    __slots__ = ("loading", "may_store", "open", "opened", "stores", "writing")

    def __init__(self) -> None:
        self.loading: dict[int, OpenFile] = {}
        self.writing: dict[int, tuple[OutputFile, Chain]] = {}
        self.opened: WeakSet[OpenFile | OutputFile] = WeakSet()
        self.open: FileOpener = refuse_files
        self.may_store = False
        self.stores: Sequence[Path] = ()

    def close(self, number: int) -> None:
        """Close the file of a number, if there is one. Values that lie in the file stay."""
        self.loading.pop(number, None)
        self.writing.pop(number, None)

    def close_all(self) -> None:
        """Close all files: the session has ended."""
        self.loading.clear()
        self.writing.clear()
