"""Writes the configuration of a supervisor's daemon, as TOML: the operator's settings, and the node's own.

The operator's settings override the defaults, but not the settings that make the node: its name, addresses, devices,
files and incarnation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .specification import Specification


class NodeSettings(NamedTuple):
    """The settings of one node: its name, the host under which others reach it, its addresses, files and incarnation.

    `port`: of the daemon; `values`: the port on which the daemon receives values from other nodes.
    """

    node: str
    host: str
    addresses: tuple[str, ...]
    port: int
    values: int
    secret: Path
    allow: Path
    durable: Path | None
    incarnation: int


def text(wanted: Specification, node: NodeSettings) -> str:
    """The configuration of a node's daemon for one start, as the text of a file."""
    tables = settings(wanted, node)
    plain = [f"{name} = {_toml(value)}" for name, value in tables.items() if not isinstance(value, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            plain += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(plain) + "\n"


def settings(wanted: Specification, node: NodeSettings) -> dict[str, Any]:
    """The settings by name. The user's settings override the defaults, but not the settings that make this node."""
    devices = list(wanted.devices)
    if node.durable is not None:
        devices.append({"name": "store:0", "durable": str(node.durable)})
    return {
        "grace": wanted.grace,
        **wanted.settings,
        "node": node.node,
        "addresses": list(node.addresses),
        "devices": devices,
        "security": {"server_secret": str(node.secret), "allow": str(node.allow)},
        "cluster": {
            **wanted.settings.get("cluster", {}),
            "incarnation": node.incarnation,
            "values": f"{bracketed(node.host)}:{node.values}",
            "encryption": wanted.encryption,
        },
    }


def bracketed(host: str) -> str:
    """The host as it is written in addresses: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
