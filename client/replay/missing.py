"""Substitutes for values that a recording lacks, and the tensors that depend on them.

The substitutes are the same on all sides and each time, and no index among them is out of bounds. Tensors that depend
on them are not compared with recorded values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.recordings.reader import RecordingReader
from ...interpreter.wire.arrays import dtype_of
from ...interpreter.wire.fields import Role
from ...interpreter.wire.messages import Call, Release, ToDevice, Upload, encode_message
from ...interpreter.wire.node_messages import Collective
from ...interpreter.wire.program_messages import Run
from ...interpreter.wire.roles import OUTPUT_ROLES, ids_of
from .script import RecordedMessage


class MissingValues:
    """The values of a recording, with substitutes for missing ones."""

    def __init__(self, reader: RecordingReader) -> None:
        self._reader = reader
        self._affected: set[tuple[int, int]] = set()  # sessions and ids

    def value(self, number: int, upload: Upload) -> NDArray[Any]:
        """The value of an upload, or its substitute."""
        found = self._reader.value(number)
        if found is not None:
            return found
        dtype = dtype_of(upload.dtype)
        if dtype.kind not in "fc":
            return np.zeros(upload.shape, dtype)
        return np.random.default_rng(number).uniform(0.1, 1.0, upload.shape).astype(dtype)

    def add(self, session: int, id_: int) -> None:
        """Note that the value of this tensor is unknown."""
        self._affected.add((session, id_))

    def affects(self, session: int, id_: int) -> bool:
        """Return whether a tensor depends on a missing value."""
        return (session, id_) in self._affected

    def note(self, step: RecordedMessage, message: Any, captured: Sequence[int]) -> None:
        """Note the results of a message that depend on missing values. `captured`: the tensors that its routine
        captures."""
        session = step.session
        if type(message) is Release:
            self._affected.difference_update([(session, id_) for id_ in message.ids])
        elif type(message) is Upload:
            if step.value in self._reader.lost or step.value not in self._reader.values:
                self.add(session, message.output)
        elif self._affected and isinstance(message, Call | Run | ToDevice | Collective):
            array = encode_message(message)
            used = (*ids_of(array, {Role.USED, Role.WRITTEN}), *captured)
            if any((session, id_) in self._affected for id_ in used):
                self._affected.update((session, id_) for id_ in (*ids_of(array, OUTPUT_ROLES), *captured))
