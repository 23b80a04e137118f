"""The recorders of a machine: the sessions of each recorder, and the start and the end of each recording.

A recording does not begin with its request, because sessions may be in the middle of a batch; it begins between the
next two batches. The client's later messages follow the answer to its request, so all of them are recorded.

The driving thread calls all methods. Other threads may append to `pending`, the engine's queue, while `begin`
changes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.recordings.entries import MESSAGE, NOTE
from ..model.session import VmSession
from .state import state_of
from .tap import Tap
from .tapped import Tapped

MAX_RECORDERS: Final = 4  # recorders of the machine's own user; other users together may have as many
MAX_READS: Final = 64  # the most tensors from before the recording that are read in one go
READ_BYTES: Final = 1 << 23  # the most bytes of such tensors that are read in one go
QUEUE_BYTES: Final = 1 << 30  # the most bytes of values that may wait for a recorder
OTHERS_QUEUE_BYTES: Final = 1 << 26  # the same for a recorder of another user

Batches = deque[tuple[VmSession, Iterator[Sequence[Any]]]]


class RequestedRecording(NamedTuple):
    """A requested recording. `sessions`: ids, empty for all sessions."""

    tap: Tap
    sessions: frozenset[int]


class Recorders:
    """The recorders of a machine.

    `take`: admits messages for a session. `taps`: by the session that records. `requested`: recordings that begin
    between the next two batches. `tapped`: all recorded sessions.
    """

    def __init__(self, take: Callable[[VmSession, Iterable[Sequence[Any]]], Any]) -> None:
        self.take = take
        self.taps: dict[VmSession, Tap] = {}
        self.requested: deque[RequestedRecording] = deque()
        self.tapped: list[Tapped] = []

    def request(self, recorder: VmSession, tap: Tap, sessions: frozenset[int]) -> None:
        """Request a recording, which begins between the next two batches.

        MetadataError if there are too many recorders, or if this session is already recording.
        """
        if recorder in self.taps:
            raise MetadataError("this session is already recording: end that recording first")
        # `may_store` tells the machine's own user from others.
        if sum(one.files.may_store == recorder.files.may_store for one in self.taps) >= MAX_RECORDERS:
            raise MetadataError(f"{MAX_RECORDERS} recorders are already running: end one of them first")
        self.taps[recorder] = tap
        self.requested.append(RequestedRecording(tap, sessions))

    def begin(self, sessions: Mapping[int, VmSession], pending: Batches) -> None:
        """Begin the requested recordings. Called between two batches."""
        while self.requested:
            tap, chosen = self.requested.popleft()
            for session in [one for one in sessions.values() if not chosen or one.id in chosen]:
                self.join(tap, session)
            for index, (session, rest) in enumerate(list(pending)):  # another thread may append meanwhile
                if session.tapped is not None and session.tapped.tap is tap:
                    pending[index] = (session, session.tapped.through(rest))
            self.read_waiting(tap)

    def join(self, tap: Tap, session: VmSession) -> None:
        """Record a session from now on, beginning with its current state."""
        if session in self.taps and (tap.everybody or self.taps[session] is not tap):
            return  # recorders are not recorded, except one that names itself
        if session.tapped is not None:
            tap.put(NOTE, f"session {session.id} is not recorded here: another recorder records it already")
            return
        if session.in_run():
            tap.put(NOTE, f"session {session.id} is not recorded: it was in the middle of a run")
            return
        tapped = Tapped(session, tap)
        self.tapped.append(tapped)
        for message in state_of(session):
            if isinstance(message, str):
                tap.put(NOTE, message)
            else:
                tap.put(MESSAGE, session.id, tap.clock(), message, ())
        tapped.waiting += sorted(session.tensors)

    def read_waiting(self, tap: Tap) -> None:
        """Read some tensors that are older than the recording, as far as there is room, of sessions that are neither
        in a run nor flooded.

        The rest is read when the recorder asks for more, so that other sessions are not delayed.
        """
        reads, until = 0, tap.requested_bytes + READ_BYTES
        for tapped in [one for one in self.tapped if one.tap is tap]:
            session = tapped.session
            while not (session.in_run() or session.flooded) and reads < MAX_READS and tap.requested_bytes < until:
                read = tapped.next_read(forced=False)
                if read is None:
                    break
                reads += 1
                self.take(session, (read,))

    def session_opened(self, session: VmSession) -> None:
        """Record a new session, if a recorder wants all sessions."""
        for tap in self.taps.values():
            if tap.everybody and session.tapped is None:
                self.tapped.append(Tapped(session, tap))

    def session_closed(self, session: VmSession) -> None:
        """After a session has ended: end the recording of it, and the one that it was making."""
        if session.tapped is not None:
            session.tapped.ended()
            self.tapped.remove(session.tapped)
            session.tapped = None
        self.end(session)

    def tap_of(self, recorder: VmSession) -> Tap:
        tap = self.taps.get(recorder)
        if tap is None:
            raise ProtocolError("this session is not recording: start a recording first")
        return tap

    def drain(self, recorder: VmSession) -> Iterator[list[bytes]]:
        """The recorded entries that the recorder has not fetched yet."""
        tap = self.tap_of(recorder)
        self.read_waiting(tap)
        return tap.drain()

    def end(self, recorder: VmSession) -> Iterator[list[bytes]]:
        """End the recording that a session makes. Return the entries that it has not fetched."""
        tap = self.taps.pop(recorder, None)
        if tap is None:
            return iter(())
        tap.everybody = False
        for tapped in [one for one in self.tapped if one.tap is tap]:
            self.tapped.remove(tapped)
            tapped.leave()
        tap.over = tap.over or "ended"
        return tap.drain()

    def unread(self, recorder: VmSession) -> int:
        """The number of values from before the recording that are still to be read for a recorder."""
        tap = self.tap_of(recorder)
        return sum(tapped.unread() for tapped in self.tapped if tapped.tap is tap)
