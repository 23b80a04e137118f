"""Host calls: the declared results, and the check of the function's results, on both ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import NDArray

from ..errors import MetadataError, ProtocolError
from ..types.meta import DTYPE_NAMES, Meta
from .messages import Effect
from .metas import decode_meta

LABEL: Final = "host_call"


def metas_of(message: Effect) -> list[Meta]:
    """The metas of a host call's results; MetadataError for invalid ones."""
    if len(message.metas) != len(message.outputs) or not message.outputs:
        raise ProtocolError(f"a host call with {len(message.outputs)} results and {len(message.metas)} metas")
    metas: list[Meta] = []
    for wire in message.metas:
        try:
            meta = decode_meta(wire)
        except (TypeError, ValueError, KeyError) as error:
            raise MetadataError(f"{LABEL}: {error}") from None
        if not isinstance(meta, Meta):
            raise MetadataError(f"{LABEL}: a result has a shape and a dtype")
        metas.append(meta)
    return metas


def refusal_of(metas: Sequence[Meta], arrays: Sequence[NDArray[Any]]) -> str:
    """The reason why the arrays cannot be results of these metas; empty if they can."""
    if len(arrays) != len(metas):
        return f"the function returned {len(arrays)} results, and result= names {len(metas)}"
    for position, (meta, array) in enumerate(zip(metas, arrays, strict=True)):
        if array.shape != meta.shape or array.dtype != meta.dtype:
            which = f" as result {position}" if len(metas) > 1 else ""
            dtype = DTYPE_NAMES.get(array.dtype) or str(array.dtype)
            return f"the function returned {dtype}{list(array.shape)}{which}, and result= says {meta}"
    return ""
