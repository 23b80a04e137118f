"""From batches of messages to frames: objects of this process are replaced by values that can be sent.

An upload's array becomes a position; a side effect's callback stays here and is called when the values arrive.

A daemon ends the session of a client that leaves too much unfinished. Ops wait for credit; the questions of an event
loop do not, since each has its position in program order. So batches beyond `MAX_WINDOWS` windows stay here, and are
sent in order as the daemon progresses.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import KernelError, MetadataError, TensordError
from ...interpreter.wire.arrays import name_of
from ...interpreter.wire.forms import name_own
from ...interpreter.wire.frames import BATCH, INLINE_ARRAY, MAPPED_ARRAY, RETURN, encode_error
from ...interpreter.wire.host_calls import LABEL
from ...interpreter.wire.locations import line_of
from ...interpreter.wire.message_kinds import ATOMIC, EFFECT, FETCH, LOCATION, RUN, UPLOAD
from ...interpreter.wire.messages import Atomic, Effect, Fetch, Location, Message, Upload, encode_message, with_payload
from ...interpreter.wire.program_messages import Run
from ...interpreter.wire.segments import MemorySegment, descriptors_left
from .link import DealerSocket
from .segments import UploadSegments

# Kinds whose messages hold objects of this process, or facts that are needed here.
REPLACED_KINDS = frozenset({UPLOAD, EFFECT, FETCH, LOCATION, ATOMIC, RUN})
EXPORT_POSITION = 1 + Fetch._fields.index("export")  # its position in a FETCH; most have none, and are sent as they are
MAX_WINDOWS = 2  # windows of messages that may be unfinished when a batch is sent
INLINE_IN_GROUP = 128  # bytes up to which an upload in a group is sent in the header, since a group cannot be split


class SideEffect(NamedTuple):
    """A side effect that was sent: its callback, its chain, the request that waits for the chain, and the user's line.

    `repeats`: it may happen any number of times; its last answer only says that it is over.
    """

    callback: Callable[..., Any]
    chain: int
    request: int
    location: str | None
    repeats: bool = False


class Result(NamedTuple):
    """An array that a host call returns. `place`: its bytes, 0 for a frame, or (descriptor, size) of a memory file;
    `owner`: the object that keeps a frame or a file alive."""

    dtype: str
    shape: tuple[int, ...]
    place: Any
    owner: Any


class AtLine(NamedTuple):
    """A callback of a program's step, whose errors name the step's line. `repeats`: it is in a control flow block."""

    callback: Callable[..., Any]
    line: str | None
    repeats: bool = False

    def __call__(self, *values: Any) -> Any:
        return self.callback(*values)


class OutgoingBatches:
    """Sends batches. Guarded by the transport's lock.

    `sent` counts messages, `sent_bytes` bytes of uploads; `batches` of a resumable session are kept until the daemon
    has consumed them: (number, messages sent up to its end, frames). `unsent`: the batches that are held back for now.
    """

    def __init__(self, link: DealerSocket, new_request: Callable[[], int], uploads: UploadSegments | None) -> None:
        self._link = link
        settings = link.welcome.settings
        self._header, self._frames, self._batch = (int(settings[name]) for name in ("header", "frames", "batch"))
        self._frame = int(settings["frame"])
        self._most = MAX_WINDOWS * int(settings["window"])
        self._new_request = new_request
        self._uploads = uploads
        self._resumable = link.welcome.token is not None
        self.away = False  # the connection is lost, and may come back
        self.number = 0
        self.sent = 0
        self.sent_bytes = 0
        self.done = 0  # messages that the daemon has consumed
        self._out = 0  # messages that were sent, or would have been if the connection were not lost
        self.unsent: deque[tuple[int, list[Any]]] = deque()
        self.batches: deque[tuple[int, int, list[Any]]] = deque()
        self.effects: dict[int, SideEffect] = {}
        self.returns: dict[int, tuple[list[Any], Sequence[Result]]] = {}  # of host calls that are not over
        self._locations: dict[int, str] = {}  # by number, for errors of callbacks, which name the user's line
        self.exports: dict[int, int] = {}  # request of a fetch -> id of the export

    def send(self, messages: Sequence[Message]) -> None:
        """Send a batch. MetadataError, and nothing is sent, if a value in it cannot be sent."""
        uploads: list[Any] = []
        payloads: list[Any] = []
        ready = list(messages)
        for position, message in enumerate(messages):
            kind = message[0]
            if kind in REPLACED_KINDS and (kind != FETCH or message[EXPORT_POSITION]):
                ready[position] = self._replace(message, position, -1, uploads, payloads)
        self._send(ready, uploads, payloads)

    def _replace(self, message: Message, position: int, inner: int, uploads: list[Any], payloads: list[Any]) -> Message:
        named = name_own(message)
        if type(named) is Fetch:
            if named.export:
                self.exports[named.request] = named.export
        elif type(named) is Upload:
            place = self._pack(named.payload, payloads, INLINE_IN_GROUP if inner >= 0 else INLINE_ARRAY)
            uploads.append([position, inner, place])
            self.sent_bytes += named.payload.nbytes
            return with_payload(message, None)
        elif type(named) is Effect:
            request = self._keep_callback(named.chain, named.callback, named.request, named.location)
            return encode_message(named._replace(callback=None, request=request))
        elif type(named) is Run:
            effects = [
                (chain, None, self._keep_callback(chain, callback, request, named.location))
                for chain, callback, request in named.effects
            ]
            return encode_message(named._replace(effects=effects)) if effects else message
        elif type(named) is Location:
            self._locations[named.number] = named.text
        elif type(named) is Atomic:
            group = [self._replace(one, position, i, uploads, payloads) for i, one in enumerate(named.messages)]
            return encode_message(Atomic(group))
        return message

    def _pack(self, array: np.ndarray[Any, Any], payloads: list[Any], inline: int) -> Any:
        if self._uploads is not None and array.nbytes >= MAPPED_ARRAY:
            place = self._uploads.in_segment(array)
            if place is not None:
                for header in self._uploads.announcements():
                    self._link.send(header)
                return place
        if array.nbytes <= inline:
            return array.tobytes()
        payloads.append(array.reshape(-1).view(np.uint8))
        return len(payloads) - 1

    def _keep_callback(self, chain: int, callback: Callable[..., None] | None, request: int, location: int) -> int:
        """Keep a side effect until its values arrive; returns the number of its request."""
        number, where = self._new_request(), self._locations.get(line_of(location))
        repeats = isinstance(callback, AtLine) and callback.repeats
        if isinstance(callback, AtLine):
            where, callback = callback.line or where, callback.callback
        self.effects[number] = SideEffect(callback or do_nothing, chain, request, where, repeats)
        return number

    def result(self, array: NDArray[Any]) -> Result:
        """The result of a host call, in memory that the daemon can read. Called without the transport's lock."""
        name, shape = name_of(array.dtype), array.shape
        if array.nbytes <= INLINE_ARRAY:
            return Result(name, shape, array.tobytes(), None)
        if self._uploads is not None and array.nbytes >= MAPPED_ARRAY and descriptors_left() > 0:
            segment = MemorySegment.create(array.nbytes, 0)
            np.ndarray(shape, array.dtype, segment)[...] = array
            return Result(name, shape, (segment.fd, segment.size), segment)
        if array.nbytes > self._frame:
            raise KernelError(f"{LABEL}: a result of {array.nbytes} bytes does not fit in a frame of {self._frame}")
        return Result(name, shape, 0, np.array(array, order="C").reshape(-1).view(np.uint8))

    def give_back(self, number: int, error: TensordError | None, results: Sequence[Result]) -> None:
        """Send the results of a host call, and keep them until the daemon says that the call is over."""
        payloads = [result.owner for result in results if type(result.place) is int]
        places = itertools.count()
        arrays = [
            (result.dtype, result.shape, next(places) if type(result.place) is int else result.place)
            for result in results
        ]
        wire = None if error is None else encode_error(error)
        frames = [self._link.encoder.encode([RETURN, number, wire, arrays]), *payloads]
        self.returns[number] = (frames, results)
        if not self.away:
            self._link.send_frames(frames)

    def _send(self, messages: list[Message], uploads: list[Any], payloads: list[Any]) -> None:
        """Send the messages as one batch, or as several if they are too many or too large."""
        try:
            frames = [self._link.encoder.encode([BATCH, self.number + 1, messages, uploads]), *payloads]
        except MetadataError:
            if len(messages) == 1:
                raise
            self._send_halves(messages, uploads, payloads)  # one of them cannot be sent, the others can
            return
        if len(frames[0]) > self._header or len(payloads) > self._frames or len(messages) > self._batch:
            self._send_halves(messages, uploads, payloads)
            return
        self.number += 1
        self.sent += len(messages)
        if self._resumable:
            self.batches.append((self.number, self.sent, frames))
        if self._out - self.done > self._most or self.unsent:
            self.unsent.append((self.sent, frames))
            return
        self._out = self.sent
        if not self.away:
            self._link.send_frames(frames)

    def _send_halves(self, messages: list[Message], uploads: list[Any], payloads: list[Any]) -> None:
        if len(messages) == 1:
            raise MetadataError(f"a message of more than {self._header} bytes: its attributes are too large")
        middle = len(messages) // 2
        failure: MetadataError | None = None
        for first, last in ((0, middle), (middle, len(messages))):
            mine = [[p - first, inner, place] for p, inner, place in uploads if first <= p < last]
            own = [payloads[place] for _, _, place in mine if isinstance(place, int)]
            for entry in mine:
                if isinstance(entry[2], int):
                    entry[2] = next(i for i, payload in enumerate(own) if payload is payloads[entry[2]])
            try:
                self._send(messages[first:last], mine, own)
            except MetadataError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def consumed(self, messages: int) -> None:
        """Drop batches that the daemon has consumed, and send those that were held back."""
        self.done = messages
        while self.batches and self.batches[0][1] <= messages:
            self.batches.popleft()
        while self.unsent and not self.away and self._out - messages <= self._most:
            self._out, frames = self.unsent.popleft()
            self._link.send_frames(frames)

    def send_again(self, received: int) -> None:
        """After a reconnect, send the batches again that the daemon has not received."""
        for number, end, frames in self.batches:
            if received < number and end <= self._out:
                self._link.send_frames(frames)
        for frames, _ in self.returns.values():
            self._link.send_frames(frames)
        self.consumed(self.done)


def do_nothing(*_values: Any) -> None:
    """The callback of an effect that only asks whether its chain is intact."""
