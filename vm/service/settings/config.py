"""The daemon's configuration: a TOML file and the command line, checked key by key.

A setting is declared once, with its default and its check; the reader below walks the declarations. An error is one
line: the source, the key, the allowed values. deploy/tensord.toml explains each setting and shows the defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ....interpreter.errors import MetadataError
from ....interpreter.wire.addresses import default_address
from ....interpreter.wire.limits import Limits
from ....streams.cuda.kernel_cache import directory_of
from ....streams.kinds import compiles, is_host, takes
from ...plugins.loading import load as load_plugins
from ...runtime import HANG_AFTER
from ..process.errors import CommandLineError, StartError
from ..process.logs import FORMATS, LEVELS, Format
from . import checks

COMMAND_LINE: Final = "the command line"
PLUGINS: Final = "plugins"
TRACE_CAPACITY: Final = 1 << 14  # of the trace ring
TENSOR_FRACTION: Final = 0.6  # fraction of the service's memory for cpu devices, by default


def _by(check: checks.Check) -> dict[str, checks.Check]:
    """The metadata of a field with this check."""
    return {"check": check}


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """`on`: keep a trace. `capacity`: the number of instructions in the trace."""

    on: bool = field(default=True, metadata=_by(checks.flag))
    capacity: int = field(default=TRACE_CAPACITY, metadata=_by(checks.count(16, 1 << 24)))


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`level`: the lowest level logged. `format`: readable lines or JSON. `file`: None for stderr."""

    level: str = field(default="info", metadata=_by(checks.choice(LEVELS)))
    format: Format = field(default="console", metadata=_by(checks.choice(FORMATS)))
    file: Path | None = field(default=None, metadata=_by(checks.file))


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """For tcp. `server_secret`: the daemon's key file. `allow`: the file of the clients' public keys."""

    server_secret: Path | None = field(default=None, metadata=_by(checks.file))
    allow: Path | None = field(default=None, metadata=_by(checks.file))


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The settings of a node.

    `incarnation`: grows with each start of the node's daemon. `values`: where values from other daemons are received,
    "" for nowhere. `encryption`: of the links between daemons. `link`: bytes per second to each other node, for
    simulated nodes; 0 for no limit. `patience`: seconds of silence until a node counts as lost.
    """

    incarnation: int = field(default=0, metadata=_by(checks.count(0)))
    values: str = field(default="", metadata=_by(checks.receiving_address))
    encryption: str = field(default="tls", metadata=_by(checks.choice(("tls", "none"))))
    link: float = field(default=0.0, metadata=_by(checks.bandwidth))
    patience: float = field(default=3.0, metadata=_by(checks.seconds(0.1, 3600)))


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of the daemon.

    `plugins`: packages that define ops and kinds of devices. `addresses`: where to listen; () for the default address.
    `devices`: as in `connect(devices=...)`. `memory`: the most bytes of the whole process. `grace`: seconds for pending
    work at the end. `hang_after`: seconds after which a running kernel counts as hanging. `heartbeat`: seconds between
    two heartbeats on tcp. `lease`: seconds that a session over tcp outlives its connection. `files`: directories below
    which clients over tcp may load files; `checkpoints`: directories below which they may write and restore
    checkpoints. `busy_poll`: seconds of polling before the daemon sleeps, while polling succeeds. `kernel_cache`: the
    directory of compiled kernels; None for the one in the user's cache. `warm`: ops whose kernels are compiled at the
    start. `restore`: the directory of checkpoints to restore at the start, or None; `restore_strict`: do not start if
    anything there is damaged. `gpu_memory`: whose processes on this machine may use blocks of GPUs' memory with their
    own values. `node`: the node name, which prefixes the names of devices. `metrics`: the address of the metrics
    endpoint, "" for none; `metrics_token`: the file with the token that a scraper must send.
    """

    plugins: tuple[str, ...] = field(default=(), metadata=_by(checks.plugin_list))
    addresses: tuple[str, ...] = field(default=(), metadata=_by(checks.address_list))
    devices: tuple[str | Mapping[str, object], ...] = field(default=("cpu:0",), metadata=_by(checks.device_list))
    memory: int = field(default_factory=lambda: int(checks.memory("80%")), metadata=_by(checks.memory))
    grace: float = field(default=5.0, metadata=_by(checks.seconds(0, 3600)))
    hang_after: float = field(default=HANG_AFTER, metadata=_by(checks.seconds(0.1, 86_400)))
    heartbeat: float = field(default=1.0, metadata=_by(checks.seconds(0.1, 3600)))
    lease: float = field(default=30.0, metadata=_by(checks.seconds(0, 86_400)))
    files: tuple[Path, ...] = field(default=(), metadata=_by(checks.folders))
    checkpoints: tuple[Path, ...] = field(default=(), metadata=_by(checks.folders))
    busy_poll: float = field(default=0.0002, metadata=_by(checks.seconds(0, 0.01)))
    kernel_cache: Path | None = field(default=None, metadata=_by(checks.file))
    warm: tuple[str | Mapping[str, object], ...] = field(default=(), metadata=_by(checks.wish_list))
    restore: Path | None = field(default=None, metadata=_by(checks.file))
    restore_strict: bool = field(default=False, metadata=_by(checks.flag))
    node: str = field(default="", metadata=_by(checks.node_name))
    metrics: str = field(default="", metadata=_by(checks.metrics_address))
    metrics_token: Path | None = field(default=None, metadata=_by(checks.file))
    gpu_memory: str = field(default="user", metadata=_by(checks.choice(("user", "anybody", "nobody"))))
    limits: Limits = field(default_factory=Limits)
    trace: TraceConfig = field(default_factory=TraceConfig)
    log: LogConfig = field(default_factory=LogConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    @property
    def listen(self) -> tuple[str, ...]:
        """The addresses, or the default one if none is given."""
        return self.addresses or (default_address(),)

    @property
    def opened(self) -> tuple[Mapping[str, object], ...]:
        """The devices as tables, as the daemon opens them: cpu devices get shared memory, and a part of `memory`.

        The rest of `memory` is for incomplete messages, uploads and Python itself (guard.py).
        """
        tables: list[dict[str, object]] = [
            {"name": spec} if isinstance(spec, str) else dict(spec) for spec in self.devices
        ]
        cpus = [table for table in tables if is_host(str(table["name"]))]
        for table in cpus:
            for option, value in (("memory", int(self.memory * TENSOR_FRACTION / len(cpus))), ("shared", True)):
                if takes(str(table["name"]), option):
                    table.setdefault(option, value)
        return tuple(tables)

    @property
    def kernels(self) -> Path | None:
        """The directory of compiled kernels; None if no device compiles kernels."""
        if not any(compiles(str(table["name"])) for table in self.opened):
            return None
        return directory_of(self.kernel_cache)


TABLES: Final[dict[str, type[Any]]] = {
    "limits": Limits,
    "trace": TraceConfig,
    "log": LogConfig,
    "security": SecurityConfig,
    "cluster": ClusterConfig,
}

# The limits that are in bytes; the others are counts. Then the least values that are not 1.
_SIZES: Final = frozenset({"header", "frame", "window_bytes", "bytes", "location_bytes", "mapped"})
_LEAST_VALUES: Final = {
    "header": 4096,
    "frame": 4096,
    "window_bytes": 4096,
    "location_bytes": 4096,
    "text": 64,
    "nesting": 2,
}


def load(file: Path | None = None, given: Mapping[str, Any] | None = None) -> Config:
    """The configuration in a file, overridden by settings `given` on the command line, in the same form.

    Paths in the file are relative to its directory. StartError with a one-line message if a setting is wrong:
    CommandLineError if it is a given one. Plugins are loaded first, since other settings may name their ops and kinds
    of devices.
    """
    tables: list[tuple[Mapping[str, Any], str, Path]] = [(given or {}, COMMAND_LINE, Path.cwd())]
    if file is not None:
        file = file.expanduser().absolute()
        tables.insert(0, (read_file(file), str(file), file.parent))
    config = Config()
    for table, source, base in tables:
        config = _merge(config, {PLUGINS: table[PLUGINS]} if PLUGINS in table else {}, source, base)
    try:
        load_plugins(config.plugins)
    except MetadataError as error:
        raise StartError(error.message) from error
    for table, source, base in tables:
        config = _merge(config, table, source, base)
    return config


def read_file(file: Path) -> dict[str, Any]:
    """The tables of a configuration file, unchecked; StartError if it cannot be read."""
    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise StartError(f"{file}: {error.strerror}; deploy/tensord.toml is an example") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StartError(f"{file}: not valid TOML: {error}") from None


def _merge(config: Config, table: Mapping[str, Any], source: str, base: Path) -> Config:
    """The configuration with the values of a table replaced."""
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in TABLES:
            changes[key] = _checked(Config, key, value, f"{source}: {key}", base)
        elif not isinstance(value, Mapping):
            raise error_in(source)(f"{source}: {key}: must be a table, [{key}], not {_short(value)}")
        else:
            kind, inner = TABLES[key], f"{source}: {key}."
            found = {name: _checked(kind, name, item, f"{inner}{name}", base) for name, item in value.items()}
            changes[key] = dataclasses.replace(getattr(config, key), **found)
    return dataclasses.replace(config, **changes)


def error_in(where: str) -> type[StartError]:
    """The error of a wrong setting there."""
    return CommandLineError if where.startswith(COMMAND_LINE) else StartError


def _checked(kind: type[Any], key: str, value: object, where: str, base: Path) -> Any:
    """A value of the right type and in range, or StartError."""
    wrong = error_in(where)
    check = dict(settings(kind)).get(key)
    if check is None:
        raise wrong(f"{where}: unknown key; {_similar(kind, key)}")
    try:
        checked = check(value)
    except checks.SentenceError as error:
        raise wrong(f"{where}: {error}") from None
    except ValueError as error:
        raise wrong(f"{where}: must be {error}, not {_short(value)}") from None
    except MetadataError as error:
        raise wrong(f"{where}: {error.message}") from None
    if isinstance(checked, tuple):
        return tuple([base / one if isinstance(one, Path) else one for one in checked])
    return base / checked if isinstance(checked, Path) else checked


def settings(kind: type[Any]) -> Iterator[tuple[str, checks.Check]]:
    """The keys of one table, and their checks; the keys of `Config` without its tables."""
    for declared in fields(kind):
        if kind is Limits:
            bounded = checks.size if declared.name in _SIZES else checks.count
            yield declared.name, bounded(_LEAST_VALUES.get(declared.name, 1))
        elif "check" in declared.metadata:
            yield declared.name, declared.metadata["check"]


def _similar(kind: type[Any], key: str) -> str:
    known = [name for name, _ in settings(kind)] + (list(TABLES) if kind is Config else [])
    elsewhere = [name for name, other in TABLES.items() if kind is Config and key in dict(settings(other))]
    if elsewhere:
        return f"{key} belongs in the table [{elsewhere[0]}]"
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_plain(config: Config) -> dict[str, Any]:
    """Every key with its value; sizes in bytes, paths as text, "" for no path."""
    plain = {name: _plain(getattr(config, name)) for name, _ in settings(Config)}
    plain["addresses"] = list(config.listen)
    for table, kind in TABLES.items():
        inner = getattr(config, table)
        plain[table] = {name: _plain(getattr(inner, name)) for name, _ in settings(kind)}
    return plain


def to_toml(config: Config) -> str:
    """The configuration as a TOML file that names every setting, so that it does not depend on the defaults."""
    plain = to_plain(config)
    lines = [f"{name} = {_toml(value)}" for name, value in plain.items() if name not in TABLES]
    for table in TABLES:
        lines += ["", f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in plain[table].items())]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, Path):
        return str(value or "")
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
