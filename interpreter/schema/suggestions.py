"""Suggestions for a misspelt name of an op or dtype, as the end of an error message."""

from __future__ import annotations

from collections.abc import Iterable


def similar(name: str, names: Iterable[str]) -> str:
    """`; did you mean multiply?` for a name that is not among the names; empty if none of them is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name[:80], list(names), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""
