"""Releasing the buffers of copies. Only these functions do this:

- `end_uses` ends the accesses of an instruction, `end_use` one access of a copy;
- `release` releases a copy's buffer, as far as the rules below allow;
- `release_drained` frees the buffers that were reusable only on one stream, once that stream is drained.

When a buffer may be released:

- A *stale* copy has left its storage's map. Its buffer is released with its last use. If all its uses are queued on one
  stream of its own device, later instructions of that stream may reuse the buffer at once.
- A *poisoned* copy holds the bytes of a failed write, which no instruction reads. Its buffer is released once no
  dispatched instruction is bound to it. The copy stays in the map. If a write to it is admitted, the ledger expects
  that the write reserves memory again; otherwise the copy gives up its planned bytes.
- *Client-mapped* memory is never reused, since a client may read it at any time (`overwriting`).
"""

from __future__ import annotations

from ...streams.stream import Stream
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.tensor import Copy
from .ledger import expect_late
from .planning import give_up_bytes


def end_uses(instruction: Instruction) -> None:
    """End the accesses of an instruction that has ended, one of each copy."""
    queued = 0 if instruction.queue is None else 1
    for copy in instruction.reads:
        if copy not in instruction.writes:
            end_use(copy, queued)
    for copy in instruction.writes:
        end_use(copy, queued)


def end_use(copy: Copy, queued: int) -> None:
    """End one access of a copy. `queued`: 1 if the access was dispatched to a stream, else 0."""
    copy.uses -= 1
    copy.queued -= queued
    if copy.poison is not None or not copy.current:
        release(copy)


def release(copy: Copy, over: int = 0) -> None:
    """Release the buffer of a stale or poisoned copy, as far as no instruction needs it.

    `over`: the number of uses that have ended although their instructions have not retired.
    """
    if copy.poison is not None and not copy.queued:
        _free(copy)
        _expect_next_write(copy)
    elif not copy.current:
        if copy.uses > over:
            _hand_to_stream(copy)
        else:
            _free(copy)


def release_drained(device: DeviceState, stream: Stream) -> None:
    """Free the buffers that were reusable only in the order of a stream, which is drained now."""
    for buffer in device.reusable.pop(stream, ()):
        device.backend.free(buffer)


def _free(copy: Copy) -> None:
    buffer = copy.buffer
    if buffer is not None:
        copy.buffer = None
        buffer.behind = max(buffer.behind, copy.touched)
        if copy.client_mappings:
            copy.device.backend.discard(buffer)
        else:
            copy.device.backend.free(buffer)


def _hand_to_stream(copy: Copy) -> None:
    """Give the buffer of a stale copy to later instructions of the one stream on which all its uses are queued."""
    stream = copy.stream  # may be another device's, for a transfer; such a stream cannot reuse memory of this device
    if copy.buffer is None or copy.queued != copy.uses or stream is None or stream.device != copy.device.name:
        return
    if not stream.queued:  # all uses have run, and wait only for the final status of the instructions before them
        _free(copy)
    elif not copy.client_mappings:
        copy.buffer.behind = max(copy.buffer.behind, copy.touched)
        copy.device.reusable.setdefault(stream, []).append(copy.buffer)
        copy.buffer = None


def _expect_next_write(copy: Copy) -> None:
    writer = copy.writer
    if writer is None:
        if copy.current and copy.nbytes > 0:  # a later write makes a new copy
            give_up_bytes(copy)
        return
    if writer.error is None and not writer.queue and copy.nbytes > 0 and any(b.copy is copy for b in writer.outputs):
        expect_late(copy.device, writer, copy.nbytes)  # a RELEASE is a writer, too, but has no outputs
