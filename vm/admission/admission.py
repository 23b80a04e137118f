"""Admission turns the messages of a session into instructions, in program order, with one handler for each kind.

Admission never waits. A message that cannot be admitted (unknown id, wrong metas, cancelled session) still defines
its outputs, poisoned with the error, so that later messages can refer to these outputs. The handlers of ops, of bytes
in and out, of routines and of other large parts are in files of their own; the small handlers are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import length_hint
from typing import Any

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.errors import ProtocolError, QuotaError, TensordError
from ...interpreter.programs.builder import STEPS
from ...interpreter.schema.infer import InferCache, check_count, check_target_count
from ...interpreter.schema.opdef import find
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import HOST
from ...interpreter.wire.forms import LIMITED, check_group, decode_message, new
from ...interpreter.wire.messages import (
    ATOMIC,
    CALL,
    DECLARATIONS,
    FETCH,
    RELEASE,
    RUN,
    SYNC,
    WAIT,
    Atomic,
    Call,
    Chain,
    Checkpoint,
    Collective,
    Convention,
    Effect,
    Fetch,
    File,
    Flush,
    Hint,
    Link,
    ListNames,
    Load,
    Location,
    Lookup,
    NamedMessage,
    ProgramPart,
    Publish,
    Query,
    Recv,
    Release,
    Restart,
    Restore,
    Run,
    Send,
    Share,
    Signature,
    Span,
    Sync,
    ToDevice,
    Unpublish,
    Upload,
    Wait,
    Write,
    decode_meta,
)
from ..memory.pins import end_pins, pin, unpin
from ..model.charges import check_bytes
from ..model.device_state import DeviceState
from ..model.directory import Directory
from ..model.plan import Plan
from ..model.session import Cause, VmSession, rest_of_run
from ..model.tensor import VmTensor
from ..placement.hints import host_for, leave, prefetch
from ..placement.residency import Residency
from ..placement.views import alias, moved
from ..routines.publishing import lookup_answer, published, snapshots
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .calls import CallHandler
from .cancellation import Cancellation
from .collectives import CollectiveHandler
from .collectives_over_nodes import CollectivesOverNodes
from .durable import Durable
from .effects import EffectHandlers
from .exports import Exports
from .files import FileHandlers
from .inline import END, FULL, Inline
from .lookup import (
    check_new,
    check_pairs,
    describe,
    device_of,
    enter,
    forget_plan,
    hinted_device,
    refuse_cancelled,
    tensor_of,
)
from .names import NameHandlers
from .node_transfers import NodeTransferHandlers
from .quotas import check_chains, check_fields, check_nesting, check_operands, check_tensors, may_refuse_chain
from .rejection import Rejection, kept, refusal_of
from .routines import RoutineHandlers
from .shares import ShareHandler

OPS = frozenset((CALL, RELEASE))
# The client writes all fields of these messages by itself, so a trusted session's are not checked again.
PLAIN = OPS | {FETCH, WAIT, SYNC, RUN}

Handler = Callable[[VmSession, Any], None]
# Answers a question about the machine: (session, what, arguments).
Answer = Callable[[VmSession, str, Sequence[Any]], Any]


class Admission:
    """The handlers of messages. One per engine, called on the driving thread."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory, infer: InferCache) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory
        self.infer = infer
        self.answer: Answer = know_nothing
        self.holders: Callable[[DeviceState], str] = name_nobody  # set by the runtime: what has a device's memory
        self.names = names = NameHandlers(scheduler, residency, directory)
        self.rejection = rejection = Rejection(scheduler, residency, scheduler.devices)
        self.cancellation = Cancellation(scheduler, residency, directory)
        self.exports = exports = Exports(scheduler, residency, rejection)
        self.inline = inline = Inline(scheduler, residency, names)
        self.calls = calls = CallHandler(scheduler, residency, infer, names, rejection)
        self.accesses = accesses = Accesses(scheduler, residency, inline, exports, rejection)
        self.effects = effects = EffectHandlers(accesses, rejection)
        files = FileHandlers(scheduler, residency, rejection)
        self.durable = durable = Durable(scheduler, residency, names, rejection)
        self.routines = routines = RoutineHandlers(scheduler, residency, infer, accesses, effects)
        self.nodes = nodes = NodeTransferHandlers(scheduler, residency, rejection)
        self.handlers: dict[type[NamedMessage], Handler] = {
            Call: calls.call,
            Release: self.release,
            Upload: self.upload,
            Fetch: accesses.fetch,
            Wait: accesses.wait,
            Sync: accesses.sync,
            Effect: effects.effect,
            Chain: self.chain,
            Signature: self.signature,
            Location: self.location,
            Span: self.span,
            Publish: self.publish,
            Lookup: self.lookup,
            Unpublish: self.unpublish,
            ToDevice: self.to_device,
            Restart: self.restart,
            Atomic: self.atomic,
            ListNames: self.list_names,
            Query: self.query,
            ProgramPart: routines.program,
            Link: routines.link,
            Run: routines.run,
            Convention: routines.convention,
            Hint: self.hint,
            File: files.file,
            Load: files.load,
            Write: files.write,
            Flush: files.flush,
            Checkpoint: durable.checkpoint,
            Restore: durable.restore,
            Share: ShareHandler(scheduler, residency, exports, rejection).share,
            Collective: CollectivesOverNodes(CollectiveHandler(scheduler, residency, rejection), nodes).collective,
            Send: nodes.send,
            Recv: nodes.recv,
        }
        dispatcher = scheduler.dispatcher
        run_inline = inline.run_and_leave if scheduler.launching else inline.run
        due = scheduler.endings, scheduler.wanted
        self._steps = (run_inline, scheduler.bound, dispatcher.ready, dispatcher.dispatch_ready, *due)
        for kind in LIMITED:
            self.handlers[kind] = within_limits(self.handlers[kind])

    def take(self, session: VmSession, arrays: Iterable[Sequence[Any]]) -> bool:
        """Admit messages, and dispatch ready instructions after each, so that the next message may find them done.

        Return True once all messages are admitted. Return False after a RUN that must be unfolded, which the caller
        does next (`rest_of_run`), and where the session has launched as far ahead of its device as it may.
        """
        run_inline, bound, ready, dispatch_ready, endings, wanted = self._steps
        scheduler, trusted, unfolding = self.scheduler, session.trusted, session.unfolding
        rest = iter(arrays)
        while (array := run_inline(session, rest)) is not END:
            if array is FULL:
                return False
            if trusted and array[0] == ATOMIC and self.take_ops(session, array[1]):
                scheduler.latest = scheduler.clock()
                continue
            try:
                own = trusted and array[0] in PLAIN
                message = new(DECLARATIONS[array[0]], array[1:]) if own else decode_message(array)
                self.handlers[type(message)](session, message)
            except Exception as error:  # no message of a client may stop the others
                refused = refusal_of(array, error)
                if refused is None:
                    raise  # a bug of the engine, which has stopped in the middle of a step
                self.rejection.refuse(session, array, refused)
                self.nodes.refused(session, array, refused)
            bound.clear()
            if ready:
                dispatch_ready()
            while endings or wanted:
                self.conclude()
                if ready:
                    dispatch_ready()
            scheduler.latest = scheduler.clock()
            if session.unfolding is not unfolding or session.flooded:
                return False
        return True

    def conclude(self) -> None:
        """Perform the actions at the ends of instructions: answer, count, release, continue what waited for them. Then
        make the room that others want."""
        endings, wanted = self.scheduler.endings, self.scheduler.wanted
        while endings or wanted:
            if endings:
                then, instruction = endings.popleft()
                then(instruction)
            else:
                self.residency.late_room.make(wanted.popleft(), self.holders)

    def take_ops(self, session: VmSession, messages: Sequence[Any]) -> bool:
        """Admit an atomic group of calls and releases from this process, without the checks that other messages need.

        Return False, with nothing admitted, for any other group, and if durable names need a note of the changes.
        """
        if self.names.directory.durable:
            return False
        for array in messages:
            if array[0] not in OPS:
                return False
        rest = iter(messages)
        while length_hint(rest):
            self.take(session, rest)
        return True

    def atomic(self, session: VmSession, message: Atomic) -> None:
        """Admit a group of messages with no message of another session in between.

        A malformed message refuses the whole group. A message that is refused for another reason, or whose instruction
        fails, leaves the rest of the group unaffected.
        """
        check_group(message.messages)
        self.routines.check_group(session, message.messages)
        rest = iter(message.messages)
        watched = self.durable.watch(session, message.messages)
        self.routines.begin_group()
        try:
            while length_hint(rest) or session.in_run():
                self.take(session, rest_of_run(session, STEPS) if session.in_run() else rest)
        finally:
            self.routines.end_group()
            if watched is not None:
                self.durable.note_changed(watched)

    def restart(self, session: VmSession, message: Restart) -> None:
        """Accept the session's instructions again, unless the session was cancelled after it sent this message."""
        if message.generation == session.generation:
            self.cancellation.restart(session)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def upload(self, session: VmSession, message: Upload) -> None:
        """Admit an upload, if the session's quotas allow it."""
        try:
            check_tensors(session, 1)
            check_bytes(session, message.payload.nbytes)
        except QuotaError as error:
            self.rejection.reject(session, error, (message.output,), message.location, "asarray")
            return
        self.accesses.upload(session, message)

    def chain(self, session: VmSession, message: Chain) -> None:
        """Admit a new chain; if the quota forbids the chain, its side effects get the error."""
        try:
            check_chains(session)
        except QuotaError as error:
            if may_refuse_chain(session):
                session.refused_chains[message.chain] = kept(error, "chain")
            raise
        self.effects.chain(session, message)

    def to_device(self, session: VmSession, message: ToDevice) -> None:
        """Make a tensor with the same value and another home; `Residency.begin_moves` says when the bytes move."""
        new, devices = message.output, self.scheduler.devices
        try:
            refuse_cancelled(session)
            check_new(session, (new,))
            base, device = tensor_of(session, message.id), device_of(devices, message.device)
            refuse_lost(device)
            check_tensors(session, 1)
            self.residency.check_route(base, device)
        except TensordError as error:
            known = session.tensors.get(message.id)
            metas = () if known is None else (known.meta,)
            home = devices.get(own_name(message.device, devices))
            self.rejection.reject(session, error, (new,), message.location, "to_device", metas, home)
            return
        tensor = moved(base, device, session, message.location)
        enter(session, new, tensor)
        session.moves[tensor] = None

    def release(self, session: VmSession, message: Release) -> None:
        """Release handles; with the last holder, the storage's copies are dropped, each after its last reader."""
        for id_ in message.ids:
            tensor = session.tensors.pop(id_, None)
            if tensor is None:
                if session.in_run():  # an inner value that was never defined; its id may be that of a chain
                    continue
                session.chains.pop(id_, None)
                session.refused_chains.pop(id_, None)
                self.routines.release(session, id_)
                continue
            if session.pins:
                end_pins(session, id_)
            self.residency.releasing.release(session, tensor)

    def hint(self, session: VmSession, message: Hint) -> None:
        """Apply a placement hint: pin, unpin, evict or prefetch (`placement.hints`, `memory.pins`)."""
        id_, what, _, location = message
        try:
            tensor = tensor_of(session, id_)
            name = hinted_device(message, tensor.home.name)
            device = host_for(self.residency, tensor) if name == HOST else device_of(self.scheduler.devices, name)
            if what == "pin":
                pin(session, id_, tensor)
            elif what == "unpin":
                unpin(session, id_)
            elif session.cancelled is not None or device.backend.lost is not None:
                return
            elif what == "evict":
                leave(self.residency, tensor.storage, device, Cause(session, location))
            else:
                prefetch(self.residency, tensor, device, Cause(session, location))
        except TensordError as error:
            self.rejection.deny(session, error, 0, location, what)

    # -- tables ----------------------------------------------------------------------------------------------------

    def signature(self, session: VmSession, message: Signature) -> None:
        """Store a signature under its number; if inference fails, store the error for calls that use the number."""
        number, name, attributes, metas, home, targets = message
        forget_plan(session, number)
        try:
            op = find(name)
            check_count(op, len(metas))  # before any meta is decoded
            check_operands(session, len(metas))
            check_target_count(op, targets)
            check_nesting(session, attributes, metas, targets)
            decoded = tuple(decode_meta(meta) for meta in metas)
            wanted = None if targets is None else tuple(target_meta(meta) for meta in targets)
            frozen = op.freeze(dict(attributes))
            device = device_of(self.scheduler.devices, home)
            session.plans[number] = plan = Plan(op, frozen, decoded, device, wanted, self.infer, session.id)
            session.operands += plan.count
            if plan.immediate or plan.views:
                session.immediate[number] = plan
        except TensordError as error:
            session.plans[number] = kept(error, name)
        except Exception as error:
            session.plans[number] = kept(ProtocolError(f"signature {number} of {name!r} is damaged: {error}"), name)

    def location(self, session: VmSession, message: Location) -> None:
        """Store a location under its number."""
        session.source.lines.keep(message.number, message.text)

    def span(self, session: VmSession, message: Span) -> None:
        """Store the names of the open spans under their number."""
        session.source.spans.keep(message.number, tuple(message.path))

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, session: VmSession, message: Publish) -> None:
        """Publish tensors and routines under names: all of them, or none."""
        given, ids, request, durable = message
        try:
            if durable:
                self.durable.check_durable()
            check_pairs(given, ids)
            found = {id_: published(session, id_, tensor_of) for id_ in dict.fromkeys(ids)}
            gone = self.names.publish(session, given, [found[id_] for id_ in ids], durable=durable)
            if len(given) > 1 or gone:
                self.durable.note_bound(given, gone)
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
            found = self.names.lookup(wanted)
            tensors = [tensor for published in found for tensor in published.tensors]
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
        session.reply(request, lookup_answer(found, tensors, describe), None)

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
        session.reply(message.request, sorted(self.directory.names), None)

    # -- looking inside --------------------------------------------------------------------------------------------

    def query(self, session: VmSession, message: Query) -> None:
        """Answer a question about the machine at this place in program order."""
        request = message.request
        if self.scheduler.launching:
            self.scheduler.fences.look()
        try:
            found = self.answer(session, message.what, message.arguments)
        except TensordError as error:
            self.rejection.deny(session, error, request, 0, "query")
            return
        session.reply(request, found, None)


def snapshot_of(tensor: VmTensor) -> VmTensor:
    """A new tensor with the present value, and without a holder."""
    made = alias(tensor, tensor.home)
    made.holders = 0
    return made


def within_limits(handler: Handler) -> Handler:
    """The handler, preceded by a check of the message's fields against the session's limits."""

    def check_and_handle(session: VmSession, message: NamedMessage) -> None:
        check_fields(session.limits, message)
        handler(session, message)

    return check_and_handle


def target_meta(wire: Any) -> Meta | None:
    """The meta of an `out=` tensor."""
    meta = decode_meta(wire)
    if meta is not None and not isinstance(meta, Meta):
        raise TypeError("a scalar cannot be written to")
    return meta


def know_nothing(_session: VmSession, what: str, _arguments: Sequence[Any]) -> Any:
    """Refuse every question; a runtime puts its own function in place of this one."""
    raise ProtocolError(f"this machine does not answer questions about {what!r}")


def name_nobody(_device: DeviceState) -> str:
    """The clause where nobody knows what has a device's memory."""
    return ""
