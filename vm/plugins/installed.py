"""Finding installed packages with tensord's entry points, which could be loaded as plugins. None of them is imported.

Importing `importlib.metadata` takes some 20 ms, so the import is inside the functions, for machines without plugins.
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
    """Whether `name` is a valid package name by the packaging specifications."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def canonical(name: str) -> str:
    """The canonical form of a package name: My_Package becomes my-package."""
    return _SEPARATORS.sub("-", name).lower()


def installed_package(name: str) -> Distribution:
    """The installed package with this name; MetadataError, which says what to do, if there is none."""
    from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

    try:
        return distribution(name)
    except PackageNotFoundError:
        known = packages_distributions().get(name, ())
        hint = f"the module {name} is in the package {known[0]}: name that" if known else "install it there"
        raise MetadataError(f"plugin {name!r} is not installed in {sys.prefix}: {hint}, or leave it out") from None


def entry_points_of(package: Distribution) -> list[EntryPoint]:
    """The package's entry points in tensord's groups, sorted."""
    return sorted((one for one in package.entry_points if one.group in GROUPS), key=lambda one: (one.group, one.name))


def installed() -> list[dict[str, Any]]:
    """The packages that could be loaded: name, version, and the names of their entry points."""
    from importlib.metadata import entry_points

    rows: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        for entry_point in entry_points(group=group):
            if entry_point.dist is not None:
                new = {"name": entry_point.dist.name, "version": entry_point.dist.version, "ops": [], "devices": []}
                row = rows.setdefault(canonical(entry_point.dist.name), new)
                row["ops" if group == OPS else "devices"].append(entry_point.name)
    return [rows[name] for name in sorted(rows)]
