"""What rows say of one tensor, whichever engine it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....interpreter.errors import TensordError
from ....interpreter.types.meta import Meta


def shape_and_dtype(meta: Meta | None) -> dict[str, Any]:
    """Both are None while the meta is pending."""
    return {
        "shape": None if meta is None else list(meta.shape),
        "dtype": None if meta is None else meta.dtype.name,
    }


def properties(meta: Meta | None, home: str, residency: Mapping[str, str], holders: int) -> dict[str, Any]:
    """A tensor's properties and places; shape, dtype and bytes are None while its meta is pending."""
    return {
        **shape_and_dtype(meta),
        "bytes": None if meta is None else meta.nbytes,
        "home": home,
        "residency": residency,
        "holders": holders,
    }


def state_of(error: TensordError | None, meta: Meta | None, *, ready: bool) -> dict[str, Any]:
    """What a look at a tensor finds: "ready", "pending" or "failed", its error, and its meta."""
    state = "failed" if error is not None else "ready" if ready else "pending"
    return {"state": state, "error": error_text(error), **shape_and_dtype(meta)}


def error_text(error: TensordError | None) -> str:
    """The error in one text; empty for none."""
    return "" if error is None else f"{type(error).__name__}: {error}"
