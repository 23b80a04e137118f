"""Shares: values that clients read in place, in the memory of a GPU.

A share is an export (`exports`): it has an id of its own, later writes go to another storage, and its memory stays
unchanged until the id is released.

- A client in the machine's process gets the array itself. If the value is launched but not finished, the client also
  gets an event for its stream to wait for, so that neither end waits on the host.
- A client in another process gets a block, whose handle exposes that block and nothing else: a block holds no bytes of
  other sessions (`streams/cuda/ipc`). The value is copied into the block on the device, once for each session and
  version of the value, and the answer comes when the copy is complete. So writes of the client to its block change no
  tensor. The client may read on after its session has ended, so blocks are kept until its process has ended.

No message contains an address, a handle or a size: a client can only ask for the values of its own ids.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...interpreter.errors import DeviceMemoryError, MetadataError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import exact_size
from ...interpreter.wire.messages import Share
from ..memory.binding import bind
from ..memory.replicas import add_copy
from ..model.charges import check_bytes
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.session import Cause, VmSession
from ..model.signature import SHARED
from ..model.tensor import Binding, Storage, VmTensor
from ..placement.residency import Residency
from ..placement.views import alias
from ..scheduler.lost_devices import refuse_lost
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .at_once import ACCESS, keep_record
from .exports import Exports, ReplyEnd, define_export
from .lookup import check_new, define, enter, note_maker, refuse_cancelled, tensor_of
from .quotas import check_tensors
from .rejection import Rejection

MAX_KNOWN_BLOCKS: Final = 64  # known blocks of a session beyond which released ones are forgotten
ADVICE: Final = "numpy() gives a copy on the host"


class LentValue(NamedTuple):
    """A value in a block: its tensor, and the description of the block for the client."""

    tensor: VmTensor
    answer: tuple[Any, ...]


class ShareHandler:
    """The handler of SHARE messages."""

    def __init__(self, scheduler: Scheduler, residency: Residency, exports: Exports, rejection: Rejection) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.exports = exports
        self.rejection = rejection

    def share(self, session: VmSession, message: Share) -> None:
        """Answer with the value at this point in program order, in the memory of the tensor's home."""
        id_, request, location, export = message
        try:
            refuse_cancelled(session)
            check_new(session, (export,))
            check_tensors(session, 1)
            tensor = tensor_of(session, id_)
            refuse_unshared(session, tensor)
            refuse_lost(tensor.home)
            if session.moves:
                self.residency.begin_moves(session)
            if session.gpu.in_place:
                self.lend(session, define_export(session, export, tensor), request, location)
            else:
                self.lend_block(session, tensor, message)
        except TensordError as error:
            self.exports.define_refused(session, export, error, location)
            self.rejection.deny(session, error, request, location, "share")

    # -- in the machine's own process ------------------------------------------------------------------------------

    def lend(self, session: VmSession, export: VmTensor, request: int, location: int) -> None:
        """Answer with an array on the copy at home."""
        source = self.residency.bring(export, export.home, Cause(session, location))
        self.keep(session, export, source)
        if not self.lend_now(session, source, request, location):
            lend = export.home.backend.lend
            self.answer_when_complete(session, export, source, (request, location), lambda array: (lend(array), None))

    def lend_now(self, session: VmSession, source: Binding, request: int, location: int) -> bool:
        """Answer at once if the value is finished or launched; False otherwise."""
        copy, tensor, _, _ = source
        device, launches = copy.device, copy.device.launches
        if launches is None or copy.writer is not None or copy.poison is not None or copy.buffer is None:
            return False
        if tensor.meta is None or len(tensor.meta.shape) > device.backend.most_axes:
            return False
        started = self.scheduler.clock()
        event = device.backend.behind_launches()
        if event is None:
            return False
        launches.order.issued = copy.touched = number = launches.order.issued + 1
        launches.cost += launches.least_cost
        traits = (session.id, ACCESS, "share", device.name, "r", tensor.meta.plain)
        used = device.backend.allocated
        keep_record(self.scheduler, traits, (copy.id, copy.version), started, location, used, launch=number)
        session.reply(request, (device.backend.lend(bind(source)), event), None)
        return True

    # -- in another process ----------------------------------------------------------------------------------------

    def lend_block(self, session: VmSession, base: VmTensor, message: Share) -> None:
        """Answer with a block that holds the value: a known block of the session, or a new one."""
        key = key_of(base)
        known = None if key is None else session.gpu.blocks.get(key)
        if known is None or not is_whole(known.tensor):
            self.lend_new_block(session, base, message)
            return
        _, request, location, export = message
        tensor = alias(known.tensor, base.home)
        enter(session, export, tensor)
        source = self.residency.operand(tensor, base.home, Cause(session, location))
        self.keep(session, tensor, source)
        if source.copy.writer is None:
            session.reply(request, known.answer, None)
        else:
            self.answer_when_complete(session, tensor, source, (request, location), lambda _array: known.answer)

    def lend_new_block(self, session: VmSession, base: VmTensor, message: Share) -> None:
        """Answer with a new block, once the value is copied into it."""
        _, request, location, id_ = message
        home, meta, cause = base.home, base.meta, Cause(session, location)
        if meta is None:
            raise MetadataError("the tensor's shape is not known yet: wait for the tensor first")
        source = self.residency.bring(base, home, cause)
        block, array = self.new_block(session, home, meta, cause)
        copy = self.residency.new_copy(home, block.nbytes, 1)
        storage = Storage(block.nbytes, home, copy)
        add_copy(copy, storage)
        export = VmTensor(meta, storage, home)
        export.strides = meta.strides  # a view of the storage, which is the whole block
        define(session, id_, export)
        note_maker(storage, SHARED, location, self.scheduler.now)
        target = Binding(copy, export, 0, export.strides)
        self.keep(session, export, target)
        answer = (block.number, block.handle, block.nbytes, meta.dtype.name, meta.shape)
        self.note(session, base, LentValue(export, answer))
        instruction = self.scheduler.new_instruction(session, Opcode.COPY, "share", home, location)
        instruction.inputs, instruction.outputs = (source,), (target,)
        instruction.reads, instruction.writes = (source.copy,), (copy,)
        instruction.payload = array
        instruction.bytes_moved = meta.nbytes

        def fill(value: Any, into: Any) -> tuple[Any, ...]:
            home.backend.fill_block(value, into, block)
            return answer

        instruction.kernel = fill

        self.residency.releasing.note_fetch(export, instruction)
        instruction.on_end = BlockEnd(session, request, block)
        self.residency.tiers.admit(instruction)

    def new_block(self, session: VmSession, home: DeviceState, meta: Meta, cause: Cause) -> tuple[Any, Any]:
        """A block for a value, if quotas and memory allow it. Blocks that the client's process has left open count."""
        user = session.gpu.user()
        if user is None:
            raise MetadataError(f"the end of the client's process could not be noticed; {ADVICE}")
        home.backend.free_unused_blocks()
        size = home.backend.block_size(meta.nbytes)
        check_bytes(session, size + sum(home.backend.blocks_left_open(user.pid)))
        if home.ceiling:
            self.residency.tiers.require_share(None, home, size, cause)
        if not self.residency.tiers.make_room(home, set(self.scheduler.bound), cause, size):
            raise DeviceMemoryError(f"a block of {exact_size(size)} does not fit on {home.name} now; {ADVICE}")
        try:
            return home.backend.new_block(meta.nbytes, user)
        except MemoryError as error:
            raise DeviceMemoryError(f"{error}; {ADVICE}") from None
        except MetadataError as error:
            raise MetadataError(f"{error.message}; {ADVICE}") from None

    def note(self, session: VmSession, base: VmTensor, lent: LentValue) -> None:
        """Remember a block, so that the session gets the same block for the same value."""
        blocks, key = session.gpu.blocks, key_of(base)
        if len(blocks) >= MAX_KNOWN_BLOCKS:
            for stale in [one for one, known in blocks.items() if not is_whole(known.tensor)]:
                del blocks[stale]
        if key is not None:
            blocks[key] = lent

    # -- both ------------------------------------------------------------------------------------------------------

    def keep(self, session: VmSession, export: VmTensor, source: Binding) -> None:
        """Keep the memory of an export until it is released."""
        self.residency.releasing.keep_export(export, source.copy, session)

    def answer_when_complete(
        self, session: VmSession, export: VmTensor, source: Binding, reply_to: tuple[int, int], answer: Any
    ) -> None:
        """Answer a request when the value is complete.

        `reply_to`: the request and its location; `answer`: from the value's array to the answer, without a copy.
        """
        request, location = reply_to
        instruction = self.scheduler.new_instruction(session, Opcode.ACCESS, "share", export.home, location)
        instruction.inputs = (source,)
        instruction.reads = (source.copy,)
        await_metas(instruction)
        instruction.kernel = answer
        instruction.on_control = True
        self.residency.releasing.note_fetch(export, instruction)
        instruction.on_end = ReplyEnd(session, request)
        self.residency.tiers.admit(instruction)


class BlockEnd(ReplyEnd):
    """Answers with a new block, which belongs to the client from then on."""

    __slots__ = ("block",)

    def __init__(self, session: VmSession, request: int, block: Any) -> None:
        super().__init__(session, request)
        self.block = block

    def retired(self, done: Instruction) -> None:
        self.block.given = done.error is None
        super().retired(done)


def key_of(tensor: VmTensor) -> tuple[Any, ...] | None:
    """A key that is unique for each value of each view of a storage; None for a value that is not at home."""
    copy = tensor.storage.copies.get(tensor.home)
    if copy is None or copy.poison is not None:
        return None
    return (copy.id, copy.version, tensor.offset, tensor.strides, tensor.meta)


def is_whole(tensor: VmTensor) -> bool:
    """Whether a block still holds its value, or is about to."""
    storage = tensor.storage
    copy = storage.copies.get(tensor.home)
    return storage.sharers > 0 and copy is not None and copy.poison is None


def refuse_unshared(session: VmSession, tensor: VmTensor) -> None:
    """MetadataError unless the session may read the value in its home's memory."""
    home = tensor.home
    if home.backend.cuda_number is None:
        raise MetadataError(f"the tensor is on {home.name}, whose memory is not a GPU's; {ADVICE}")
    if session.gpu.refusal and not session.gpu.in_place:
        raise MetadataError(f"this client gets no memory of {home.name}, {session.gpu.refusal}; {ADVICE}")
