"""The module `tensord.array_api`: the standard's namespace on the default session, which it opens."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

from ...interpreter.errors import TensordError
from ..array_api.fft import Fft
from ..array_api.linalg import Linalg
from ..array_api.namespace import NAME, Namespace, absent
from ..array_api.special import Special
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import hide, refusing
from ..process.forks import ProcessLock
from ..tensor.hints import EXTENSIONS, missing
from .connect import connect, find_address

_opening: Final = ProcessLock()  # of the default session; re-entrant, since a signal handler may open it, too


class DefaultNamespace(Namespace):
    """The module `tensord.array_api`: the namespace of the default session, which connects when it is first needed.

    That session is `tensord.connect()`: at $TENSORD_ADDRESS, else on a running daemon, else embedded. A process has one
    default session. Once it has ended, or belongs to the parent of a fork, the next creation function opens another at
    the same address, or raises ConnectionLost if the daemon is gone. The tensors of the old session are lost.
    """

    @refusing
    def __getattr__(self, name: str) -> Any:
        if name != "_core":  # `_core` is set when it is needed
            absent(name)
        return self._maker()

    def _maker(self) -> Core:
        core: Core | None = self.__dict__.get("_core")
        return self._connect() if core is None or core.closed else core

    def _connect(self) -> Core:
        with _opening:
            core: Core | None = self.__dict__.get("_core")
            if core is None or core.closed:  # otherwise another thread has opened it
                address = find_address() or self.__dict__.get("_address")
                try:
                    core = connect(address)._core  # a lost daemon is not replaced by a machine in this process
                except TensordError as error:
                    raise located(error) from None
                self._address = address
                core.namespace = lambda: self
                self._core = core
        return core

    def __reduce__(self) -> Any:
        """Pickle by name, as a module: when unpickled, it is the default namespace of that process."""
        return import_module, (NAME,)

    def __repr__(self) -> str:
        return f"<module {NAME!r}>"


class Following:
    """An extension of the default namespace: its session is the namespace's current one."""

    def __init__(self, namespace: DefaultNamespace, name: str) -> None:
        self._namespace = namespace
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_core":
            return self._namespace._core
        try:
            raise missing(f"'{NAME}.{self._name}'", name, EXTENSIONS.get(self._name, {}), type(self))
        except AttributeError as error:
            hide(error)
            raise

    def _maker(self) -> Core:
        return self._namespace._maker()  # noqa: SLF001 - the namespace that it is a part of

    def __reduce__(self) -> Any:
        return getattr, (self._namespace, self._name)


class DefaultLinalg(Following, Linalg):
    """`tensord.array_api.linalg`."""


class DefaultFft(Following, Fft):
    """`tensord.array_api.fft`."""


class DefaultSpecial(Following, Special):
    """`tensord.array_api.special`."""


def become_default(name: str) -> None:
    """Make a module the namespace of the default session."""
    module: Any = sys.modules[name]
    module.__class__ = DefaultNamespace
    module.linalg, module.fft = DefaultLinalg(module, "linalg"), DefaultFft(module, "fft")
    module.special = DefaultSpecial(module, "special")
