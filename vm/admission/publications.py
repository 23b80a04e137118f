"""Handlers of messages about names: publishing, looking up, removing and listing tensors and routines (`names`).

Each message takes effect for all its names, or for none.
"""

from __future__ import annotations

from ...interpreter.errors import TensordError
from ...interpreter.wire.messages import ListNames, Lookup, Publish, Unpublish
from ..model.session import VmSession
from ..model.tensor import VmTensor
from ..placement.views import alias
from ..routines.publishing import lookup_answer, published, snapshots
from .durable import Durable
from .lookup import check_new, check_pairs, describe, enter, tensor_of
from .names import NameHandlers
from .quotas import check_tensors
from .rejection import Rejection


class PublicationHandlers:
    """The handlers of PUBLISH, LOOKUP, UNPUBLISH and LIST_NAMES messages."""

    def __init__(self, names: NameHandlers, durable: Durable, rejection: Rejection) -> None:
        self.names = names
        self.durable = durable
        self.rejection = rejection

    def publish(self, session: VmSession, message: Publish) -> None:
        """Publish tensors and routines under names: all of them, or none."""
        given, ids, request, durable = message
        try:
            if durable:
                self.durable.check_durable()
            check_pairs(given, ids)
            publications = {id_: published(session, id_, tensor_of) for id_ in dict.fromkeys(ids)}
            replaced = self.names.publish(session, given, [publications[id_] for id_ in ids], durable=durable)
            if len(given) > 1 or replaced:
                self.durable.note_bound(given, replaced)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "publish")
            return
        session.reply(request, None, None)

    def lookup(self, session: VmSession, message: Lookup) -> None:
        """Give the session handles to published tensors and to the tensors captured by published routines.

        With `snapshot`, the handles are to the present values instead. The session gets all handles, or none.
        """
        wanted, ids, request, snapshot = message
        try:
            publications = self.names.lookup(wanted)
            tensors = [tensor for published in publications for tensor in published.tensors]
            if len(ids) != len(tensors):
                session.reply(request, len(tensors), None)
                return
            check_new(session, ids)
            check_tensors(session, len(ids))
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "lookup")
            return
        session.shares = True
        if snapshot:
            tensors = snapshots(tensors, snapshot_of)
        for id_, tensor in zip(ids, tensors, strict=True):
            tensor.holders += 1
            enter(session, id_, tensor)
        session.reply(request, lookup_answer(publications, tensors, describe), None)

    def unpublish(self, session: VmSession, message: Unpublish) -> None:
        """Remove names."""
        request = message.request
        try:
            self.names.unpublish(message.names)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "unpublish")
            return
        session.reply(request, None, None)

    def list_names(self, session: VmSession, message: ListNames) -> None:
        """Answer with the published names."""
        session.reply(message.request, sorted(self.names.directory.names), None)


def snapshot_of(tensor: VmTensor) -> VmTensor:
    """A new tensor with the present value, and without a holder."""
    made = alias(tensor, tensor.home)
    made.holders = 0
    return made
