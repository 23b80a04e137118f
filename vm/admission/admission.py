"""Admission: from a session's messages, in program order, to instructions.

Admission never waits. A message that cannot be admitted (unknown id, wrong metas, cancelled session) still defines
its outputs, poisoned with the error, so that what was sent behind it finds them. `calls` admits ops, `accesses` what
crosses the machine's border; the rest is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.errors import ProtocolError, QuotaError, TensordError
from ...interpreter.schema.infer import InferCache, check_count
from ...interpreter.schema.opdef import find
from ...interpreter.schema.targets import check_target_count
from ...interpreter.types.meta import Meta
from ...interpreter.wire.forms import check_form
from ...interpreter.wire.messages import CALL, MessageKind, decode_meta
from ..model.account import check_bytes
from ..model.directory import Directory
from ..model.plan import Plan
from ..model.session import VmSession
from ..placement.residency import Residency
from ..placement.views import twin
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .calls import Calls
from .cancellation import Cancellation
from .exports import Exports
from .inline import Inline
from .lookup import check_new, check_pairs, describe, device_of, enter, refuse_cancelled, tensor_of
from .names import Names
from .quotas import check_chains, check_nesting, check_number, check_operands, check_tensors, check_text
from .rejection import Rejection

LONGEST = 1000  # characters of an error that a session keeps

Handler = Callable[[VmSession, Sequence[Any]], None]
# Answers a question about the machine: (session, what, arguments).
Query = Callable[[VmSession, str, Sequence[Any]], Any]


class Admission:
    """The handlers of messages. One per engine, called on the driving thread."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory, infer: InferCache) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory
        self.infer = infer
        self.answer: Query = know_nothing
        self.names = names = Names(scheduler, residency, directory)
        self.rejection = rejection = Rejection(scheduler, residency, scheduler.devices)
        self.cancellation = Cancellation(scheduler, residency, names, directory)
        self.exports = exports = Exports(scheduler, residency, rejection)
        self.inline = inline = Inline(scheduler, residency, names)
        self.calls = calls = Calls(scheduler, residency, infer, names, rejection)
        self.accesses = accesses = Accesses(scheduler, residency, inline, exports, rejection)
        self.handlers: dict[int, Handler] = {
            MessageKind.CALL: calls.call,
            MessageKind.RELEASE: self.release,
            MessageKind.UPLOAD: self.upload,
            MessageKind.FETCH: accesses.fetch,
            MessageKind.WAIT: accesses.wait,
            MessageKind.SYNC: accesses.sync,
            MessageKind.EFFECT: accesses.effect,
            MessageKind.CHAIN: self.chain,
            MessageKind.SIGNATURE: self.signature,
            MessageKind.LOCATION: self.location,
            MessageKind.PUBLISH: self.publish,
            MessageKind.LOOKUP: self.lookup,
            MessageKind.UNPUBLISH: self.unpublish,
            MessageKind.TO_DEVICE: self.to_device,
            MessageKind.RESTART: self.restart,
            MessageKind.ATOMIC: self.atomic,
            MessageKind.NAMES: self.list_names,
            MessageKind.QUERY: self.query,
        }

    def take(self, session: VmSession, message: Sequence[Any]) -> None:
        """Admit one message, and dispatch what that made ready: at once, so that the next one may find it done."""
        scheduler = self.scheduler
        try:
            if message[0] == CALL and self.inline.call(session, message):
                return
            self.handle(session, message)
        except Exception as error:  # nothing that a client sends may stop the others
            self.rejection.refuse(session, message, error)
        scheduler.bound.clear()
        if scheduler.dispatcher.ready:
            scheduler.dispatcher.dispatch_ready()

    def handle(self, session: VmSession, message: Sequence[Any]) -> None:
        """Admit one message the long way; ProtocolError, and nothing changed, if it is damaged."""
        check_form(message)
        self.handlers[message[0]](session, message)

    def atomic(self, session: VmSession, message: Sequence[Any]) -> None:
        """Admit a group with none of another session's messages in between: every one of them, or none."""
        group, quota = message[1], session.limits.batch
        if len(group) > quota:
            raise ProtocolError(f"a group of {len(group)} messages; {quota} are allowed: make smaller groups")
        for inner in group:
            self.take(session, inner)

    def restart(self, session: VmSession, message: Sequence[Any]) -> None:
        """Take the session's instructions again, unless it was cancelled since this was sent."""
        if message[1] == session.generation:
            self.cancellation.restart(session)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def upload(self, session: VmSession, message: Sequence[Any]) -> None:
        """Bytes from outside, if the session may have so many."""
        _, id_, _, _, _, payload, location = message
        try:
            check_tensors(session, 1)
            check_bytes(session, payload.nbytes)
        except QuotaError as error:
            self.rejection.reject(session, error, (id_,), location, "asarray")
            return
        self.accesses.upload(session, message)

    def chain(self, session: VmSession, message: Sequence[Any]) -> None:
        """A new chain, if the session may have one more."""
        check_chains(session)
        self.accesses.chain(session, message)

    def to_device(self, session: VmSession, message: Sequence[Any]) -> None:
        """A new tensor with the same value and another home; the transfer is planned now, so that it starts early."""
        _, id_, new, home, location = message
        devices = self.scheduler.devices
        try:
            refuse_cancelled(session)
            check_new(session, (new,))
            base, device = tensor_of(session, id_), device_of(devices, home)
            refuse_lost(device)
            check_tensors(session, 1)
        except TensordError as error:
            known = session.tensors.get(id_)
            metas = () if known is None else (known.meta,)
            self.rejection.reject(session, error, (new,), location, "to_device", metas, devices.get(home))
            return
        moved = twin(base, device)
        enter(session, new, moved)
        self.residency.place(moved, device, session, location)

    def release(self, session: VmSession, message: Sequence[Any]) -> None:
        """ReleaseTensor: with the last holder the storage's copies go, each after its last reader."""
        for id_ in message[1]:
            tensor = session.tensors.pop(id_, None)
            if tensor is None:
                session.chains.pop(id_, None)
                continue
            self.names.release(session, tensor)

    # -- tables ----------------------------------------------------------------------------------------------------

    def signature(self, session: VmSession, message: Sequence[Any]) -> None:
        """A signature and its number. One that does not infer keeps its error, for each call that uses it."""
        _, number, name, attributes, metas, home, targets = message
        check_number(number, session.limits.signatures, "signature")
        old = session.plans.pop(number, None)
        if isinstance(old, Plan):
            session.operands -= len(old.metas)
        try:
            op = find(name)
            check_count(op, len(metas))  # before any of them is looked at
            check_operands(session, len(metas))
            check_target_count(op, targets)
            check_nesting(session, attributes, metas, targets)
            decoded = tuple(decode_meta(meta) for meta in metas)
            wanted = None if targets is None else tuple(target_meta(meta) for meta in targets)
            frozen = op.freeze(dict(attributes))
            device = device_of(self.scheduler.devices, home)
            session.plans[number] = Plan(op, frozen, decoded, device, wanted, self.infer, session.id)
            session.operands += len(metas)
        except TensordError as error:
            session.plans[number] = kept(error, name)
        except Exception as error:
            session.plans[number] = kept(ProtocolError(f"signature {number} of {name!r} is damaged: {error}"), name)

    def location(self, session: VmSession, message: Sequence[Any]) -> None:
        """A location and its number."""
        check_number(message[1], session.limits.locations, "location")
        check_text(message[2], session.limits.text, "location")
        session.locations[message[1]] = message[2]

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, session: VmSession, message: Sequence[Any]) -> None:
        """Give tensors names, all at once."""
        _, given, ids, request = message
        try:
            check_pairs(given, ids)
            self.names.publish(session, given, [tensor_of(session, id_) for id_ in ids])
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "publish")
            return
        session.reply(request, None, None)

    def lookup(self, session: VmSession, message: Sequence[Any]) -> None:
        """Give the session handles to published tensors, or to their present values: all or none."""
        _, wanted, ids, request, snapshot = message
        try:
            check_pairs(wanted, ids)
            tensors = self.names.lookup(wanted)
            check_new(session, ids)
            check_tensors(session, len(ids))
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "lookup")
            return
        if snapshot:
            tensors = [twin(tensor, tensor.home) for tensor in tensors]
        for id_, tensor in zip(ids, tensors, strict=True):
            tensor.holders += not snapshot
            enter(session, id_, tensor)
        session.reply(request, [describe(tensor) for tensor in tensors], None)

    def unpublish(self, session: VmSession, message: Sequence[Any]) -> None:
        """Take names away."""
        _, given, request = message
        try:
            self.names.unpublish(given)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "unpublish")
            return
        session.reply(request, None, None)

    def list_names(self, session: VmSession, message: Sequence[Any]) -> None:
        """Which names there are."""
        session.reply(message[1], sorted(self.directory.names), None)

    # -- looking inside --------------------------------------------------------------------------------------------

    def query(self, session: VmSession, message: Sequence[Any]) -> None:
        """What the machine knows of itself, as of this place in program order."""
        _, what, arguments, request = message
        try:
            found = self.answer(session, what, arguments)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "query")
            return
        session.reply(request, found, None)


def kept(error: TensordError, name: str) -> TensordError:
    """An error as a session keeps it: without the frames that it came through, and no longer than people read."""
    message = error.message if len(error.message) <= LONGEST else f"{error.message[:LONGEST]}..."
    return type(error)(message, op=(error.op or name)[:LONGEST], location=error.location)


def target_meta(wire: Any) -> Meta | None:
    """The meta of an `out=` tensor."""
    meta = decode_meta(wire)
    if meta is not None and not isinstance(meta, Meta):
        raise TypeError("a scalar cannot be written to")
    return meta


def know_nothing(_session: VmSession, what: str, _arguments: Sequence[Any]) -> Any:
    """Until a runtime answers questions."""
    raise ProtocolError(f"nobody here knows about {what!r}")
