"""Restoring: the contents of a generation are published again.

`look` does all work on the disk, and all long work, on any thread. The driving thread then makes the tensors and
routines in pieces of a few milliseconds, between which it serves other sessions. At the end it binds all names at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ...interpreter.checkpoints.record import INNER_SEPARATOR, Generation
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.layouts.part_names import covering_names, families, user_name
from ...interpreter.programs.program import Program
from ...interpreter.types.device_names import counterpart, own_name
from ...streams.disk.checkpoint_values import CheckpointStretch, SharedReader
from ..model.directory import Published, PublishedRoutine
from .contents import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, SAME, owner_of

PIECE: Final = 256  # names that are handled in one piece, which takes some 2 ms


class FoundGeneration(NamedTuple):
    """A generation as read from the disk.

    `newest`: the number of the newest generation. `damaged`: for each name that cannot be restored, the reason;
    `fields`: of the other names; `stretches`: the positions of their tensors, which keep the files from being removed;
    `programs`: of routines; `notes`: for each newer generation, the reason why it cannot be restored.
    """

    reader: SharedReader
    generation: Generation
    newest: int
    damaged: dict[str, str]
    fields: dict[str, dict[str, Any]]
    stretches: dict[str, CheckpointStretch]
    programs: dict[str, Program]
    notes: dict[int, str]


def look(path: Path, number: int, names: Collection[str], *, deep: bool) -> FoundGeneration:
    """Read a generation, the last valid one if `number` is 0, from the directory at a resolved path, and verify it.

    Uses only the disk. MetadataError if there is no such generation or name; FileError if the disk cannot be read.
    `deep`: also verify the bytes of values.
    """
    reader = SharedReader.open(path)
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
    bound = {name for name, record in generation.records() if is_wanted(name, names) and owner_of(record) is None}
    missing = sorted(set(names) - bound - set(map(user_name, bound)))
    if missing:
        raise MetadataError(f"{path}: generation {generation.number} has no {missing[0]!r}")
    damaged = reader.verify(generation)
    if deep:
        damaged |= reader.verify(part_of(generation, names), deep=True)
    fields: dict[str, dict[str, Any]] = {}
    stretches: dict[str, CheckpointStretch] = {}
    programs: dict[str, Program] = {}
    for name, record in generation.records():
        if name not in damaged:
            try:
                fields[name] = record.fields
                if INNER_SEPARATOR in name and OF not in fields[name]:
                    raise MetadataError("the tensor should belong to a routine, but belongs to none")
                if record.meta is None:
                    programs[name] = Program.parse(reader.read_text(record))
                else:
                    stretches[name] = CheckpointStretch(reader, name, record)
            except TensordError as error:
                damaged[name] = error.message
    return FoundGeneration(reader, generation, newest, damaged, fields, stretches, programs, notes)


def part_of(generation: Generation, names: Collection[str]) -> Generation:
    """The part of a generation under these names, with the tensors captured by routines; the whole without names."""
    if not names:
        return generation
    tensors = {
        name: one for name, one in generation.tensors.items() if is_wanted(name, names) or owner_of(one) in names
    }
    routines = {name: one for name, one in generation.routines.items() if name in names}
    return replace(generation, tensors=tensors, routines=routines)


def is_wanted(name: str, names: Collection[str]) -> bool:
    """Whether `name` is one of these names, or names a part of a global tensor with one of these names."""
    return name in names or user_name(name) in names


class HeldTensor(Protocol):
    """A tensor of either engine, which counts its holders."""

    holders: int


Kind = TypeVar("Kind", bound=HeldTensor)


class Restoring(Generic[Kind]):
    """Makes the tensors and routines of a generation, or of some of its names, for either engine.

    A subclass makes tensors (`make`). `devices`: the devices of this machine; the first replaces missing ones. `given`:
    the objects to publish once `go_on` has returned False; until then `tensors` holds all tensors.
    """

    def __init__(self, found: FoundGeneration, names: Collection[str], devices: Collection[str]) -> None:
        self.found = found
        self.names = names
        self.devices = devices
        self.moved: dict[str, str] = {}  # name -> its former device, if that is missing here
        self.failed = {name: why for name, why in found.damaged.items() if self._is_wanted(name)}
        self.given: dict[str, Published[Kind]] = {}
        self.tensors: dict[str, Kind] = {}
        self._records = found.generation.records()

    def make(self, name: str, home: str) -> Kind:
        """Make a tensor with the value of a name, and with one holder."""
        raise NotImplementedError

    def release(self, tensor: Kind) -> None:
        """Release a tensor without holders."""

    def go_on(self) -> bool:
        """Make some of the tensors and routines; return whether there are more."""
        piece = list(islice(self._records, PIECE))
        for name, record in piece:
            fields = self.found.fields.get(name, {})
            if name in self.failed or not self._is_wanted(name) or OF in fields:
                continue
            try:
                routine = record.meta is None
                self.given[name] = self.routine(name, fields) if routine else Published((self.tensor(name),))
            except (TensordError, TypeError, ValueError) as error:
                self.failed[name] = str(error)
        if len(piece) < PIECE:
            self._drop_incomplete()
        return len(piece) == PIECE

    def _drop_incomplete(self) -> None:
        """Leave out global tensors whose parts do not suffice to restore them."""
        for whole, ways in families(self.given).items():
            for way in ways:
                if not covering_names(way):
                    self.failed |= dict.fromkeys(way, f"the checkpoint lacks other parts of {whole!r}")
                    for name in way:
                        del self.given[name]

    def report(self) -> dict[str, Any]:
        found = self.found
        return {
            "directory": str(found.reader.path),
            "generation": found.generation.number,
            "written": found.generation.written / 1e9,
            "names": len(self.given),
            "bytes": part_of(found.generation, self.names).nbytes,
            "failed": self.failed,
            "moved": self.moved,
            "notes": {str(number): why for number, why in found.notes.items()},
        }

    def let_go(self) -> None:
        """Give up the holders of the tensors, which the names hold now; release tensors without a name."""
        for name, tensor in list(self.tensors.items()):
            tensor.holders -= 1
            if not tensor.holders:
                self.release(tensor)
                del self.tensors[name]

    def _is_wanted(self, name: str) -> bool:
        return not self.names or is_wanted(name, self.names)

    def tensor(self, name: str) -> Kind:
        """The tensor of a name; names that shared one tensor share it again."""
        made = self.tensors.get(name)
        if made is None:
            other = self._same_as(name)
            if other is not None:
                made = self.tensors[name] = self.tensor(other)
                made.holders += 1
            else:
                home = self.home(name, self.found.fields[name].get(DEVICE))
                made = self.tensors[name] = self.make(name, home)
        return made

    def _same_as(self, name: str) -> str | None:
        """The first name of the tensor that this name shared with others; None without one, or if records disagree."""
        found = self.found
        other, records = found.fields[name].get(SAME), found.generation.tensors
        if not isinstance(other, str) or other not in found.stretches or SAME in found.fields[other]:
            return None
        alike = records[other].byte_range == records[name].byte_range and records[other].meta == records[name].meta
        return other if alike else None

    def home(self, name: str, device: Any) -> str:
        """The former device of a tensor, else a similar one, else the first. A name without a node fits any node."""
        had = str(device)
        home = counterpart(had, self.devices)
        if home not in {had, own_name(had, self.devices)}:
            self.moved[name] = had
        return home

    def routine(self, name: str, fields: Mapping[str, Any]) -> Published[Kind]:
        """Make a routine with its captured tensors; MetadataError if a tensor or device is missing."""
        program = self.found.programs[name]
        records = self.found.generation.tensors
        wanted: Sequence[Any] = fields.get(DEVICES, ())
        captured = [
            self.tensor(one)
            for one in fields.get(CAPTURED, ())
            if one in self.found.stretches and owner_of(records[one]) == name
        ]
        if len(captured) != len(program.captured):
            raise MetadataError(
                f"{name!r} captures {len(program.captured)} tensors, but the checkpoint has {len(captured)} of them"
            )
        if len(wanted) != program.devices:
            raise MetadataError(f"{name!r} has {len(wanted)} devices, but its program needs {program.devices}")
        homes = tuple([self.home(name, one) for one in wanted])
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))
