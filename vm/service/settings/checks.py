"""Checks of single values in a configuration. Each returns the typed value, or raises a ValueError whose message names
the allowed values."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ....interpreter import ops as _ops  # noqa: F401 - fills the registry
from ....interpreter.errors import MetadataError, TensordError
from ....interpreter.metrics.endpoint import ENDPOINT_FORMS, Endpoint
from ....interpreter.schema.sample_calls import check_callable, wish_of
from ....interpreter.types.device_names import NODE_FORM, is_node
from ....interpreter.wire.addresses import parse
from ....interpreter.wire.members import PortRange
from ....streams.catalogue import check_devices
from ....streams.options import PERCENTAGE, parse_size
from ...plugins.installed import is_package

Check: TypeAlias = Callable[[object], Any]

MIB: Final = 1 << 20
UNLIMITED: Final = 1 << 62
MIN_MEMORY: Final = 128 * MIB


def folders(value: object) -> tuple[Path, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError('a list of directories, such as ["/srv/models"]')
    return tuple([Path(one).expanduser() for one in value])


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - a check names the allowed values
    return value


def count(low: int, high: int = UNLIMITED) -> Check:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def seconds(low: float, high: float) -> Check:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"a number of seconds from {low:g} to {high:g}")
        return float(value)

    return check


def size(low: int, high: int = UNLIMITED) -> Check:
    """Bytes, as a whole number or a string such as "64 MiB"."""

    def check(value: object) -> int:
        with suppress(ValueError, OverflowError):
            if not isinstance(value, float) and low <= (found := parse_size(value)) <= high:
                return found
        raise ValueError(f'a size from {low} to {high} bytes, as a whole number or a string such as "64 MiB"')

    return check


def memory(value: object) -> int:
    """Bytes of memory, or a percentage of the memory of this machine or container."""
    share = PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
    if share is not None and 0 < float(share[1]) <= 100:
        return max(MIN_MEMORY, int(available_memory() * float(share[1]) / 100))
    with suppress(ValueError):
        if share is None:
            return int(size(MIN_MEMORY)(value))
    raise ValueError(f'a size of at least {MIN_MEMORY // MIB} MiB, such as "8 GiB", or a share such as "80%"')


def available_memory() -> int:
    """The bytes of memory that this process can use: the machine's, or less in a control group."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, *_group_limits())


def _group_limits() -> list[int]:
    """The memory.max of this process's control group and its parents; no limit without version 2."""
    limits = []
    with suppress(OSError):
        name = Path("/proc/self/cgroup").read_text().rpartition("::/")[2].strip()
        root = Path("/sys/fs/cgroup")
        for group in (root / name, *(root / name).parents):
            with suppress(OSError, ValueError):
                limits.append(int((group / "memory.max").read_text()))
            if group == root:
                break
    return limits or [UNLIMITED]


def choice(allowed: Sequence[str]) -> Check:
    def check(value: object) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(f'"{word}"' for word in allowed))
        return str(value)

    return check


def file(value: object) -> Path | None:
    """A path, or "" for none. The caller makes it absolute."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError('a path, or "" for none')
    return Path(value).expanduser() if value else None


def address_list(value: object) -> tuple[str, ...]:
    """Addresses to listen on; none means the default one."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise ValueError('a list of addresses, such as ["tcp://127.0.0.1:7700"]')
    for text in value:
        _as_sentence(parse, text)
    return tuple(dict.fromkeys(value))


def device_list(value: object) -> tuple[Any, ...]:
    """Names of devices, or tables with a name and options, as in `connect(devices=...)`."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError('a list of devices, such as ["cpu:0", {name = "sim:0", memory = "1 GiB"}]')
    _as_sentence(partial(check_devices, present=False), value)  # CuPy is not imported before its cache has a directory
    return tuple(value)


def plugin_list(value: object) -> tuple[str, ...]:
    """Names of installed packages."""
    if not isinstance(value, list | tuple) or not all(map(is_package, value)):
        raise ValueError('a list of installed packages, such as ["mypackage"]')
    return tuple(dict.fromkeys(value))


def wish_list(value: object) -> tuple[Any, ...]:
    """Ops whose kernels are compiled at the start: names, or tables."""
    if not isinstance(value, list | tuple):
        raise ValueError('a list of ops, such as ["add", "matmul:float32"]')  # noqa: TRY004 - as in `flag`
    for entry in value:
        try:
            check_callable(wish_of(entry))
        except TensordError as error:
            raise SentenceError(f"{entry!r}: {error.message}") from None
    return tuple(value)


def node_name(value: object) -> str:
    """The name of a node, or "" for a single machine."""
    if value != "" and not is_node(value):
        raise ValueError(f'the name of a node ({NODE_FORM}), or ""')
    return str(value)


def receiving_address(value: object) -> str:
    """The address for receiving values: a host and a port, or a range of ports; "" for none."""
    if not isinstance(value, str):
        raise ValueError('"HOST:PORT", "HOST:FIRST-LAST", or ""')  # noqa: TRY004 - as in `flag`
    if value:
        PortRange.of(value)
    return value


def metrics_address(value: object) -> str:
    """The address of the metrics endpoint; "" for none."""
    if not isinstance(value, str):
        raise ValueError(f'{ENDPOINT_FORMS}, or ""')  # noqa: TRY004 - as in `flag`
    if value:
        _as_sentence(Endpoint.of, value)
    return value


def bandwidth(value: object) -> float:
    """Bytes per second, as a number or a string such as "1 GiB"; 0 for no limit."""
    with suppress(ValueError, OverflowError):
        return float(parse_size(value))
    raise ValueError('bytes per second, as a number or a string such as "1 GiB", or 0 for no limit')


def _as_sentence(check: Callable[[Any], object], value: Any) -> None:
    """Run a check of another module, and raise its message as a `SentenceError`."""
    try:
        check(value)
    except MetadataError as error:
        raise SentenceError(error.message) from None


class SentenceError(ValueError):
    """A failed check whose message is a whole sentence instead of the allowed values."""
