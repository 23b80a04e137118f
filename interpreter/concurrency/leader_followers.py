"""Leader and followers: one of the waiting threads does the work that ends the waits.

Theory of operation. A thread waits for something to be done (`Awaited`, such as a reply), for which there is work to
do: completions are retired by driving the engine, answers are read from a socket. The first thread that waits becomes
the *leader*: it sleeps where the work arrives, and does the work (`Duty.serve`) until its own wait is over. A thread
that waits while another one leads is a *follower*: it sleeps on a bell of its own. A thread that has done work, as the
leader or not, calls `wake`, which wakes each thread whose wait is over. A leader whose wait is over hands the role on:
it releases the role and wakes followers until it has woken one whose wait is not over; that one leads next. If no
follower is left, the duty is told (`Duty.unattended`), and may wake a background thread.

Guarantees.

- No thread sleeps once its wait is over, as long as each change that ends a wait is followed by `wake`. A thread is
  listed before its last check whether its wait is over, so one of the two sees the other.
- No thread waits without a leader. A follower checks the role after it was listed; a leader releases the role before it
  reads the list. A follower that is woken to lead, and leaves instead (timeout, Ctrl-C), hands the role on, too.
- A wait ends when the awaited thing is done, at its timeout, on Ctrl-C (in the main thread), or with ConnectionLost
  when `close` is called.
- Ctrl-C is raised in the sleeps and nowhere else (see `interrupts`), so the role is never left taken.
- A wait checks for signals at least twice a second. A signal that arrives between Python's check for signals and the
  sleep in the kernel, or at another thread, interrupts no sleep; its handler would have to wait for the work.
- A signal handler on the leading thread may wait: it leads on top of the wait below, which checks again afterwards.

Threads. The leader owns the state that `Duty.serve` touches, for as long as the duty says; the class owns no thread.
Any thread may touch `role` and the list of followers. `closed` only ever becomes true.

Rejected. A dedicated thread for the work: a hand-off and back costs 12 us, and 10 ms beside a busy thread. A condition
variable: it wakes every thread for each answer. Promoting a follower before the work is done, as in the pattern: the
work here is short, and only one thread at a time may do it. Giving the role back after each round of work: every answer
would wake a second thread.

Source: Schmidt et al., "Leader/Followers", Pattern-Oriented Software Architecture, volume 2, 2000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from ..errors import ConnectionLost
from .bell import Bell
from .interrupts import SHIELD

SIGNAL_CHECK_INTERVAL = 0.5  # seconds after which a waiting thread checks for signals


class Awaited(Protocol):
    """The object of a wait. Any thread may check whether it is done."""

    @property
    def done(self) -> bool: ...


class Until:
    """A predicate, as an object of a wait."""

    __slots__ = ("_predicate",)

    def __init__(self, predicate: Callable[[], bool]) -> None:
        self._predicate = predicate

    @property
    def done(self) -> bool:
        """Return whether the predicate holds."""
        return self._predicate()


class Duty(Protocol):
    """The work of the leader, and its sleep when there is none."""

    def ring(self) -> None:
        """Wake the leader, or the next one."""

    def serve(self, awaited: Awaited, timeout: float | None) -> None:
        """Sleep until there is work, until rung, or for `timeout` seconds; then do the work.

        Checks before the sleep whether the leader's wait is over or all waits are closed, and then returns at once.
        Sleeps interruptibly (`SHIELD.sleep`). May return early.
        """

    def unattended(self) -> None:
        """Called when the leader has left and no follower takes over. Work may have arrived since the last round."""


class Follower:
    """A thread that sleeps while another one leads."""

    __slots__ = ("awaited", "bell")

    def __init__(self, awaited: Awaited) -> None:
        self.awaited = awaited
        self.bell = Bell()


class LeaderFollowers:
    """The threads that wait for one duty. `over`: the message of ConnectionLost in waits that `close` ends."""

    def __init__(self, duty: Duty, over: str) -> None:
        self._duty = duty
        self._over = over
        self.role = threading.Lock()  # held by the leader
        self.leader: tuple[Awaited, int] | None = None  # the leader's wait, and its ident
        self.followers: list[Follower] = []
        self.closed = False

    def wait(self, awaited: Awaited, timeout: float | None = None) -> bool:
        """Wait until something is done, and lead if no other thread does; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        own_wait = (awaited, threading.get_ident())
        with SHIELD:
            below = self.leader
            nested = leads = below is not None and below[1] == own_wait[1]  # in a signal handler
            try:
                while not awaited.done:
                    if self.closed:
                        raise ConnectionLost(self._over)
                    rest = SIGNAL_CHECK_INTERVAL
                    if deadline is not None:
                        rest = min(deadline - time.monotonic(), SIGNAL_CHECK_INTERVAL)
                        if rest <= 0:
                            return False
                    if leads or self.role.acquire(blocking=False):
                        leads = True
                        self.leader = own_wait  # before `serve` checks: a thread that ends the wait later rings
                        self._duty.serve(awaited, rest)
                    else:
                        self._follow(awaited, rest)
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
        """Do one round of work without a wait; False, and no work, if another thread leads."""
        if not self.role.acquire(blocking=False):
            return False
        try:
            self._duty.serve(NEVER, timeout)
        finally:
            self.role.release()
            self._hand_on()
        return True

    def leads(self) -> bool:
        """Return whether this thread leads. If so, the caller is a signal handler, or part of the work."""
        leader = self.leader
        return leader is not None and leader[1] == threading.get_ident()

    def wake(self) -> None:
        """Wake the threads whose wait is over. Called after work was done.

        A leader that did the work checks its own wait, unless it sleeps below the signal handler that did it.
        """
        leader = self.leader
        looks = leader is None or (leader[1] == threading.get_ident() and not SHIELD.sleeping)
        if leader is not None and not looks and (self.closed or leader[0].done):
            self._duty.ring()
        for follower in list(self.followers):
            if self.closed or follower.awaited.done:
                follower.bell.ring()

    def close(self, over: str | None = None) -> None:
        """End every wait, now and later; `over`: the reason, if it is not the usual one."""
        self._over = over or self._over
        self.closed = True
        self._duty.ring()
        for follower in list(self.followers):
            follower.bell.ring()

    def _follow(self, awaited: Awaited, timeout: float) -> None:
        follower = Follower(awaited)
        self.followers.append(follower)
        try:
            if self.role.locked() and not (awaited.done or self.closed):
                SHIELD.sleep(follower.bell, timeout)
        finally:
            self.followers.remove(follower)

    def _hand_on(self) -> None:
        """Make a follower lead, if no thread does, since the caller leaves."""
        if self.role.locked():
            return
        if self.followers:
            for follower in list(self.followers):
                follower.bell.ring()
                if not follower.awaited.done:
                    return
        self._duty.unattended()


NEVER: Final = Until(lambda: False)  # of a round of work that no thread waits for
