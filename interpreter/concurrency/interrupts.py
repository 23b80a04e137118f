"""Regions: code of this package that no exception from outside may leave half-way.

Between any two steps of a thread Python may raise an exception from outside: one that a signal handler raises (in the
main thread: KeyboardInterrupt, a test's timeout, the end requested by a batch system), or one that another thread
throws (`PyThreadState_SetAsyncExc`: debuggers, timeouts). In the middle of a retirement it would leave edges that are
never released; between taking a batch and handing it over it would lose the batch.

Theory of operation. Such code runs in a region: `with SHIELD`. Signals and thrown exceptions are noted there, and take
effect when the thread's outermost region ends. That is soon, since kernels that run there are small. A sleep in a
region is `interruptible`: a signal that comes, or was noted before, takes effect at once, and the way out is covered
again.

- Signals. The main thread's outermost region covers the handlers that Python has (`signal_handlers`).
- Thrown exceptions pass a replacement in `ctypes.pythonapi`, which holds back those for a thread in a region
  (`thrown`).
- A user's callback that runs in a region is `calling`: a second signal of one kind interrupts a callback that does not
  return.
- A block, such as `with session.atomic()`, holds the covers until it ends (`hold`, `blocks`).

Code that is too hot for a region orders its changes such that an exception between two of them does no harm: the handle
to a result exists before its message, and releasing an undefined id has no effect. Within a region's own entry and
exit, changes have no checkpoint between them. The interpreter checks for signals and thrown exceptions at the start of
a function, at backward jumps, after calls, and nowhere else. Assignments, operators on built-in types, and entering and
leaving `with` on a C lock contain no checkpoint. An exception that is raised in a finaliser, where Python ignores it,
is thrown again by another thread once the finaliser is done (`finalisers`).

Guarantees. Noted signals take effect at the end of the region, also if an error leaves the region: that error is then
their context. A region is entered and left by one assignment, so its state is right at every checkpoint. A handler that
runs in a sleep may use sessions; its regions are nested in the one that sleeps.

Rejected. A thread of its own for everything that must not be interrupted: a hand-off and back takes 12 to 30 us, a
quarter of an op with its result, and more beside a busy thread. Covers that stay between regions: `asyncio.run` and
others check which handler is installed. A journal that completes or undoes begun work: one for each table of the
engine.

Source: trio's protection of its scheduler from KeyboardInterrupt. docs/decisions/0050 has the figures.
"""

from __future__ import annotations

import os
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import sleep
from types import FrameType, TracebackType
from typing import Any
from weakref import ref

from .bell import Bell
from .blocks import is_ending
from .finalisers import finish
from .signal_handlers import Handler, SignalHandlers
from .thrown import Door, runs_in

POLL_INTERVAL = 1e-4  # seconds


class Interruptible:
    """A context manager around a sleep in a region: signals take effect at once, also those noted before."""

    __slots__ = ("_shield",)

    def __init__(self, shield: Shield) -> None:
        self._shield = shield

    def __enter__(self) -> None:
        self._shield.uncover(get_ident())

    def __exit__(self, *_: object) -> None:
        self._shield.cover(get_ident())


class Calling:
    """A context manager around a user's callback in a region, inside a `try` that catches exceptions raised here."""

    __slots__ = ("_shield",)

    def __init__(self, shield: Shield) -> None:
        self._shield = shield

    def __enter__(self) -> None:
        self._shield.call(begins=True)

    def __exit__(self, *_: object) -> None:
        self._shield.call(begins=False)


class Shield:
    """A context manager around a region. One per process.

    `inside`: depth of the regions of each thread that is in one, and not asleep. `asleep`: depths of those that sleep,
    nested; less than 0 while a handler runs in the sleep. `thrown`: exceptions that were thrown at a thread in a
    region. `noted`: signals, with their handlers. `held`: open blocks of the main thread.
    """

    def __init__(self) -> None:
        self._main = threading.main_thread().ident or 0
        self._handlers = SignalHandlers(self._arrived)
        self._calls = False  # the main thread runs a callback in a region
        self._users = 0
        self._hook: Any = sys.unraisablehook  # the process's own
        self._installed: Any = None  # ours, in its place
        self.inside: dict[int, int] = {}
        self.asleep: dict[int, list[int]] = {}
        self.thrown: dict[int, Any] = {}
        self.noted: list[tuple[int, Handler]] = []
        self.held: dict[int, ref[Any]] = {}
        self._door = Door(self.inside, self.asleep, self.thrown)
        self.interruptible = Interruptible(self)
        self.calling = Calling(self)

    # -- regions ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        me, inside = get_ident(), self.inside
        if me in inside:
            inside[me] += 1
            return
        if me != self._main:
            inside[me] = 1
            return
        try:
            self._handlers.cover()
            inside[me] = 1
        except BaseException:
            self._handlers.uncover()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        me, inside = get_ident(), self.inside
        if inside[me] > 1:
            inside[me] -= 1
            return
        try:
            if me == self._main and me not in self.asleep and not self.held:
                self._handlers.uncover()
        finally:
            del inside[me]  # from here on exceptions are raised at once
            try:
                if self.noted and me == self._main:
                    self._deliver()
            finally:
                if me in self.thrown:
                    self._raise_thrown(me)

    def breathe(self) -> BaseException | None:
        """In a long region, at a point where nothing is half done: call the handlers of noted signals.

        Returns an exception that a handler raises, or that was thrown; the end of the region raises it in any case.
        """
        me = get_ident()
        if me in self.thrown or (self.noted and me == self._main):
            try:
                with self.interruptible:
                    pass
            except BaseException as error:
                self.thrown[me] = error
                return error
        return None

    def call(self, *, begins: bool) -> None:
        """Begin or end a user's callback in a region."""
        if get_ident() == self._main:
            self._calls = begins
            if not begins and self._main in self.inside:
                self._handlers.cover()  # the callback may have installed others

    def hold(self, block: object) -> None:
        """Begin a block: in a region, whose covers stay until the block ends, or is dropped."""
        if get_ident() == self._main:
            self.held[id(block)] = ref(block, partial(self.held.pop, id(block)))

    def let_go(self, block: object) -> None:
        """End the block: in a region, which removes the covers."""
        self.held.pop(id(block), None)

    # -- sleeps ----------------------------------------------------------------------------------------------------

    def sleep(self, bell: Bell, timeout: float | None) -> None:
        """In a region: sleep on a bell, interruptibly, for at most `timeout` seconds."""
        with self.interruptible:
            bell.sleep(timeout)

    @property
    def sleeping(self) -> bool:
        """Return whether the main thread is asleep in a region. That thread itself can ask only in a signal handler."""
        return self._main in self.asleep

    def uncover(self, me: int) -> None:
        """A thread in a region goes to sleep: noted signals take effect now."""
        inside = self.inside
        if me not in inside:
            return
        stack = self.asleep.setdefault(me, [])
        stack += [inside[me]]
        del inside[me]
        if me in self.thrown:
            self.cover(me)
        while self.noted and me == self._main:
            number, handler = self.noted[0]
            del self.noted[0]
            self._strike(number, handler, sys._getframe(2))  # noqa: SLF001 - what handlers are given

    def cover(self, me: int) -> None:
        """Cover the thread again after its sleep, unless the signal that ended the sleep has covered it already."""
        stack = self.asleep.get(me)
        if stack and stack[-1] > 0 and me not in self.inside:
            self.inside[me] = stack[-1]
            del stack[-1]
        if not stack:
            self.asleep.pop(me, None)
        if me in self.thrown:
            self._raise_thrown(me)

    # -- signals and thrown exceptions -----------------------------------------------------------------------------

    def _arrived(self, number: int, handler: Handler, frame: FrameType | None) -> None:
        """Handle a signal that has interrupted that frame of the main thread."""
        me = self._main
        if me not in self.inside and (me in self.asleep or not is_ending(frame)):
            self._strike(number, handler, frame)
        elif (number, handler) not in self.noted:
            self.noted.append((number, handler))
        elif self._calls:
            self._calls = False
            handler(number, frame)

    def _strike(self, number: int, handler: Handler, frame: FrameType | None) -> None:
        """Call a handler outside of a region, or in a sleep: its exception finds the thread covered on its way out."""
        me = self._main
        stack = self.asleep.get(me)
        if not stack or stack[-1] < 0:
            handler(number, frame)
            return
        depth = stack[-1]
        stack[-1] = -depth
        try:
            handler(number, frame)
        except BaseException:
            self.inside[me] = depth
            del stack[-1]
            if not stack:
                self.asleep.pop(me, None)
            raise
        stack[-1] = depth

    def _deliver(self) -> None:
        """Call the handlers of all noted signals, also if one of them raises."""
        while self.noted:
            number, handler = self.noted[0]
            del self.noted[0]
            try:
                handler(number, sys._getframe(2))  # noqa: SLF001
            finally:
                if self.noted:
                    self._deliver()

    def _raise_thrown(self, me: int) -> None:
        if me in self.thrown:  # still: it may have been taken back
            thrown = self.thrown[me]
            del self.thrown[me]
            raise thrown

    def _unraisable(self, previous: Callable[[Any], object], unraisable: Any) -> None:
        """Python ignores an exception: one from outside, in a finaliser of ours, is thrown again.

        `previous`: the hook that this one replaced, for all other exceptions. Each installation keeps its own, since a
        program may keep a hook that was removed.
        """
        error, traceback = unraisable.exc_value, unraisable.exc_traceback
        known, again = False, None
        try:
            with self:
                known = bool(self._users and error is not None and traceback is not None and finish(traceback.tb_frame))
        except BaseException as another:  # of a signal that came meanwhile
            again = another
        if known:
            again = again or error
        else:
            previous(unraisable)
        if again is not None:
            self._throw_again(again)

    def _throw_again(self, error: BaseException) -> None:
        """Make this thread raise the exception soon: at the end of its region, or after the hook."""
        me = get_ident()
        if me in self.inside or me in self.asleep:
            self.thrown[me] = error
            return
        try:
            start_new_thread(self._throw_outside, (me, error.with_traceback(None)))
        except RuntimeError:  # a process that is ending gets no new threads
            self.thrown[me] = error

    def _throw_outside(self, thread: int, error: BaseException) -> None:
        while runs_in(thread, Shield._unraisable.__code__):
            sleep(POLL_INTERVAL)
        self._door.throw(thread, error)

    # -- the process -----------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Count a user of regions; while there is one, thrown exceptions are intercepted."""
        self._users += 1
        if self._users == 1:
            self._installed = hook = partial(self._unraisable, sys.unraisablehook)
            self._hook, sys.unraisablehook = sys.unraisablehook, hook
        self._door.open()

    def remove(self) -> None:
        """Count one user less."""
        self._users -= 1
        if not self._users:
            if sys.unraisablehook is self._installed:
                sys.unraisablehook = self._hook
            self._door.close()

    def forked(self) -> None:
        """Reset in a forked child, where one thread is left: the main thread, perhaps in a region's callback."""
        me = self._main = get_ident()
        for threads in (self.inside, self.asleep):
            for thread in threads.keys() - {me}:
                del threads[thread]
        self.thrown.clear()
        self.noted.clear()
        if self._users and sys.unraisablehook is self._installed:
            sys.unraisablehook = self._hook
        self._users = 0
        self.held.clear()
        self._door.close()
        if not (self.inside or self.asleep):
            self._calls = False
            self._handlers.uncover()


SHIELD = Shield()
os.register_at_fork(after_in_child=SHIELD.forked)
