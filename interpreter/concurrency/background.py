"""The background thread: it looks after what no other thread does in time.

Theory of operation. Both sides have work that no caller waits for: messages that were issued and not sent, handles that
were dropped, kernels that hang, a connection that is lost. So a background thread sleeps on a bell and looks around
each time it wakes. It is *awake* while it finds something unsent, and for some rounds after that: it sleeps for moments
then, and adding a message costs its callers nothing. After those rounds it dozes, for as long as `pause` says, and the
next message has to rouse it.

Guarantees. What is unsent when `rouse` is called is looked at within one pause. An unexpected exception is handed to
`failed`, and the thread goes on, after a doze, so that a fault that repeats does not take a core. After `stop` the
thread ends with its present round.

Rejected: a timer per message (a thread wake-up per op); a thread for all sessions of a process (one that is stuck in a
callback would hold up the others).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .bell import Bell

AWAKE_ROUNDS = 50  # rounds without unsent work until the thread dozes
DOZE = 0.1  # seconds between looks for dropped handles, which ring no bell


class Background:
    """A thread that looks around now and then.

    `look_around` is called each time and tells whether there was anything unsent; `pause` tells for how long to sleep
    before that, given whether the thread is awake: None is until rung. `sleep` sleeps for so long, or does something
    that takes as long: unless given, it sleeps on the bell.
    """

    __slots__ = (
        "_failed",
        "_look_around",
        "_pause",
        "_quiet",
        "_sleep",
        "awake",
        "bell",
        "dozing",
        "stopped",
        "thread",
    )

    def __init__(
        self,
        name: str,
        *,
        look_around: Callable[[], bool],
        pause: Callable[[bool], float | None],
        failed: Callable[[Exception], None],
        sleep: Callable[[float | None], object] | None = None,
    ) -> None:
        self.bell = Bell()
        self.awake = False
        self.dozing = False  # it sleeps until it is rung, or is about to: set before it looks for a reason not to
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
        """Have it look around now. Called anywhere, in a signal handler, too."""
        self.bell.ring()

    def rouse(self) -> None:
        """Something is unsent: have it look in a while. Cheap while it is awake."""
        if not self.awake:
            self._quiet, self.awake = 0, True
            self.bell.ring()

    def stop(self) -> None:
        """Have the thread end. Does not wait for that."""
        self.stopped = True
        self.bell.ring()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, for so many seconds. Returns at once on the thread itself."""
        if self.thread is not threading.current_thread():
            self.thread.join(timeout)

    def _run(self) -> None:
        while not self.stopped:
            try:
                self._round()
            except Exception as error:
                self._failed(error)
                self.bell.sleep(DOZE)

    def _round(self) -> None:
        self.dozing = not self.awake  # before it looks for a reason to wake: one that comes later rings
        timeout = self._pause(self.awake)
        self.dozing = timeout is None
        self._sleep(timeout)
        self.dozing = False
        if self.stopped:
            return
        if self._quiet >= AWAKE_ROUNDS:
            self.awake = False  # before it looks: a message that is added later rouses it
        if self._look_around():
            self._quiet, self.awake = 0, True
        else:
            self._quiet += 1
