"""What keeps the service from starting."""

from __future__ import annotations

from ...interpreter.errors import TensordError


class StartError(TensordError):
    """The service does not start: the message says why and what to do. One line."""
