"""The machine's log: structlog over the standard library's logger "tensord".

So an embedded machine is as quiet as any library: warnings appear, the rest is for whoever configures logging.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

log: Any = structlog.wrap_logger(
    logging.getLogger("tensord"),
    processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
