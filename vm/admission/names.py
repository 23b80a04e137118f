"""Names: tensors shared between sessions. A tensor lives as long as a handle or a name holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...interpreter.opcodes import Opcode
from ...interpreter.wire.names import unpublished
from ..memory.recycling import recycle
from ..model.directory import Directory
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.signature import NOTHING
from ..model.tensor import Tensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .quotas import check_names

RELEASE = Opcode.RELEASE.value


class Names:
    """Names and handles, the holders of tensors. The end of the last holder releases the tensor."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, session: VmSession, given: Sequence[str], tensors: Sequence[Tensor]) -> None:
        """Bind names to tensors, replacing earlier bindings. A name counts against its latest publisher's quota."""
        directory = self.directory
        check_names(directory, session, given)
        session.shares = True
        for name, tensor in zip(given, tensors, strict=True):
            tensor.holders += 1
            before = directory.names.get(name)
            directory.names[name] = tensor
            self._unlist(name)
            directory.publishers[name] = session.account
            session.account.names += 1
            if before is not None:
                self.drop_holder(before)

    def lookup(self, wanted: Sequence[str]) -> list[Tensor]:
        """The tensors behind the names; MetadataError if one is missing."""
        names = self.directory.names
        missing = [name for name in wanted if name not in names]
        if missing:
            raise unpublished(missing, names)
        return [names[name] for name in wanted]

    def unpublish(self, given: Sequence[str]) -> None:
        """Take the names away, all or none."""
        distinct = tuple(dict.fromkeys(given))
        for name, tensor in zip(distinct, self.lookup(distinct), strict=True):
            del self.directory.names[name]
            self._unlist(name)
            self.drop_holder(tensor)

    def _unlist(self, name: str) -> None:
        """Stop counting the name against its publisher's quota."""
        account = self.directory.publishers.pop(name, None)
        if account is not None:
            account.names -= 1

    # -- holders ---------------------------------------------------------------------------------------------------

    def drop_holder(self, tensor: Tensor) -> None:
        """Drop one handle or name; with the last one the tensor is released."""
        if tensor.holders != 1:
            tensor.holders -= 1
        elif not recycle(tensor):
            tensor.holders = 0
            self.residency.unshare(tensor)

    def release(self, session: VmSession, tensor: Tensor) -> None:
        """Admit ReleaseTensor as an instruction: it waits for the tensor's unfinished accesses and shows in traces."""
        scheduler, storage = self.scheduler, tensor.storage
        freed = storage.current() if tensor.holders == 1 and storage.sharers == 1 else ()
        for copy in freed:
            if copy.uses:
                instruction = scheduler.new_instruction(session, Opcode.RELEASE, "release", tensor.home, 0)
                instruction.writes = tuple(freed)
                scheduler.admit(instruction)
                break
        else:
            traits = (session.id, RELEASE, "release", tensor.home.name, "f" * len(freed), NOTHING)
            copies = tuple([part for copy in freed for part in (copy.id, copy.version)])
            scheduler.keep_record(traits, copies, scheduler.clock(), 0)
        self.drop_holder(tensor)

    def release_operands(
        self, session: VmSession, plan: Plan | None, inputs: Sequence[Any], outputs: Sequence[int], released: int
    ) -> None:
        """Releases that are part of an instruction take effect even if the instruction fails."""
        scalars, count = plan.scalars if plan is not None else (), len(inputs)
        while released:
            position = (released & -released).bit_length() - 1
            released &= released - 1
            if position < count:
                if position < len(scalars) and scalars[position]:
                    continue
                id_ = inputs[position]
            elif position - count < len(outputs):
                id_ = outputs[position - count]
            else:
                return
            tensor = session.tensors.pop(id_, None)
            if tensor is not None:
                self.drop_holder(tensor)
