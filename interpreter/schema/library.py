"""A library that the kernels of some ops call, and that a device's process may lack.

Its presence is checked without an import, which may take a third of a second. The first kernel that calls the library
imports it. Until then its ops count as unbounded, so that a worker thread runs that kernel, not the driving thread. A
GPU's library is imported when the device opens, to find out which functions it has.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from ..types.device_names import kind_of

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
HOST_MODULE: Final = "numpy"  # the array module of devices whose kernels may run on the driving thread


class Library:
    """A library of kernels.

    `modules`: the library's module for each array module. `extra`: the extra of tensord that installs `package`, the
    library for NumPy. `names`: the library's names of functions, for ops with another name. `composed`: ops that are
    composed of several of its functions on a GPU. `unfit`: ops whose functions return wrong results on a GPU.
    `imported`: whether kernels on the host can call the library without an import.
    """

    def __init__(
        self,
        modules: Mapping[str, str],
        *,
        extra: str,
        package: str,
        names: Mapping[str, str] = NO_NAMES,
        composed: Container[str] = (),
        unfit: Container[str] = (),
    ) -> None:
        self.modules = dict(modules)
        self.extra = extra
        self.package = package
        self.names = dict(names)
        self.composed = composed
        self.unfit = unfit
        self.imported = False

    @property
    def name(self) -> str:
        """The module on the host."""
        return self.modules[HOST_MODULE]

    def of(self, xp: Any) -> Any:
        """The library's module for arrays of that array module. ImportError if it is missing."""
        found = import_module(self.modules[xp.__name__])
        self.imported = self.imported or xp.__name__ == HOST_MODULE
        return found

    def lacking(self, xp: Any, ops: Collection[str]) -> frozenset[str]:
        """The ops whose function is missing in this process."""
        path = self.modules.get(getattr(xp, "__name__", ""))
        if path is not None and xp.__name__ == HOST_MODULE:
            return frozenset() if find_spec(path.partition(".")[0]) else frozenset(ops)
        if path is None:
            return frozenset(ops)
        try:
            module = import_module(path)
        except ImportError:
            return frozenset(ops)
        return frozenset(
            op
            for op in ops
            if op in self.unfit or (op not in self.composed and not hasattr(module, self.names.get(op, op)))
        )

    def advice(self, device: str, where: str) -> str:
        """Advice to the user of a device that lacks the whole library."""
        if kind_of(device) == "cuda":
            return f"{self.modules['cupy']} cannot be imported in {where}"
        return f'{where} lacks {self.package}; install it there: pip install "tensord[{self.extra}]"'
