"""The namespace of the Python array API standard: `session.xp`, and `tensord.array_api` for the default session.

The functions are methods, grouped in families; a namespace has all of them, on one session. A namespace is a module
object, as users of the standard expect, and as the module `tensord.array_api` has to be.
Source: https://data-apis.org/array-api/2025.12/
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ...interpreter.errors import TensordError
from ..locations.locations import located
from ..locations.tracebacks import hide, refusing
from ..process.forks import ProcessLock
from ..session.connect import connect, find_address
from ..tensor.hints import ELSEWHERE, EXTENSIONS, FUNCTIONS, missing
from .beyond import Beyond
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
from .special import Special
from .statistical import Statistical
from .utility import Utility

if TYPE_CHECKING:
    from ..session.session import Session

VERSION: Final = "2025.12"
VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)
EXTENSION_NAMES: Final = ("fft", "linalg", "special")
NAME: Final = f"{__name__.partition('.')[0]}.array_api"
_opening: Final = ProcessLock()  # of the default session; re-entrant, since a signal handler may open it, too


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
    """Everything in the main namespace: the standard's functions, and those of `beyond`."""


class Namespace(ModuleType, Main):
    """The standard's namespace on one session, with its extensions `linalg` and `fft`, and `special` beyond them."""

    __array_api_version__: Final = VERSION
    versions: Final = VERSIONS

    def __init__(self, session: Session) -> None:
        super().__init__(NAME, __doc__)
        self._session = session
        self.linalg = Linalg(session)
        self.fft = Fft(session)
        self.special = Special(session)
        vars(self)["__getattr__"] = absent  # a module asks it for what is missing; a method would slow down every name

    def __array_namespace_info__(self) -> NamespaceInfo:
        """What the namespace can do, and on which devices."""
        return NamespaceInfo(self._maker())

    @property
    def __all__(self) -> list[str]:
        return public_names()

    def __dir__(self) -> list[str]:
        """The standard's names, and those beyond it."""
        return [*public_names(), "__array_api_version__", "__array_namespace_info__", "__name__", "__doc__"]

    def __repr__(self) -> str:
        return f"<array API namespace of {self._session!r}>"


class DefaultNamespace(Namespace):
    """The module `tensord.array_api`: the namespace of the default session, which connects when it is first needed.

    That session is `tensord.connect()`: at $TENSORD_ADDRESS, else on a running daemon, else embedded. A process has one
    default session. Once it has ended, or belongs to the parent of a fork, the next creation function opens another in
    the same place, or raises ConnectionLost if no daemon is there any more. The tensors of the old session are lost.
    """

    @refusing
    def __getattr__(self, name: str) -> Any:
        if name != "_session":  # `_session` is not there before it is needed
            absent(name)
        return self._maker()

    def _maker(self) -> Session:
        session: Session | None = self.__dict__.get("_session")
        return self._connect() if session is None or session.closed else session

    def _connect(self) -> Session:
        with _opening:
            session: Session | None = self.__dict__.get("_session")
            if session is None or session.closed:  # else another thread has been here
                address = find_address() or self.__dict__.get("_address")
                try:
                    session = connect(address)  # a lost daemon is not replaced by a machine in this process
                except TensordError as error:
                    raise located(error) from None
                self._address = address
                session._namespace = lambda: self
                self._session = session
        return session

    def __reduce__(self) -> Any:
        """Pickle by name, as a module: unpickled, it is the default namespace of that process."""
        return import_module, (NAME,)

    def __repr__(self) -> str:
        return f"<module {NAME!r}>"


class Following:
    """An extension of the default namespace: its session is the namespace's current one."""

    def __init__(self, namespace: DefaultNamespace, name: str) -> None:
        self._namespace = namespace
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_session":
            return self._namespace._session
        try:
            raise missing(f"'{NAME}.{self._name}'", name, EXTENSIONS.get(self._name, {}), type(self))
        except AttributeError as error:
            hide(error)
            raise

    def _maker(self) -> Session:
        return self._namespace._maker()

    def __reduce__(self) -> Any:
        return getattr, (self._namespace, self._name)


class DefaultLinalg(Following, Linalg):
    """`tensord.array_api.linalg`."""


class DefaultFft(Following, Fft):
    """`tensord.array_api.fft`."""


class DefaultSpecial(Following, Special):
    """`tensord.array_api.special`."""


@refusing
def absent(name: str) -> NoReturn:
    """Raise AttributeError for a name that no namespace has."""
    raise missing(f"module {NAME!r}", name, {**ELSEWHERE, **FUNCTIONS}, Main)


def public_names() -> list[str]:
    """The functions, constants, dtypes and extensions."""
    return sorted([*(name for name in dir(Main) if not name.startswith("_")), *EXTENSION_NAMES])


def become_default(name: str) -> None:
    """Make a module the namespace of the default session."""
    module: Any = sys.modules[name]
    module.__class__ = DefaultNamespace
    module.linalg, module.fft = DefaultLinalg(module, "linalg"), DefaultFft(module, "fft")
    module.special = DefaultSpecial(module, "special")
