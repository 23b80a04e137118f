"""A `Trace` from a machine's answer.

The tools are imported late: a program that never asks for a trace never loads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...vm.tracing.analysis.trace import Trace


def trace_of(entries: Sequence[Any]) -> Trace:
    """The trace of a "trace" answer; ProtocolError for other entries."""
    from ...vm.tracing.analysis.trace import Trace

    return Trace.from_parts([entries])
