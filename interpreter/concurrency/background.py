"""The background thread, for work that no other thread does in time.

Theory of operation. Both sides have work that no caller waits for: unsent messages, dropped handles, hanging kernels, a
lost connection. So a background thread sleeps on a bell and checks for such work each time it wakes. The thread is
*awake* while it finds unsent messages, and for some rounds after that: its sleeps are short then, and adding a message
costs the caller nothing. After those rounds it dozes, for as long as `pause` says, and the next message has to rouse
it.

Guarantees. A message that is unsent when `rouse` is called is handled within one pause. An unexpected exception is
passed to `failed`, and the thread continues after a doze, so that a repeating fault does not occupy a core. After
`stop` the thread ends with its current round.

Rejected: a timer per message (a thread wake-up per op); a thread for all sessions of a process (a session stuck in a
callback would delay the others).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from .bell import Bell

AWAKE_ROUNDS = 50  # rounds without unsent work until the thread dozes
DOZE_INTERVAL = 0.1  # seconds between checks for dropped handles, which ring no bell


class Background:
    """A thread that checks for work now and then.

    `look_around` is called each round and returns whether anything was unsent. `pause` returns the seconds to sleep
    before that, and gets whether the thread is awake; None means until rung. `sleep` takes these seconds, and sleeps or
    does other work for as long; the default sleeps on the bell.
    """

    def __init__(
        self,
        name: str,
        *,
        look_around: Callable[[], bool],
        pause: Callable[[bool], float | None],
        failed: Callable[[BaseException], None],
        sleep: Callable[[float | None], object] | None = None,
    ) -> None:
        self.bell = Bell()
        self.awake = False
        self.dozing = False  # asleep until rung, or about to be: set before the check for a reason not to sleep
        self.stopped = False
        self._quiet = 0  # rounds since something unsent was found
        self._look_around = look_around
        self._pause = pause
        self._failed = failed
        self._sleep = sleep or self.bell.sleep
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def ring(self) -> None:
        """Make the thread check now. May be called anywhere, also in a signal handler."""
        self.bell.ring()

    def rouse(self) -> None:
        """Make the thread check for unsent messages soon. Cheap while it is awake."""
        if not self.awake:
            self._quiet, self.awake = 0, True
            self.bell.ring()

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self.stopped = True
        self.bell.ring()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, at most `timeout` seconds. Returns at once on the thread itself."""
        if self.thread is not threading.current_thread():
            self.thread.join(timeout)

    def _run(self) -> None:
        while not self.stopped:
            try:
                self._round()
            except BaseException as error:  # also a thrown exception
                with suppress(Exception):  # a report that fails must not end the thread
                    self._failed(error)
                with suppress(BaseException):  # nor must an exception that is thrown meanwhile
                    self.bell.sleep(DOZE_INTERVAL)

    def _round(self) -> None:
        self.dozing = not self.awake  # before the check for a reason to wake: a later reason rings
        timeout = self._pause(self.awake)
        self.dozing = timeout is None
        self._sleep(timeout)
        self.dozing = False
        if self.stopped:
            return
        if self._quiet >= AWAKE_ROUNDS:
            self.awake = False  # before the check: a message added later rouses the thread
        if self._look_around():
            self._quiet, self.awake = 0, True
        else:
            self._quiet += 1
