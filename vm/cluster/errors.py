"""Errors of a cluster as a whole."""

from __future__ import annotations

from ...interpreter.errors import TensordError


class ClusterError(TensordError):
    """Something is wrong with a cluster, or with Ray: the message says what to do."""
