"""The registry of kinds of devices. `define_device(...)` defines each kind once; devices are opened only through it.

A kind of this tree is defined in the module `kind` of its package (`host/kind.py` defines "cpu"), and is found by that
name, as tinygrad finds its devices by module. Other packages call the same function (docs/plugins.md). `open` imports
the modules that take long to import.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from ..interpreter.entry_points import DEVICES
from ..interpreter.errors import MetadataError
from ..interpreter.submodules import submodules
from ..interpreter.types.device_names import kind_of
from .device import Device
from .options import options_of
from .stream import Sink

MODULE: Final = "kind"  # in the package of a kind

_NAME: Final = re.compile(r"[a-z]{1,32}")


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a kind that has none."""


def anywhere(_number: int) -> str | None:
    """The `available` of a kind that exists on any machine, in any number."""
    return None


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """The properties of a kind that are known before a device of the kind is open.

    `name`: "cpu" of "cpu:0". `open`: makes a device from its name, the sink of finished tasks, and its options.
    `options`: a dataclass, whose fields are declared as `options.py` says. `available`: the reason why this machine has
    no device of that number, or None. `host`: its arrays are host memory, which a daemon divides among such devices.
    `main_memory`: its tensors take the machine's main memory. `compiles`: CuPy compiles its kernels at their first
    call. `only`: the number of the only possible device. `computes`: ops run there. `defined`: module and
    line of the definition, for messages.
    """

    name: str
    open: Callable[[str, Sink, Any], Device]
    options: type[Any]
    available: Callable[[int], str | None] = anywhere
    host: bool = False
    main_memory: bool = False
    compiles: bool = False
    only: int | None = None
    computes: bool = True
    defined: str = ""

    @property
    def module(self) -> str:
        """The module that defines the kind."""
        return self.defined.partition(":")[0]


KINDS: Final[dict[str, DeviceKind]] = {}


def define_device(
    name: str,
    open: Callable[[str, Sink, Any], Device],  # noqa: A002 - what `KINDS[name].open` does
    options: type[Any] = NoOptions,
    *,
    available: Callable[[int], str | None] = anywhere,
    host: bool = False,
    main_memory: bool = False,
    compiles: bool = False,
    only: int | None = None,
    computes: bool = True,
) -> DeviceKind:
    """Define a kind of device, whose devices are then named "name:0", "name:1" and so on (docs/plugins.md).

    :param name: The name of the kind.
    :param open: ``open(name, sink, options)`` makes a `tensord.devices.Device`. It may raise, and is not called before
        a device of the kind is asked for, so import slow packages there.
    :param options: A frozen dataclass, each of whose fields is annotated with a `tensord.devices.Option`.
    :param available: ``available(number)`` says why there is no such device on this machine, or returns None.
    :param host: Arrays of the device are ordinary arrays of NumPy in the host's memory.
    :param main_memory: The arrays take the machine's main memory.
    :param compiles: CuPy compiles the kernels when they are first called.
    :param only: The one number that a device of this kind may have.
    :param computes: Ops run on the device.
    :returns: The kind.
    :raises MetadataError: The name is taken, or is not a name, or options are not declared.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - where the definition is
    where = f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
    check(name, options)
    if name in KINDS:
        raise MetadataError(f"the kind of device {name!r} is defined twice: at {KINDS[name].defined} and at {where}")
    KINDS[name] = DeviceKind(name, open, options, available, host, main_memory, compiles, only, computes, defined=where)
    return KINDS[name]


def check(name: object, options: object) -> None:
    """Raise MetadataError unless a kind of that name may have these options."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise MetadataError(f'a kind of device is named by up to 32 lower-case letters, such as "cpu", not {name!r}')
    if not isinstance(options, type) or not is_dataclass(options):
        raise MetadataError(f"the options of {name!r} are a dataclass, not {options!r}")
    try:
        options_of(options)
    except (TypeError, NameError) as error:
        raise MetadataError(f"the options of {name!r}: {error}") from None


def find_kinds(package: str) -> None:
    """Define the kinds of this tree: import the module `kind` of each package inside `package`."""
    for module in iter_modules(import_module(package).__path__):
        if module.ispkg and MODULE in submodules(f"{package}.{module.name}"):
            import_module(f"{package}.{module.name}.{MODULE}")


def kind_named(device: str) -> DeviceKind | None:
    """The kind of a device, from its name on any node; None if the kind is not defined here."""
    return KINDS.get(kind_of(device))


def compiles(device: str) -> bool:
    """Return whether kernels of a device of that name are compiled at their first call, as far as is known here."""
    kind = kind_named(device)
    return kind is not None and kind.compiles


def is_host(device: str) -> bool:
    """Return whether arrays of a device of that name are host memory."""
    kind = kind_named(device)
    return kind is not None and kind.host


def takes(device: str, option: str) -> bool:
    """Return whether a device of that name has that option."""
    kind = kind_named(device)
    return kind is not None and option in options_of(kind.options)


def unknown(name: object) -> MetadataError:
    """The error for a device name of an unknown kind, with the probable fix."""
    kind = name.partition(":")[0] if isinstance(name, str) else ""
    known = f'devices are named like "cpu:0" (known: {", ".join(sorted(KINDS))})'
    offered = sorted(set(offering(kind))) if _NAME.fullmatch(kind) and kind not in KINDS else []
    if offered:
        known += f'; {kind!r} comes with the package {" or ".join(offered)}: name it, plugins = ["{offered[0]}"]'
    elif _NAME.fullmatch(kind) and kind not in KINDS:
        known += "; other kinds come with plugins (docs/plugins.md)"
    return MetadataError(f"unknown device {name!r}; {known}")


def offering(kind: str) -> Iterator[str]:
    """The installed packages that declare to define a kind of that name."""
    from importlib.metadata import entry_points  # some 20 ms, which is acceptable on the way to an error

    with suppress(Exception):  # the metadata of any package may be broken, and this only improves a message
        for entry_point in entry_points(group=DEVICES, name=kind):
            if entry_point.dist is not None:
                yield entry_point.dist.name
