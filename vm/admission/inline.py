"""Running small ops, uploads and waits at admission, on the driving thread, without an instruction.

Most ops of a loop over small tensors find all their sources done. Making and retiring an instruction for such an op
would cost several times as much as its kernel. So the op runs at once if all of this holds:

- the plan says that the op is small and bounded, and its device lets small ops run on the driving thread;
- every operand has a healthy, finished copy on the device, and no unfinished access for which an edge would have to
  wait: these are exactly the ops for which `edges.consume` would add no edge;
- the op's result fits now, beside all memory that earlier instructions still have to reserve;
- the session's quota allows the result.

Busy streams of the device do not matter: no edge would order the op after their work (docs/decisions/0001). If one of
the conditions fails, nothing is changed, and the op is admitted as an instruction (the *long way*).

On a device that launches, calling a kernel only queues the kernel, so an op of any size is launched here once its
kernels are compiled (docs/decisions/0057). An unfinished access is allowed if it precedes the launch on the same stream
(`Launches.follows`). A session that has launched too far ahead of its device is stopped (`FULL`). The CALLs of an
atomic group run here as well, one after the other; the rest of a group is admitted before any other message.

The trace record of an inline op is that of an instruction, with two adjacent ticks and, except for launches, without
edges; `verify` checks this. If an input is released with the op, and the result can take over its memory, the result
gets the input's copy under a new id, and, if no instruction was ever bound to the input, also its tensor and storage.

This is the hottest code of the machine, so it makes few calls and few objects (docs/decisions/0001). Each field of a
CALL from an untrusted session is checked here before it is used, and before anything changes; a malformed CALL takes
the long way, which reports the error. tests/vm/admission/test_inline.py sends every possible message both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.wire.message_kinds import ATOMIC, CALL, RELEASE
from ...interpreter.wire.messages import Call, Upload
from ..memory.ledger import has_spare
from ..memory.pins import end_pins
from ..memory.recycling import make_tensor, recycle
from ..model.charges import charge, credit, has_share
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.signature import NOTHING, UPLOAD, Maker
from ..model.tensor import Copy, Storage, VmTensor
from ..placement.residency import Residency
from ..placement.views import known_view_of
from ..scheduler.scheduler import Scheduler
from .at_once import (
    ACCESS,
    begin_failed,
    bind_operand,
    bind_operands,
    elided_edges,
    end_failed,
    find_target,
    keep_record,
    note_launched,
    note_uses,
    own_copies,
)
from .inline_launches import InlineLaunches
from .names import NameHandlers

COPIED_BYTES = 1 << 14  # uploads up to this size are copied rather than adopted
# The opcodes in records, as plain strings: reading the value of an enum's member takes much longer.
WAIT, RELEASED = Opcode.WAIT.value, Opcode.RELEASE.value

FIELDS = 1 + len(Call._fields)  # of a CALL as an array
END = object()  # no message is left
FULL = object()  # the session has launched as far ahead of its device as it may


class Inline:
    """Runs messages at admission. A method that cannot run its message returns False, and has changed nothing."""

    def __init__(self, scheduler: Scheduler, residency: Residency, names: NameHandlers) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.names = names
        self.durable = names.directory.durable
        self.launching = InlineLaunches(scheduler)

    # -- ops -------------------------------------------------------------------------------------------------------

    def run(  # noqa: PLR0915 - the path of most ops, where a call costs as much as ten statements
        self, session: VmSession, messages: Iterator[Sequence[Any]]
    ) -> Any:
        """Run CALLs from the front of `messages`; return the first message that cannot run here, or END, or FULL.

        Most calls have two tensors, which are bound here without a call, a loop or a list, and a new result, which
        takes over the memory of an operand (`inherit`) or gets fresh memory (`make_result`). `launches` is set on a
        device that launches. All other branches are rare.
        """
        scheduler, ring = self.scheduler, self.scheduler.ring
        immediate, tensors, trusted, clock = session.immediate, session.tensors, session.trusted, scheduler.clock
        for message in messages:
            # Check the fields, and find the plan.
            if (
                not trusted and ((type(message) is not tuple and type(message) is not list) or len(message) != FIELDS)
            ) or message[0] is not CALL:  # not ==: False equals CALL
                pair = (type(message) is tuple or type(message) is list) and len(message) == 2
                rest = self.run_pair(session, message) if pair else message
                if rest is not END:
                    return rest
                continue
            _, number, inputs, outputs, released, location = message
            if not trusted and not (
                type(number) is type(released) is type(location) is int  # an equal bool or float is refused
                and type(inputs) is type(outputs) is tuple  # lists take the long way; a dict would pass `len`
                and len(outputs) == 1
                and type(outputs[0]) is int
                and not (outputs[0] | released | location) >> 63  # neither negative, nor too large
            ):
                return message
            plan = immediate.get(number)
            if plan is None or session.cancelled is not None or (not trusted and len(inputs) != plan.operand_count):
                return message
            device = plan.device
            launches = device.launches
            if launches is None and not plan.stream.inline:
                return message
            (output,) = outputs

            # Bind the operands.
            if plan.takes_two_tensors:
                first, second = inputs
                m, n = plan.metas
                if not trusted and (type(first) is not int or type(second) is not int):
                    return message
                try:
                    x, y = tensors[first], tensors[second]
                    a, b = x.storage.copies[device], y.storage.copies[device]
                except KeyError:
                    return message
                if x.meta is not m or y.meta is not n:
                    return message
                live = a.writer is not None or b.writer is not None
                if live and (launches is None or not (launches.follows(a) and launches.follows(b))):
                    return message
                p, q = a.buffer, b.buffer
                if p is None or q is None or a.poison is not None or b.poison is not None:
                    return message
                left = p.array if p.meta is m and x.strides is None else bind_operand(device, p, x, m)
                right = q.array if q.meta is n and y.strides is None else bind_operand(device, q, y, n)
                traced: tuple[int, ...] = (a.id, a.version, b.id, b.version)
                if launches is not None:
                    used: Sequence[Copy] = (a, b)
                    packed = x.strides is None and y.strides is None
            elif plan.returns_view:
                if self.view(session, plan, inputs, output, released):
                    continue
                return message
            else:
                bound = bind_operands(plan, tensors, inputs)
                if bound is None:
                    return message
                arguments, traced, used = bound
                packed, live = False, True

            # Is a launch possible now?
            if launches is not None:
                if not self.launching.may_launch(session, plan, launches, inputs, packed=packed):
                    return message
                met = elided_edges(used, own_copies(tensors, plan, output)) if live or plan.in_place else ()
            if device.short:
                note_uses(device, tensors, inputs, plan.metas)

            # Find the memory of the result; if there is none, nothing has changed.
            inherited = 0
            if plan.in_place:
                copy = find_target(plan, tensors.get(output), launches)
            elif output <= session.newest:
                return message
            else:
                copy, dying = None, released & plan.donatable_bits
                if dying and plan.takes_two_tensors:
                    if dying & 1 and first != second:
                        copy, inherited = self.inherit(session, plan, x, a, first, output, location), 1
                    if copy is None and dying & 2 and first != second:
                        copy, inherited = self.inherit(session, plan, y, b, second, output, location), 2
                elif dying:
                    copy, inherited = self.inherit_one(session, plan, inputs, dying, output, location)
                if copy is None:
                    copy, inherited = self.make_result(session, device, plan.output, output, plan.maker, location), 0
            if copy is None:
                return message
            meta = plan.output
            buffer: Any = copy.buffer
            target = buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta)

            # Run the kernel, and add the record.
            scheduler.ids = id_ = scheduler.ids + 1
            scheduler.tick = tick = scheduler.tick + 2
            started = clock()
            try:
                if plan.takes_two_tensors:
                    plan.kernel(left, right, target)
                else:
                    plan.kernel(*arguments, target)
            except BaseException as error:
                self.keep_failure(plan, session, message, id_, error, started, met if launches is not None else ())
            else:
                scheduler.latest = finished = clock()
                plan.op_counts.done += 1
                if ring.enabled:
                    copies = traced + (copy.id, copy.version)  # noqa: RUF005 - half the time of a display with a star
                    allocated = device.backend.allocated
                    entry = (id_, plan.record_head, copies, tick, scheduler.now, started, finished, location, allocated)
                    ring.append(entry if launches is None else (*entry, 0, launches.order.issued + 1, met))
                if launches is not None:
                    self.launching.launched(session, plan, launches, used, copy)

            # Release the operands whose handles were dropped.
            if released != inherited:
                self.names.release_operands(session, plan, inputs, outputs, released & ~inherited)
            if launches is not None and session.flooded:
                return FULL
        return END

    def run_pair(self, session: VmSession, message: Sequence[Any]) -> Any:
        """Run a RELEASE, or the CALLs of an atomic group; return END, or the first message that cannot run here."""
        trusted = session.trusted
        released = message[0] is RELEASE if trusted else type(message) is tuple  # others are refused by `release`
        if released and self.release(session, message):
            self.scheduler.latest = self.scheduler.clock()
            return END
        if not trusted or message[0] is not ATOMIC or self.durable:
            return message
        group = iter(message[1])
        rest = self.run(session, group)
        return rest if rest is END else rest_of_group(rest, group)

    def run_and_leave(self, session: VmSession, messages: Iterator[Sequence[Any]]) -> Any:
        """`run` for machines with launching devices; restores the thread's current device, stream and allocator."""
        try:
            return self.run(session, messages)
        finally:
            self.launching.leave()

    def view(self, session: VmSession, plan: Plan, inputs: Sequence[Any], output: int, released: int) -> bool:
        """Carry out a view op whose plan has seen such a base before."""
        tensors, id_ = session.tensors, inputs[0]
        base = tensors.get(id_) if type(id_) is int else None
        if base is None or base.meta is not plan.metas[0]:
            return False
        if output <= session.newest or len(tensors) >= session.account.tensors:
            return False
        view = known_view_of(plan, base)
        if view is None:
            return False
        tensors[output] = view
        session.newest = output
        if released:
            self.names.release_operands(session, plan, inputs, (output,), released)
        self.scheduler.latest = self.scheduler.clock()  # so that the session's turn ends in time
        return True

    def inherit_one(
        self, session: VmSession, plan: Plan, inputs: Sequence[Any], dying: int, output: int, location: int
    ) -> tuple[Copy | None, int]:
        """`inherit` from the first suitable input among `dying` (bits). Return the copy and its bit, or None and 0."""
        while dying:
            bit = dying & -dying
            dying ^= bit
            value = inputs[bit.bit_length() - 1]
            if inputs.count(value) == 1:
                tensor = session.tensors[value]
                copy = tensor.storage.copies[plan.device]
                found = self.inherit(session, plan, tensor, copy, value, output, location)
                if found is not None:
                    return found, bit
        return None, 0

    def inherit(
        self, session: VmSession, plan: Plan, tensor: VmTensor, copy: Copy, input_: int, output: int, location: int
    ) -> Copy | None:
        """Forwarding: give the result the copy of an input that is released here, if nothing else uses the copy."""
        storage, account = tensor.storage, session.account
        if (
            tensor.holders != 1  # `dies_with_call` and `is_free_for`, without their calls
            or storage.sharers != 1
            or tensor.strides is not None
            or copy.uses
            or copy.client_mappings
            or copy.readers
            or storage.views
            or len(storage.copies) != 1  # the result takes over the copy as the only one
            or copy.buffer.nbytes != plan.output.nbytes  # type: ignore[union-attr]  # a bound copy has a buffer
        ):
            return None
        device = plan.device
        if storage.account is not account:
            if account.bytes + storage.nbytes > account.limit or not has_share(account, device, storage.nbytes):
                return None
            credit(storage)
            charge(session, storage)
        tensors, residency = session.tensors, self.residency
        del tensors[input_]
        residency.copies = copy.id = residency.copies + 1
        copy.version = storage.version = 1
        if tensor.bound:  # an instruction may still read an older copy, by this tensor's meta
            if session.pins:
                end_pins(session, input_)
            residency.releasing.let_go(tensor)
            storage.copies = {}
            storage = Storage(storage.nbytes, device, copy, storage.account)
            tensor = VmTensor(plan.output, storage, device)
            if device.candidates and copy in device.candidates:
                device.candidates[copy] = storage
        if device.short:
            storage.used, storage.rest, storage.evicted = device.uses.newest, 0, None
        storage.placed = device.alone
        storage.maker = plan.maker
        storage.location = location
        storage.made = self.scheduler.now
        tensor.meta = plan.output
        tensor.home = device
        tensors[output] = tensor
        session.newest = output
        return copy

    def make_result(
        self, session: VmSession, device: DeviceState, meta: Meta, output: int, maker: Maker, location: int
    ) -> Copy | None:
        """Define a new tensor with fresh memory, and return its copy; None if quota or memory do not allow it."""
        nbytes, backend, account = meta.nbytes, device.backend, session.account
        if account.bytes + nbytes > account.limit or len(session.tensors) >= account.tensors:
            return None
        if (device.unreserved or device.behind) and not has_spare(device, nbytes):
            return None
        if device.ceiling and not has_share(account, device, nbytes):
            return None
        buffer = backend.allocate(nbytes)
        if buffer is None:
            return None
        residency = self.residency
        residency.copies = number = residency.copies + 1
        now = self.scheduler.now
        session.tensors[output], copy = make_tensor(meta, device, buffer, number, account, maker, location, now)
        session.newest = output
        return copy

    def keep_failure(
        self,
        plan: Plan,
        session: VmSession,
        message: Sequence[Any],
        id_: int,
        failure: BaseException,
        started: int,
        met: tuple[Any, ...],
    ) -> None:
        """Poison the outputs of a kernel that raised, and add its record, as the long way would have done."""
        _, _, inputs, outputs, _, location = message
        scheduler, launches = self.scheduler, plan.device.launches
        instruction = Instruction(id_, session, Opcode.CALL, plan.label, plan.device, location)
        instruction.plan = plan
        read = [session.tensors.get(v) for v, scalar in zip(inputs, plan.scalars, strict=True) if not scalar]
        reads = [t.storage.copies[plan.device] for t in read if t is not None]
        writes = [session.tensors[v].storage.copies[plan.device] for v in outputs]
        if launches is not None:  # a kernel that could not be launched counts as a launch, too
            launches.order.issued = instruction.launch = launches.order.issued + 1
            note_launched(launches, reads, writes)
            instruction.edges = [met[n : n + 4] for n in range(0, len(met), 4)]
        begin_failed(scheduler, instruction, reads, writes, started)
        instruction.fail(failure)
        end_failed(scheduler, instruction)
        scheduler.tell(session, instruction.error)
        scheduler.fences.await_launches(plan.device)  # the fence tells whether the device is lost

    def release(self, session: VmSession, message: Sequence[Any]) -> bool:
        """Release a handle now, if nothing else refers to the tensor, which holds for most results."""
        kind, ids = message
        if kind is not RELEASE or type(ids) is not tuple or len(ids) != 1:
            return False
        (id_,) = ids
        tensor = session.tensors.get(id_) if type(id_) is int else None
        if tensor is None or tensor.holders != 1 or not recycle(tensor):
            return False
        del session.tensors[id_]
        (copy,) = tensor.storage.copies.values()
        traits = (session.id, RELEASED, "release", tensor.home.name, "f", NOTHING)
        keep_record(self.scheduler, traits, (copy.id, copy.version), self.scheduler.clock(), 0)
        return True

    def upload(self, session: VmSession, device: DeviceState, meta: Meta, message: Upload) -> bool:
        """Copy a small upload now, which is faster than adopting its memory."""
        if meta.nbytes > COPIED_BYTES or not device.backend.host or not device.inline():
            return False
        if message.output <= session.newest:
            return False
        copy = self.make_result(session, device, meta, message.output, UPLOAD, message.location)
        if copy is None:
            return False
        started = self.scheduler.clock()
        buffer: Any = copy.buffer
        device.backend.bind(buffer, meta)[...] = message.payload
        traits = (session.id, ACCESS, "upload", device.name, "w", meta.plain)
        used, location = device.backend.allocated, message.location
        keep_record(self.scheduler, traits, (copy.id, copy.version), started, location, used, meta.nbytes)
        return True

    def wait(self, session: VmSession, copies: Sequence[Copy], location: int) -> bool:
        """Add the record of a wait that is over at once; False if a copy is unfinished or poisoned."""
        for copy in copies:
            if copy.writer is not None or copy.poison is not None or copy.is_awaited:
                return False
        traits = (session.id, WAIT, "wait", copies[0].device.name, "r" * len(copies), NOTHING)
        flat = tuple([part for copy in copies for part in (copy.id, copy.version)])
        keep_record(self.scheduler, traits, flat, self.scheduler.clock(), location)
        return True


def rest_of_group(left: Any, behind: Iterator[Sequence[Any]]) -> Any:
    """The group of the message that could not run and those after it; FULL if the group is done but the device full."""
    rest = list(behind)
    if left is not FULL:
        return [ATOMIC, [left, *rest]]
    return [ATOMIC, rest] if rest else FULL
