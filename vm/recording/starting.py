"""The recorders of a machine: the sessions of each recorder, and the start and the end of each recording.

A recording does not begin with its request, because sessions may then be in the middle of a batch; it begins between
the next two batches. The client has its answer by then, and everything that it sends after the answer is recorded.
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

MOST: Final = 4  # recorders of the machine's own user; other users together may have as many
READS: Final = 64  # most tensors from before the recording that are read in one go
PORTION: Final = 1 << 23  # most bytes of such tensors that are read in one go
BOUND: Final = 1 << 30  # bytes of values that may wait for a recorder
OTHERS_BOUND: Final = 1 << 26  # the same for a recorder of another user

Batches = deque[tuple[VmSession, Iterator[Sequence[Any]]]]


class Beginning(NamedTuple):
    """A requested recording. `sessions`: ids, empty for all sessions."""

    tap: Tap
    sessions: frozenset[int]


class Recorders:
    """The recorders of a machine.

    `taps`: by the session that records. `beginning`: requested recordings, which the next pass begins.
    """

    def __init__(self, take: Callable[[VmSession, Iterable[Sequence[Any]]], Any]) -> None:
        self.take = take
        self.taps: dict[VmSession, Tap] = {}
        self.beginning: deque[Beginning] = deque()
        self.tapped: list[Tapped] = []

    def ask(self, recorder: VmSession, tap: Tap, sessions: frozenset[int]) -> None:
        """Let a recording begin with the next pass.

        MetadataError if there are too many recorders, or if this session is already recording.
        """
        if recorder in self.taps:
            raise MetadataError("this session records already: end that recording first")
        if sum(one.files.may_store == recorder.files.may_store for one in self.taps) >= MOST:
            raise MetadataError(f"{MOST} recorders are at work already")
        self.taps[recorder] = tap
        self.beginning.append(Beginning(tap, sessions))

    def begin(self, sessions: Mapping[int, VmSession], pending: Batches) -> None:
        """Begin the requested recordings. Called between two batches."""
        while self.beginning:
            tap, chosen = self.beginning.popleft()
            for session in [one for one in sessions.values() if not chosen or one.id in chosen]:
                self.join(tap, session)
            for place, (session, rest) in enumerate(list(pending)):  # another thread may append meanwhile
                if session.tap is not None and session.tap.tap is tap:
                    pending[place] = (session, session.tap.through(rest))
            self.read_waiting(tap)

    def join(self, tap: Tap, session: VmSession) -> None:
        """Record a session from now on, beginning with its current state."""
        if session in self.taps and (tap.everybody or self.taps[session] is not tap):
            return  # recorders are not recorded, except one that names itself
        if session.tap is not None:
            tap.put(NOTE, f"session {session.id} is recorded by another recorder: it is left out")
            return
        if session.in_run():
            tap.put(NOTE, f"session {session.id} was in the middle of a run: it is left out")
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
        """Read some tensors from before the recording, of sessions that send no messages, as far as there is room.

        The rest is read when the recorder asks for more, so that other sessions are not delayed.
        """
        reads, until = 0, tap.asked + PORTION
        for tapped in [one for one in self.tapped if one.tap is tap]:
            session = tapped.session
            while not (session.in_run() or session.flooded) and reads < READS and tap.asked < until:
                read = tapped.next_read(forced=False)
                if read is None:
                    break
                reads += 1
                self.take(session, (read,))

    def opened(self, session: VmSession) -> None:
        """Record a new session, if a recorder wants all sessions."""
        for tap in self.taps.values():
            if tap.everybody and session.tap is None:
                self.tapped.append(Tapped(session, tap))

    def closed(self, session: VmSession) -> None:
        """After a session has ended: end the recording of it, and the one that it was making."""
        if session.tap is not None:
            session.tap.ended()
            self.tapped.remove(session.tap)
            session.tap = None
        self.end(session)

    def tap_of(self, recorder: VmSession) -> Tap:
        tap = self.taps.get(recorder)
        if tap is None:
            raise ProtocolError("this session records nothing: ask to record first")
        return tap

    def drain(self, recorder: VmSession) -> Iterator[list[bytes]]:
        """The recorded entries that the recorder has not fetched yet."""
        tap = self.tap_of(recorder)
        self.read_waiting(tap)
        return tap.drain()

    def end(self, recorder: VmSession) -> Iterator[list[bytes]]:
        """End the recording that a session makes; return the rest of its entries."""
        tap = self.taps.pop(recorder, None)
        if tap is None:
            return iter(())
        tap.everybody = False
        for tapped in [one for one in self.tapped if one.tap is tap]:
            self.tapped.remove(tapped)
            tapped.leave()
        tap.over = tap.over or "ended"
        return tap.drain()

    def reads(self, recorder: VmSession) -> int:
        """How many values from before the recording are still to be read for a recorder."""
        tap = self.tap_of(recorder)
        return sum(tapped.unread() for tapped in self.tapped if tapped.tap is tap)
