"""The error of a service that cannot start."""

from __future__ import annotations

from ....interpreter.errors import TensordError


class StartError(TensordError):
    """The service cannot start. The message says why and what to do, on one line."""
