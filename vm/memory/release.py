"""Giving memory back. Three functions, and no other way.

- `end_use`: an access of a copy has ended;
- `release`: the copy's buffer goes as far as it may;
- `release_drained`: a stream is drained, and what only its later instructions could reuse is free for all.

When a buffer may go:

- A *stale* copy has left its storage's map. Its buffer goes with its last use; where all of its uses are queued on one
  stream of its own device, later instructions of that stream may have the buffer at once.
- A *poisoned* copy holds what a failed write left, which nobody reads. Its buffer goes once nothing dispatched is bound
  to it. The copy stays in the map; the next write to it makes the memory anew, so the ledger expects that, and if there
  is no next write the copy is empty and leaves the plan.
- An *exposed* buffer is neither handed on nor reused: a client may read it for as long as it likes.
"""

from __future__ import annotations

from ...streams.stream import Stream
from ..model.device_state import DeviceState
from ..model.tensor import Copy
from .ledger import expect_late


def end_use(copy: Copy, queued: int) -> None:
    """One live access less; `queued`: 1 if the access was dispatched to a stream."""
    copy.uses -= 1
    copy.queued -= queued
    if copy.poison is not None or not copy.current:
        release(copy)


def release(copy: Copy, over: int = 0) -> None:
    """Give back the buffer of a copy that is stale or poisoned, as far as nobody needs it.

    `over`: how many of its uses have ended although their instructions have not retired.
    """
    if copy.poison is not None and not copy.queued:
        _free(copy)
        _expect_next_write(copy)
    elif not copy.current:
        if copy.uses <= over:
            _free(copy)
        else:
            _hand_to_stream(copy)


def release_drained(device: DeviceState, stream: Stream) -> None:
    """The stream has nothing queued any more: its order protects no buffer."""
    for buffer in device.reusable.pop(stream, ()):
        device.backend.free(buffer)


def _free(copy: Copy) -> None:
    if copy.buffer is not None:
        copy.device.backend.free(copy.buffer)
        copy.buffer = None


def _hand_to_stream(copy: Copy) -> None:
    """Let later instructions of the one stream where all uses of a stale copy are queued have its buffer."""
    stream = copy.stream  # a transfer may use it on another device's stream, to which memory of this one is no use
    if copy.buffer is None or copy.queued != copy.uses or stream is None or stream.device != copy.device.name:
        return
    if not stream.queued:  # all uses have been executed; they only wait for the statuses of their sources
        _free(copy)
    elif not copy.buffer.exposed:
        copy.device.reusable.setdefault(stream, []).append(copy.buffer)
        copy.buffer = None


def _expect_next_write(copy: Copy) -> None:
    writer = copy.writer
    if writer is None:
        if copy.current and copy.nbytes > 0:  # a later write makes a new copy
            copy.device.planned -= copy.nbytes
            copy.nbytes = 0
        return
    if writer.error is None and not writer.queue and copy.nbytes > 0 and any(b.copy is copy for b in writer.outputs):
        expect_late(copy.device, writer, copy.nbytes)  # a release is a writer, too, but makes nothing
