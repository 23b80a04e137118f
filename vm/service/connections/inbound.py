"""From frames to messages for admission: decoding headers, and finding the bytes of uploads. All input is untrusted."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from ....interpreter.errors import KernelError, ProtocolError, TensordError
from ....interpreter.wire.arrays import array_of, dtype_of
from ....interpreter.wire.codec import decode
from ....interpreter.wire.fields import SEQUENCES, is_natural, is_shape, is_text
from ....interpreter.wire.forms import name_fields, shown
from ....interpreter.wire.frames import ERRORS, MAX_CAUSE_LENGTH, decode_cause
from ....interpreter.wire.limits import Limits
from ....interpreter.wire.message_kinds import ATOMIC
from ....interpreter.wire.messages import Atomic, Upload, with_payload
from ....interpreter.wire.segments import MemorySegment, array_at, descriptors_left, new_number
from .peer import Peer

FIXED_ARRAY: Final = 0b1001  # the high bits of a msgpack array of at most 15 elements; the low bits are their number
FIXED_INT: Final = 0x7F  # the largest integer that is its own encoding
MESSAGES_PREFIX_BYTES: Final = 16  # bytes of a BATCH within which its messages begin

Freed = deque[tuple["weakref.ref[Any]", int]]


def decode_header(frame: Any, limits: Limits) -> tuple[Any, ...]:
    """The header in a ZeroMQ frame."""
    return decode(frame.buffer, limits.header)


def kind_of(frame: Any, limits: Limits) -> int:
    """The kind of a header, without decoding the rest unless the encoding is not the shortest."""
    start = frame.buffer
    if len(start) > 1 and start[0] >> 4 == FIXED_ARRAY and start[1] <= FIXED_INT:
        return int(start[1])
    return int(decode_header(frame, limits)[0])


def unadmitted(peer: Peer) -> int:
    """The number of a peer's messages that are received but not admitted."""
    return len(peer.inbox) + sum(messages_in(frames[0]) for frames in peer.packed)


def messages_in(frame: Any) -> int:
    """The number of messages that a BATCH declares, without decoding them; 1 for any other frame."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(frame.buffer[:MESSAGES_PREFIX_BYTES])
    try:
        unpacker.read_array_header()
        unpacker.skip()
        unpacker.skip()
        return min(int(unpacker.read_array_header()), len(frame))  # a message takes at least a byte
    except (ValueError, msgpack.UnpackException):
        return 1


def fill_uploads(
    peer: Peer, messages: Sequence[Any], uploads: Sequence[Any], payloads: Sequence[Any], freed: Freed
) -> list[Any]:
    """The messages of a batch, with the payloads of its uploads filled in. ProtocolError if a payload is missing."""
    batch = list(messages)
    for entry in uploads:
        if type(entry) is not tuple or len(entry) != 3:
            raise ProtocolError("an entry of uploads is [position, position in the group or -1, place]")
        position, inner, place = entry
        array = element(batch, position) if inner == -1 else element(group_at(batch, position), inner)
        upload = name_fields(array, Upload)
        if upload is None or type(array) is not tuple:  # a filled upload is not a tuple
            raise ProtocolError(f"message {position} of the batch is not an upload without a payload")
        payload = payload_of(peer, upload, place, payloads, freed)
        filled = with_payload(array, payload)
        if inner == -1:
            batch[position] = filled
        else:
            group = list(group_at(batch, position))
            group[inner] = filled
            batch[position] = [ATOMIC, group]  # admission checks its other messages
        peer.uploaded += payload.nbytes
        peer.uploads.append((peer.taken + position + 1, payload.nbytes))
    return batch


def group_at(messages: Sequence[Any], position: Any) -> Sequence[Any]:
    """The messages of the group at a position of a batch."""
    group = name_fields(element(messages, position), Atomic)
    if group is None:
        raise ProtocolError(f"message {position} of the batch is not a group")
    return group.messages


def element(values: Any, position: Any) -> Any:
    """An element of an untrusted sequence; ProtocolError if there is none."""
    if type(values) not in SEQUENCES or not is_natural(position) or position >= len(values):
        raise ProtocolError(f"there is no message {shown(position)} in the batch")
    return values[position]


def payload_of(peer: Peer, upload: Upload, place: Any, payloads: Sequence[Any], freed: Freed) -> NDArray[Any]:
    """The array of an upload, at the place that the sender names."""
    shape = upload.shape
    if not is_shape(shape) or not is_text(upload.dtype):
        raise ProtocolError("an upload without a shape and a dtype")
    dtype = dtype_of(upload.dtype)
    sent = sent_array(place, payloads, shape, dtype)
    if sent is not None:
        return sent
    if type(place) is not tuple or len(place) != 2 or not all(map(is_natural, place)):
        raise ProtocolError("the place of an upload's bytes is bytes, a frame's number, or [segment, offset]")
    segment = peer.segments.get(place[0])
    if segment is None:
        raise ProtocolError(f"an upload in segment {place[0]}, which was never announced")
    array: NDArray[Any] = array_at(segment, place[1], shape, dtype)
    weakref.finalize(array, freed.append, (weakref.ref(peer), place[0])).atexit = False
    return array


def sent_array(place: Any, payloads: Sequence[Any], shape: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array at a place in the header or in a frame of its message; None for any other place."""
    if type(place) is bytes:
        return array_of(place, shape, dtype)
    if not is_natural(place):
        return None
    if place >= len(payloads):
        raise ProtocolError(f"an array in frame {place} of {len(payloads)}")
    return array_of(payloads[place].buffer, shape, dtype)


def returned_array(peer: Peer, wire: Any, payloads: Sequence[Any]) -> NDArray[Any]:
    """An array that a host call returns: [dtype, shape, place]. Its place may be a memory file of its own."""
    if type(wire) is not tuple or len(wire) != 3 or not is_shape(wire[1]) or not is_text(wire[0]):
        raise ProtocolError("a result of a host call is [dtype, shape, place]")
    name, shape, place = wire
    dtype = dtype_of(name)
    sent = sent_array(place, payloads, shape, dtype)
    if sent is not None:
        return sent
    if type(place) is not tuple or len(place) != 2 or not all(map(is_natural, place)):
        raise ProtocolError("the place of a result's bytes is bytes, a frame's number, or [fd, bytes]")
    segment = open_segment(peer, *place)
    array: NDArray[Any] = array_at(segment, 0, shape, dtype)
    if within_limits(peer, segment.size):
        peer.mappings.add(segment)
        segment.close_descriptor()
        return array
    return array.copy()


def returned_error(wire: Any) -> TensordError | None:
    """The error that a client returns for a host call: a KernelError, or one of its subclasses."""
    if wire is None:
        return None
    if type(wire) is not tuple or len(wire) != 6 or type(wire[0]) is not str or type(wire[1]) is not str:
        raise ProtocolError("the error of a host call has the form of an ERROR answer")
    kind = ERRORS.get(wire[0], KernelError)
    error = (kind if issubclass(kind, KernelError) else KernelError)(wire[1][:MAX_CAUSE_LENGTH])
    error.__cause__ = decode_cause(wire[5])
    return error


def open_segment(peer: Peer, fd: int, nbytes: int) -> MemorySegment:
    """Map a memory file of the peer, and seal it: from now on, only existing mappings can write to it."""
    if not peer.shared:
        raise ProtocolError("this connection shares no memory")
    # The number is the daemon's: it identifies the segment to other clients that fetch a value in it.
    segment = MemorySegment.open_peer(peer.credentials.pid, fd, nbytes, new_number(), writable=True)
    try:
        segment.seal_future_writes()
    except OSError as error:
        raise ProtocolError(f"descriptor {fd} takes no seal ({error.strerror}): make it without F_SEAL_SEAL") from None
    return segment


def within_limits(peer: Peer, nbytes: int) -> bool:
    """Whether `nbytes` more of the peer's memory may be mapped."""
    mapped = sum(segment.size for segment in peer.mappings)
    return len(peer.mappings) < peer.limits.segments and mapped + nbytes <= peer.limits.mapped


def take_segment(peer: Peer, header: Sequence[Any]) -> None:
    """Open or close an upload segment of the peer."""
    _, number, fd, nbytes = header
    if not is_natural(number) or type(fd) is not int or not is_natural(nbytes):
        raise ProtocolError("a SEGMENT is [6, number, fd, bytes]")
    if fd < 0:
        peer.segments.pop(number, None)  # arrays in it keep it mapped
        return
    limits = peer.limits
    if number in peer.segments:
        raise ProtocolError(f"segment {number} exists already")
    if peer.shared and not within_limits(peer, nbytes):
        raise ProtocolError(f"more than {limits.segments} upload segments, or {limits.mapped} bytes of them")
    segment = open_segment(peer, fd, nbytes)
    if descriptors_left() < 0:  # fetches of values in it are then answered by frames
        segment.close_descriptor()
    peer.segments[number] = segment
    peer.mappings.add(segment)
