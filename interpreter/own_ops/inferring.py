"""A user's infer function: whatever it raises or returns, a machine gets metas or a MetadataError.

The client calls it, so that the user sees errors at the call; the machine calls it again, on the thread that drives the
machine. So it has to give the same answer in both, from its arguments alone, and quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..schema.opdef import Attributes, Infer, OutputMetas
from ..schema.promotion import broadcast, promote
from ..types.meta import Meta, Metas, tensor_metas
from .signature import Schema


def checked_infer(infer: Callable[..., Any], schema: Schema, *, dynamic: bool) -> Infer:
    """The user's function in the form that a definition needs: `infer(*metas, **attributes)` -> a meta, or a tuple of
    metas."""

    def ask(metas: Metas, attributes: Attributes) -> OutputMetas:
        try:
            made = infer(*tensor_metas(metas), **schema.as_given(attributes))
        except (TypeError, ValueError, OverflowError):
            raise
        except Exception as error:
            raise ValueError(f"its infer function raised {type(error).__name__}: {error}") from error
        return checked(made, schema.outputs, dynamic=dynamic)

    return ask


def checked(made: Any, outputs: int, *, dynamic: bool) -> OutputMetas:
    """The result of an infer function, as the metas of `outputs` results."""
    several = made if outputs > 1 else (made,)
    if not isinstance(several, tuple | list) or len(several) != outputs:
        raise TypeError(f"its infer function gives a tuple of {outputs} metas, not {made!r}")
    return tuple([meta_of(each, dynamic=dynamic) for each in several])


def meta_of(made: Any, *, dynamic: bool) -> Meta | None:
    """A meta, which may be given as (shape, dtype); None for a data-dependent shape."""
    if made is None and dynamic:
        return None
    if isinstance(made, Meta):
        return made
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], tuple):
        return Meta.of(*made)
    hint = ", or None with dynamic=True" if made is None else ""
    raise TypeError(f"its infer function gives a meta or (shape, dtype){hint}, not {made!r}")


def elementwise(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The shapes are broadcast, the dtypes promoted; operands may be numbers."""
    return (Meta.of(broadcast(metas), promote(metas)),)
