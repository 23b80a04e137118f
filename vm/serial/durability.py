"""Checkpoints on the serial engine, which writes and reads values while it executes the message."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.file_messages import Checkpoint, Restore
from ..client_files import real_path
from ..durability.contents import Contents
from ..durability.job import CheckpointJob
from ..durability.restoring import Restoring, look
from ..durability.target import Target
from .names import NO_DURABLE_NAMES, SerialNames
from .state import SerialState
from .values import SerialSession, SerialTensor, Value


class Durability:
    """The handlers of CHECKPOINT and RESTORE messages. `names`: finds and binds published names."""

    def __init__(self, state: SerialState, names: SerialNames) -> None:
        self.state = state
        self.names = names

    def checkpoint(self, _session: SerialSession, message: Checkpoint) -> dict[str, Any]:
        """Write the published values. Return the report."""
        directory, names, keep, _, _ = message
        known = self.state.names
        if not directory:
            raise ProtocolError(NO_DURABLE_NAMES)
        contents = Contents({name: known[name] for name in self.names.expanded(names)}, lambda tensor: tensor.home)
        job = CheckpointJob(Target(real_path(directory)), contents, keep)
        job.texts = {name: str(routine.program) for name, routine in contents.routines.items()}
        for name, tensor in contents.values.items():
            if tensor.value.array is None or tensor.meta is None:
                job.failed[name] = str(tensor.value.first)
            else:
                write(job, name, tensor.meta, tensor.value.array)
        return job.commit()

    def restore(self, _session: SerialSession, message: Restore) -> dict[str, Any]:
        """Publish the values of a generation. Return the report."""
        directory, number, names, deep, _ = message
        found = look(real_path(directory), number, frozenset(names), deep=deep)
        restoring = RestoringAtOnce(found, frozenset(names), self.state.devices)
        while restoring.go_on():
            pass
        self.names.bind(restoring.given)
        restoring.let_go()
        return restoring.report()


class RestoringAtOnce(Restoring[SerialTensor]):
    """Restores tensors, whose values it reads at once from the generation."""

    def make(self, name: str, home: str) -> SerialTensor:
        record = self.found.generation.tensors[name]
        if record.meta is None:
            raise AssertionError("tensors have metas")
        return SerialTensor(Value(self.found.reader.read(name, record)), record.meta, home)


def write(job: CheckpointJob, name: str, meta: Meta, array: Any) -> None:
    """Write one value, or note why the checkpoint cannot contain it."""
    try:
        job.write(name, meta, np.ascontiguousarray(array))
    except (MetadataError, QuotaError) as error:
        if job.error is not None:
            raise
        job.failed[name] = str(error)
