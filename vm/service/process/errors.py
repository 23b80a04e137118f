"""The error of a service that cannot start."""

from __future__ import annotations

from ....interpreter.errors import TensordError


class StartError(TensordError):
    """The service cannot start. The message gives the reason and the remedy, on one line."""


class CommandLineError(StartError):
    """A setting on the command line is wrong."""
