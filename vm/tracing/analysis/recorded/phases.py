"""How long an instruction was in each phase, in nanoseconds; 0 if it has not been through that."""

from __future__ import annotations

from ...record import Record


def blocked(record: Record) -> int:
    """From received to ready: on edges."""
    return between(record.received, record.ready)


def queued(record: Record) -> int:
    """From ready to started: for memory, or behind other work of its stream."""
    return between(record.ready, record.started)


def ran(record: Record) -> int:
    """From the start of its kernel to the end."""
    return between(record.started, record.finished)


def between(begin: int, end: int) -> int:
    """The time between two stamps."""
    return max(0, end - begin) if begin and end else 0
