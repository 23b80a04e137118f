"""The error of a cluster as a whole."""

from __future__ import annotations

from ...interpreter.errors import TensordError


class ClusterError(TensordError):
    """Something is wrong with the cluster, or with Ray. The message says what to do."""
