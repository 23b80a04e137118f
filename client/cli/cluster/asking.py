"""Questions of supervisors to their daemons, passed to the supervisors since `vm/` cannot import the client."""

from __future__ import annotations

from typing import Any, Final

PATIENCE: Final = 5.0  # seconds: even a busy daemon answers much faster


def ask(address: str, what: str, *arguments: Any) -> Any:
    """A daemon's answer to one question. ConnectionLost if it gives none."""
    from ..daemon.ask import questions

    with questions(address, PATIENCE) as asking:
        return asking.ask(what, *arguments)
