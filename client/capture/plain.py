"""Python's numbers as programs have them, and errors of captures with the user's line."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...interpreter.errors import TensordError
from ...interpreter.schema.promotion import WIRE_INTEGERS
from ...interpreter.types.meta import SCALAR_TYPES, Scalar
from ..locations.locations import located


class Located:
    """`with LOCATED:` errors from inside get the user's line."""

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TensordError):
            located(error)


LOCATED: Final = Located()


def plain_number(value: Any) -> Scalar:
    """A NumPy scalar as the Python number it is."""
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    return number


def kind_of(value: Any) -> str:
    return type(plain_number(value)).__name__


def fits(value: Any) -> bool:
    """May a program have this number?"""
    return type(value).__name__ in SCALAR_TYPES and (type(value) is not int or value in WIRE_INTEGERS)
