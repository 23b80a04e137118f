"""The states of a daemon under supervision, as a pure state machine: events and times go in, actions come out.

Rules. A daemon that ends without a request is restarted: the first time at once, then after pauses that double up to
`MAX_PAUSE`. If the daemon has served for `STEADY_SECONDS` seconds, the count of failures begins anew. After
`FAILURES_OF_A_LOOP` failures in a row the daemon is *failing*: it is still restarted, at most once in `MAX_PAUSE`
seconds, and its state is reported. A daemon that hangs is killed, and so is one that was asked to end and has not done
so in time.

The table below contains every legal step. Any other step raises `IllegalStep`, with the story of the last steps, and
changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class DaemonProcessState(StrEnum):
    """The state of the daemon's process under supervision."""

    NEW = "new"  # not started yet
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"  # refuses new sessions
    RESTARTING = "restarting"  # was asked to end, and is restarted at once
    KILLED = "killed"  # was killed, but has not been seen to end
    WAITING = "waiting"  # has ended, and is restarted after a pause
    STOPPING = "stopping"  # was asked to end for good
    STOPPED = "stopped"


class DaemonEvent(StrEnum):
    """An event of the daemon, or a request for the daemon."""

    STARTED = "started"
    READY = "ready"
    EXITED = "exited"
    HUNG = "hung"
    DUE = "due"  # the time limit of the state has passed
    EMPTIED = "emptied"  # the last session of a draining daemon has ended
    DRAIN = "drain"
    RESTART = "restart"
    STOP = "stop"


class Action(StrEnum):
    """The action when a state is entered."""

    START = "start"
    REFUSE = "refuse"  # refuse new sessions
    TERMINATE = "terminate"
    KILL = "kill"
    NOTHING = "nothing"


TRANSITIONS: Final[Mapping[tuple[DaemonProcessState, DaemonEvent], DaemonProcessState]] = MappingProxyType(
    {
        (DaemonProcessState.NEW, DaemonEvent.STARTED): DaemonProcessState.STARTING,
        (DaemonProcessState.STARTING, DaemonEvent.READY): DaemonProcessState.SERVING,
        (DaemonProcessState.STARTING, DaemonEvent.EXITED): DaemonProcessState.WAITING,
        (DaemonProcessState.STARTING, DaemonEvent.DUE): DaemonProcessState.KILLED,
        (DaemonProcessState.STARTING, DaemonEvent.RESTART): DaemonProcessState.RESTARTING,
        (DaemonProcessState.STARTING, DaemonEvent.DRAIN): DaemonProcessState.STOPPING,  # no client is connected yet
        (DaemonProcessState.STARTING, DaemonEvent.STOP): DaemonProcessState.STOPPING,
        (DaemonProcessState.SERVING, DaemonEvent.EXITED): DaemonProcessState.WAITING,
        (DaemonProcessState.SERVING, DaemonEvent.HUNG): DaemonProcessState.KILLED,
        (DaemonProcessState.SERVING, DaemonEvent.DRAIN): DaemonProcessState.DRAINING,
        (DaemonProcessState.SERVING, DaemonEvent.RESTART): DaemonProcessState.RESTARTING,
        (DaemonProcessState.SERVING, DaemonEvent.STOP): DaemonProcessState.STOPPING,
        (DaemonProcessState.DRAINING, DaemonEvent.EMPTIED): DaemonProcessState.STOPPING,
        (DaemonProcessState.DRAINING, DaemonEvent.DUE): DaemonProcessState.STOPPING,
        (DaemonProcessState.DRAINING, DaemonEvent.STOP): DaemonProcessState.STOPPING,
        (DaemonProcessState.DRAINING, DaemonEvent.EXITED): DaemonProcessState.STOPPED,
        (DaemonProcessState.DRAINING, DaemonEvent.HUNG): DaemonProcessState.STOPPING,
        (DaemonProcessState.RESTARTING, DaemonEvent.EXITED): DaemonProcessState.STARTING,
        (DaemonProcessState.RESTARTING, DaemonEvent.DUE): DaemonProcessState.KILLED,
        (DaemonProcessState.RESTARTING, DaemonEvent.STOP): DaemonProcessState.STOPPING,
        (DaemonProcessState.KILLED, DaemonEvent.EXITED): DaemonProcessState.WAITING,
        (DaemonProcessState.KILLED, DaemonEvent.STOP): DaemonProcessState.STOPPING,
        (DaemonProcessState.WAITING, DaemonEvent.DUE): DaemonProcessState.STARTING,
        (DaemonProcessState.WAITING, DaemonEvent.RESTART): DaemonProcessState.STARTING,
        (DaemonProcessState.WAITING, DaemonEvent.DRAIN): DaemonProcessState.STOPPED,
        (DaemonProcessState.WAITING, DaemonEvent.STOP): DaemonProcessState.STOPPED,
        (DaemonProcessState.STOPPING, DaemonEvent.DUE): DaemonProcessState.STOPPING,
        (DaemonProcessState.STOPPING, DaemonEvent.EXITED): DaemonProcessState.STOPPED,
    }
)

ACTIONS: Final[Mapping[DaemonProcessState, Action]] = MappingProxyType(
    {
        DaemonProcessState.STARTING: Action.START,
        DaemonProcessState.DRAINING: Action.REFUSE,
        DaemonProcessState.RESTARTING: Action.TERMINATE,
        DaemonProcessState.KILLED: Action.KILL,
        DaemonProcessState.STOPPING: Action.TERMINATE,
    }
)

FAILED: Final = frozenset(
    {
        (DaemonProcessState.STARTING, DaemonEvent.DUE),
        (DaemonProcessState.STARTING, DaemonEvent.EXITED),
        (DaemonProcessState.SERVING, DaemonEvent.EXITED),
    }
)
FIRST_PAUSE: Final = 0.5  # the first pause, in seconds: the one before the second restart in a row
MAX_PAUSE: Final = 30.0  # the longest pause
STEADY_SECONDS: Final = 60.0
FAILURES_OF_A_LOOP: Final = 3
STORY_LENGTH: Final = 12  # how many steps the story has


class Patience(NamedTuple):
    """How many seconds a daemon has to get ready, to end on request, and to wait for its sessions while it drains."""

    start: float = 60.0
    end: float = 15.0
    drain: float = 300.0


class IllegalStep(Exception):  # noqa: N818 - names what it is
    """The current state has no step for the event."""


class Lifecycle:
    """The state of one daemon. `due`: when the event DUE must be given; None for never.

    `failures`: how many starts in a row have ended without a request before they were steady.
    """

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.state = DaemonProcessState.NEW
        self.due: float | None = None
        self.failures = 0
        self.since = 0.0  # when the state was entered
        self.story: deque[str] = deque(maxlen=STORY_LENGTH)

    @property
    def failing(self) -> bool:
        """Whether the daemon has failed so often in a row that an operator should act."""
        return self.failures >= FAILURES_OF_A_LOOP

    def allows(self, event: DaemonEvent) -> bool:
        return (self.state, event) in TRANSITIONS

    def take(self, event: DaemonEvent, now: float) -> Action:
        """Take the step for an event. Returns the action to perform. IllegalStep if there is no such step."""
        before = self.state
        after = TRANSITIONS.get((before, event))
        if after is None:
            raise IllegalStep(f"{event} while {before}, after: {'; '.join(self.story) or 'nothing'}")
        self._count(before, event, now)
        action = self._action(before, after)
        self.state, self.since = after, now
        self.due = self._deadline(after, now)
        self.story.append(f"{now:.3f} {event}: {before} -> {after}")
        return action

    def drain_for(self, seconds: float) -> None:
        """Set how many seconds the next drain waits for sessions to end."""
        self.patience = self.patience._replace(drain=seconds)

    def _count(self, before: DaemonProcessState, event: DaemonEvent, now: float) -> None:
        """Count a failure; forget earlier failures if the daemon has been steady."""
        if before is DaemonProcessState.SERVING and now - self.since >= STEADY_SECONDS:
            self.failures = 0
        if event is DaemonEvent.HUNG or (before, event) in FAILED:
            self.failures += 1

    def _action(self, before: DaemonProcessState, after: DaemonProcessState) -> Action:
        if before is after:  # the daemon was asked to end, but did not
            return Action.KILL
        if (
            before in (DaemonProcessState.RESTARTING, DaemonProcessState.KILLED)
            and after is DaemonProcessState.STOPPING
        ):
            return Action.NOTHING  # the daemon was already asked to end, or killed
        return ACTIONS.get(after, Action.NOTHING)

    def _deadline(self, state: DaemonProcessState, now: float) -> float | None:
        seconds = {
            DaemonProcessState.STARTING: self.patience.start,
            DaemonProcessState.DRAINING: self.patience.drain,
            DaemonProcessState.RESTARTING: self.patience.end,
            DaemonProcessState.STOPPING: self.patience.end,
            DaemonProcessState.WAITING: self.pause(),
        }.get(state)
        return None if seconds is None else now + seconds

    def pause(self) -> float:
        """How many seconds pass before the next attempt."""
        return 0.0 if self.failures <= 1 else min(FIRST_PAUSE * 2.0 ** (self.failures - 2), MAX_PAUSE)
