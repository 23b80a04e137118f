"""The value of a tensor of one element, as Python asks for it: `float(x)`, `if x:`, `f"{x:.3f}"`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from ...interpreter.errors import MetadataError, MetadataTypeError, metadata_error
from ...interpreter.types.meta import Scalar
from ..locations.locations import located
from ..locations.tracebacks import make_public
from .waiting import Waiting

Converted = TypeVar("Converted")
_ASKED = "bool float int complex index format"


class Conversions(Waiting):
    """What Python asks for. All of them wait."""

    __slots__ = ()

    def __bool__(self) -> bool:
        if self.size != 1:
            message = f"a tensor of shape {self.shape} has no one truth value: use .any() or .all()"
            raise located(MetadataError(message))
        return bool(self.item())

    def _one(self, what: str, convert: Callable[[Any], Converted]) -> Converted:
        if self.size != 1:
            raise located(MetadataTypeError(f"{what} is for tensors of one element, not of shape {self.shape}"))
        value = self.item()
        try:
            return convert(value)
        except (TypeError, ValueError, OverflowError) as error:  # of NaN, of complex numbers; a wrong format
            raise located(metadata_error(error, f"{what}: {error}", None)) from None

    def __float__(self) -> float:
        return self._one("float()", float)

    def __int__(self) -> int:
        return self._one("int()", int)

    def __complex__(self) -> complex:
        return self._one("complex()", as_complex)

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise located(MetadataTypeError(f"a tensor of {self.dtype.name} is no index"))
        return self._one("an index", int)

    def __format__(self, spec: str) -> str:
        return self._one(f"the format {spec!r}", lambda value: format(value, spec)) if spec else str(self)


make_public(Conversions, frozenset(f"__{name}__" for name in _ASKED.split()))


def as_complex(value: Scalar) -> complex:
    """The number as a complex one; NaN in both parts for NaN, as the standard's text says."""
    nan = isinstance(value, float) and math.isnan(value)
    return complex(math.nan, math.nan) if nan else complex(value)
