"""Checkpoints on the serial engine: every value is written, and read, at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.programs.program import Program
from ...interpreter.wire.messages import Checkpoint, Restore
from ...interpreter.wire.names import unpublished
from ..durability.job import CheckpointJob, check_path
from ..durability.restoring import Found, look
from ..durability.taking import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, fields_of
from ..durability.target import Target
from ..model.published import Published, PublishedRoutine
from .values import SerialSession, SerialTensor, Value

if TYPE_CHECKING:
    from .engine import SerialEngine


class Durability:
    """The handlers of CHECKPOINT and RESTORE messages."""

    def __init__(self, engine: SerialEngine) -> None:
        self.engine = engine

    def checkpoint(self, session: SerialSession, message: Checkpoint) -> None:
        """Write what is published."""
        directory, names, keep, request, location = message
        known = self.engine.names
        try:
            if missing := [name for name in names if name not in known]:
                raise unpublished(missing, known)
            published = {name: known[name] for name in names or known}
            job = CheckpointJob(Target(Path(check_path(directory))), len(published), keep)
            for name, one in published.items():
                for value, tensor in values_of(name, one, job):
                    job.fields.setdefault(value, {})[DEVICE] = tensor.home
                    if tensor.value.array is None or tensor.meta is None:
                        job.failed[value] = str(tensor.value.first)
                    else:
                        job.write(value, tensor.meta, np.ascontiguousarray(tensor.value.array))
            report = job.commit()
        except TensordError as error:
            self.engine.deny(session, error, request, location, "checkpoint")
        else:
            session.reply(request, report, None)

    def restore(self, session: SerialSession, message: Restore) -> None:
        """Publish what a generation holds."""
        directory, number, names, deep, request = message
        try:
            found = look(Path(check_path(directory)), number, frozenset(names), deep=deep)
            report = self.publish(found, names)
        except TensordError as error:
            self.engine.deny(session, error, request, 0, "restore")
        else:
            session.reply(request, report, None)

    def publish(self, found: Found, names: Any) -> dict[str, Any]:
        """Publish what was found; what there is to say of it."""
        generation, failed, moved = found.generation, dict(found.damaged), dict[str, str]()
        tensors: dict[str, SerialTensor] = {}
        for name, record in generation.tensors.items():
            if name not in failed and record.meta is not None:
                home = record.fields.get(DEVICE)
                if home not in self.engine.devices:
                    moved[name], home = str(home), next(iter(self.engine.devices))
                tensors[name] = SerialTensor(Value(found.reader.read(name, record)), record.meta, home)
        given = {
            name: Published((tensor,))
            for name, tensor in tensors.items()
            if OF not in generation.tensors[name].fields and (not names or name in names)
        }
        for name, record in generation.routines.items():
            if name not in failed and (not names or name in names):
                try:
                    given[name] = self.routine(found.texts[name], record.fields, tensors)
                except (TensordError, TypeError, ValueError) as error:
                    failed[name] = str(error)
        self.engine.bind(given)
        return {
            "directory": str(found.reader.path),
            "generation": generation.number,
            "written": generation.written / 1e9,
            "names": len(given),
            "bytes": generation.nbytes,
            "failed": failed,
            "moved": moved,
            "notes": {str(number): why for number, why in found.notes.items()},
        }

    def routine(self, text: str, fields: dict[str, Any], tensors: dict[str, SerialTensor]) -> Published[SerialTensor]:
        """A routine, with the tensors that it captures."""
        program, devices = Program.parse(text), self.engine.devices
        captured = [tensors[one] for one in fields.get(CAPTURED, ()) if one in tensors]
        homes = tuple([one if one in devices else next(iter(devices)) for one in fields.get(DEVICES, ())])
        if len(captured) != len(program.captured) or len(homes) != program.devices:
            raise MetadataError("what the routine captures is not all there")
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))


def values_of(name: str, published: Published[SerialTensor], job: CheckpointJob) -> list[tuple[str, SerialTensor]]:
    """The tensors under a name: of a routine those that it captures, under names of their own."""
    routine = published.routine
    if routine is None:
        return [(name, published.tensors[0])]
    inner = [f"{name} (captured {n})" for n in range(len(published.tensors))]
    job.routines[name] = str(routine.program)
    job.fields[name] = fields_of(routine, inner)
    for one in inner:
        job.fields[one] = {OF: name}
    return list(zip(inner, published.tensors, strict=True))
