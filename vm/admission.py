"""Admission: from a session's messages, in program order, to instructions.

Admission never waits. A message that cannot be admitted (unknown id, wrong metas, cancelled session) still defines
its outputs, poisoned with the error, so that what was sent behind it finds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..interpreter import ops as _ops  # noqa: F401 - fills the registry
from ..interpreter.errors import CancelledError, MetadataError, ProtocolError, TensordError
from ..interpreter.forms import check_form
from ..interpreter.messages import MessageKind, decode_meta
from ..interpreter.meta import Meta, OperandMeta
from ..interpreter.opcodes import Opcode
from ..interpreter.opdef import find
from ..streams.stream import StreamKind
from . import names
from .immediate import fetch_immediately, wait_immediately
from .instruction import Instruction
from .lane import Lane
from .lost import refuse_lost
from .pending import await_metas
from .plan import Plan
from .refusal import deny
from .residency import Binding
from .tensor import Copy, Tensor
from .views import view_of

if TYPE_CHECKING:
    from .engine import Engine
    from .session import VmSession

Handler = Callable[["VmSession", Sequence[Any]], None]


class Admission:
    """The handlers of messages. One per engine, called on the driving thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.handlers: dict[int, Handler] = {
            MessageKind.CALL: self.call,
            MessageKind.RELEASE: self.release,
            MessageKind.UPLOAD: self.upload,
            MessageKind.FETCH: self.fetch,
            MessageKind.WAIT: self.wait,
            MessageKind.SYNC: self.sync,
            MessageKind.EFFECT: self.effect,
            MessageKind.CHAIN: self.chain,
            MessageKind.SIGNATURE: self.signature,
            MessageKind.LOCATION: self.location,
            MessageKind.PUBLISH: self.publish,
            MessageKind.LOOKUP: self.lookup,
            MessageKind.UNPUBLISH: self.unpublish,
            MessageKind.TO_DEVICE: self.to_device,
        }

    def handle(self, session: VmSession, message: Sequence[Any]) -> None:
        """Admit one message; ProtocolError, and nothing changed, if it is damaged."""
        check_form(message)
        self.handlers[message[0]](session, message)

    # -- ops -------------------------------------------------------------------------------------------------------

    def call(self, session: VmSession, message: Sequence[Any]) -> None:
        """LocalCallOpKernel."""
        _, number, inputs, outputs, released, location = message
        try:
            plan = plan_of(session, number)
            refuse_cancelled(session)
            self.admit_call(session, plan, inputs, outputs, released, location)
        except TensordError as error:
            known = session.plans.get(number)
            metas, home = (known.outputs, known.lane) if isinstance(known, Plan) else ((), None)
            self.reject(session, error, outputs, location, label_of(session, number), metas, home)
        if self.engine.residency.orphans:
            self.engine.residency.drop_orphans()
        self.release_operands(session, inputs, outputs, released, number)

    def admit_call(
        self,
        session: VmSession,
        plan: Plan,
        inputs: Sequence[Any],
        outputs: Sequence[int],
        released: int,
        location: int,
    ) -> None:
        """Bind the operands, plan what has to move, admit."""
        check_counts(plan, inputs, outputs)
        operands = [
            value if scalar else tensor_of(session, value) for value, scalar in zip(inputs, plan.scalars, strict=True)
        ]
        targets = [tensor_of(session, id_) for id_ in outputs] if plan.in_place else []
        check_metas(plan, operands, targets)
        if not plan.in_place:
            check_new(session, outputs)
        if plan.pending or (plan.in_place and None in plan.outputs):
            plan = self.resolve(plan, operands, targets)
        if self.take_view(session, plan, operands, outputs):
            return
        engine, lane = self.engine, plan.lane
        refuse_lost(lane)
        bound = [
            engine.residency.operand(v, lane, session, location) if isinstance(v, Tensor) else v for v in operands
        ]
        instruction = engine.new_instruction(session, Opcode.CALL, plan.label, lane, location)
        instruction.plan = plan
        instruction.kernel = plan.kernel
        instruction.inputs = tuple(bound)
        await_metas(instruction, targets)
        instruction.outputs = tuple(self.targets(session, plan, outputs, instruction))
        set_accesses(instruction)
        instruction.aliases = self.aliases(session, plan, inputs, released)
        engine.admit(instruction)

    def resolve(self, plan: Plan, operands: Sequence[Any], targets: Sequence[Tensor]) -> Plan:
        """What was pending when the client called may be known by now."""
        metas = tuple(v.meta if isinstance(v, Tensor) else type(v) for v in operands)
        wanted = tuple(target.meta for target in targets) if plan.in_place else None
        if None in metas or (wanted is not None and None in wanted):
            return plan
        return plan.with_metas(metas, self.engine.infer, wanted)

    def take_view(self, session: VmSession, plan: Plan, operands: list[Any], outputs: Sequence[int]) -> bool:
        """A view op takes effect here, without an instruction, if strides can express it."""
        if plan.op.view is None or plan.pending or plan.in_place:
            return False
        view = view_of(plan, operands[0])
        if view is None:
            return False
        define(session, outputs[0], view)
        return True

    def targets(
        self, session: VmSession, plan: Plan, outputs: Sequence[int], instruction: Instruction
    ) -> list[Binding]:
        """Where the results go: new tensors, or those named by `out=`."""
        residency, lane = self.engine.residency, plan.lane
        bindings = []
        for id_, meta in zip(outputs, plan.outputs, strict=True):
            if plan.in_place:
                tensor = tensor_of(session, id_)
                bindings.append(residency.target(tensor, lane, updates(plan, instruction, tensor), session, instruction.location))
            else:
                tensor, copy = residency.new_tensor(meta, lane)
                define(session, id_, tensor)
                bindings.append(Binding(copy, tensor, 0, None))
        if plan.in_place and updates(plan, instruction, bindings[0].tensor):  # reads what it leaves standing
            instruction.inputs = (bindings[0], *instruction.inputs[1:])
        return bindings

    def aliases(self, session: VmSession, plan: Plan, inputs: Sequence[Any], released: int) -> tuple[Copy, ...]:
        """Input copies whose memory the result may take over when it is dispatched."""
        if not released or plan.in_place or not plan.forward:
            return ()
        found = []
        for position in plan.forward:
            if released >> position & 1:
                tensor = session.tensors[inputs[position]]
                copy = tensor.storage.copies.get(plan.lane)
                if tensor.holders == 1 and tensor.storage.sharers == 1 and copy is not None and tensor.strides is None:
                    found.append(copy)
        return tuple(found)

    def reject(
        self,
        session: VmSession,
        error: TensordError,
        outputs: Sequence[int],
        location: int,
        label: str,
        metas: Sequence[Meta | None] = (),
        home: Lane | None = None,
    ) -> None:
        """Not admitted: its outputs are defined, poisoned; one report is made."""
        engine = self.engine
        engine.ids += 1
        error = error.reraisable()
        error.op = error.op or label
        error.instruction = engine.ids
        error.location = session.where(location)
        for id_, meta in itertools.zip_longest(outputs, metas[: len(outputs)]):
            tensor = session.tensors.get(id_)
            if tensor is not None:
                self.poison_existing(session, tensor, error)
            elif isinstance(id_, int) and id_ > session.newest:
                define(session, id_, self.poisoned(error, meta, home))
        if not isinstance(error, CancelledError):
            engine.tell(session, error)

    def poison_existing(self, session: VmSession, tensor: Tensor, error: TensordError) -> None:
        """A rejected write poisons, as a failed one does; but a cancelled one leaves alone what others hold."""
        if tensor.holders > 1 and isinstance(error, CancelledError):
            return
        self.poison_copy(session, self.engine.residency.target(tensor, tensor.home, False, session, 0).copy, error)

    def poison_copy(self, session: VmSession, copy: Copy, error: TensordError) -> None:
        """Poison a copy at this place in program order."""
        instruction = self.engine.new_instruction(session, Opcode.CALL, error.op or "call", copy.lane, 0)
        instruction.writes = (copy,)
        instruction.error = error
        self.engine.admit(instruction)

    def poisoned(self, error: TensordError, meta: Meta | None, home: Lane | None) -> Tensor:
        """A tensor that never had a value."""
        lane = home or next(iter(self.engine.lanes.values()))
        tensor, copy = self.engine.residency.new_tensor(meta, lane)
        copy.poison = error
        lane.give_up(copy)
        tensor.meta_error = error if meta is None else None
        return tensor

    def to_device(self, session: VmSession, message: Sequence[Any]) -> None:
        """A new tensor with the same value and another home; the transfer is planned now, so that it starts early."""
        _, id_, new, device, location = message
        engine = self.engine
        try:
            refuse_cancelled(session)
            check_new(session, (new,))
            base, lane = tensor_of(session, id_), lane_of(engine, device)
        except TensordError as error:
            self.reject(session, error, (new,), location, "to_device")
            return
        moved = Tensor(base.meta, base.storage, lane)
        moved.offset, moved.strides = base.offset, base.strides
        base.storage.sharers += 1
        moved.follow(base)
        define(session, new, moved)
        engine.residency.place(moved, lane, session, location)

    # -- release ---------------------------------------------------------------------------------------------------

    def release_operands(
        self, session: VmSession, inputs: Sequence[Any], outputs: Sequence[int], released: int, number: int
    ) -> None:
        """Releases that ride on an instruction take effect whatever became of it."""
        if not released:
            return
        plan = session.plans.get(number)
        scalars = plan.scalars if isinstance(plan, Plan) else ()
        for position, id_ in enumerate((*inputs, *outputs)):
            if released >> position & 1 and not (position < len(scalars) and scalars[position]):
                tensor = session.tensors.pop(id_, None)
                if tensor is not None:
                    names.let_go(self.engine, tensor)

    def release(self, session: VmSession, message: Sequence[Any]) -> None:
        """ReleaseTensor: with the last holder the storage's copies go, each after its last reader."""
        for id_ in message[1]:
            tensor = session.tensors.pop(id_, None)
            if tensor is None:
                session.chains.pop(id_, None)
                continue
            names.release(self.engine, session, tensor)

    # -- bytes in and out ------------------------------------------------------------------------------------------

    def upload(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, writing: bytes from outside, straight to the tensor's home."""
        _, id_, shape, dtype, device, payload, location = message
        engine = self.engine
        try:
            refuse_cancelled(session)
            check_new(session, (id_,))
            meta, lane = upload_meta(shape, dtype, payload), lane_of(engine, device)
        except TensordError as error:
            self.reject(session, error, (id_,), location, "asarray")
            return
        session.payload += payload.nbytes
        tensor, copy = engine.residency.new_tensor(meta, lane)
        define(session, id_, tensor)
        instruction = engine.new_instruction(session, Opcode.ACCESS, "upload", lane, location)
        instruction.outputs = (Binding(copy, tensor, 0, None),)
        instruction.writes = (copy,)
        instruction.bytes_moved = meta.nbytes
        if lane.device.host:
            instruction.payload = payload
        else:
            instruction.stream = lane.device.copy_stream(StreamKind.H2D)
            instruction.kernel = lambda target: lane.device.copy_in(target, payload)

        def consumed(done: Instruction) -> None:
            session.payload -= payload.nbytes
            if done.error is None and not lane.device.host:
                lane.count_move("h2d", meta.nbytes)

        instruction.on_retire = consumed
        engine.admit(instruction)

    def fetch(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, reading: the value at this place in program order, as a host array."""
        _, id_, request, location = message
        engine = self.engine
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
        except TensordError as error:
            deny(engine, session, error, request, location, "fetch")
            return
        source = self.readable(tensor)
        if fetch_immediately(engine, session, source, request, location):
            return
        lane = source.copy.lane
        instruction = engine.new_instruction(session, Opcode.ACCESS, "fetch", lane, location)
        instruction.inputs = (source,)
        instruction.reads = (source.copy,)
        await_metas(instruction)
        if not lane.device.host:
            instruction.stream = lane.device.copy_stream(StreamKind.D2H)

        def read(array: Any) -> Any:
            meta = tensor.meta
            if meta is None:
                raise ProtocolError("a tensor with a pending meta has no bytes yet")
            result = lane.device.host_array(meta)
            lane.device.copy_out(array, result)
            instruction.bytes_moved = meta.nbytes
            return result

        def answer(done: Instruction) -> None:
            if done.error is None and not lane.device.host:
                lane.count_move("d2h", done.bytes_moved)
            session.reply(request, done.results, done.error)
            done.results = None

        instruction.kernel = read
        instruction.on_retire = answer
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)
        engine.admit(instruction)

    def readable(self, tensor: Tensor) -> Binding:
        """The copy to read from without moving it: one that holds its value already, on the host if there is one."""
        storage = tensor.storage
        key = tensor.view_key()
        if key is not None and storage.views:
            for (lane, view), copy in storage.views.items():
                if view == key and lane.device.host and copy.writer is None:
                    return Binding(copy, tensor, 0, None)
        ranked = sorted(storage.copies.values(), key=lambda c: (c.writer is not None, not c.lane.device.host))
        return Binding(ranked[0], tensor, tensor.offset, tensor.strides)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, session: VmSession, message: Sequence[Any]) -> None:
        """Barrier over some tensors: answers with their metas once their values at this place are there."""
        _, ids, request, location = message
        engine = self.engine
        try:
            tensors = [tensor_of(session, id_) for id_ in ids]
        except TensordError as error:
            deny(engine, session, error, request, location, "wait")
            return
        copies = tuple({self.readable(tensor).copy: None for tensor in tensors})
        if wait_immediately(engine, session, copies, location):
            session.reply(request, [describe(tensor) for tensor in tensors], None)
            return
        lane = tensors[0].home
        instruction = engine.new_instruction(session, Opcode.BARRIER, "wait", lane, location)
        instruction.reads = copies
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)

        def answer(done: Instruction) -> None:
            session.reply(request, [describe(tensor) for tensor in tensors], done.error)

        instruction.on_retire = answer
        engine.admit(instruction)

    def sync(self, session: VmSession, message: Sequence[Any]) -> None:
        """Barrier over everything the session sent before. It does not raise, and holds nothing later back."""
        _, request, location = message
        lane = next(iter(self.engine.lanes.values()))
        instruction = self.engine.new_instruction(session, Opcode.BARRIER, "sync", lane, location)

        def answer(done: Instruction) -> None:
            if session.barrier is done:
                session.barrier = None
            session.reply(request, None, None)

        instruction.on_retire = answer
        self.engine.admit_barrier(session, instruction)

    # -- side effects ----------------------------------------------------------------------------------------------

    def chain(self, session: VmSession, message: Sequence[Any]) -> None:
        """A new chain: an object without data, that side effects take as `mut`."""
        host = self.engine.residency.host or next(iter(self.engine.lanes.values()))
        copy = self.engine.residency.new_copy(host, 0, 1)
        session.chains[message[1]] = copy

    def effect(self, session: VmSession, message: Sequence[Any]) -> None:
        """AccessBlobByCallback, calling the user's function with host arrays, in the order of its chain."""
        _, ids, chain, callback, request, location = message
        engine = self.engine
        link = session.chains.get(chain)
        try:
            refuse_cancelled(session)
            host = engine.residency.host
            if host is None or link is None:
                raise ProtocolError("a side effect needs a chain and a cpu device")
            tensors = [tensor_of(session, id_) for id_ in ids]
            bound = [engine.residency.operand(tensor, host, session, location) for tensor in tensors]
        except TensordError as error:
            deny(engine, session, error, request, location, "effect")
            if link is not None and not isinstance(error, CancelledError):
                self.poison_copy(session, link, error)
            return
        instruction = engine.new_instruction(session, Opcode.ACCESS, "effect", host, location)
        instruction.inputs = tuple(bound)
        await_metas(instruction)
        instruction.reads = (*dict.fromkeys(b.copy for b in bound), link)
        instruction.writes = (link,)
        instruction.kernel = lambda *arrays: call_back(callback, arrays)
        instruction.on_control = True
        instruction.on_doom = lambda doomed: session.reply(request, None, doomed.error)
        instruction.on_retire = lambda done: session.reply(request, None, done.error)
        engine.admit(instruction)

    # -- tables ----------------------------------------------------------------------------------------------------

    def signature(self, session: VmSession, message: Sequence[Any]) -> None:
        """A signature and its number. One that does not infer keeps its error, for each call that uses it."""
        _, number, name, attributes, metas, device, targets = message
        try:
            op = find(name)
            decoded = tuple(decode_meta(meta) for meta in metas)
            wanted = None if targets is None else tuple(target_meta(meta) for meta in targets)
            frozen = op.freeze(dict(attributes))
            lane = lane_of(self.engine, device)
            session.plans[number] = Plan(op, frozen, decoded, lane, wanted, self.engine.infer, session.id)
        except TensordError as error:
            error.op = error.op or name
            session.plans[number] = error
        except (TypeError, ValueError, KeyError) as error:
            session.plans[number] = ProtocolError(f"signature {number} of {name!r} is damaged: {error}", op=str(name))

    def location(self, session: VmSession, message: Sequence[Any]) -> None:
        """A location and its number."""
        session.locations[message[1]] = message[2]

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, session: VmSession, message: Sequence[Any]) -> None:
        """Give tensors names, all at once."""
        _, given, ids, request = message
        try:
            check_pairs(given, ids)
            names.publish(self.engine, given, [tensor_of(session, id_) for id_ in ids])
        except TensordError as error:
            deny(self.engine, session, error, request, 0, "publish")
            return
        session.reply(request, None, None)

    def lookup(self, session: VmSession, message: Sequence[Any]) -> None:
        """Give the session handles to published tensors, all or none."""
        _, wanted, ids, request = message
        try:
            check_pairs(wanted, ids)
            tensors = names.lookup(self.engine, wanted)
            check_new(session, ids)
        except TensordError as error:
            deny(self.engine, session, error, request, 0, "lookup")
            return
        for id_, tensor in zip(ids, tensors, strict=True):
            tensor.holders += 1
            define(session, id_, tensor)
        session.reply(request, [describe(tensor) for tensor in tensors], None)

    def unpublish(self, session: VmSession, message: Sequence[Any]) -> None:
        """Take names away."""
        _, given, request = message
        try:
            names.unpublish(self.engine, given)
        except TensordError as error:
            deny(self.engine, session, error, request, 0, "unpublish")
            return
        session.reply(request, None, None)


def plan_of(session: VmSession, number: int) -> Plan:
    """The plan behind a signature's number, or the error that it inferred to."""
    plan = session.plans.get(number)
    if plan is None:
        raise ProtocolError(f"signature {number} was never sent")
    if isinstance(plan, TensordError):
        raise plan
    return plan


def label_of(session: VmSession, number: int) -> str:
    """The op's name behind a signature."""
    plan = session.plans.get(number)
    return plan.label if isinstance(plan, Plan) else getattr(plan, "op", None) or "call"


def check_counts(plan: Plan, inputs: Sequence[Any], outputs: Sequence[int]) -> None:
    """A call has as many operands and results as its signature."""
    given, wanted = (len(inputs), len(outputs)), (len(plan.metas), len(plan.outputs))
    if given != wanted:
        raise ProtocolError(f"{plan.label}: {given} operands and results, but its signature has {wanted}")


def check_metas(plan: Plan, operands: Sequence[Any], targets: Sequence[Tensor]) -> None:
    """A call's operands are what its signature says. One whose meta is pending on either side is checked later."""
    found = [(value.meta if isinstance(value, Tensor) else type(value)) for value in operands]
    found += [target.meta for target in targets]
    for meta, wanted in zip(found, (*plan.metas, *plan.outputs), strict=False):
        if meta is not wanted and meta is not None and wanted is not None:
            raise ProtocolError(f"{plan.label}: an operand is {show_meta(meta)}, but the signature's {show_meta(wanted)}")


def show_meta(meta: OperandMeta) -> str:
    """A meta, or a scalar's type, for people."""
    return meta.__name__ if isinstance(meta, type) else repr(meta)


def tensor_of(session: VmSession, id_: int) -> Tensor:
    """The tensor behind an id of the session."""
    tensor = session.tensors.get(id_)
    if tensor is None:
        state = "was released" if isinstance(id_, int) and 0 < id_ <= session.newest else "was never defined"
        raise ProtocolError(f"tensor {id_!r} {state}")
    return tensor


def check_new(session: VmSession, ids: Sequence[int]) -> None:
    """Ids that a session defines rise and are never reused."""
    newest = session.newest
    for id_ in ids:
        if id_ <= newest:
            raise ProtocolError(f"tensor id {id_} is not new: ids rise, the last one was {newest}")
        newest = id_


def define(session: VmSession, id_: int, tensor: Tensor) -> None:
    """Enter a tensor under a new id."""
    session.tensors[id_] = tensor
    session.newest = max(session.newest, id_)


def check_pairs(given: Sequence[str], ids: Sequence[int]) -> None:
    """As many names as ids."""
    if len(given) != len(ids):
        raise ProtocolError(f"{len(given)} names for {len(ids)} tensors")


def refuse_cancelled(session: VmSession) -> None:
    """After cancel and until restart every instruction becomes a cancellation error."""
    if session.cancelled is not None:
        raise session.cancelled


def lane_of(engine: Engine, device: str) -> Lane:
    """The lane of a device's name; MetadataError with the known ones otherwise, the device's error if it is lost."""
    lane = engine.lanes.get(device)
    if lane is None:
        raise MetadataError(f"there is no device {device!r}; there are {', '.join(engine.lanes)}")
    refuse_lost(lane)
    return lane


def target_meta(wire: Any) -> Meta | None:
    """The meta of an `out=` tensor."""
    meta = decode_meta(wire)
    if meta is not None and not isinstance(meta, Meta):
        raise TypeError("a scalar cannot be written to")
    return meta


def updates(plan: Plan, instruction: Instruction, target: Tensor) -> bool:
    """Is the target written in part, on top of what it holds? Written from another tensor it is all new."""
    first = instruction.inputs[0] if plan.op.partial else None
    return type(first) is Binding and first.tensor is target


def upload_meta(shape: Sequence[int], dtype: str, payload: NDArray[Any]) -> Meta:
    """The meta of an upload; MetadataError if it is none, or not the payload's."""
    try:
        meta = decode_meta((shape, dtype))
    except TypeError as error:
        raise MetadataError(f"asarray: {error}", op="asarray") from None
    if not isinstance(meta, Meta) or (payload.shape, payload.dtype) != (meta.shape, meta.dtype):
        found = f"{payload.dtype.name}{list(payload.shape)}"
        raise MetadataError(f"asarray: the payload is {found}, not {meta}", op="asarray")
    return meta


def set_accesses(instruction: Instruction) -> None:
    """The copies it reads and writes, each once."""
    reads = {value.copy: None for value in instruction.inputs if type(value) is Binding}
    instruction.reads = tuple(reads)
    instruction.writes = tuple({binding.copy: None for binding in instruction.outputs})
    instruction.versions = tuple([c.version for c in instruction.reads] + [c.version for c in instruction.writes])


def describe(tensor: Tensor) -> tuple[Any, str]:
    """A tensor's meta and home as a client wants them."""
    return (None if tensor.meta is None else (tensor.meta.shape, tensor.meta.dtype.name), tensor.home.name)


def call_back(callback: Callable[..., Any], arrays: Sequence[Any]) -> None:
    """The user's function gets read-only host arrays."""
    given = []
    for array in arrays:
        view = array.view()
        view.flags.writeable = False
        given.append(view)
    callback(*given)

