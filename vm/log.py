"""The machine's log: structlog over the standard library's logger "tensord".

So an embedded machine is as quiet as any library: warnings appear, and other levels only if the application configures
logging. The daemon exchanges the processors in place (vm/service/logs.py), also for loggers that already exist.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

_as_text = structlog.processors.KeyValueRenderer(key_order=["event"])


def for_the_standard_library(logger: Any, method: str, event: EventDict) -> tuple[tuple[Any], dict[str, Any]]:
    """The event as text, and its exception for the handler to show with its traceback."""
    error = event.pop("exc_info", None)
    return (_as_text(logger, method, event),), {"exc_info": error}


PROCESSORS: list[Processor] = [structlog.stdlib.filter_by_level, for_the_standard_library]

log: Any = structlog.wrap_logger(
    logging.getLogger("tensord"),
    processors=PROCESSORS,
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)


@contextmanager
def unhindered() -> Iterator[None]:
    """Around bookkeeping and log lines, on which nothing depends: what they raise is logged, if that works, and stops
    nothing."""
    try:
        yield
    except Exception:
        with suppress(Exception):
            log.exception("bookkeeping has failed, and the machine goes on")
