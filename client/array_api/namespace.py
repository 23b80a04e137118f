"""The namespace of the Python array API standard: `session.xp`, and `tensord.array_api` for the default session.

The functions are methods, by families; a namespace is all of them on one session. It is a module object, since that
is what those who speak the standard expect, and since the module `tensord.array_api` itself has to be one.
Source: https://data-apis.org/array-api/2024.12/
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ..connect import connect
from .constants import Constants
from .creation import Creation
from .data_types import DataTypes
from .elementwise import Elementwise
from .fft import Fft
from .indexing import Indexing
from .info import NamespaceInfo
from .linalg import Linalg, LinearAlgebra
from .manipulation import Manipulation
from .searching import Searching
from .sets import Sets
from .sorting import Sorting
from .statistical import Statistical
from .utility import Utility

if TYPE_CHECKING:
    from ..session import Session

VERSION: Final = "2024.12"
VERSIONS: Final = ("2021.12", "2022.12", "2023.12", VERSION)
NAME: Final = f"{__name__.partition('.')[0]}.array_api"


class Main(
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
    """Everything in the standard's main namespace."""


class Namespace(ModuleType, Main):
    """The standard's namespace on one session. `linalg` and `fft` are its extensions."""

    __array_api_version__: Final = VERSION
    versions: Final = VERSIONS

    def __init__(self, session: Session) -> None:
        super().__init__(NAME, __doc__)
        self._bind(session)

    def _bind(self, session: Session) -> None:
        self._session = session
        self.linalg = Linalg(session)
        self.fft = Fft(session)

    def __array_namespace_info__(self) -> NamespaceInfo:
        """What the namespace can do, and on which devices."""
        return NamespaceInfo(self._session)

    @property
    def __all__(self) -> list[str]:
        return public_names()

    def __dir__(self) -> list[str]:
        """The standard's names."""
        return [*public_names(), "__array_api_version__", "__array_namespace_info__", "__name__", "__doc__"]

    def __repr__(self) -> str:
        return f"<array API namespace of {self._session!r}>"


class DefaultNamespace(Namespace):
    """The module `tensord.array_api`: the namespace of the default session, which connects when it is first needed.

    That session is `tensord.connect()`: at $TENSORD_ADDRESS, else on a running daemon, else embedded. Once it has
    ended, the next creation function opens another one.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in {"_session", "linalg", "fft"}:
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        self._connect()
        return self.__dict__[name]

    def _connect(self) -> Session:
        session = connect(None)
        session._namespace = lambda: self
        self._bind(session)
        return session

    def _maker(self) -> Session:
        session = self._session
        return self._connect() if session.closed else session

    def __repr__(self) -> str:
        return f"<module {NAME!r}>"


def public_names() -> list[str]:
    """The standard's functions, constants, dtypes and extensions."""
    return sorted([*(name for name in dir(Main) if not name.startswith("_")), "linalg", "fft"])


def become_default(module: str) -> None:
    """Make a module the namespace of the default session."""
    sys.modules[module].__class__ = DefaultNamespace
