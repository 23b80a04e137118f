"""Opens devices from names and tables of options, as given to `connect(devices=...)` or in a configuration file.

A device is "cpu:0", or a table with its name and options: {"name": "sim:0", "memory": "64MiB", "bandwidth": 1e9}.
Each kind declares its options, which `options` reads and describes. All names and options are checked before the first
device is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from ..interpreter.errors import MetadataError, MetadataTypeError, TensordError
from ..interpreter.types.device_names import on_node
from .device import Device
from .disk.store import NAME, StoreDevice
from .kinds import KINDS as KINDS  # noqa: PLC0414 - exported, with all kinds of this tree
from .kinds import DeviceKind, find_kinds, unknown
from .options import read_options
from .stream import Sink

DEFAULT_DEVICES: Final = ("cpu:0",)

_NAME: Final = re.compile(r"([a-z]+):(0|[1-9]\d{0,2})")

find_kinds(str(__package__))


def open_devices(specs: Sequence[str | Mapping[str, object]], sink: Sink, node: str = "") -> dict[str, Device]:
    """Open the devices in the given order; ["cpu:0"] if none are given. Returns them by name; MetadataError for an
    invalid one.

    `node`: a prefix of the returned names; the names in `specs` do not have it.
    """
    planned = check_devices(specs)
    devices: dict[str, Device] = {}
    try:
        for short, (kind, options) in planned.items():
            name = on_node(node, short)
            devices[name] = _opened(name, kind, sink, options)
        for device in devices.values():
            device.join(list(devices.values()))
    except BaseException:
        close_devices(devices, 1.0)
        raise
    return devices


def open_tiers(specs: Sequence[str | Mapping[str, object]], sink: Sink, node: str = "") -> dict[str, Device]:
    """Open the devices as `open_devices` does, then the store. A store that is not among `specs` has no memory."""
    devices, store = open_devices(specs, sink, node), on_node(node, NAME)
    if store not in devices:
        devices[store] = StoreDevice(store, sink)
    return devices


def _opened(name: str, kind: str, sink: Sink, options: Any) -> Device:
    """An open device; MetadataError if it does not open."""
    try:
        device = KINDS[kind].open(name, sink, options)
    except TensordError:
        raise
    except Exception as error:
        raise MetadataError(f"device {name!r} does not open: {type(error).__name__}: {error}") from error
    if not isinstance(device, Device):
        raise MetadataError(f"device {name!r} does not open: {kind!r} opens a {type(device).__name__}, not a Device")
    return device


def check_devices(specs: Sequence[str | Mapping[str, object]], *, present: bool = True) -> dict[str, tuple[str, Any]]:
    """Check devices without opening them; returns name -> (kind, checked options). MetadataError as from
    `open_devices`.

    `present`: also check that the device exists here; for a GPU this imports CuPy.
    """
    planned: dict[str, tuple[str, Any]] = {}
    for spec in device_list(specs) or DEFAULT_DEVICES:
        name, kind, options = _parse(spec, present=present)
        if name in planned:
            raise MetadataError(f"device {name!r} is given twice")
        planned[name] = (kind, options)
    if not any(KINDS[kind].computes for kind, _ in planned.values()):
        raise MetadataError(
            f"{next(iter(planned))} computes nothing: name another device, too, such as {DEFAULT_DEVICES[0]}"
        )
    if NAME in planned and planned[NAME][1].durable and not any(KINDS[kind].host for kind, _ in planned.values()):
        raise MetadataError(f"durable names are written from a cpu device: name one, too, such as {DEFAULT_DEVICES[0]}")
    return planned


def device_list(specs: Sequence[str | Mapping[str, object]]) -> list[str | Mapping[str, object]]:
    """The devices as a list. MetadataError for a single device, or for anything else that is not a list."""
    if isinstance(specs, str | Mapping):
        one = f'"{specs}"' if isinstance(specs, str) else specs
        raise MetadataError(f"devices must be given as a list, such as [{one}]")
    if not isinstance(specs, Iterable):
        raise MetadataTypeError(f'devices must be given as a list, such as ["cpu:0"], not {type(specs).__name__}')
    return list(specs)


def close_devices(devices: Mapping[str, Device], timeout: float) -> bool:
    """Close every device within one `timeout` in seconds; False if a stream did not end in time."""
    deadline = monotonic() + timeout
    ended = [device.close(max(0.0, deadline - monotonic())) for device in devices.values()]
    return all(ended)


def _unavailable(kind: DeviceKind, number: int) -> str | None:
    """The reason why this machine has no device of that number; None if it has one."""
    try:
        return kind.available(number)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _parse(spec: str | Mapping[str, object], *, present: bool) -> tuple[str, str, Any]:
    if not isinstance(spec, str | Mapping):
        raise MetadataError(f'a device must be a name such as "cpu:0", or a table with a name, not {spec!r}')
    table: dict[str, object] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = table.pop("name", None)
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if not isinstance(name, str) or match is None or match[1] not in KINDS:
        raise unknown(name)
    kind, number = KINDS[match[1]], int(match[2])
    if kind.only not in {None, number}:
        raise MetadataError(f"there is one {kind.name}, {kind.name}:{kind.only}, and no {name}")
    if present and (reason := _unavailable(kind, number)):
        raise MetadataError(f"device {name!r} is not available: {reason}")
    return name, kind.name, read_options(name, kind.options, table)
