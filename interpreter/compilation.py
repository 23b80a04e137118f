"""Marks for classes of modules that may be compiled ahead of time (docs/compiled.md).

mypyc reads `mypyc_attr` above a class. In plain Python the mark does nothing, and needs no package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:
    Class = TypeVar("Class")

    def mypyc_attr(**_attributes: object) -> Callable[[Class], Class]:
        """The class as it is."""
        return lambda marked: marked
