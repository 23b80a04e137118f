"""Handlers wrap the ops of a session: `session.handler = LoggingHandler(DEFAULT_HANDLER)`. See docs/handlers.md."""

from __future__ import annotations

from .client.session.handlers import (
    DEFAULT_HANDLER,
    CompositeHandler,
    DeviceHandler,
    FallbackHandler,
    Handler,
    Invocation,
    LoggingHandler,
)

__all__ = [
    "DEFAULT_HANDLER",
    "CompositeHandler",
    "DeviceHandler",
    "FallbackHandler",
    "Handler",
    "Invocation",
    "LoggingHandler",
]
