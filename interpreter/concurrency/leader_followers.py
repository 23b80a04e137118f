"""Leader and followers: of the threads that wait, one does the work that ends the waits.

Theory of operation. A thread waits until a predicate holds, and work has to be done before it can hold: completions are
retired by driving the engine, answers are read from a socket. The first thread that waits takes the role of the
*leader*: it sleeps where the work arrives, and does the work (`Duty.serve`) until its own wait is over. A thread that
waits while another one leads is a *follower*: it sleeps on a bell of its own. A thread that has done work, as the
leader or not, calls `wake`, which wakes each thread whose predicate holds now. A leader whose wait is over hands the
role on: it releases the role and wakes followers until it has woken one whose wait is not over; that one leads next.
Where no follower is left, the duty is told (`Duty.unattended`), and may wake a background thread.

Guarantees.

- No thread sleeps while its predicate holds, as long as each change that makes it true is followed by `wake`. A thread
  is listed before it looks at its predicate for the last time, so one of the two sees the other.
- No thread waits without a leader. A follower looks at the role after it was listed; a leader releases the role before
  it looks at the list. A follower that was woken to lead, and leaves instead (its time is over, Ctrl-C), hands on, too.
- A wait ends when its predicate holds, when its time is over, when Ctrl-C comes (in the main thread), or when `close`
  is called, with ConnectionLost.
- Ctrl-C comes in the sleeps and nowhere else (see `interrupts`), so the role is never left taken.
- A signal handler on the thread that leads may wait: it leads on top of the wait below, which looks again afterwards.

Threads. The leader owns what `Duty.serve` touches for as long as it says; the class itself owns no thread. `role` and
the list of followers are touched by any thread. `closed` only ever becomes true.

Rejected. A thread of its own for the work: a hand-off and back costs 12 us, and 10 ms beside a busy thread. A condition
variable: it wakes every thread for each answer. Promoting a follower before the work is done, as the pattern has it:
the work here is short, and one thread at a time may do it anyway. Giving the role back after each round of work: every
answer would wake a second thread.

Source: Schmidt et al., "Leader/Followers", Pattern-Oriented Software Architecture, volume 2, 2000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..errors import ConnectionLost
from .bell import Bell
from .interrupts import SHIELD

Predicate = Callable[[], bool]


class Duty(Protocol):
    """What the leader does, and where it sleeps."""

    def ring(self) -> None:
        """Wake the leader, or the next one."""

    def serve(self, predicate: Predicate, timeout: float | None) -> None:
        """Sleep until there is work, until rung, or for so many seconds; then do the work.

        Looks at the predicate, and whether the waits are closed, before it sleeps, and returns at once if so. Sleeps
        inside of `SHIELD.exposed`. May return early.
        """

    def unattended(self) -> None:
        """The leader has left, and no follower takes over. Work may have arrived since the last round."""


class Follower:
    """A thread that sleeps while another one leads."""

    __slots__ = ("bell", "predicate")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.bell = Bell()


class LeaderFollowers:
    """The threads that wait for one duty. `over`: what ConnectionLost says in waits that `close` has ended."""

    __slots__ = ("_duty", "_over", "closed", "followers", "leader", "role")

    def __init__(self, duty: Duty, over: str) -> None:
        self._duty = duty
        self._over = over
        self.role = threading.Lock()  # held by the leader
        self.leader: tuple[Predicate, int] | None = None  # what a waiting thread that leads waits for, and its ident
        self.followers: list[Follower] = []
        self.closed = False

    def wait(self, predicate: Predicate, timeout: float | None = None) -> bool:
        """Wait until the predicate holds, and lead if no other thread does; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        mine = (predicate, threading.get_ident())
        with SHIELD:
            below = self.leader
            nested = leads = below is not None and below[1] == mine[1]  # in a signal handler
            try:
                while not predicate():
                    if self.closed:
                        raise ConnectionLost(self._over)
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        return False
                    if leads or self.role.acquire(blocking=False):
                        leads = True
                        self.leader = mine  # before it looks: a thread that makes the predicate true later rings
                        self._duty.serve(predicate, rest)
                    else:
                        self._follow(predicate, rest)
                return True
            finally:
                if nested:
                    self.leader = below
                    self._duty.ring()  # the wait below may be over
                else:
                    if leads:
                        self.leader = None
                        self.role.release()
                    self._hand_on()

    def serve_once(self, timeout: float | None) -> bool:
        """Do one round of work for no wait of its own; False, and no work, if another thread leads."""
        if not self.role.acquire(blocking=False):
            return False
        try:
            self._duty.serve(never, timeout)
        finally:
            self.role.release()
            self._hand_on()
        return True

    def leads(self) -> bool:
        """Does this thread lead? Then its caller is a signal handler, or part of the work."""
        leader = self.leader
        return leader is not None and leader[1] == threading.get_ident()

    def wake(self) -> None:
        """Wake the threads whose wait is over. Called after work was done.

        A leader that did the work looks for itself, but for one that sleeps below a signal handler that did the work.
        """
        leader = self.leader
        looks = leader is None or (leader[1] == threading.get_ident() and not SHIELD.sleeping)
        if leader is not None and not looks and (self.closed or leader[0]()):
            self._duty.ring()
        for follower in list(self.followers):
            if self.closed or follower.predicate():
                follower.bell.ring()

    def close(self) -> None:
        """End every wait, now and later."""
        self.closed = True
        self._duty.ring()
        for follower in list(self.followers):
            follower.bell.ring()

    def _follow(self, predicate: Predicate, timeout: float | None) -> None:
        follower = Follower(predicate)
        self.followers.append(follower)
        try:
            if self.role.locked() and not (predicate() or self.closed):
                with SHIELD.exposed:
                    follower.bell.sleep(timeout)
        finally:
            self.followers.remove(follower)

    def _hand_on(self) -> None:
        """The caller leaves: a follower has to lead, if no thread does."""
        if self.role.locked():
            return
        for follower in list(self.followers):
            follower.bell.ring()
            if not follower.predicate():
                return
        self._duty.unattended()


def never() -> bool:
    """The predicate of a round of work that no thread waits for."""
    return False
