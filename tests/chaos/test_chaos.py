"""A chaotic round; `make chaos` runs many."""

from __future__ import annotations

from .rounds import Round


def test_chaos_leaves_no_trace() -> None:
    """Behaviours 33 to 38, at random points."""
    assert not Round(0).run()
