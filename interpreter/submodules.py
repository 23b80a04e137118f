"""The modules of a package, found by their names: what is defined in a module of its own is in no list besides."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def submodules(package: str) -> list[str]:
    """The names of the modules and packages that lie in a package, which is imported, in the order of the alphabet."""
    return sorted(found.name for found in iter_modules(import_module(package).__path__))


def import_submodules(package: str) -> None:
    """Import them all, in that order."""
    for name in submodules(package):
        import_module(f"{package}.{name}")
