"""`with session.record(path):` a session that records itself.

The machine notes the session's messages and values; a thread of the client fetches the notes and writes them to the
file (`recorder`), so that few of them accumulate in the machine. Recording begins when the object is made, so that
errors of the file are raised by `session.record` itself. The thread stops at the first error, which the end of the
block raises; the file is then complete up to that point.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .recorder import ValueRecorder

PAUSE: Final = 0.05  # seconds between two questions to the machine for its notes


class SessionRecording:
    """A context manager, whose end completes the file `path`. `query`: asks the machine; `limit`: the size of the file
    in bytes at which recording ends; `without`: patterns of names and lines whose values are left out; `session`: the
    session's id."""

    def __init__(
        self, query: Callable[..., Any], path: str | Path, *, limit: int, without: Sequence[str], session: int
    ) -> None:
        self.path = Path(path)
        self._recorder = ValueRecorder(query, path, (session,), limit=limit, without=without)
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fetch, name="tensord-recording", daemon=True)
        self._thread.start()

    def _fetch(self) -> None:
        try:
            while not self._ended.wait(PAUSE):
                self._recorder.take()
        except Exception as error:
            self._error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            self._recorder.complete()
            raise self._error
        self._recorder.finish()
