"""Is the engine compiled here? Computed once, as the answer takes the digests of all sources."""

from __future__ import annotations

from typing import Final

import pytest

import tensord as td

COMPILED: Final = td.build_info().form == "compiled"
replaces_parts = pytest.mark.skipif(
    COMPILED, reason="it replaces a function of the engine, which compiled code does not see"
)
