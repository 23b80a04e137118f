"""The plugins and own ops with which values and routines of a checkpoint were written, and a comparison with those of
this process. A daemon that restores a checkpoint logs the differences; they stop nothing.

A tensor is written with the plugin of its home, a routine with the plugins of its devices and ops, and with its own
ops: those that users or plugins define. They are fields of the value's record (`PLUGINS`, `OPS`). Plugins are compared
by version, own ops by digest. Fields read from a checkpoint are not trusted: an entry with a wrong form is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ...interpreter.checkpoints.record import INNER_SEPARATOR
from ...interpreter.programs.program import NON_OP_STEPS, Program
from ...interpreter.schema.opdef import REGISTRY
from ...interpreter.types.device_names import kind_of
from ..model.directory import PublishedRoutine
from ..plugins.loading import loaded

PLUGINS: Final = "plugins"  # a field: (name, version) of each plugin
OPS: Final = "own ops"  # a field of a routine: (name, version, digest) of each own op


class Plugins:
    """The plugins of this process, by the kinds and ops that they define."""

    def __init__(self) -> None:
        plugins = loaded()
        self.by_kind = {kind: (plugin.name, plugin.version) for plugin in plugins for kind in plugin.devices}
        self.by_op = {op: (plugin.name, plugin.version) for plugin in plugins for op in plugin.ops}
        self.versions = {plugin.name: plugin.version for plugin in plugins}

    def of_devices(self, devices: Iterable[str]) -> dict[str, Any]:
        """The field of a value on these devices; empty if no device is a plugin's."""
        if not self.by_kind:
            return {}
        found = sorted({self.by_kind[kind] for kind in map(kind_of, devices) if kind in self.by_kind})
        return {PLUGINS: tuple(found)} if found else {}

    def of_routine(self, routine: PublishedRoutine) -> dict[str, Any]:
        """The fields of a routine; empty if no device or op is a plugin's or a user's."""
        fields = self.of_devices(routine.devices)
        own = [(name, op.own) for name in sorted(ops_of(routine.program)) if (op := REGISTRY.get(name)) and op.own]
        if own:
            fields[OPS] = tuple((name, known.version, known.digest) for name, known in own)
        plugins = {self.by_op[name] for name in ops_of(routine.program) if name in self.by_op}
        if plugins:
            fields[PLUGINS] = tuple(sorted(plugins.union(fields.get(PLUGINS, ()))))
        return fields


def ops_of(program: Program) -> set[str]:
    """The ops of a program and of its blocks."""
    ops = {step.op for step in program.steps} - NON_OP_STEPS
    for step in program.steps:
        for block in step.blocks:
            ops |= ops_of(block)
    return ops


class Changed(NamedTuple):
    """A plugin, or own op, that differs here from the one with which these names were written, or is missing here.

    `what`: "plugin" or "op". `was`, `now`: the versions, with digests for an op; `now` is "" if it is missing.
    """

    what: str
    name: str
    was: str
    now: str
    names: tuple[str, ...]


def changed(fields: Mapping[str, Mapping[str, Any]]) -> list[Changed]:
    """The differing plugins and own ops, plugins first. `fields`: the fields of names, from a checkpoint."""
    versions = Plugins().versions
    names: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for inner, known in sorted(fields.items()):
        name = inner.partition(INNER_SEPARATOR)[0]  # a captured tensor counts as its routine
        for plugin, was in texts(known.get(PLUGINS), 2):
            if versions.get(plugin, "") != was:
                names.setdefault(("plugin", plugin, was, versions.get(plugin, "")), {})[name] = None
        for op, version, digest in texts(known.get(OPS), 3):
            own = REGISTRY[op].own if op in REGISTRY else None
            if own is None or own.digest != digest:
                now = "" if own is None else described(own.version, own.digest)
                names.setdefault(("op", op, described(version, digest), now), {})[name] = None
    found = [Changed(*what, tuple(some)) for what, some in names.items()]
    return sorted(found, key=lambda one: (one.what != "plugin", one.name, one.was))


def described(version: str, digest: str) -> str:
    """The text of a version and digest."""
    return f"{version or 'unknown'} ({digest})"


def texts(found: Any, count: int) -> Iterator[tuple[str, ...]]:
    """The well-formed entries of a field: tuples of `count` strings, which are cut to 200 characters."""
    for entry in found if isinstance(found, tuple) else ():
        if isinstance(entry, tuple) and len(entry) == count and all(isinstance(one, str) for one in entry):
            yield tuple([one[:200] for one in entry])
