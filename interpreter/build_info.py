"""Tells whether the engine runs as plain Python or compiled ahead of time (docs/compiled.md).

The build writes `compiled.json` into the package's root: each compiled module with the digest of its source. The answer
describes what Python loads here, which may differ from what the build has installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Literal, NamedTuple

RECORD_FILE = "compiled.json"


class BuildInfo(NamedTuple):
    """`build_info`'s answer.

    `form`: "pure", or "compiled" if at least one module is. `compiled`: the names of the compiled modules. `changed`:
    compiled modules whose source has changed since the build, so that old code runs. `missing`: modules that were
    compiled for another Python; this one runs their sources. `digest`: SHA-256 of all the package's sources, in
    hexadecimal: equal for equal sources, in any form. `compiler`: the compiler and its settings; empty if nothing was
    compiled.
    """

    form: Literal["pure", "compiled"]
    compiled: tuple[str, ...]
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    digest: str
    compiler: str


def build_info() -> BuildInfo:
    """Say which form of the engine this Python runs: plain Python, or compiled.

    :returns: The form. To find it, every source of the package is read, in some 10 ms.
    """
    package = sys.modules[__name__.partition(".")[0]]
    return build_of(Path(str(package.__file__)).parent)


def build_of(root: Path) -> BuildInfo:
    """The form of a package in this folder."""
    record = read_record(root / RECORD_FILE)
    built: dict[str, str] = record.get("modules", {})
    digests = {path: digest_of(path) for path in sorted(sources(root))}
    compiled = {name_of(path, root): digest for path, digest in digests.items() if loads_compiled(path)}
    return BuildInfo(
        form="compiled" if compiled else "pure",
        compiled=tuple(compiled),
        changed=tuple(name for name, digest in compiled.items() if built.get(name) != digest),
        missing=tuple(name for name in built if name not in compiled),
        digest=digest_of_all({str(path.relative_to(root)): digest for path, digest in digests.items()}),
        compiler=record.get("compiler", "unknown") if compiled else "",
    )


def read_record(path: Path) -> dict[str, Any]:
    """The build's record; empty if nothing was compiled."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return found


def name_of(path: Path, root: Path) -> str:
    """The name of the module in this file."""
    return ".".join((root.name, *path.relative_to(root).with_suffix("").parts))


def loads_compiled(path: Path) -> bool:
    """Return whether Python loads a compiled module in place of this source."""
    return any(path.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)


def sources(root: Path) -> Iterator[Path]:
    """Every Python file below the root; in a checkout the packages are links."""
    for folder, _, names in os.walk(root, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of_all(digests: dict[str, str]) -> str:
    """SHA-256 of files' names and digests."""
    return hashlib.sha256("".join(f"{name} {digest}\n" for name, digest in digests.items()).encode()).hexdigest()
