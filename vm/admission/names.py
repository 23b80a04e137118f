"""Holders, which keep a tensor alive: the names under which sessions share tensors and routines, and the handles of
sessions. The release of the last holder releases the tensor.

A global tensor has a name for each of its parts; users name the whole (`directory.families`). Requests about several
names succeed or fail as a whole. A durable name stays durable when another value is published under it, also as a part
of a global tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...interpreter.layouts.part_names import user_name
from ...interpreter.wire.names import named, unpublished
from ..memory.pins import end_pins
from ..model.directory import Directory, Published
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.tensor import VmTensor
from ..placement.residency import Residency
from ..scheduler.scheduler import Scheduler
from .quotas import check_names, check_published


class NameHandlers:
    """Publishes, looks up and removes names, and releases handles."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.directory = directory
        self.drop_holder = residency.releasing.drop_holder

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(
        self,
        session: VmSession,
        given: Sequence[str],
        publications: Sequence[Published[VmTensor]],
        *,
        durable: bool = False,
    ) -> list[str]:
        """Bind names, and return the durable names that they replace.

        A new name replaces its old value, and any global tensor of which it was a part. A name counts against the
        quotas of its latest publisher. A durable name stays durable.
        """
        directory = self.directory
        replaced = directory.families.replaced(given, directory.names)
        check_names(directory, session, given, replaced)
        check_published(directory, session, given, publications, replaced)
        session.shares = True
        replaced_durable = [name for name in replaced if name in directory.durable]
        durable_users_names = set(map(user_name, replaced_durable))
        for name, published in zip(given, publications, strict=True):
            for tensor in published.tensors:
                tensor.holders += 1
            is_durable = durable or name in directory.durable or user_name(name) in durable_users_names
            self._drop_name(name)
            directory.bind(name, published, session.account)
            if is_durable:
                directory.keep(name)
        for name in replaced:
            self._drop_name(name)
        return replaced_durable

    def lookup(self, wanted: Sequence[str]) -> list[Published[VmTensor]]:
        """The published objects under the names; MetadataError if a name is missing."""
        return named(wanted, self.directory.names)

    def bound_names(self, given: Sequence[str]) -> list[str]:
        """The names as bound: for a global tensor, the names of all its parts; for an empty list, all names.

        MetadataError if a name is missing.
        """
        names = self.directory.names
        found, missing = self.directory.families.named(given or names, names)
        if missing:
            raise unpublished(missing, names)
        return found

    def unpublish(self, given: Sequence[str]) -> None:
        """Remove the names: all of them, or none if one is missing."""
        for name in self.bound_names(given) if given else ():
            self._drop_name(name)

    def _drop_name(self, name: str) -> None:
        """Remove a name, if it is bound: release its tensors, and credit its publisher's quotas."""
        before = self.directory.unbind(name)
        if before is None:
            return
        for tensor in before.tensors:
            self.drop_holder(tensor)

    def release_operands(
        self, session: VmSession, plan: Plan | None, inputs: Sequence[Any], outputs: Sequence[int], released: int
    ) -> None:
        """Release the operands and results that a call releases, even if the call is refused or fails.

        `released`: bits, first one for each input, then one for each result. `plan`: None if the signature is unknown;
        then all inputs are taken for handles.
        """
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
