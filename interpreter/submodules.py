"""Finds the modules of a package by their names, so that definitions in modules of their own need no list."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def submodules(package: str) -> list[str]:
    """The names of the modules and packages in an imported package, in alphabetical order."""
    return sorted(found.name for found in iter_modules(import_module(package).__path__))


def import_submodules(package: str) -> None:
    """Import the modules and packages in an imported package, in alphabetical order."""
    for name in submodules(package):
        import_module(f"{package}.{name}")
