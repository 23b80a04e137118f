"""Checkpoints on the serial engine: every value is written, and read, at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...interpreter.checkpoints.record import Record
from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Checkpoint, Restore
from ...interpreter.wire.names import unpublished
from ..durability.contents import CAPTURED, CONVENTION, DEVICE, DEVICES, OF, SAME, Contents, owner_of
from ..durability.job import CheckpointJob, real_path
from ..durability.restoring import Found, look, part_of
from ..durability.target import Target
from ..model.published import Published, PublishedRoutine
from .names import NOT_KEPT
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
            if not directory:
                raise ProtocolError(NOT_KEPT)
            if missing := [name for name in names if name not in known]:
                raise unpublished(missing, known)
            contents = Contents({name: known[name] for name in names or known}, home_of)
            job = CheckpointJob(Target(real_path(directory)), contents, keep)
            job.texts = {name: str(routine.program) for name, routine in contents.routines.items()}
            for name, tensor in contents.values.items():
                if tensor.value.array is None or tensor.meta is None:
                    job.failed[name] = str(tensor.value.first)
                else:
                    write(job, name, tensor.meta, tensor.value.array)
            report = job.commit()
        except TensordError as error:
            self.engine.deny(session, error, request, location, "checkpoint")
        else:
            session.reply(request, report, None)

    def restore(self, session: SerialSession, message: Restore) -> None:
        """Publish what a generation holds."""
        directory, number, names, deep, request = message
        try:
            found = look(real_path(directory), number, frozenset(names), deep=deep)
            report = self.publish(found, names)
        except TensordError as error:
            self.engine.deny(session, error, request, 0, "restore")
        else:
            session.reply(request, report, None)

    def publish(self, found: Found, names: Any) -> dict[str, Any]:
        """Publish what was found; what there is to say of it."""
        generation, moved = found.generation, dict[str, str]()
        tensors, damaged = self.read(found, names, moved)
        failed = {name: why for name, why in {**found.damaged, **damaged}.items() if not names or name in names}
        given = {
            name: Published((tensor,))
            for name, tensor in tensors.items()
            if OF not in found.fields[name] and (not names or name in names)
        }
        for name, record in generation.routines.items():
            if name not in failed and (not names or name in names):
                try:
                    given[name] = self.routine(name, found.programs[name], record.fields, tensors, generation.tensors)
                except (TensordError, TypeError, ValueError) as error:
                    failed[name] = str(error)
        self.engine.bind(given)
        return {
            "directory": str(found.reader.path),
            "generation": generation.number,
            "written": generation.written / 1e9,
            "names": len(given),
            "bytes": part_of(generation, names).nbytes,
            "failed": failed,
            "moved": moved,
            "notes": {str(number): why for number, why in found.notes.items()},
        }

    def read(self, found: Found, names: Any, moved: dict[str, str]) -> tuple[dict[str, SerialTensor], dict[str, str]]:
        """The tensors of these names, or all, and of what routines of these names capture; and why others cannot be
        read. Those whose device is missing here are added to `moved`."""
        records, fields = found.generation.tensors, found.fields
        tensors: dict[str, SerialTensor] = {}
        damaged: dict[str, str] = {}
        for name, record in records.items():
            if name in fields and (not names or name in names or fields[name].get(OF) in names):
                try:
                    tensors[name] = self.tensor(found, name, record, moved)
                except (TensordError, TypeError, ValueError) as error:
                    damaged[name] = str(error)
        for name in tensors:
            other = fields[name].get(SAME)
            if isinstance(other, str) and other in tensors and records[other].place == records[name].place:
                tensors[name] = tensors[other]
        return tensors, damaged

    def tensor(self, found: Found, name: str, record: Record, moved: dict[str, str]) -> SerialTensor:
        """A tensor with the value of a name."""
        home, devices = found.fields[name].get(DEVICE), self.engine.devices
        if home not in devices:
            moved[name], home = str(home), next(iter(devices))
        if record.meta is None:
            raise AssertionError("tensors have metas")
        return SerialTensor(Value(found.reader.read(name, record)), record.meta, home)

    def routine(
        self,
        name: str,
        program: Program,
        fields: dict[str, Any],
        tensors: dict[str, SerialTensor],
        records: Mapping[str, Record],
    ) -> Published[SerialTensor]:
        """A routine, with the tensors that it captures."""
        devices = self.engine.devices
        names = [one for one in fields.get(CAPTURED, ()) if one in tensors and owner_of(records[one]) == name]
        captured = [tensors[one] for one in names]
        homes = tuple([one if one in devices else next(iter(devices)) for one in fields.get(DEVICES, ())])
        if len(captured) != len(program.captured) or len(homes) != program.devices:
            raise MetadataError("what the routine captures is not all there")
        return Published(captured, PublishedRoutine(program, homes, {}, fields.get(CONVENTION)))


def write(job: CheckpointJob, name: str, meta: Meta, array: Any) -> None:
    """Write one value, or note why it cannot be under that name."""
    try:
        job.write(name, meta, np.ascontiguousarray(array))
    except (MetadataError, QuotaError) as error:
        if job.error is not None:
            raise
        job.failed[name] = str(error)


def home_of(tensor: SerialTensor) -> str:
    """The device of a tensor, by its name."""
    return tensor.home
