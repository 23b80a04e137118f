"""The capture of this thread, if any. The rest of the client asks here, off the hot path.

A capture belongs to one thread and one session. All actions of that thread on that session are recorded meanwhile, even
those of a signal handler or a `__del__`, which cannot be told from the function's own. Other threads, and other
sessions, are not affected.
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
    """The capture of each thread, if any."""

    capture: Capture | None = None

    def __init__(self) -> None:
        self.infer = InferCache()  # for captures


CURRENT = Current()


def capture_of(outbox: Any) -> Capture | None:
    """This thread's capture, if it belongs to the session with that outbox."""
    capture = CURRENT.capture
    return capture if capture is not None and capture.outbox is outbox else None


def plain_of(value: Any) -> Any:
    """The value of a symbolic number, for an error's text; anything else unchanged."""
    return value if CURRENT.capture is None else CURRENT.capture.attributes({"": value})[""]


def refuse_captured(outbox: Any, what: str) -> None:
    """CaptureError at the user's line if this thread captures for that session."""
    if capture_of(outbox) is not None:
        raise located(CaptureError(f"{what} while a routine is captured: do that outside of the routine"))
