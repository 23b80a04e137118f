"""A `Trace` from a machine's answer.

The tools are imported late: a program that never asks for a trace never loads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...vm.tracing.analysis.nodes import NodesTrace
    from ...vm.tracing.analysis.trace import Trace


def trace_of(entries: Sequence[Any]) -> Trace:
    """The trace of a "trace" answer; ProtocolError for other entries."""
    from ...vm.tracing.analysis.trace import Trace

    return Trace.from_parts([entries])


def trace_of_nodes(answers: Mapping[str, tuple[Sequence[Any], int, int]]) -> NodesTrace:
    """The trace of several nodes: for each node the answer to "trace", the nanoseconds by which its clock is ahead of
    the first node's, and the error of that figure."""
    from ...vm.tracing.analysis.nodes import NodeClock, join_traces

    traces = {node: trace_of(entries) for node, (entries, _, _) in answers.items()}
    return join_traces(traces, {node: NodeClock(ahead, error) for node, (_, ahead, error) in answers.items()})
