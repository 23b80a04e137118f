"""Options of devices: their values and meanings, declared once, at the fields of the options classes.

A field's annotation carries an `Option`, which names the unit, reads a user's value, and describes its purpose:

    memory: Annotated[int, MEMORY] = GIB

`read_options` uses the option to make the class from a table, and `rows` uses it to describe the option for
docs/devices.md. A text after the option describes a default that depends on the machine:
`Annotated[int, MEMORY, "all of the machine's"]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints

from ..interpreter.errors import MetadataError
from ..interpreter.schema.opdef import find
from .device import Eviction
from .faults import Fault

Options = TypeVar("Options")

_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]iB|B|)\s*")
PERCENTAGE: Final = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*")
_MOST_COUNT: Final = 1024  # of streams, threads
_HOUR: Final = 3600  # in seconds


@dataclass(frozen=True, slots=True)
class Option:
    """An option's unit, reader and meaning. `unit`: the possible values, for people. `read`: checks and converts a
    user's value; the text of its TypeError, ValueError or OverflowError says what the value must be. `meaning`: the
    purpose.
    """

    unit: str
    read: Callable[[object], Any]
    meaning: str


def read_options(device: str, kind: type[Options], table: Mapping[str, object]) -> Options:
    """The options of a device from a table; MetadataError names the device, the option and the fault."""
    known = options_of(kind)
    checked = {}
    for key, value in table.items():
        if key not in known:
            raise MetadataError(f"device {device!r} has no option {key!r} (known: {', '.join(known)})")
        try:
            checked[key] = known[key].read(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise MetadataError(f"device {device!r}, option {key!r}: {error}") from None
    try:
        return kind(**checked)
    except MetadataError:
        raise
    except Exception as error:  # a kind of another package may check more than single options
        raise MetadataError(f"device {device!r}: {error}") from error


def options_of(kind: type[Any]) -> dict[str, Option]:
    """The options that a class declares, in order. TypeError for a field without an `Option`."""
    options = {}
    for field, declared in _declared(kind):
        option = next((each for each in declared if isinstance(each, Option)), None)
        if option is None:
            raise TypeError(f"{kind.__name__}.{field.name} is not declared as an option")
        options[field.name] = option
    return options


def defaults_of(kind: type[Any]) -> dict[str, str]:
    """The default of each option, for people."""
    return {field.name: _default(field, declared) for field, declared in _declared(kind)}


def rows(kinds: Mapping[str, type[Any]]) -> list[tuple[str, ...]]:
    """A table of all options: name, unit, the default on each kind of device ("-" where there is none), meaning."""
    options: dict[str, Option] = {}
    for kind in kinds.values():
        for name, option in options_of(kind).items():
            if options.setdefault(name, option) is not option:
                raise TypeError(f"the option {name!r} is declared in two ways")
    defaults = [defaults_of(kind) for kind in kinds.values()]
    return [
        (f"`{name}`", option.unit, *(of_kind.get(name, "-") for of_kind in defaults), option.meaning)
        for name, option in options.items()
    ]


Declared: TypeAlias = list[tuple[Field[Any], tuple[Any, ...]]]
_DECLARED: Final[dict[type[Any], Declared]] = {}  # of the kinds used so far: devices of one kind are opened often


def _declared(kind: type[Any]) -> Declared:
    if kind not in _DECLARED:
        hints = get_type_hints(kind, include_extras=True)
        _DECLARED[kind] = [(field, getattr(hints[field.name], "__metadata__", ())) for field in fields(kind)]
    return _DECLARED[kind]


def _default(field: Field[Any], declared: Sequence[Any]) -> str:
    text = next((each for each in declared if isinstance(each, str)), None)
    if text is not None:
        return text
    value = field.default
    if value is MISSING:
        raise TypeError(f"the default of {field.name} depends on the machine: say in words what it is")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return str(value) or "none"
    if isinstance(value, int | float):
        return _size(value)
    return "none" if not value else ", ".join(map(str, value))


def _size(value: float) -> str:
    unit, size = next(((u, n) for u, n in reversed(_UNITS.items()) if n > 1 and value >= n), ("", 1))
    return f"{value / size:g} {unit}".strip()


# -- reading values ----------------------------------------------------------------------------------------------------


def parse_size(value: object) -> int:
    """Bytes, from a number or a string such as "64MiB"; ValueError for anything else, and for a negative number."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(float(match[1]) * _UNITS[match[2]])
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return int(value)
    raise ValueError('a size is a number of bytes or a string such as "64MiB"')


def count(low: int, meaning: str) -> Option:
    """The option of a whole number from `low` on."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MOST_COUNT:
            raise ValueError(f"must be a whole number from {low} to {_MOST_COUNT}, not {value!r}")
        return value

    return Option(f"{low} to {_MOST_COUNT}", read, meaning)


def seconds(meaning: str) -> Option:
    """The option of a span of time."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _HOUR:
            raise ValueError(f"must be a number of seconds from 0 to {_HOUR}, not {value!r}")
        return float(value)

    return Option(f"seconds, 0 to {_HOUR}", read, meaning)


def flag(meaning: str) -> Option:
    """The option of a truth value."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"must be true or false, not {value!r}")
        return value

    return Option("true or false", read, meaning)


def _eviction(value: object) -> Eviction:
    try:
        return Eviction(str(value))
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Eviction)}, not {value!r}") from None


def _memory(value: object) -> int:
    if (nbytes := parse_size(value)) < 1:
        raise ValueError("must be at least one byte")
    return nbytes


def _ceiling(value: object) -> int | str:
    """Bytes, or a share of the device's memory, which is resolved once the device is open (`ceiling_of`)."""
    if isinstance(value, str) and (share := PERCENTAGE.fullmatch(value)) and 0 < float(share[1]) <= 100:
        return f"{float(share[1]):g}%"
    try:
        return parse_size(value)
    except ValueError:
        raise ValueError('must be a size such as "1 GiB", or a share such as "50%"') from None


def ceiling_of(given: int | str, limit: int) -> int:
    """The bytes of a ceiling on a device with `limit` bytes of memory."""
    return given if isinstance(given, int) else max(1, int(limit * float(given.rstrip("%")) / 100))


def _bandwidth(value: object) -> float:
    try:
        return 0.0 if value is None else float(parse_size(value))
    except ValueError:
        raise ValueError('a bandwidth is a number of bytes per second or a string such as "10GiB"') from None


def rate(unit: str, meaning: str) -> Option:
    """The option of a rate per second, which may be 0."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ValueError(f"must be a number of {unit}, not {value!r}")
        return float(value)

    return Option(unit, read, meaning)


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


# -- options that several kinds of devices have ------------------------------------------------------------------------

MEMORY: Final = Option("bytes, 1 or more", _memory, "the bytes that may be allocated")
CACHE: Final = Option(
    "bytes", parse_size, "freed memory that is kept for reuse, at most; given up first when memory gets short"
)
EVICTION: Final = Option(
    ", ".join(Eviction),
    _eviction,
    "which values are evicted to the host, or from there to the store, when memory gets short: the cheapest, the least "
    "recently used, or only values that are valid elsewhere",
)
FLOOR: Final = Option(
    "bytes",
    parse_size,
    "bytes that a session keeps when another session needs room, not counting copies that are valid elsewhere; at most "
    "its share of half of the memory",
)
CEILING: Final = Option(
    "bytes, or a share",
    _ceiling,
    "the bytes that a session's values may take here, such as `1 GiB`, or `50%` of the device's memory; beyond the "
    "ceiling the session's own values are evicted, and an op that still does not fit is refused with QuotaError; 0: no "
    "ceiling",
)
COMPUTE_STREAMS: Final = count(1, "compute streams")
MISSING_OPS: Final = Option(
    "list of ops", _ops, "ops without a kernel here: they are composed of others or fall back to a cpu device"
)
PEER: Final = flag(
    "transfers straight to and from other devices of the kind that have it too, where the hardware can; else through "
    "the host"
)
LATE_ERRORS: Final = flag("an op's error may surface after later ops were executed, as on a GPU")
LAUNCH_BLOCKING: Final = flag(
    "the machine waits for each op when it is launched, so that an error of its kernel names the op and its line; slow"
)
FAULTS: Final = Option("list of faults", _faults, "armed from the start, see below")
BANDWIDTH: Final = Option(
    "bytes per second",
    _bandwidth,
    "of one transfer; 0: unlimited. A transfer of n bytes takes `latency + n / bandwidth`",
)
