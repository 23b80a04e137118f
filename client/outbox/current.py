"""Which capture this thread is in. The rest of the client asks here, off the hot path.

A capture belongs to one thread and one session. Whatever that thread does with that session meanwhile is recorded,
also what a signal handler or a `__del__` does: nothing tells it from what the function does. Other threads, and other
sessions, go on as ever.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ...interpreter.errors import CaptureError
from ...interpreter.schema.infer import InferCache
from ..locations.locations import located

if TYPE_CHECKING:
    from ..capture.capture import Capture


class Current(threading.local):
    """The state of each thread: the capture that it is in, if it is in one."""

    capture: Capture | None = None

    def __init__(self) -> None:
        self.infer = InferCache()  # for captures


CURRENT = Current()


def capture_of(outbox: Any) -> Capture | None:
    """This thread's capture, if it is one of the session with that outbox."""
    capture = CURRENT.capture
    return capture if capture is not None and capture.outbox is outbox else None


def plain_of(value: Any) -> Any:
    """The value of a symbolic number, for an error's text; anything else unchanged."""
    return value if CURRENT.capture is None else CURRENT.capture.attributes({"": value})[""]


def refuse_captured(outbox: Any, what: str) -> None:
    """CaptureError at the user's line if this thread captures for that session."""
    if capture_of(outbox) is not None:
        raise located(CaptureError(f"{what} while a routine is captured: do that outside of the routine"))
