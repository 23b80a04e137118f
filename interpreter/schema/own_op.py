"""The additional properties of an *own op*: an op that users or plugins define outside of this package, as `OpDef.own`.

The client computes metas of results, and the daemon runs the kernel, so both must have the same definition. The daemon
sends the version and the digest of each own op; the client compares them before it issues the op
(`check_daemon_has`). Once the digest was read or a kernel was bound, the definition may not change: `add_kernel` raises
from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MetadataError

if TYPE_CHECKING:
    from .opdef import Kernel, OpDef

MAIN_MODULE = "__main__"  # the module of a script or a notebook


class OwnOp:
    """The version of an op, the module that defines it, and its kernels for kinds of devices.

    `kinds`: the kinds of devices for which `OpDef.kernel` is; None for all. `sources`: the source texts and properties
    of which the definition consists, as values of JSON; the digest is computed from them.
    """

    def __init__(self, version: str, module: str, kinds: frozenset[str] | None, sources: list[Any]) -> None:
        self.version = version
        self.module = module
        self.kinds = kinds
        self.kernels: dict[str, Kernel] = {}  # that were added, by the kind of device
        self._sources = sources
        self._digest = ""
        self._used = False  # a kernel was bound, or the digest was read, so no kernel can be added any more

    @property
    def digest(self) -> str:
        """A digest of the definition: 16 hexadecimal digits of SHA-256."""
        self._used = True
        if not self._digest:
            self._digest = hashlib.sha256(json.dumps(self._sources).encode()).hexdigest()[:16]
        return self._digest

    def is_same(self, other: OwnOp) -> bool:
        """Whether both have the same sources, and no kernels were added: a notebook's cell that is run again then
        keeps the op that it has defined."""
        return not self.kernels and not other.kernels and self._sources == other._sources

    def add_kernel(self, kind: str, kernel: Kernel, source: Any) -> None:
        """Add a kernel for devices of a kind. ValueError if the op was already used, or already has such a kernel."""
        if self._used:
            raise ValueError(f"a kernel for {kind} is added too late: the op has already been used")
        if kind in self.kernels:
            raise ValueError(f"the op already has a kernel for {kind}")
        self.kernels[kind] = kernel
        self._sources.append([kind, source])

    def serves(self, kind: str) -> bool:
        """Whether there is a kernel for devices of that kind."""
        return kind in self.kernels or self.kinds is None or kind in self.kinds

    def kernel(self, kind: str, default: Kernel | None) -> Kernel | None:
        """The kernel for devices of that kind; None if there is none. `default`: `OpDef.kernel`."""
        self._used = True
        found = self.kernels.get(kind)
        return default if found is None and self.serves(kind) else found


def own_ops(registry: Mapping[str, OpDef]) -> dict[str, tuple[str, str]]:
    """Name -> (version, digest) of the ops that were defined outside of this package."""
    return {name: (op.own.version, op.own.digest) for name, op in registry.items() if op.own is not None}


def check_daemon_has(op: str, own: OwnOp, daemons_ops: Mapping[str, tuple[str, str]]) -> None:
    """Raise MetadataError, with advice, if a daemon does not have the op, or has another op of that name.

    `daemons_ops`: `own_ops` of the daemon's registry.
    """
    daemons = daemons_ops.get(op)
    if daemons is None:
        raise MetadataError(f"{op}: the daemon does not have this op: {advice(own)}", op=op)
    if daemons != (own.version, own.digest):
        here, other = (f"{version or 'unknown'} ({digest})" for version, digest in ((own.version, own.digest), daemons))
        message = (
            f"{op}: this process has version {here}, but the daemon has {other}: install the same version on both sides"
        )
        raise MetadataError(f"{message}, and restart the one that was changed", op=op)


def advice(own: OwnOp) -> str:
    """Advice for a daemon that lacks an op of that module."""
    if own.module == MAIN_MODULE:
        return "put its definition into a package, and install the package where the daemon runs (docs/own_ops.md)"
    package = own.module.partition(".")[0]
    return f'install {package} where the daemon runs, and name it in its configuration: plugins = ["{package}"]'
