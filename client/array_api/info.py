"""`__array_namespace_info__`: what the namespace can do, on which devices, with which dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataError
from ...interpreter.types.meta import DTYPES, MAX_NDIM
from ..calls.checks import device_of
from ..locations.locations import located
from .data_types import KINDS
from .functions import Functions

if TYPE_CHECKING:
    DType: TypeAlias = np.dtype[np.generic]

_BEYOND = frozenset({"float16"})  # not in the standard
_DEFAULTS = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}


class NamespaceInfo(Functions):
    """The standard's inspection functions."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and data-dependent shapes are supported; a tensor has at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_NDIM}

    def default_device(self) -> str:
        """The device on which creation functions put tensors by default: the machine's first one."""
        return device_of(self._core, None)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The default dtype of each kind; the same on every device."""
        device_of(self._core, device)
        return {kind: np.dtype(name) for kind, name in _DEFAULTS.items()}

    def devices(self) -> tuple[str, ...]:
        """Names of the machine's devices."""
        return tuple(self._core.devices)

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes by name, all or those of some kinds; the same on every device."""
        device_of(self._core, device)
        wanted = KINDS if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in wanted:
            if each not in KINDS:
                known = ", ".join(KINDS)
                raise located(MetadataError(f"dtypes: there is no kind {each!r}; there are {known}", op="dtypes"))
        found = (name for name in DTYPES if any(name in KINDS[each] for each in wanted))
        return {name: np.dtype(name) for name in found if name not in _BEYOND}
