"""The instructions that copy a value: TRANSFER between devices, and COPY within one device.

They belong to the system session, so no cancellation stops them. Each has an author, the session that caused it: the
location is the author's, failures are reported to the author, and statistics count the moved bytes for the author.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...interpreter.opcodes import Opcode
from ...streams.disk.spill import copy_from
from ...streams.disk.stored import copy_to
from ...streams.stream import Stream, StreamKind
from ..memory.replicas import forget
from ..model.device_state import DeviceState, count_transfer
from ..model.instruction import Instruction, InstructionEnd
from ..model.reason import EVICT, REPLAN
from ..model.session import Cause
from ..model.tensor import Binding, Storage
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .loaded_files import LoadedFiles

# A transfer between the store and a device other than the host runs on that device's stream of this kind.
BY_STORE: Final = {StreamKind.READ: StreamKind.H2D, StreamKind.WRITE: StreamKind.D2H}


class Transfers:
    """Makes transfers and copies. `files`: checked when a read has failed."""

    def __init__(self, scheduler: Scheduler, store: DeviceState | None, files: LoadedFiles) -> None:
        self.scheduler = scheduler
        self.store = store
        self.files = files

    def plan(self, source: Binding, target: Binding, storage: Storage, cause: Cause, why: str = "") -> Instruction:
        """A TRANSFER, not yet admitted. `why`: the first word of its label, in place of the kind."""
        source_backend, target_backend = source.copy.device.backend, target.copy.device.backend
        kernel: Callable[[Any, Any], None]
        if source.copy.device is self.store:
            kind, carrier, kernel = StreamKind.READ, target.copy.device, copy_to(target_backend)
        elif target.copy.device is self.store:
            kind, carrier, kernel = StreamKind.WRITE, source.copy.device, copy_from(source_backend)
        elif target_backend.host and not source_backend.host:
            kind, carrier, kernel = StreamKind.D2H, source.copy.device, source_backend.copy_out
        elif source_backend.host and not target_backend.host:
            kind, carrier, kernel = StreamKind.H2D, target.copy.device, source_first(target_backend.copy_in)
        else:
            kind, carrier, kernel = StreamKind.P2P, target.copy.device, source_first(target_backend.peer_copy)
        label = f"{why or kind.value} {source.copy.device.name}->{target.copy.device.name}"
        instruction = self._instruction(Opcode.TRANSFER, label, source, target, cause)
        instruction.stream = self._carried_by(kind, carrier)
        instruction.kernel = kernel
        instruction.bytes_moved = -1  # set when the arguments are bound
        instruction.on_end = TransferEnd(carrier, kind, storage, self.files, evicts=why in (EVICT, REPLAN))
        return instruction

    def copy(self, source: Binding, target: Binding, cause: Cause) -> Instruction:
        """A COPY within one device, not yet admitted."""
        instruction = self._instruction(Opcode.COPY, "copy", source, target, cause)
        instruction.kernel = source_first(target.copy.device.backend.copy)
        return instruction

    def _instruction(self, opcode: Opcode, label: str, source: Binding, target: Binding, cause: Cause) -> Instruction:
        scheduler = self.scheduler
        instruction = scheduler.new_instruction(
            scheduler.system_session, opcode, label, target.copy.device, cause.location
        )
        instruction.author = cause.author or cause.session
        instruction.inputs, instruction.outputs = (source,), (target,)
        await_metas(instruction)
        instruction.reads, instruction.writes = (source.copy,), (target.copy,)
        return instruction

    def _carried_by(self, kind: StreamKind, carrier: DeviceState) -> Stream:
        """The stream of a transfer. Transfers between store and host run on the store's streams."""
        if kind not in BY_STORE:
            return carrier.backend.copy_stream(kind)
        if self.store is not None and carrier.backend.host:
            return self.store.backend.copy_stream(kind)
        return carrier.backend.copy_stream(BY_STORE[kind])


class TransferEnd(InstructionEnd):
    """Counts a finished transfer at its `carrier`, or removes the empty copy of a failed one from the map."""

    __slots__ = ("carrier", "evicts", "files", "kind", "storage")

    def __init__(
        self, carrier: DeviceState, kind: StreamKind, storage: Storage, files: LoadedFiles, *, evicts: bool
    ) -> None:
        self.carrier = carrier
        self.kind = kind
        self.storage = storage
        self.files = files
        self.evicts = evicts

    def retired(self, done: Instruction) -> None:
        copy, storage = done.writes[0], self.storage
        if done.error is None:
            count_transfer(self.carrier, self.kind.value, done.author, done.bytes_moved, evicts=self.evicts)
            return
        if copy.current and (len(storage.copies) > 1 or copy.view is not None):
            forget(copy, storage)
        if self.kind is StreamKind.READ:
            self.files.look()


def source_first(copy: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """A kernel, with inputs before outputs, from a device's function copy(target, source)."""

    def run(source: Any, target: Any) -> None:
        copy(target, source)

    return run
