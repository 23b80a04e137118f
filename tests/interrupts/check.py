"""Strikes a program at a checkpoint, and checks the exception, the session, the handles and the process afterwards."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import getsignal
from threading import get_ident
from time import monotonic, sleep
from types import FrameType
from typing import Any, Final

from tensord.client.session.session import Session
from tensord.interpreter.concurrency.interrupts import SHIELD
from tensord.interpreter.concurrency.signal_handlers import SIGNALS, Cover
from tensord.vm.serial.machine import SerialMachine

from .programs import World
from .strikes import Checkpoint, Striker, Struck, by_signal, by_throw, by_two_signals, raise_struck

STRIKES: Final[dict[str, Callable[[FrameType], None]]] = {
    "SIGINT": by_signal(signal.SIGINT),
    "SIGALRM": by_signal(signal.SIGALRM),
    "SIGUSR1": by_signal(signal.SIGUSR1),
    "two signals": by_two_signals,
    "throw": by_throw,
}
TAKEN: Final = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)
SOON: Final = 10.0  # seconds, at the most, until the exception arrives
Program = Callable[[World], None]


@contextmanager
def handlers_that_raise() -> Iterator[None]:
    """Install handlers that raise, as notebooks, timeouts and schedulers do."""
    before = {number: signal.signal(number, raise_struck) for number in TAKEN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def checkpoints(program: Program, world: World) -> list[Checkpoint]:
    """The checkpoints that the program passes, each as often as it does."""
    striker = Striker(None, nothing)
    with striker.tracing():
        program(world)
    return [Checkpoint(code, offset, n) for (code, offset), times in striker.passed.items() for n in range(times)]


def nothing(_frame: FrameType) -> None:
    """No strike."""


def strike(program: Program, world: World, checkpoint: Checkpoint, how: str) -> str:
    """Strike the program there; the faults afterwards, or "". "passed by" if the program did not come there."""
    striker = Striker(checkpoint, STRIKES[how])
    before = handlers()
    try:
        raised = is_struck(program, world, striker)
        if striker.struck:
            await_arrival(raised)
    except Struck:
        raised = True
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    if not striker.struck:
        return "passed by"
    if not raised:
        return "the exception did not arrive"
    if handlers() != before:
        return "the handlers of signals are not those from before"
    return left(world)


def await_arrival(raised: bool) -> None:
    """Look for exceptions without calls of the package: one that has struck a finaliser is thrown again, soon."""
    until = monotonic() + (0.0 if raised else SOON)
    repr(until)  # where the interpreter looks for a second signal at the latest
    while monotonic() < until:
        sleep(0.001)


def is_struck(program: Program, world: World, striker: Striker) -> bool:
    """Run the program, and strike it; has the exception come out of it?"""
    try:
        with striker.tracing():
            program(world)
    except Struck as error:
        error.__traceback__ = None
        return True
    return False


def handlers() -> list[Any]:
    """The handlers of all signals. Another test may have left a block open, which keeps covers on."""
    found = [getsignal(number) for number in SIGNALS]
    return [handler.handler if isinstance(handler, Cover) else handler for handler in found]


def left(world: World) -> str:
    """The faults of the session."""
    me = get_ident()
    if me in SHIELD.inside or me in SHIELD.asleep or SHIELD.noted or me in SHIELD.thrown:
        return f"a region is not left: {SHIELD.inside} {SHIELD.asleep} {SHIELD.noted} {SHIELD.thrown}"
    try:
        world.session.restart()
        for name in world.session.names():
            world.session.unpublish(name)
        world.check()
        gc.collect()
        world.session.sync(timeout=10)
        found = held(world.session)
        problems = list(kept(world.session))
    except BaseException as error:
        return f"afterwards {type(error).__name__}: {error}"
    if found != world.tensors():
        problems.append(f"{found} tensors for {world.tensors()} handles")
    if unanswered(world.session):
        problems.append("a request is open")
    if world.session._core.outbox.depth:
        problems.append("an atomic block is open")
    lock: Any = world.session._core.outbox.lock
    if lock._is_owned():
        problems.append("the outbox is locked")
    return ", ".join(problems)


def kept(session: Session) -> Iterator[str]:
    """Leftovers of other sessions, and of uploads."""
    until = monotonic() + SOON
    while (others := sessions(session) - 1) and monotonic() < until:
        sleep(0.01)
    if others:
        yield f"{others} sessions that were dropped are open"
    uploads = getattr(session._core.transport, "_uploads", None)
    if uploads is None:
        return
    uploads.freed(())  # frees dropped arrays
    if len(uploads._lent) > 1:  # the world's host array
        yield f"{len(uploads._lent) - 1} segments are lent to nobody"


def sessions(session: Session) -> int:
    """The number of the machine's sessions."""
    machine = getattr(session._core.transport, "machine", None)
    if isinstance(machine, SerialMachine):  # its server does not have this question
        return len(machine.engine.sessions)
    return len(session._core.answers.query("sessions"))


def held(session: Session) -> int:
    """The number of tensors that the machine holds for the session."""
    return int(session.stats()["session"]["tensors"])


def unanswered(session: Session) -> Any:
    """Requests that wait for an answer."""
    transport = session._core.transport
    incoming = getattr(transport, "_incoming", None)
    return transport._replies.open if incoming is None else incoming.replies
