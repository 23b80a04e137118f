"""Opens spans as spans of OpenTelemetry, too, once a program has asked for that (`tensord.use_opentelemetry`).

Until then, a span reads one attribute, and OpenTelemetry is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.version import version
from ...interpreter.wire.forms import shown

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

NOT_INSTALLED = 'OpenTelemetry is not installed: pip install "tensord[otel]"'


class Telemetry:
    """The tracer that makes the spans; None while no spans are made."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


TELEMETRY = Telemetry()


class TelemetrySpan(NamedTuple):
    """An open span of OpenTelemetry, and the previous current one."""

    span: Span
    before: Token[Context]


def use(provider: TracerProvider | None, *, on: bool) -> None:
    """Begin to open spans, or stop."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise MetadataError(NOT_INSTALLED) from None
    if provider is not None and not isinstance(provider, trace.TracerProvider):
        raise MetadataTypeError(f"use_opentelemetry: expected a TracerProvider, got {shown(provider)}")
    TELEMETRY.tracer = trace.get_tracer("tensord", version(), provider) if on else None


def begin(path: Sequence[str]) -> TelemetrySpan | None:
    """Open a span inside the current one; None if spans are not in use. `path`: names, its own last."""
    tracer = TELEMETRY.tracer
    if tracer is None:
        return None
    from opentelemetry.context import attach
    from opentelemetry.trace import set_span_in_context

    span = tracer.start_span(path[-1], attributes={"tensord.span": "/".join(path)})
    return TelemetrySpan(span, attach(set_span_in_context(span)))


def end(opened: TelemetrySpan, error: BaseException | None) -> None:
    """End a span, with the error that leaves its block, if any."""
    from opentelemetry.context import detach
    from opentelemetry.trace import Status, StatusCode

    detach(opened.before)
    if isinstance(error, Exception):
        opened.span.record_exception(error)
        opened.span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    opened.span.end()
