"""Loading the named plugins, once in a process. Importing a plugin runs its code with all rights of the process.

Plugins are loaded in the sorted order of their names, whatever the order in which they were given. A plugin that fails
leaves nothing behind (no op, no kind of device, no module), so the process may try again. There is no time limit, since
an import cannot be stopped; a daemon that waits for an import is not ready yet, and its service manager sees that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Final

from ...interpreter.entry_points import DEVICES, OPS
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.schema.opdef import REGISTRY, module_of
from ...streams.catalogue import KINDS
from .installed import canonical, entry_points_of, installed_package
from .plugin import Plugin

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

LOADED: Final[dict[str, Plugin]] = {}  # by canonical names
OURS: Final = str(Path(__file__).parents[2])
LOCK: Final = threading.RLock()  # a plugin may open a machine of its own while it is imported


def load(names: Iterable[str]) -> list[Plugin]:
    """Load the named plugins that are not loaded yet; return all named ones, sorted by name.

    MetadataError for a plugin that is not installed, cannot be imported, lacks what its entry points declare, or
    defines an existing op or kind of device again.
    """
    wanted = sorted(set(map(canonical, names)))
    with LOCK:
        for name in wanted:
            if name not in LOADED:
                LOADED[name] = load_one(installed_package(name))
    return [LOADED[name] for name in wanted]


def loaded() -> list[Plugin]:
    """The plugins of this process, sorted by name."""
    return [plugin for _, plugin in sorted(LOADED.items())]


def plugin_of(kind: str) -> Plugin | None:
    """The plugin that defines a kind of device; None if it is built in."""
    return next((plugin for plugin in loaded() if kind in plugin.devices), None)


def plugin_of_op(op: str) -> Plugin | None:
    """The plugin that defines an op; None if it is built in."""
    return next((plugin for plugin in loaded() if op in plugin.ops), None)


def load_one(package: Distribution) -> Plugin:
    """Import the package's entry points, and check that they define what they declare."""
    points = entry_points_of(package)
    if not points:
        raise MetadataError(
            f"plugin {package.name!r} ({package.version}) has no entry points in the groups {OPS} or {DEVICES}: "
            "it is not a plugin, or its metadata are older than its code; reinstall it, or leave it out"
        )
    modules = {point.module.partition(".")[0] for point in points}
    with all_or_nothing(modules):
        kinds, ops = set(KINDS), set(REGISTRY)
        for point in points:
            import_point(point, package)
        devices = [name for name, kind in KINDS.items() if name not in kinds or is_within(kind.module, modules)]
        defined = [name for name, op in REGISTRY.items() if name not in ops or is_within(module_of(op), modules)]
        missing = [point.name for point in points if point.group == DEVICES and point.name not in devices]
        if missing:
            raise MetadataError(
                f"plugin {package.name!r} ({package.version}) does not define the kind of device {missing[0]!r} of its "
                f"entry points: an entry point in {DEVICES} has the name that is given to define_device()"
            )
    return Plugin(package.name, package.version, location_of(points[0]), tuple(defined), tuple(devices))


def import_point(point: EntryPoint, package: Distribution) -> None:
    """Import an entry point; MetadataError with the exception that the import raised, and its line."""
    try:
        point.load()
    except TensordError as error:
        raise refused(package, point, error.message, error) from error
    except (Exception, SystemExit) as error:
        raise refused(package, point, f"{type(error).__name__}: {error}", error) from error


def refused(package: Distribution, point: EntryPoint, why: str, error: BaseException) -> MetadataError:
    """The error for a plugin whose import has raised `error`, with the last line of that error's traceback."""
    return MetadataError(
        f"plugin {package.name!r} ({package.version}) cannot be imported ({point.value}): {why}{last_line(error)}; "
        "fix it, or leave it out"
    )


def last_line(error: BaseException) -> str:
    """The last line of an exception's traceback that is neither tensord's nor of Python's import system."""
    for frame in reversed(extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if not ("importlib" in file.parts or frame.filename.startswith(("<frozen", OURS))):
            return f" [{file.name}:{frame.lineno}: {frame.line}]"
    return ""


@contextmanager
def all_or_nothing(modules: set[str]) -> Iterator[None]:
    """Remove the ops, kinds, and modules within `modules`, that the block has added, if the block raises."""
    kinds, ops, imported = set(KINDS), set(REGISTRY), set(sys.modules)
    try:
        yield
    except BaseException:
        for name in KINDS.keys() - kinds:
            del KINDS[name]
        for name in REGISTRY.keys() - ops:
            del REGISTRY[name]
        for name in sys.modules.keys() - imported:
            if is_within(name, modules):
                del sys.modules[name]
        raise


def is_within(module: str, packages: set[str]) -> bool:
    """Whether the module is one of these packages, or inside one."""
    return module.partition(".")[0] in packages


def location_of(point: EntryPoint) -> str:
    """The directory of an imported package, or the file of an imported module."""
    module = sys.modules[point.module.partition(".")[0]]
    file = getattr(module, "__file__", None)
    if file is None:  # a package without __init__
        return str(next(iter(getattr(module, "__path__", ["?"]))))
    return str(Path(file).parent if hasattr(module, "__path__") else file)
