"""A configuration as text: TOML that can be read back, or plain values for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import TABLES, Config, settings


def to_plain(config: Config) -> dict[str, Any]:
    """Every key with its value; sizes in bytes, paths as text, "" for no path."""
    plain = {name: _plain(getattr(config, name)) for name, _ in settings(Config)}
    plain["addresses"] = list(config.listen)
    for table, kind in TABLES.items():
        inner = getattr(config, table)
        plain[table] = {name: _plain(getattr(inner, name)) for name, _ in settings(kind)}
    return plain


def to_toml(config: Config) -> str:
    """The same as a TOML file that names every setting, so that it does not depend on the defaults."""
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
