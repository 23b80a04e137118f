"""With which plugins, and which ops of users, values and routines were written; and which of these are others here.

A tensor is written with the plugin of its home, a routine with those of its devices and of its ops. What a checkpoint
says of that is hostile, as all of it is: what has another form than ours is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ...interpreter.checkpoints.record import INNER
from ...interpreter.programs.program import NO_OPS, Program
from ...interpreter.schema.opdef import REGISTRY
from ...interpreter.types.device_names import kind_of
from ..model.directory import PublishedRoutine
from ..plugins.loading import loaded

PLUGINS: Final = "plugins"  # the field: (name, version) of each
OPS: Final = "own ops"  # of a routine: (name, version, digest) of each


class Plugins:
    """The plugins of this process, by what they define."""

    def __init__(self) -> None:
        every = loaded()
        self.by_kind = {kind: (one.name, one.version) for one in every for kind in one.devices}
        self.by_op = {op: (one.name, one.version) for one in every for op in one.ops}
        self.versions = {one.name: one.version for one in every}

    def of_devices(self, devices: Iterable[str]) -> dict[str, Any]:
        """The field of what is at home on these devices; nothing if they are all ours."""
        if not self.by_kind:
            return {}
        found = sorted({self.by_kind[kind] for kind in map(kind_of, devices) if kind in self.by_kind})
        return {PLUGINS: tuple(found)} if found else {}

    def of_routine(self, routine: PublishedRoutine) -> dict[str, Any]:
        """The fields of a routine; none if all is ours."""
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
    found = {step.op for step in program.steps} - NO_OPS
    for step in program.steps:
        for block in step.blocks:
            found |= ops_of(block)
    return found


class Changed(NamedTuple):
    """A plugin, or an op of a user, that is another one here than when these names were written, or is not here.

    `was`, `now`: the versions, with digests for an op; `now` is "" for what is not here.
    """

    what: str
    name: str
    was: str
    now: str
    names: tuple[str, ...]


def changed(fields: Mapping[str, Mapping[str, Any]]) -> list[Changed]:
    """What is another one here, of names by their fields: plugins first."""
    versions = Plugins().versions
    names: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for inner, known in sorted(fields.items()):
        name = inner.partition(INNER)[0]  # what a routine captures is its
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
    """A version and digest, for people."""
    return f"{version or 'unknown'} ({digest})"


def texts(found: Any, count: int) -> Iterator[tuple[str, ...]]:
    """The entries of a field that have so many texts, of those that it has."""
    for entry in found if isinstance(found, tuple) else ():
        if isinstance(entry, tuple) and len(entry) == count and all(isinstance(one, str) for one in entry):
            yield tuple([one[:200] for one in entry])
