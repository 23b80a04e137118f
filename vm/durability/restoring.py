"""Restoring: what a generation holds is published again.

Whatever takes a disk, or long, is done by `look`, on any thread. What is left for the driving thread goes in pieces of
a few milliseconds, between which it serves others; then all names are bound at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from ...interpreter.checkpoints.record import INNER, Generation
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.layouts.part_names import families, needed, user_name
from ...interpreter.programs.program import Program
from ...interpreter.types.device_names import counterpart, own_name
from ...streams.disk.kept import KeptReader, KeptStretch
from ..model.directory import Published, PublishedRoutine
from .contents import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, SAME, owner_of

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
    bound = {name for name, record in generation.records() if is_wanted(name, names) and owner_of(record) is None}
    missing = sorted(set(names) - bound - set(map(user_name, bound)))
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
    """The part of a generation under these names, with the tensors that routines capture; all of it without names."""
    if not names:
        return generation
    tensors = {
        name: one for name, one in generation.tensors.items() if is_wanted(name, names) or owner_of(one) in names
    }
    routines = {name: one for name, one in generation.routines.items() if name in names}
    return replace(generation, tensors=tensors, routines=routines)


def is_wanted(name: str, names: Collection[str]) -> bool:
    """Is it one of these names, or part of a global tensor that has one?"""
    return name in names or user_name(name) in names


class Holder(Protocol):
    """A tensor of either engine: names and handles hold it."""

    holders: int


Kind = TypeVar("Kind", bound=Holder)


class Restoring(Generic[Kind]):
    """What a generation holds, or the names of it, made anew for either engine: `make` makes a tensor. `devices`: those
    that there are here; the first is in place of those that are missing.

    `given` is what is to be published once `go_on` says that there is no more. Until then `tensors` holds all of it.
    """

    def __init__(self, found: Found, names: Collection[str], devices: Collection[str]) -> None:
        self.found = found
        self.names = names
        self.devices = devices
        self.moved: dict[str, str] = {}  # names whose device is missing here, with that
        self.failed = {name: why for name, why in found.damaged.items() if self._is_wanted(name)}
        self.given: dict[str, Published[Kind]] = {}
        self.tensors: dict[str, Kind] = {}
        self._records = found.generation.records()

    def make(self, name: str, home: str) -> Kind:
        """A tensor with the value of a name, which has one holder."""
        raise NotImplementedError

    def release(self, tensor: Kind) -> None:
        """Nothing holds the tensor any more."""

    def go_on(self) -> bool:
        """Make some of the tensors and routines; are there more?"""
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
            self._leave_out_halves()
        return len(piece) == PIECE

    def _leave_out_halves(self) -> None:
        """Global tensors of which a part is missing that no other part equals are not restored."""
        for whole, ways in families(self.given).items():
            for way in ways:
                if not needed(way):
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
        """The names hold the tensors from now on. Those of routines that cannot be restored are gone."""
        for name, tensor in list(self.tensors.items()):
            tensor.holders -= 1
            if not tensor.holders:
                self.release(tensor)
                del self.tensors[name]

    def _is_wanted(self, name: str) -> bool:
        return not self.names or is_wanted(name, self.names)

    def tensor(self, name: str) -> Kind:
        """The tensor of a name; the one of another name, if it was one tensor."""
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
        """The first name of the tensor that had this one, too, if what the generation says of it can be so."""
        found = self.found
        other, records = found.fields[name].get(SAME), found.generation.tensors
        if not isinstance(other, str) or other not in found.stretches or SAME in found.fields[other]:
            return None
        alike = records[other].place == records[name].place and records[other].meta == records[name].meta
        return other if alike else None

    def home(self, name: str, device: Any) -> str:
        """The device that a tensor had, else one like it, or the first one. A name without a node means any node's."""
        had = str(device)
        home = counterpart(had, self.devices)
        if home not in {had, own_name(had, self.devices)}:
            self.moved[name] = had
        return home

    def routine(self, name: str, fields: Mapping[str, Any]) -> Published[Kind]:
        """A routine, with the tensors that it captures."""
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
                f"{name!r} captures {len(program.captured)} tensors, of which {len(captured)} are there"
            )
        if len(wanted) != program.devices:
            raise MetadataError(f"{name!r}: {len(wanted)} devices for the {program.devices} of its program")
        homes = tuple([self.home(name, one) for one in wanted])
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))
