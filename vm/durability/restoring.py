"""Restoring: what a generation holds is published again. Tensors lie in the generation's files until they are read.

Whatever takes a disk, or long, is done by `look`, on any thread. What is left for the driving thread goes in pieces of
a few milliseconds, between which it serves others; then all names are bound at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...interpreter.checkpoints.record import INNER, Generation, Record
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.programs.program import Program
from ...streams.kept import KeptReader, KeptStretch
from ...streams.stored import buffer_of
from ..model.account import charge
from ..model.device_state import DeviceState
from ..model.published import Published, PublishedRoutine
from ..model.session import VmSession
from ..model.signature import NOTHING, Maker
from ..model.tensor import Copy, Storage, Tensor
from .contents import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, SAME, owner_of
from .taking import Checkpoints
from .target import Stood, key_of

RESTORED: Maker = ("restore", NOTHING)
PIECE: Final = 256  # names of which tensors are made in one go: some 2 ms


class Found(NamedTuple):
    """A generation that was looked at. `newest`: the newest one's number. `damaged`: why a name cannot be restored;
    `fields`: of the names that can; `stretches`: where their tensors lie, which keeps the files from being removed;
    `programs`: of routines; `notes`: what is wrong with newer generations."""

    reader: KeptReader
    generation: Generation
    newest: int
    damaged: dict[str, str]
    fields: dict[str, dict[str, Any]]
    stretches: dict[str, KeptStretch]
    programs: dict[str, Program]
    notes: dict[int, str]


def look(path: Path, number: int, names: Collection[str], *, deep: bool) -> Found:
    """A generation of the directory at a real path, the last one if `number` is 0, and what of it is damaged. Touches
    the disk alone.

    FileError if there is none, or it cannot be read.
    """
    reader = KeptReader.open(path)
    notes: dict[int, str] = {}
    if number:
        generation = reader.generation(number)
    else:
        latest, notes = reader.latest()
        if latest is None:
            why = "; ".join(f"generation {n}: {text}" for n, text in notes.items())
            raise MetadataError(f"{path}: has no generation that can be restored{why and f' ({why})'}")
        generation = latest
    newest = max(reader.generations(), default=0)
    bound = {name for name, record in generation.records() if name in names and owner_of(record) is None}
    missing = sorted(set(names) - bound)
    if missing:
        raise MetadataError(f"{path}: generation {generation.number} has no {missing[0]!r}")
    damaged = reader.verify(generation)
    if deep:
        damaged |= reader.verify(part_of(generation, names), deep=True)
    fields: dict[str, dict[str, Any]] = {}
    stretches: dict[str, KeptStretch] = {}
    programs: dict[str, Program] = {}
    for name, record in generation.records():
        if name not in damaged:
            try:
                fields[name] = record.fields
                if INNER in name and OF not in fields[name]:
                    raise MetadataError("it should belong to a routine, and belongs to none")
                if record.meta is None:
                    programs[name] = Program.parse(reader.read_text(record))
                else:
                    stretches[name] = KeptStretch(reader, name, record)
            except TensordError as error:
                damaged[name] = error.message
    return Found(reader, generation, newest, damaged, fields, stretches, programs, notes)


def part_of(generation: Generation, names: Collection[str]) -> Generation:
    """Of a generation what these names stand for, with what routines of these names capture; without any names, all."""
    if not names:
        return generation
    tensors = {name: one for name, one in generation.tensors.items() if name in names or owner_of(one) in names}
    routines = {name: one for name, one in generation.routines.items() if name in names}
    return replace(generation, tensors=tensors, routines=routines)


class Restoring:
    """Publishes what was found, or the names of it. `default`: the device in place of those that are missing here.

    Called by the driving thread: `go_on` until there is no more, then `publish`.
    """

    def __init__(self, checkpoints: Checkpoints, default: str, found: Found, names: Collection[str] = ()) -> None:
        self.checkpoints = checkpoints
        self.default = default
        self.found = found
        self.names = names
        self.moved: dict[str, str] = {}  # names whose device is missing here, with that
        self.failed = {name: why for name, why in found.damaged.items() if self._is_wanted(name)}
        self._records = found.generation.records()
        self._given: dict[str, Published[Tensor]] = {}
        self._tensors: dict[str, Tensor] = {}

    def go_on(self) -> bool:
        """Make some of the tensors and routines; are there more?"""
        piece = list(islice(self._records, PIECE))
        for name, record in piece:
            fields = self.found.fields.get(name, {})
            if name in self.failed or not self._is_wanted(name) or OF in fields:
                continue
            try:
                self._given[name] = self.published(name, record, fields)
            except (TensordError, TypeError, ValueError) as error:
                self.failed[name] = str(error)
        return len(piece) == PIECE

    def publish(self, session: VmSession) -> dict[str, Any]:
        """Bind all names, those that are there anew; what there is to say of it."""
        found, given = self.found, self._given
        self.checkpoints.publish(session, tuple(given), tuple(given.values()))
        if self.checkpoints.durable == found.reader.path:
            for name in given:
                self.checkpoints.directory.keep(name)
        self.let_go()
        self.learn()
        return {
            "directory": str(found.reader.path),
            "generation": found.generation.number,
            "written": found.generation.written / 1e9,
            "names": len(given),
            "bytes": part_of(found.generation, self.names).nbytes,
            "failed": self.failed,
            "moved": self.moved,
            "notes": {str(number): why for number, why in found.notes.items()},
        }

    def let_go(self) -> None:
        """The names hold the tensors from now on. Those of routines that cannot be restored are gone."""
        for name, tensor in list(self._tensors.items()):
            tensor.holders -= 1
            if not tensor.holders:
                self.checkpoints.residency.unshare(tensor)
                del self._tensors[name]

    def learn(self) -> None:
        """What was restored is there already, when the next checkpoint is written to that directory. What belongs to no
        name that was restored stays there for an earlier run's."""
        found, given = self.found, self._given
        target = self.checkpoints.targets.of(found.reader.path)
        stood = {
            name: Stood(key_of(tensor), self._fields(name, tensor))
            for name, tensor in self._tensors.items()
            if name in given or found.fields[name].get(OF) in given
        }
        for name, published in given.items():
            if published.routine is not None:
                stood[name] = Stood(published.routine, found.fields[name])
        if found.newest < target.last.newest:  # a checkpoint was written meanwhile
            target.claim(stood)
        else:
            carried = {name for name, _ in found.generation.records() if name not in stood}
            target.learn(found.generation, stood, carried, found.newest)

    def _fields(self, name: str, tensor: Tensor) -> dict[str, Any]:
        """With the device that the tensor has here."""
        return {**self.found.fields[name], DEVICE: tensor.home.name}

    def _is_wanted(self, name: str) -> bool:
        return not self.names or name in self.names

    def published(self, name: str, record: Record, fields: Mapping[str, Any]) -> Published[Tensor]:
        """What is to stand under a name."""
        return self.routine(name, fields) if record.meta is None else Published((self.tensor(name),))

    def tensor(self, name: str) -> Tensor:
        """A tensor that lies in a file of the generation; the one of another name, if it was one tensor."""
        made = self._tensors.get(name)
        if made is None:
            other = self._same_as(name)
            if other is not None:
                made = self._tensors[name] = self.tensor(other)
                made.holders += 1
            else:
                home = self.home(name, self.found.fields[name].get(DEVICE))
                made = self._tensors[name] = self.deferred(self.found.stretches[name], name)
                made.home, made.storage.placed = home, home.alone
        return made

    def _same_as(self, name: str) -> str | None:
        """The first name of the tensor that had this one, too, if what the generation says of it can be so."""
        found = self.found
        other, records = found.fields[name].get(SAME), found.generation.tensors
        if not isinstance(other, str) or other not in found.stretches or SAME in found.fields[other]:
            return None
        alike = records[other].place == records[name].place and records[other].meta == records[name].meta
        return other if alike else None

    def deferred(self, stretch: KeptStretch, name: str) -> Tensor:
        """A tensor whose only copy lies in the store."""
        residency, meta = self.checkpoints.residency, self.found.generation.tensors[name].meta
        store = residency.store
        if store is None or meta is None:
            raise AssertionError("a machine that restores has a store, and tensors have metas")
        residency.copies += 1
        copy = Copy(residency.copies, store, 0, 1)
        copy.buffer = buffer_of(stretch)
        storage = Storage(meta.nbytes, store, copy, None, RESTORED, 0, self.checkpoints.scheduler.now)
        charge(self.checkpoints.scheduler.nobody, storage)  # else the first session that reads it would pay for it
        return Tensor(meta, storage, store)

    def home(self, name: str, device: Any) -> DeviceState:
        """The device that a tensor had, or the default one."""
        devices = self.checkpoints.scheduler.devices
        if device in devices:
            return devices[device]
        self.moved[name] = str(device)
        return devices[self.default]

    def routine(self, name: str, fields: Mapping[str, Any]) -> Published[Tensor]:
        """A routine, with the tensors that it captures."""
        program = self.found.programs[name]
        records, devices = self.found.generation.tensors, self.checkpoints.scheduler.devices
        wanted: Sequence[Any] = fields.get(DEVICES, ())
        captured = [
            self.tensor(one)
            for one in fields.get(CAPTURED, ())
            if one in self.found.stretches and owner_of(records[one]) == name
        ]
        if len(captured) != len(program.captured):
            raise MetadataError(
                f"{name!r} captures {len(program.captured)} tensors, of which {len(captured)} are there"
            )
        homes = tuple([str(one) if one in devices else self.default for one in wanted])
        if len(homes) != program.devices:
            raise MetadataError(f"{name!r}: {len(homes)} devices for the {program.devices} of its program")
        for one in wanted:
            if one not in devices:
                self.moved[name] = str(one)
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))
