"""The contents of a checkpoint: the values under its names, and the fields that restoring needs.

A routine is stored as text under its name. Each tensor that it captures is stored under a name of its own, which no
published object can have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ...interpreter.checkpoints.record import INNER_SEPARATOR, ValueRecord
from ...interpreter.errors import MetadataError
from ..model.directory import Published, PublishedRoutine
from .written_with import Plugins

# The fields of a tensor: its home; its first name, if it has several; the routine that captures it. The fields of a
# routine: the names of its captured tensors, its devices, and its calling convention.
DEVICE, SAME, OF = "device", "same tensor", "captured of"
CAPTURED, DEVICES, CONVENTION = "captured", "devices", "convention"

Fields = dict[str, Any]
Kind = TypeVar("Kind")  # the class of tensors: the engine's or the serial engine's


class Contents(Generic[Kind]):
    """The contents of a checkpoint.

    `names`: the users' names; `values`, `fields`: tensors and fields by name, captured tensors included; `routines`: by
    name; `groups`: sets of names that a generation must take over together.
    """

    def __init__(self, published: Mapping[str, Published[Kind]], home: Callable[[Kind], str]) -> None:
        self.names = tuple(published)
        self.values: dict[str, Kind] = {}
        self.fields: dict[str, Fields] = {}
        self.routines: dict[str, PublishedRoutine] = {}
        self.groups: list[set[str]] = []
        self._plugins = Plugins()
        for name, publication in published.items():
            if publication.routine is None:
                self.values[name] = publication.tensors[0]
            else:
                self._add_routine(name, publication.routine, publication.tensors)
        self._add_fields(home)

    def _add_routine(self, name: str, routine: PublishedRoutine, tensors: Sequence[Kind]) -> None:
        inner = [f"{name}{INNER_SEPARATOR}(captured {number})" for number in range(len(tensors))]
        self.values.update(zip(inner, tensors, strict=True))
        self.fields.update({one: {OF: name} for one in inner})
        self.fields[name] = fields_of(routine, inner) | self._plugins.of_routine(routine)
        self.routines[name] = routine
        self.groups.append({name, *inner})

    def _add_fields(self, home: Callable[[Kind], str]) -> None:
        """Add the fields of tensors. Of several names of one tensor, a user's name is the first."""
        first: dict[Kind, str] = {}
        for name in sorted(self.values, key=lambda name: (name in self.fields, name)):
            tensor = self.values[name]
            fields = self.fields.setdefault(name, {})
            fields[DEVICE] = device = home(tensor)
            fields |= self._plugins.of_devices([device])
            if first.setdefault(tensor, name) != name:
                fields[SAME] = first[tensor]


def owner_of(record: ValueRecord) -> str | None:
    """The name of the routine that captures the tensor of a record, or None."""
    try:
        owner = record.fields.get(OF)
    except MetadataError:
        return None
    return owner if isinstance(owner, str) else None


def fields_of(routine: PublishedRoutine, captured: Sequence[str]) -> Fields:
    """The fields that restoring a routine needs besides its text."""
    fields: Fields = {DEVICES: routine.devices}
    if captured:
        fields[CAPTURED] = tuple(captured)
    if routine.convention is not None:
        fields[CONVENTION] = routine.convention
    return fields
