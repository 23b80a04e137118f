"""From answers to frames, and frames to sockets.

A ROUTER drops silently what it cannot deliver, unless it is told to raise; then a peer whose queue is full shows, and
its frames wait here. Such a peer is not served further until they have left: it slows only itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError
from ...interpreter.wire.codec import Encoder
from ...interpreter.wire.frames import (
    ARRAY,
    ARRAYS,
    ERROR,
    INLINE_ARRAY,
    PART,
    REPLIES,
    VALUE,
    encode_error,
    name_of,
    strides_of,
)
from ...interpreter.wire.segments import place_of
from .peer import Answer, Peer, State

_encoder = Encoder()


def encode(header: Any) -> bytes:
    """The bytes of a header."""
    return _encoder.encode(header)


def send(peer: Peer, frames: list[Any]) -> bool:
    """Send frames to a peer, behind what still waits for it; False if they wait, too."""
    if peer.unsent or not try_send(peer, frames):
        peer.unsent.append(frames)
        return False
    return True


def resend(peer: Peer) -> None:
    """Send what waited, as far as there is room."""
    while peer.unsent and try_send(peer, peer.unsent[0]):
        peer.unsent.popleft()


def try_send(peer: Peer, frames: list[Any]) -> bool:
    """Send frames now; False if the peer's queue is full. One that is gone gets nothing; the monitor tells of it."""
    socket = peer.listener.socket
    try:
        if len(frames) == 1:
            socket.send_multipart([peer.identity, frames[0]], zmq.NOBLOCK)
        else:
            socket.send_multipart([peer.identity, *frames], zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno != zmq.EHOSTUNREACH:
            raise
    return True


def send_answers(peer: Peer, free: Sequence[int] = ()) -> None:
    """Send what it is to be told, and how much of what it sent has been consumed."""
    answers, peer.answers = peer.answers, []
    peer.told, peer.told_bytes = peer.consumed(), peer.consumed_bytes()
    peer.number += 1
    payloads: list[Any] = []
    encoded = [encode_answer(peer, answer, payloads) for answer in answers]
    deliver(peer, [REPLIES, peer.number, peer.told, peer.told_bytes, encoded, tuple(free)], payloads)


def send_part(peer: Peer, request: int, part: list[Any]) -> None:
    """Send one slice of a long answer."""
    peer.number += 1
    deliver(peer, [REPLIES, peer.number, peer.told, peer.told_bytes, [[request, PART, part]], ()], [])


def deliver(peer: Peer, header: list[Any], payloads: list[Any]) -> None:
    """Send REPLIES; keep them for a session that may have to ask for them again."""
    try:
        first = encode(header)
    except MetadataError:  # one answer cannot travel: nobody shall miss another for it
        header[4] = [encodable(answer) for answer in header[4]]
        first = encode(header)
    frames = [first, *payloads]
    if peer.resumable:
        peer.unacknowledged.append((peer.number, frames))
        peer.owed += len(first)
    if peer.state is State.OPEN:
        send(peer, frames)


def encodable(answer: list[Any]) -> list[Any]:
    """The answer, or the error that it cannot be sent."""
    try:
        encode(answer)
    except MetadataError as error:
        return [answer[0], ERROR, encode_error(error)]
    return answer


def acknowledge(peer: Peer, number: int) -> None:
    """It has received every REPLIES up to that one."""
    while peer.unacknowledged and peer.unacknowledged[0][0] <= number:
        peer.owed -= len(peer.unacknowledged.popleft()[1][0])


def encode_answer(peer: Peer, answer: Answer, payloads: list[Any]) -> list[Any]:
    """One answer as it travels."""
    request, value, error = answer
    if error is not None:
        return [request, ERROR, encode_error(error)]
    if isinstance(value, np.ndarray):
        return [request, ARRAY, encode_array(peer, value, payloads)]
    if type(value) is list and value and all(isinstance(one, np.ndarray) for one in value):
        return [request, ARRAYS, [encode_array(peer, array, payloads) for array in value]]
    return [request, VALUE, value]


def encode_array(peer: Peer, array: NDArray[Any], payloads: list[Any]) -> list[Any]:
    """An array as it travels: small ones in the header, shared ones as a place, the others as a frame of their own."""
    name, shape = name_of(array.dtype), array.shape
    shared = place_of(array) if peer.shared else None
    if shared is not None:
        segment, offset = shared
        if segment.fd >= 0 and segment.owner in {0, peer.credentials.pid}:  # else its owner could still write to it
            return [name, shape, strides_of(array), (segment.number, segment.fd, segment.size, offset)]
    if array.nbytes <= INLINE_ARRAY:
        return [name, shape, None, array.tobytes()]
    packed = np.ascontiguousarray(array)
    payloads.append(owed_frame(peer, packed))
    return [name, shape, None, len(payloads) - 1]


def owed_frame(peer: Peer, array: NDArray[Any]) -> NDArray[Any]:
    """The array as a zero-copy frame; the peer owes for it until libzmq lets go of it, which may be on any thread."""
    frame = array.reshape(-1).view(np.uint8)
    peer.owed += frame.nbytes
    weakref.finalize(frame, peer.settled.append, frame.nbytes).atexit = False
    return frame
