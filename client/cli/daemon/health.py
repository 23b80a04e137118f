"""Problems in a daemon's status that need an operator, for `status --check` and for the doctor."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ....interpreter.errors import TensordError
from ..drawing.figures import duration
from ..drawing.tables import plain
from ..line.options import tell
from .ask import ask

EXIT_STATUSES: Final = {"healthy": 0, "needs a look": 1, "unreachable": 2}
PATIENCE: Final = 5.0  # seconds for a daemon to answer: even a busy one is much faster


class HealthReason(NamedTuple):
    """A problem that needs an operator: the check, the message, and the advice."""

    check: str
    message: str
    advice: str


def reasons(status: Mapping[str, Any]) -> Iterator[HealthReason]:
    """Lost devices, hanging kernels, durable names that were not written. The log has an error for each."""
    for name, device in status["devices"].items():
        if device["lost"]:
            yield HealthReason(name, f"is lost: {device['lost']}", "restart the daemon")
    for kernel in status["hung"]:
        since, line = duration(kernel["seconds"]), f", called at {kernel['location']}" if kernel.get("location") else ""
        message = f"#{kernel['instruction']} {kernel['op']} has been running for {since} on {kernel['stream']}{line}"
        ends = (
            "a restart ends it, and timeout= would have" if "/joint" in kernel["stream"] else "only a restart ends it"
        )
        yield HealthReason("hanging kernel", message, f"tensord trace why {kernel['instruction']}; {ends}")
    durable = status.get("durable")  # an older daemon does not report it
    if durable is not None and durable["failure"]:
        message = f"the latest values are not on the disk: {durable['failure']}"
        yield HealthReason(
            "durable names", message, f"make {durable['directory']} writable again, with room on its disk"
        )


def tell_health(address: str | None, wait: float) -> int:
    """Print whether the daemon needs attention, and why; returns the exit status."""
    try:
        problems = list(reasons(ask(address, "status", wait=wait, patience=PATIENCE)))
        state = "needs a look" if problems else "healthy"
    except (TensordError, OSError) as error:
        said = error.message if isinstance(error, TensordError) else str(error)
        state, problems = "unreachable", [HealthReason("daemon", said, "tensord doctor")]
    tell({"state": state, "reasons": [reason._asdict() for reason in problems]}, show_health)
    return EXIT_STATUSES[state]


def show_health(health: Mapping[str, Any]) -> None:
    print(health["state"])
    for reason in health["reasons"]:
        print(plain("{check}: {message} ({advice})".format(**reason)))
