"""From names and tables of options, as in `connect(devices=...)` or a configuration file, to open devices.

A device is "cpu:0", or a table with its name and options: {"name": "sim:0", "memory": "64MiB", "bandwidth": 1e9}.
`CpuOptions`, `SimOptions` and `CudaOptions` declare the options, which `options` reads and describes. Everything is
checked here, before the first device is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from ..interpreter.errors import MetadataError, MetadataTypeError, TensordError
from ..interpreter.types.device_names import on_node
from .cuda.cuda import CudaDevice, CudaOptions, available
from .device import Device
from .disk.store import NAME, StoreDevice, StoreOptions
from .host.cpu import CpuDevice, CpuOptions
from .options import read_options
from .sim.launching_sim import LaunchingSimDevice
from .sim.sim import SimDevice, SimOptions
from .stream import Sink

DEFAULT: Final = ("cpu:0",)

_NAME: Final = re.compile(r"([a-z]+):(0|[1-9]\d{0,2})")


class Kind(NamedTuple):
    """A kind of device: its constructor and its options."""

    open: Callable[[str, Sink, Any], Device]
    options: type[Any]


def open_sim(name: str, sink: Sink, options: SimOptions) -> SimDevice:
    """A sim device, which may launch."""
    return LaunchingSimDevice(name, sink, options) if options.launches else SimDevice(name, sink, options)


KINDS: Final = {
    "cpu": Kind(CpuDevice, CpuOptions),
    "sim": Kind(open_sim, SimOptions),
    "cuda": Kind(CudaDevice, CudaOptions),
    "store": Kind(StoreDevice, StoreOptions),
}


def open_devices(specs: Sequence[str | Mapping[str, object]], sink: Sink, node: str = "") -> dict[str, Device]:
    """Open the devices, ["cpu:0"] if none are given; by name, in the given order. MetadataError for invalid ones.

    On a `node` their names have that in front, and `specs` are without it.
    """
    planned = check_devices(specs)
    devices: dict[str, Device] = {}
    try:
        for short, (kind, options) in planned.items():
            name = on_node(node, short)
            devices[name] = _opened(name, kind, sink, options)
    except BaseException:
        close_devices(devices, 1.0)
        raise
    return devices


def open_tiers(specs: Sequence[str | Mapping[str, object]], sink: Sink, node: str = "") -> dict[str, Device]:
    """As `open_devices`, and behind them the store, without memory of its own unless one is among the devices."""
    devices, store = open_devices(specs, sink, node), on_node(node, NAME)
    if store not in devices:
        devices[store] = StoreDevice(store, sink)
    return devices


def _opened(name: str, kind: str, sink: Sink, options: Any) -> Device:
    """An open device; MetadataError if it does not open."""
    try:
        return KINDS[kind].open(name, sink, options)
    except TensordError:
        raise
    except Exception as error:
        raise MetadataError(f"device {name!r} does not open: {type(error).__name__}: {error}") from error


def check_devices(specs: Sequence[str | Mapping[str, object]], *, present: bool = True) -> dict[str, tuple[str, Any]]:
    """Check devices without opening them: name -> (kind, checked options). MetadataError as from `open_devices`.

    `present`: is a GPU there? CuPy is imported for that.
    """
    if isinstance(specs, str):
        raise MetadataError(f'devices are given as a list, such as ["{specs}"]')
    if not isinstance(specs, Iterable):
        raise MetadataTypeError(f'devices are given as a list, such as ["cpu:0"], not {type(specs).__name__}')
    planned: dict[str, tuple[str, Any]] = {}
    for spec in specs or DEFAULT:
        name, kind, options = _parse(spec, present=present)
        if name in planned:
            raise MetadataError(f"device {name!r} is given twice")
        planned[name] = (kind, options)
    if planned.keys() <= {NAME}:
        raise MetadataError(f"{NAME} computes nothing: name another device, too, such as {DEFAULT[0]}")
    if NAME in planned and planned[NAME][1].durable and all(kind != "cpu" for kind, _ in planned.values()):
        raise MetadataError(f"durable names are written from a cpu device: name one, too, such as {DEFAULT[0]}")
    return planned


def close_devices(devices: Mapping[str, Device], timeout: float) -> bool:
    """Close every device within one `timeout` in seconds; False if a stream of one did not end in time."""
    deadline = monotonic() + timeout
    ended = [device.close(max(0.0, deadline - monotonic())) for device in devices.values()]
    return all(ended)


def _parse(spec: str | Mapping[str, object], *, present: bool) -> tuple[str, str, Any]:
    if not isinstance(spec, str | Mapping):
        raise MetadataError(f'a device is a name such as "cpu:0", or a table with a name, not {spec!r}')
    table: dict[str, object] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = table.pop("name", None)
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if not isinstance(name, str) or match is None or match[1] not in KINDS:
        raise MetadataError(f'there is no device {name!r}; devices are named like "cpu:0" (known: {", ".join(KINDS)})')
    kind = match[1]
    if kind == "store" and name != NAME:
        raise MetadataError(f"there is one store, {NAME}, and no {name}")
    if present and kind == "cuda" and (reason := available(int(match[2]))):
        raise MetadataError(f"device {name!r} is not available: {reason}")
    return name, kind, read_options(name, KINDS[kind].options, table)
