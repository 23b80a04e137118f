"""From answers to frames, and from frames to sockets.

A ROUTER drops undeliverable messages silently, unless `router_mandatory` is set. With that option, a send to a full
queue raises, and the peer's frames wait here. The peer is not served until its frames have left, so a slow reader slows
only itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import zmq
from numpy.typing import NDArray

from ....interpreter.errors import MetadataError, TensordError
from ....interpreter.wire.arrays import name_of, strides_of
from ....interpreter.wire.codec import Encoder
from ....interpreter.wire.frames import (
    AGAIN,
    ARRAY,
    ARRAYS,
    CALL,
    ERROR,
    INLINE_ARRAY,
    PART,
    REPLIES,
    VALUE,
    encode_error,
)
from ....interpreter.wire.segments import offset_in_segment
from ...model.session import Again, HostCallAnswer
from .listener import NOW
from .peer import ConnectionState, Peer, PendingAnswer

NOW_AND_MORE: Final = NOW | int(zmq.SNDMORE)
_encoder = Encoder()


def encode(header: Any) -> bytes:
    return _encoder.encode(header)


def send(peer: Peer, frames: list[Any]) -> bool:
    """Send frames to a peer, after its unsent ones; False if the frames have to wait."""
    if peer.unsent or not try_send(peer, frames):
        peer.unsent.append(frames)
        return False
    return True


def resend(peer: Peer) -> None:
    """Send unsent frames while there is room."""
    while peer.unsent and try_send(peer, peer.unsent[0]):
        peer.unsent.popleft()


def try_send(peer: Peer, frames: list[Any]) -> bool:
    """Send frames now; False if the peer's queue is full. Frames to a lost peer are dropped."""
    socket = peer.listener.socket
    try:
        socket.send(peer.identity, NOW_AND_MORE)  # the only part that a full queue refuses
        if len(frames) == 1:
            socket.send(frames[0], NOW)
        else:
            socket.send_multipart(frames, NOW, copy=False)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno != zmq.EHOSTUNREACH:
            raise
    return True


def send_answers(peer: Peer, free: Sequence[int] = ()) -> None:
    """Send the peer's answers, and its credit: the consumed messages and bytes."""
    answers, peer.answers = peer.answers, []
    peer.reported, peer.reported_bytes = peer.consumed(), peer.consumed_bytes()
    peer.number += 1
    payloads: list[Any] = []
    encoded = [encode_answer(peer, answer, payloads) for answer in answers]
    deliver(peer, [REPLIES, peer.number, peer.reported, peer.reported_bytes, encoded, tuple(free)], payloads)


def send_part(peer: Peer, request: int, part: list[Any]) -> None:
    """Send one slice of a long answer."""
    peer.number += 1
    deliver(peer, [REPLIES, peer.number, peer.reported, peer.reported_bytes, [[request, PART, part]], ()], [])


def deliver(peer: Peer, header: list[Any], payloads: list[Any]) -> None:
    """Send REPLIES, and keep them if the session is resumable, since it may need them again."""
    try:
        first = encode(header)
    except MetadataError:  # replace an answer that cannot be encoded by an error
        header[4] = [encodable(answer) for answer in header[4]]
        first = encode(header)
    frames = [first, *payloads]
    if peer.resumable:
        peer.unacknowledged.append((peer.number, frames))
        peer.outstanding += len(first)
    if peer.state is ConnectionState.OPEN:
        send(peer, frames)


def encodable(answer: list[Any]) -> list[Any]:
    """The answer, or an error in its place if it cannot be encoded."""
    try:
        encode(answer)
    except MetadataError as error:
        return [answer[0], ERROR, encode_error(error)]
    return answer


def acknowledge(peer: Peer, number: int) -> None:
    """Drop the unacknowledged REPLIES up to a number, which the peer has received."""
    while peer.unacknowledged and peer.unacknowledged[0][0] <= number:
        peer.outstanding -= len(peer.unacknowledged.popleft()[1][0])


def encode_answer(peer: Peer, answer: PendingAnswer, payloads: list[Any]) -> list[Any]:
    """The wire form of one answer."""
    request, value, error = answer
    if error is not None:
        return [request, ERROR, encode_error(error)]
    if isinstance(value, np.ndarray):
        return [request, ARRAY, encode_array(peer, value, payloads)]
    if type(value) is Again:
        return [request, AGAIN, [encode_one(peer, one, payloads) for one in value.values]]
    if type(value) is HostCallAnswer:
        values = None if value.values is None else [encode_one(peer, one, payloads) for one in value.values]
        return [request, CALL, [value.number, values]]
    if type(value) is list and value and all(isinstance(one, np.ndarray | TensordError) for one in value):
        return [request, ARRAYS, [encode_one(peer, one, payloads) for one in value]]
    return [request, VALUE, value]


def encode_one(peer: Peer, value: NDArray[Any] | TensordError, payloads: list[Any]) -> list[Any]:
    """The wire form of an array, or of an error in its place."""
    return encode_error(value) if isinstance(value, TensordError) else encode_array(peer, value, payloads)


def encode_array(peer: Peer, array: NDArray[Any], payloads: list[Any]) -> list[Any]:
    """The wire form of an array: in the header if small, a place in shared memory, or a frame of its own."""
    name, shape = name_of(array.dtype), array.shape
    if array.nbytes <= INLINE_ARRAY:
        return [name, shape, None, array.tobytes()]
    shared = offset_in_segment(array) if peer.shared else None
    if shared is not None:
        segment, offset = shared
        # The client of another session could write to its upload segments at any time.
        if segment.fd >= 0 and (not segment.owner or segment in peer.mappings):
            return [name, shape, strides_of(array), (segment.number, segment.fd, segment.size, offset)]
    packed = np.ascontiguousarray(array)
    payloads.append(counted_frame(peer, packed))
    return [name, shape, None, len(payloads) - 1]


def counted_frame(peer: Peer, array: NDArray[Any]) -> NDArray[Any]:
    """The array as a zero-copy frame. It counts in `outstanding` until libzmq releases it, on whatever thread."""
    frame = array.reshape(-1).view(np.uint8)
    peer.outstanding += frame.nbytes
    weakref.finalize(frame, peer.released.append, frame.nbytes).atexit = False
    return frame
