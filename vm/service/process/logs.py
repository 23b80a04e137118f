"""The service's log by structlog: readable lines, or JSON lines, on stderr or in a file.

The machine's own log (vm/log.py) and the standard library's loggers share one handler on the root logger. Text from
clients reaches the log only quoted, so that a session's name cannot write lines or escape sequences into a terminal.
`bound(session=..., instruction=...)` puts ids on every line inside.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import structlog
from structlog.typing import Processor

from ...log import PROCESSORS, console

Format: TypeAlias = Literal["console", "json"]

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final[tuple[Format, ...]] = ("console", "json")

bound = structlog.contextvars.bound_contextvars

_SHARED: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
]


JSON: Final[list[Processor]] = [
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
    structlog.processors.JSONRenderer(default=str),
]


@contextmanager
def logging_to(file: Path | None = None, *, level: str = "info", form: Format = "console") -> Iterator[None]:
    """Send every log to stderr or to the end of a file while entered; OSError if the file cannot be opened."""
    handler = _handler(file, form)
    root, before = logging.getLogger(), list(PROCESSORS)
    logger = logging.getLogger("tensord")
    levels = root.level, logger.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)  # for libraries; our own logger has the configured level
    logger.setLevel(level.upper())
    PROCESSORS[:] = [
        structlog.stdlib.filter_by_level,
        *_SHARED,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    try:
        yield
    finally:
        PROCESSORS[:] = before
        root.setLevel(levels[0])
        logger.setLevel(levels[1])
        root.removeHandler(handler)
        handler.close()


def _handler(file: Path | None, form: Format) -> logging.Handler:
    handler: logging.Handler
    if file is None and sys.stderr is None:  # in a process without streams
        return logging.NullHandler()
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        from logging.handlers import WatchedFileHandler

        handler = WatchedFileHandler(file, encoding="utf-8")  # logrotate may move the file
    colours = file is None and sys.stderr.isatty()
    final = JSON if form == "json" else console(colours=colours)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[remove, *final], foreign_pre_chain=[*_SHARED]))
    return handler
