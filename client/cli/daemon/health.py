"""What of a daemon's status needs an operator, for `status --check` and for the doctor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..drawing.figures import duration

HEALTHY: Final = 0
NEEDS_A_LOOK: Final = 1
UNREACHABLE: Final = 2  # as exit statuses
PATIENCE: Final = 5.0  # seconds for a daemon to answer: even a busy one takes a small part of one


class Reason(NamedTuple):
    """Why somebody has to look: at what, what is the case, and what to do."""

    check: str
    message: str
    advice: str


def reasons(status: Mapping[str, Any]) -> Iterator[Reason]:
    """What does not end by itself: lost devices, kernels that hang, durable names that could not be written.

    The log has an error for each of these, see `vm/runtime.py`.
    """
    for name, device in status["devices"].items():
        if device["lost"]:
            yield Reason(name, f"is lost: {device['lost']}", "restart the daemon")
    for one in status["hung"]:
        since, place = duration(one["seconds"]), f", called at {one['location']}" if one.get("location") else ""
        message = f"#{one['instruction']} {one['op']} has been running for {since} on {one['stream']}{place}"
        yield Reason("hanging kernel", message, f"tensord trace why {one['instruction']}; only a restart ends it")
    durable = status.get("durable")  # an older daemon does not say
    if durable is not None and durable["failure"]:
        message = f"not on the disk as they are: {durable['failure']}"
        yield Reason("durable names", message, f"make {durable['directory']} writable again, with room on its disk")
