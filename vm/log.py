"""The machine's log: structlog over the standard library's logger "tensord".

So an embedded machine is as quiet as any library: warnings appear, other levels only if the application configures
logging. Without a configuration, lines look like those of the daemon's log (`Unconfigured`). The daemon replaces the
processors in place (vm/service/process/logs.py), also for existing loggers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from structlog.typing import EventDict, Processor


def _as_text(_logger: Any, _method: str, event: EventDict) -> str:
    """The event as one line of text, as in `what has happened session=1 op='inv'`."""
    text = str(event.pop("event", ""))
    fields = "".join(f" {name}={value!r}" for name, value in sorted(event.items()))
    return (text if text.isprintable() else repr(text)) + fields


def for_the_standard_library(logger: Any, method: str, event: EventDict) -> tuple[tuple[Any], dict[str, Any]]:
    """The event as text, with its exception for the handler, and its fields for `Unconfigured`."""
    error = event.pop("exc_info", None)
    fields = dict(event)
    return (_as_text(logger, method, event),), {"exc_info": error, "extra": {"fields": fields}}


PROCESSORS: list[Processor] = [structlog.stdlib.filter_by_level, for_the_standard_library]

_LOGGER = logging.getLogger("tensord")
log: Any = structlog.wrap_logger(
    _LOGGER,
    processors=PROCESSORS,
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)


def console(*, colours: bool) -> list[Processor]:
    """The processors from an event to a line with time and level."""
    # Plain tracebacks, since rich ones print local variables, which may hold a client's data.
    renderer = structlog.dev.ConsoleRenderer(
        colors=colours, exception_formatter=structlog.dev.plain_traceback, repr_native_str=True
    )
    return [structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False), _quoted_event, renderer]


def _quoted_event(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Quote an event that is not printable, since the renderer quotes only values."""
    text = str(event.get("event", ""))
    event["event"] = text if text.isprintable() else repr(text)
    return event


def _unfolded(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """The event with the fields that it had before it became text."""
    event.update(getattr(event["_record"], "fields", {}))
    return event


class Unconfigured(logging.Handler):
    """Writes warnings to stderr in a program that has not configured logging.

    The standard library would write the bare text, without time and level.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger
        before = [structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, _unfolded]
        last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *console(colours=False)]
        self.setFormatter(structlog.stdlib.ProcessorFormatter(processors=last, foreign_pre_chain=before))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, unless another handler exists."""
        if logging.getLogger().handlers or self._logger.handlers != [self] or sys.stderr is None:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


_LOGGER.addHandler(Unconfigured(_LOGGER))


@contextmanager
def best_effort() -> Iterator[None]:
    """A block of bookkeeping or logging on which nothing depends: an exception is logged, if possible, and dropped."""
    try:
        yield
    except Exception:
        with suppress(Exception):
            log.exception("bookkeeping has failed, and the machine goes on")
