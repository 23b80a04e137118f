"""The recorder of values: fetches what the machine has noted, and writes it to a file, up to a limit.

A value that would exceed the limit is dropped; a message that would exceed it ends the recording.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from ...interpreter.errors import MetadataError
from ...interpreter.recordings.entries import LOST, NOTE, PIECE, VALUE, decode_entry
from ...interpreter.recordings.writer import RecordingWriter
from .left_out import LeftOut

DEFAULT_LIMIT: Final = 1 << 30  # bytes of a recording
PATIENCE: Final = 5.0  # seconds without a new entry, at the end, for values that are still being computed
_PAUSE: Final = 0.02
_MAX_WAITING_BYTES: Final = 1 << 30  # bytes of values that may wait in the machine

Query = Callable[..., Any]


class ValueRecorder:
    """Records sessions, none for all, into `path`. `query` asks the machine. A context manager, which completes the
    file. `full`: the limit was reached. `values`: the values seen, of which `lost` were not written. Raises OSError
    with the path; MetadataError and ProtocolError of the machine.
    """

    def __init__(
        self,
        query: Query,
        path: str | Path,
        sessions: Sequence[int] = (),
        *,
        limit: int = DEFAULT_LIMIT,
        without: Any = (),
    ) -> None:
        if limit < 1:
            raise MetadataError(f"the limit of a recording is a number of bytes, not {limit}")
        self.query = query
        self.limit = limit
        self.full = self.completed = False
        self.noted_lost = 0
        self._dropped = False  # the next pieces belong to a dropped value
        self.values = 0
        about = query("record", list(sessions), _MAX_WAITING_BYTES)
        try:
            head = {"devices": list(about["devices"]), "tensord": about["version"], "without": list(without)}
            self.file = RecordingWriter(path, head)
        except BaseException:
            query("unrecord")
            raise
        self._left_out = LeftOut(self.file, without) if without else None

    def take(self) -> int:
        """Write new entries; returns their number. At the limit the machine stops recording."""
        if self.full:
            return 0
        count = self._write(self.query("recorded") or ())
        if self.full:
            self.query("unrecord")
        return count

    def _write(self, entries: Sequence[bytes]) -> int:
        for body in entries:
            if self._dropped and body[1] == PIECE:
                continue
            self._dropped = False
            if self.file.nbytes + len(body) > self.limit:
                self.full = True
                self.file.note(f"the limit of {self.limit} bytes was reached: later entries are missing")
                break
            offset = self.file.add(body)
            self._look(body, offset)
            if body[1] == VALUE:
                self._drop_beyond(decode_entry(body))
        return len(entries)

    def _drop_beyond(self, value: Any) -> None:
        """Drop a value for which the limit leaves no room. All else is recorded."""
        _, number, _, _, nbytes = value
        if self.file.nbytes + nbytes > self.limit:
            self._dropped = True
            self.noted_lost += 1
            self.file.put(LOST, number, f"{nbytes} bytes would exceed the limit of {self.limit}")

    def _look(self, body: bytes, offset: int) -> None:
        if body[1] == NOTE:
            self.file.notes.append(str(decode_entry(body)[1]))
        self.values += body[1] == VALUE
        self.noted_lost += body[1] == LOST
        if self._left_out is not None:
            self._left_out.look(body, offset)

    @property
    def lost(self) -> int:
        """The number of values that are not in the file."""
        return self.noted_lost + (0 if self._left_out is None else self._left_out.count)

    def finish(self) -> None:
        """End the recording, and complete the file."""
        try:
            self.end()
        finally:
            self.complete()

    def end(self) -> None:
        """End the recording, once pending reads for it are complete."""
        if self.full:
            return
        until = time.monotonic() + PATIENCE
        while not self.full and self.query("recording")["reads"] and time.monotonic() < until:
            if self.take():
                until = time.monotonic() + PATIENCE
            else:
                time.sleep(_PAUSE)
        if not self.full:
            self._write(self.query("unrecord") or ())

    def complete(self, trace: IO[bytes] | None = None) -> None:
        """Complete the file with its present contents. A machine that has ended is not asked any more."""
        if self.completed:
            return
        self.completed = True
        try:
            if trace is not None:
                self.file.add_trace(trace)
            self.file.finish({"full": self.full})
        finally:
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
