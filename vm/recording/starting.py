"""The recorders of a machine: the sessions of each recorder, and the start and the end of each recording.

A recording begins between two batches, after the request for it: at the time of the request, the session and others may
be in the middle of a batch. The client gets its answer before that, and everything that it sends afterwards is
recorded.
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

MOST: Final = 4  # recorders of a machine, and as many that are no sessions of its own user
READS: Final = 64  # at a time, of what was there when a recording began
PORTION: Final = 1 << 23  # bytes of their values
BOUND: Final = 1 << 30  # bytes of values that may wait for a recorder
OTHERS_BOUND: Final = 1 << 26  # for one that is no session of the machine's own user

Batches = deque[tuple[VmSession, Iterator[Sequence[Any]]]]


class Beginning(NamedTuple):
    """A recording that was asked for: of these sessions, empty for all."""

    tap: Tap
    sessions: frozenset[int]


class Recorders:
    """`taps`: by the session that records. `beginning`: recordings that begin with the next pass."""

    def __init__(self, take: Callable[[VmSession, Iterable[Sequence[Any]]], Any]) -> None:
        self.take = take
        self.taps: dict[VmSession, Tap] = {}
        self.beginning: deque[Beginning] = deque()
        self.tapped: list[Tapped] = []

    def ask(self, recorder: VmSession, tap: Tap, sessions: frozenset[int]) -> None:
        """Have a recording begin with the next pass. MetadataError if there are too many, or this session has one."""
        if recorder in self.taps:
            raise MetadataError("this session records already: end that recording first")
        if sum(one.files.may_store == recorder.files.may_store for one in self.taps) >= MOST:
            raise MetadataError(f"{MOST} recorders are at work already")
        self.taps[recorder] = tap
        self.beginning.append(Beginning(tap, sessions))

    def begin(self, sessions: Mapping[int, VmSession], pending: Batches) -> None:
        """Begin what was asked for. Called between two batches."""
        while self.beginning:
            tap, chosen = self.beginning.popleft()
            for session in [one for one in sessions.values() if not chosen or one.id in chosen]:
                self.join(tap, session)
            for place, (session, rest) in enumerate(list(pending)):  # another thread may append meanwhile
                if session.tap is not None and session.tap.tap is tap:
                    pending[place] = (session, session.tap.through(rest))
            self.read_waiting(tap)

    def join(self, tap: Tap, session: VmSession) -> None:
        """Record a session from now on, with what it has already."""
        if session in self.taps and (tap.everybody or self.taps[session] is not tap):
            return  # a recorder, which does nothing else
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
        """Read some of what sessions that do nothing had when the recording began, as far as there is room. The rest is
        read as the recorder asks for more: others are not held up."""
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
        """A session has opened."""
        for tap in self.taps.values():
            if tap.everybody and session.tap is None:
                self.tapped.append(Tapped(session, tap))

    def closed(self, session: VmSession) -> None:
        """A session has ended; so does what it records."""
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
        """What was recorded and not handed out yet."""
        tap = self.tap_of(recorder)
        self.read_waiting(tap)
        return tap.drain()

    def end(self, recorder: VmSession) -> Iterator[list[bytes]]:
        """End what a session records; the rest of it."""
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
        """How many values are still to be read for a recorder."""
        tap = self.tap_of(recorder)
        return sum(tapped.unread() for tapped in self.tapped if tapped.tap is tap)
