"""A few chaotic rounds; `make chaos` runs many."""

from __future__ import annotations

import pytest

from .rounds import Round


@pytest.mark.parametrize("seed", range(3))
def test_chaos_leaves_no_trace(seed: int) -> None:
    """Behaviours 33 to 38, at random points."""
    assert not Round(seed).run()
