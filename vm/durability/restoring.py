"""Restoring: what a generation holds is published again. Tensors lie in the generation's files until they are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...interpreter.checkpoints.record import Generation, Record
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta
from ...streams.kept import KeptReader, KeptStretch
from ...streams.stored import buffer_of
from ..model.device_state import DeviceState
from ..model.published import Published, PublishedRoutine
from ..model.session import VmSession
from ..model.signature import NOTHING, Maker
from ..model.tensor import Copy, Storage, Tensor
from .taking import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, Checkpoints
from .target import Key, key_of

RESTORED: Maker = ("restore", NOTHING)


class Found(NamedTuple):
    """A generation that was looked at. `damaged`: why a name cannot be restored; `texts`: of routines; `notes`: what is
    wrong with newer generations."""

    reader: KeptReader
    generation: Generation
    damaged: dict[str, str]
    texts: dict[str, str]
    notes: dict[int, str]


def look(path: Path, number: int, names: Collection[str], *, deep: bool) -> Found:
    """A generation, the last one if `number` is 0, and what of it is damaged. Touches the disk alone.

    FileError if there is none, or it cannot be read.
    """
    reader = KeptReader.open(path.resolve())
    notes: dict[int, str] = {}
    if number:
        generation = reader.generation(number)
    else:
        latest, notes = reader.latest()
        if latest is None:
            why = "; ".join(f"generation {n}: {text}" for n, text in notes.items())
            raise MetadataError(f"{path}: has no generation that can be restored{why and f' ({why})'}")
        generation = latest
    missing = sorted(set(names) - {*generation.tensors, *generation.routines})
    if missing:
        raise MetadataError(f"{path}: generation {generation.number} has no {missing[0]!r}")
    damaged = reader.verify(generation, deep=deep)
    texts = {}
    for name, record in generation.routines.items():
        try:
            texts[name] = reader.read_text(record)
        except TensordError as error:
            damaged[name] = error.message
    return Found(reader, generation, damaged, texts, notes)


class Restoring:
    """Publishes what a generation holds. Called by the driving thread."""

    def __init__(self, checkpoints: Checkpoints, default: str) -> None:
        self.checkpoints = checkpoints
        self.default = default
        self.moved: dict[str, str] = {}  # names whose device is missing here, with that
        self.failed: dict[str, str] = {}
        self.published: tuple[str, ...] = ()
        self._tensors: dict[str, Tensor] = {}
        self._keys: dict[str, Key] = {}

    def publish(self, session: VmSession, found: Found, names: Collection[str]) -> int:
        """Publish what was found, or these names of it; how many names that are. Names that are there are replaced."""
        generation = found.generation
        self.failed = dict(found.damaged)
        given: dict[str, Published[Tensor]] = {}
        for name, record in generation.tensors.items():
            fields = record.fields
            if OF not in fields and (not names or name in names) and name not in self.failed:
                given[name] = Published((self.tensor(found.reader, name, record, fields),))
        for name, record in generation.routines.items():
            if (not names or name in names) and name not in self.failed:
                try:
                    given[name] = self.routine(found, name, record.fields)
                except (TensordError, TypeError, ValueError) as error:
                    self.failed[name] = str(error)
        self.checkpoints.publish(session, tuple(given), tuple(given.values()))
        self.published = tuple(given)
        for tensor in self._tensors.values():
            tensor.holders -= 1  # this room's own
        target = self.checkpoints.targets.of(found.reader.path)
        if not target.busy:
            target.learn(self._keys, generation)
        return len(given)

    def tensor(self, reader: KeptReader, name: str, record: Record, fields: Mapping[str, Any]) -> Tensor:
        """A tensor that lies in a file of the generation."""
        made = self._tensors.get(name)
        if made is None:
            made = self._tensors[name] = self.deferred(KeptStretch(reader, name, record), record.meta)
            made.home = self.home(name, fields.get(DEVICE))
            self._keys[name] = key_of(made)
        return made

    def deferred(self, stretch: KeptStretch, meta: Meta | None) -> Tensor:
        """A tensor whose only copy lies in the store."""
        residency = self.checkpoints.residency
        store = residency.store
        if store is None or meta is None:
            raise AssertionError("a machine that restores has a store, and tensors have metas")
        residency.copies += 1
        copy = Copy(residency.copies, store, 0, 1)
        copy.buffer = buffer_of(stretch)
        storage = Storage(meta.nbytes, store, copy, None, RESTORED, 0, self.checkpoints.scheduler.now)
        return Tensor(meta, storage, store)

    def home(self, name: str, device: Any) -> DeviceState:
        """The device that a tensor had, or the default one."""
        devices = self.checkpoints.scheduler.devices
        if device in devices:
            return devices[device]
        self.moved[name] = str(device)
        return devices[self.default]

    def routine(self, found: Found, name: str, fields: Mapping[str, Any]) -> Published[Tensor]:
        """A routine, with the tensors that it captures."""
        program = Program.parse(found.texts[name])
        records, devices = found.generation.tensors, self.checkpoints.scheduler.devices
        wanted: Sequence[Any] = fields.get(DEVICES, ())
        captured = [
            self.tensor(found.reader, one, records[one], records[one].fields)
            for one in fields.get(CAPTURED, ())
            if one in records and one not in self.failed
        ]
        if len(captured) != len(program.captured):
            raise MetadataError(
                f"{name!r} captures {len(program.captured)} tensors, of which {len(captured)} are there"
            )
        homes = tuple([str(one) if one in devices else self.default for one in wanted])
        if len(homes) != program.devices:
            raise MetadataError(f"{name!r}: {len(homes)} devices for the {program.devices} of its program")
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))
