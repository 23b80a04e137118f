"""The base class of a namespace's families of functions: it holds the session whose tensors they take."""

from __future__ import annotations

from typing import Any, NoReturn, Self

import numpy as np
from numpy.exceptions import ComplexWarning

from ...interpreter.errors import MetadataError, metadata_error
from ...interpreter.schema.attributes import check_dtype
from ...interpreter.types.kinds import REAL
from ..calls.by_name import call
from ..core.core import Core
from ..locations.frames import warn
from ..locations.locations import located
from ..locations.tracebacks import make_public, refusing
from ..tensor.hints import EXTENSIONS, missing
from ..tensor.tensor import Tensor


class Functions:
    """A family of functions, as methods that issue their ops on the session behind `_core`."""

    _core: Core

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        make_public(cls)

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} functions of {self._core!r}>"

    def _maker(self) -> Core:
        """The core of the session on which new tensors are made."""
        return self._core

    def _call(self, name: str, *operands: Any, **attributes: Any) -> Tensor:
        return call(self._core, name, operands, attributes or None)[0]

    def _call_all(self, name: str, *operands: Any, **attributes: Any) -> list[Tensor]:
        return call(self._core, name, operands, attributes or None)

    def _real_if_asked(self, x: Any, dtype: Any) -> Any:
        """x, or its real part with a warning if x is complex and the requested dtype is real.

        NumPy does so wherever it takes a dtype; the standard forbids it for `astype` alone.
        """
        if dtype is None or (isinstance(x, Tensor) and x._meta is None) or not is_complex(x) or not is_real(dtype):
            return x
        warn("casting complex values to real discards the imaginary part", ComplexWarning)
        return self._call("real", x) if isinstance(x, Tensor) else x.real

    def __copy__(self) -> Self:
        """The object itself: functions are shared, as those of a module are."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    @refusing
    def __reduce__(self) -> Any:
        raise TypeError("functions of a session cannot be pickled; use the functions of the module tensord.array_api")


class Extension(Functions):
    """The functions of one of the standard's extensions."""

    @refusing
    def __getattr__(self, name: str) -> NoReturn:
        extension = type(self).__name__.lower()
        raise missing(f"the extension {extension!r}", name, EXTENSIONS.get(extension, {}), type(self))


def argument_error(function: str, error: Exception) -> MetadataError:
    """The error, with the user's line, for wrong arguments of a function."""
    if isinstance(error, MetadataError):
        return located(error)
    return located(metadata_error(error, f"{function}: {error}", function))


def is_complex(x: Any) -> bool:
    """Is x a tensor or an array of complex numbers?"""
    return isinstance(x, Tensor | np.ndarray) and x.dtype.kind == "c"


def is_real(dtype: Any) -> bool:
    """Is `dtype` a real dtype? False for an object that is no dtype: other code refuses it."""
    try:
        return check_dtype(dtype) in REAL
    except TypeError:
        return False
