"""The packages that could be loaded as plugins: installed ones with entry points of ours. None of them is imported.

The metadata of packages take some 20 ms to import, which machines without plugins do not pay.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from ...interpreter.entry_points import GROUPS, OPS
from ...interpreter.errors import MetadataError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_SEPARATORS: Final = re.compile(r"[-_.]+")


def is_package(name: object) -> bool:
    """Is it the name of a package, as the packaging specifications have it?"""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def canonical(name: str) -> str:
    """The name in the form in which equal ones are equal: My_Package is my-package."""
    return _SEPARATORS.sub("-", name).lower()


def found(name: str) -> Distribution:
    """The installed package of that name; MetadataError that says what to do if there is none."""
    from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

    try:
        return distribution(name)
    except PackageNotFoundError:
        known = packages_distributions().get(name, ())
        hint = f"the module {name} is of the package {known[0]}: name that" if known else "install it there"
        raise MetadataError(f"plugin {name!r} is not installed in {sys.prefix}: {hint}, or leave it out") from None


def entry_points_of(package: Distribution) -> list[EntryPoint]:
    """Its entry points that are ours, in an order of their own."""
    return sorted((one for one in package.entry_points if one.group in GROUPS), key=lambda one: (one.group, one.name))


def installed() -> list[dict[str, Any]]:
    """The packages that could be named: name, version, the names of their entry points."""
    from importlib.metadata import entry_points

    rows: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        for one in entry_points(group=group):
            if one.dist is not None:
                new = {"name": one.dist.name, "version": one.dist.version, "ops": [], "devices": []}
                row = rows.setdefault(canonical(one.dist.name), new)
                row["ops" if group == OPS else "devices"].append(one.name)
    return [rows[name] for name in sorted(rows)]
