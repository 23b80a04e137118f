"""The namespace of the Python array API standard: `session.xp`, and `tensord.array_api` for the default session.

The functions are methods, grouped in families; a namespace has all of them, on one session. It is a module object,
since users of the standard expect one, and since the module `tensord.array_api` has to be one.
Source: https://data-apis.org/array-api/2025.12/
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataError
from ...interpreter.types.meta import DTYPES, MAX_NDIM
from ..calls.checks import home_of
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import refusing
from ..tensor.hints import ELSEWHERE, FUNCTIONS, missing
from .beyond import Beyond
from .constants import Constants
from .creation import Creation
from .data_types import KINDS, DataTypes
from .elementwise import Elementwise
from .fft import Fft
from .functions import Functions
from .indexing import Indexing
from .linalg import Linalg, LinearAlgebra
from .manipulation import Manipulation
from .searching import Searching
from .sets import Sets
from .sorting import Sorting
from .special import Special
from .statistical import Statistical
from .utility import Utility

DType: TypeAlias = np.dtype[np.generic]

VERSION: Final = "2025.12"
VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)
EXTENSION_NAMES: Final = ("fft", "linalg", "special")
NAME: Final = f"{__name__.partition('.')[0]}.array_api"


class Main(
    Beyond,
    Constants,
    Creation,
    DataTypes,
    Elementwise,
    Indexing,
    LinearAlgebra,
    Manipulation,
    Searching,
    Sets,
    Sorting,
    Statistical,
    Utility,
):
    """The main namespace: the standard's functions, and those of `beyond`."""


class Namespace(ModuleType, Main):
    """The standard's namespace on one session, with its extensions `linalg` and `fft`, and `special` beyond them."""

    __array_api_version__: Final = VERSION
    versions: Final = VERSIONS

    def __init__(self, core: Core) -> None:
        super().__init__(NAME, __doc__)
        self._core = core
        self.linalg = Linalg(core)
        self.fft = Fft(core)
        self.special = Special(core)
        # A module calls it for missing names alone; a method would slow down every name.
        vars(self)["__getattr__"] = absent

    def __array_namespace_info__(self) -> NamespaceInfo:
        """The capabilities of the namespace, and its devices."""
        return NamespaceInfo(self._maker())

    @property
    def __all__(self) -> list[str]:
        return public_names()

    def __dir__(self) -> list[str]:
        """The standard's names, and those beyond it."""
        return [*public_names(), "__array_api_version__", "__array_namespace_info__", "__name__", "__doc__"]

    def __repr__(self) -> str:
        return f"<array API namespace of {self._core!r}>"


@refusing
def absent(name: str) -> NoReturn:
    """Raise AttributeError for a name that no namespace has."""
    raise missing(f"module {NAME!r}", name, {**ELSEWHERE, **FUNCTIONS}, Main)


def public_names() -> list[str]:
    return sorted([*(name for name in dir(Main) if not name.startswith("_")), *EXTENSION_NAMES])


# -- the capabilities of the namespace ---------------------------------------------------------------------------------

_BEYOND = frozenset({"float16"})  # not in the standard
_DEFAULTS = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}


class NamespaceInfo(Functions):
    """The standard's inspection functions."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and data-dependent shapes are supported; a tensor has at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_NDIM}

    def default_device(self) -> Any:
        """The device or placement of new tensors by default: the machine's first device, or the session's placement."""
        return home_of(self._core, None)

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The default dtype of each kind; the same on every device."""
        home_of(self._core, device)
        return {kind: np.dtype(name) for kind, name in _DEFAULTS.items()}

    def devices(self) -> tuple[str, ...]:
        """Names of the machine's devices."""
        return tuple(self._core.devices)

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes by name, all or those of some kinds; the same on every device."""
        home_of(self._core, device)
        wanted = KINDS if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in wanted:
            if each not in KINDS:
                known = ", ".join(KINDS)
                raise located(MetadataError(f"dtypes: unknown kind {each!r}; kinds: {known}", op="dtypes"))
        names = (name for name in DTYPES if any(name in KINDS[each] for each in wanted))
        return {name: np.dtype(name) for name in names if name not in _BEYOND}
