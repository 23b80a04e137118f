"""Names: tensors and routines shared between sessions. A tensor lives as long as a handle or a name holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...interpreter.layouts.part_names import user_name
from ...interpreter.opcodes import Opcode
from ...interpreter.wire.names import named, unpublished
from ..memory.pins import end_pins
from ..memory.recycling import recycle
from ..model.directory import Directory, Published
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.signature import NOTHING
from ..model.tensor import Tensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .at_once import keep_record
from .quotas import check_names, check_published

RELEASE = Opcode.RELEASE.value


class Names:
    """Names and handles, the holders of tensors. The end of the last holder releases the tensor."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(
        self, session: VmSession, given: Sequence[str], found: Sequence[Published[Tensor]], *, durable: bool = False
    ) -> list[str]:
        """Bind names, replacing all that stood under them, also as parts of global tensors. A name counts against its
        latest publisher's quotas; one that is durable stays so. The durable names that others have replaced."""
        directory = self.directory
        replaced = directory.families.replaced(given, directory.names)
        check_names(directory, session, given, replaced)
        check_published(directory, session, given, found, replaced)
        session.shares = True
        gone = [name for name in replaced if name in directory.durable]
        lasting = set(map(user_name, gone))
        for name, published in zip(given, found, strict=True):
            for tensor in published.tensors:
                tensor.holders += 1
            lasts = durable or name in directory.durable or user_name(name) in lasting
            self._drop_name(name)
            directory.bind(name, published)
            if lasts:
                directory.keep(name)
            directory.publishers[name] = session.account
            session.account.names += 1
            session.account.steps += published.weight
        for name in replaced:
            self._drop_name(name)
        return gone

    def lookup(self, wanted: Sequence[str]) -> list[Published[Tensor]]:
        """What stands under the names; MetadataError if one is missing."""
        return named(wanted, self.directory.names)

    def behind(self, given: Sequence[str]) -> list[str]:
        """The names as they are bound, of a global tensor those of all its parts; all names for none. MetadataError if
        one is missing."""
        names = self.directory.names
        found, missing = self.directory.families.named(given or names, names)
        if missing:
            raise unpublished(missing, names)
        return found

    def unpublish(self, given: Sequence[str]) -> None:
        """Take the names away, all or none."""
        for name in self.behind(given) if given else ():
            self._drop_name(name)

    def _drop_name(self, name: str) -> None:
        """Take a name away, if there is one: it holds its tensors no more, and no quota counts it."""
        before = self.directory.unbind(name)
        if before is None:
            return
        account = self.directory.publishers.pop(name)
        account.names -= 1
        account.steps -= before.weight
        for tensor in before.tensors:
            self.drop_holder(tensor)

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
            keep_record(scheduler, traits, copies, scheduler.clock(), 0)
        self.drop_holder(tensor)

    def release_all(self, session: VmSession, tensors: Sequence[Tensor]) -> None:
        """Release handles of an ended session. Those that nobody else knows share a record for each home."""
        exports = self.residency.exports
        together: dict[str, list[int]] = {}
        for tensor in tensors:
            # What instructions were bound to it have ended, if none uses its copy. A move or a mapping ends with it.
            known = tensor.bound and type(tensor) is Tensor and tensor not in exports
            if tensor.holders != 1 or not recycle(tensor, known):
                self.release(session, tensor)
                continue
            (copy,) = tensor.storage.copies.values()
            home = tensor.home.name
            copies = together.get(home)
            if copies is None:
                copies = together[home] = []
            copies += (copy.id, copy.version)
        for home, found in together.items():
            traits = (session.id, RELEASE, "release", home, "f" * (len(found) // 2), NOTHING)
            keep_record(self.scheduler, traits, tuple(found), self.scheduler.clock(), 0)

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
                if session.pins:
                    end_pins(session, id_)
                self.drop_holder(tensor)
