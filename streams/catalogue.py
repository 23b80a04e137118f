"""From names and tables of options, as in `connect(devices=...)` or a configuration file, to open devices.

A device is "cpu:0", or a table with its name and options: {"name": "sim:0", "memory": "64MiB", "bandwidth": 1e9}.
The options are those of `CpuOptions`, `SimOptions` and `CudaOptions`. Sizes and rates are numbers, or strings such
as "1GiB". Everything is checked here, before the first device is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from time import monotonic
from typing import Any, Final

from ..interpreter.errors import MetadataError
from ..interpreter.schema.opdef import find
from .cpu import CpuDevice, CpuOptions
from .cuda import CudaDevice, CudaOptions, available
from .device import Device
from .faults import Fault
from .sim import SimDevice, SimOptions
from .stream import Sink

DEFAULT: Final = ("cpu:0",)

_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]iB|B|)\s*")
_NAME: Final = re.compile(r"([a-z]+):(0|[1-9]\d{0,2})")


def open_devices(specs: Sequence[str | Mapping[str, object]], sink: Sink) -> dict[str, Device]:
    """Open the devices, ["cpu:0"] if none are given; by name, in the order given. MetadataError says what is wrong."""
    planned = check_devices(specs)
    devices: dict[str, Device] = {}
    try:
        for name, (kind, options) in planned.items():
            devices[name] = _KINDS[kind][0](name, sink, options)
    except BaseException:
        close_devices(devices, 1.0)
        raise
    return devices


def check_devices(specs: Sequence[str | Mapping[str, object]]) -> dict[str, tuple[str, Any]]:
    """What would be opened: name -> (kind, checked options). MetadataError as from `open_devices`."""
    if isinstance(specs, str):
        raise MetadataError(f'devices are given as a list, such as ["{specs}"]')
    planned: dict[str, tuple[str, Any]] = {}
    for spec in specs or DEFAULT:
        name, kind, options = _parse(spec)
        if name in planned:
            raise MetadataError(f"device {name!r} is given twice")
        planned[name] = (kind, options)
    return planned


def close_devices(devices: Mapping[str, Device], timeout: float) -> bool:
    """Close every device within one `timeout` in seconds; False if a stream of one did not end in time."""
    deadline = monotonic() + timeout
    ended = [device.close(max(0.0, deadline - monotonic())) for device in devices.values()]
    return all(ended)


def parse_size(value: object) -> int:
    """Bytes, from a number or a string such as "64MiB"; ValueError for anything else, and below 0."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(float(match[1]) * _UNITS[match[2]])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return int(value)
    raise ValueError('a size is a number of bytes or a string such as "64MiB"')


def _parse(spec: str | Mapping[str, object]) -> tuple[str, str, Any]:
    if not isinstance(spec, str | Mapping):
        raise MetadataError(f'a device is a name such as "cpu:0", or a table with a name, not {spec!r}')
    table: dict[str, object] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = table.pop("name", None)
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if not isinstance(name, str) or match is None or match[1] not in _KINDS:
        raise MetadataError(f'there is no device {name!r}; devices are named like "cpu:0" (known: {", ".join(_KINDS)})')
    kind = match[1]
    if kind == "cuda" and (reason := available(int(match[2]))):
        raise MetadataError(f"device {name!r} is not available: {reason}")
    return name, kind, _options(name, _KINDS[kind][1], table)


def _options(name: str, options: Any, table: Mapping[str, object]) -> Any:
    known = [field.name for field in fields(options)]
    checked = {}
    for key, value in table.items():
        if key not in known:
            raise MetadataError(f"device {name!r} has no option {key!r} (known: {', '.join(known)})")
        try:
            checked[key] = _CHECKS[key](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise MetadataError(f"device {name!r}, option {key!r}: {error}") from None
    return options(**checked)


def _count(value: object, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 1024:
        raise ValueError(f"must be a whole number from {low} to 1024, not {value!r}")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 3600:
        raise ValueError(f"must be a number of seconds from 0 to 3600, not {value!r}")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {value!r}")
    return value


def _ops(value: object) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise TypeError(f"must be a list of ops, not {value!r}")
    if not all(isinstance(op, str) for op in value):
        raise TypeError(f"must be a list of names, not {value!r}")
    from ..interpreter import ops  # noqa: F401 - fills the registry

    try:
        return frozenset(find(op).name for op in value)
    except MetadataError as error:
        raise ValueError(error.message) from None


def _faults(value: object) -> tuple[Fault, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"must be a list of faults, not {value!r}")
    return tuple(Fault.of(fault) for fault in value)


def _memory(value: object) -> int:
    if (nbytes := parse_size(value)) < 1:
        raise ValueError("must be one byte at the least")
    return nbytes


def _rate(value: object) -> float:
    try:
        return 0.0 if value is None else float(parse_size(value))
    except ValueError:
        raise ValueError('a bandwidth is a number of bytes per second or a string such as "10GiB"') from None


_KINDS: Final[dict[str, tuple[Callable[[str, Sink, Any], Device], Any]]] = {
    "cpu": (CpuDevice, CpuOptions),
    "sim": (SimDevice, SimOptions),
    "cuda": (CudaDevice, CudaOptions),
}
_CHECKS: Final[dict[str, Callable[[object], object]]] = {
    "workers": _count,
    "memory": _memory,
    "cache": parse_size,
    "blas_threads": lambda value: _count(value, low=0),
    "shared": _flag,
    "missing": _ops,
    "late_errors": _flag,
    "faults": _faults,
    "bandwidth": _rate,
    "latency": _seconds,
    "compute_delay": _seconds,
    "compute_streams": _count,
    "peer": _flag,
    "inline": _flag,
}
