"""The names under which sessions of a serial machine share tensors and routines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.layouts.part_names import Families
from ...interpreter.wire.messages import ListNames, Lookup, Publish, Unpublish
from ...interpreter.wire.names import check_names, named, unpublished
from ...interpreter.wire.program_messages import Convention
from ..model.directory import Published
from ..routines.publishing import keep_convention, lookup_answer, published, snapshots
from .state import SerialState
from .values import SerialSession, SerialTensor, Value, alias, check_new, define, summary, tensor_of

NO_DURABLE_NAMES: Final = "the serial engine keeps no durable names"


class SerialNames:
    """The handlers of messages about names."""

    def __init__(self, state: SerialState) -> None:
        self.names = state.names
        self.families = Families()
        self.deny = state.deny

    def convention(self, session: SerialSession, message: Convention) -> None:
        try:
            keep_convention(session, message)
        except TensordError as error:
            self.deny(session, error, 0, 0, "convention")

    def publish(self, session: SerialSession, message: Publish) -> None:
        given, ids, _, durable = message
        if durable:
            raise ProtocolError(NO_DURABLE_NAMES)
        check_names(given)
        self.bind(dict(zip(given, [published(session, id_, tensor_of) for id_ in ids], strict=True)))

    def bind(self, given: Mapping[str, Published[SerialTensor]]) -> None:
        replaced = self.families.replaced(given, self.names)
        for name, publication in given.items():
            for tensor in publication.tensors:
                tensor.holders += 1
            self.drop(name)
            self.names[name] = publication
            self.families.add(name)
        for name in replaced:
            self.drop(name)

    def lookup(self, session: SerialSession, message: Lookup) -> Any:
        """Define handles of named tensors, or of snapshots of them: all or none."""
        wanted, ids, _, snapshot = message
        publications = named(wanted, self.names)
        tensors = [tensor for one in publications for tensor in one.tensors]
        if len(ids) != len(tensors):
            return len(tensors)
        check_new(session, ids)
        if snapshot:
            tensors = snapshots(tensors, snapshot_of)
        for id_, tensor in zip(ids, tensors, strict=True):
            tensor.holders += 1
            define(session, id_, tensor)
        return lookup_answer(publications, tensors, summary)

    def expanded(self, given: Sequence[str]) -> list[str]:
        """The published names for the given ones.

        The name of a global tensor stands for the names of its parts; without names, all names are returned.
        """
        found, missing = self.families.named(given or self.names, self.names)
        if missing:
            raise unpublished(missing, self.names)
        return found

    def unpublish(self, _session: SerialSession, message: Unpublish) -> None:
        """Remove names, all or none."""
        for name in self.expanded(message.names) if message.names else ():
            self.drop(name)

    def list_names(self, session: SerialSession, message: ListNames) -> None:
        session.answer(message.request, Value(sorted(self.names)))

    def drop(self, name: str) -> None:
        """Remove a name, if it exists."""
        before = self.names.pop(name, None)
        self.families.remove(name)
        for tensor in before.tensors if before is not None else ():
            tensor.holders -= 1


def snapshot_of(tensor: SerialTensor) -> SerialTensor:
    """A new tensor with the current value, without holders."""
    made = alias(tensor, tensor.home)
    made.holders = 0
    return made
