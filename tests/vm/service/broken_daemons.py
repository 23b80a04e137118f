"""Programs that are `tensord serve` with something broken or missing, for forked processes (`tests/forked.py`).

Their own parameters follow the arguments of `tensord serve`.
"""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tensord.client.cli.main import main
from tensord.interpreter.wire.monitor import read_events
from tensord.streams.cuda import kernel_cache
from tensord.vm.runtime import Runtime
from tensord.vm.service import daemon
from tensord.vm.service.connections import listener
from tensord.vm.service.connections.front import Front
from tensord.vm.service.preflight import open_runtime
from tensord.vm.service.process.signals import has_terminal

from ...gpu import fake


def fail(where: str) -> NoReturn:
    raise RuntimeError(f"made by the test in {where}")


def breaking(kind: type, name: str, when: Callable[[Any], bool], how: Callable[[Any], Any]) -> None:
    """Call `how` before each call of a method whose argument fulfils `when`."""
    method = getattr(kind, name)

    def broken(self: Any, what: Any, *rest: Any) -> Any:
        if when(what):
            how(self)
        return method(self, what, *rest)

    setattr(kind, name, broken)


def break_ring(runtime: Any) -> None:
    ring = runtime.engine.ring
    append = ring.append
    ring.append = lambda entry: fail("retire") if entry[3] == "sync" else append(entry)


def break_clock(front: Any) -> None:
    front.engine.scheduler.clock = lambda: fail("cancel")


def faulty() -> None:
    """A daemon that breaks in a `sync`, in the cancellation of a session with tensors, and in answers about itself."""
    breaking(Front, "cancel", lambda _peer: True, break_clock)
    breaking(Front, "flush_peer", has_told_of_itself, lambda _: fail("flush_peer"))
    kind: Any = Runtime
    made = kind.__init__

    def make(runtime: Any, *args: Any, **kwargs: Any) -> None:
        made(runtime, *args, **kwargs)
        break_ring(runtime)

    kind.__init__ = make
    main()


def has_told_of_itself(peer: Any) -> bool:
    """Whether a peer has an answer about the daemon."""
    return any(type(answer.value) is dict for answer in peer.answers)


def impatient() -> None:
    """A daemon that waits hardly at all for kernels that were given up."""
    daemon.CANCELLATION_GRACE = 0.2
    main()


def without_a_terminal() -> None:
    """A daemon whose process leads a session of its own."""
    os.setsid()
    main()


def in_a_terminal() -> None:
    """A daemon whose controlling terminal is the one on stdin."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    main()


def signalled_early() -> None:
    """A daemon that gets the signals of its first argument while it opens its devices, with its locks taken and no
    socket yet."""
    numbers = sys.argv.pop(1).split(",")

    def opened(*arguments: Any) -> Any:
        for number in map(int, numbers):
            os.kill(os.getpid(), number)
        return open_runtime(*arguments)

    vars(daemon)["open_runtime"] = opened
    main()


def looks_for_a_terminal() -> None:
    """The exit status says whether the process has a controlling terminal, before and after taking one: 0 and 1."""
    os.setsid()
    before = has_terminal()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.exit(2 * before + has_terminal())


def with_few_descriptors() -> None:
    """A daemon with a limit on its open files."""
    limit = int(sys.argv.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    main()


def held_up() -> None:
    """A daemon whose thread, once a connection is reported, waits while the file "hold" of a directory is locked."""
    limit, directory = sys.argv.pop(), sys.argv.pop()
    sys.argv.append(limit)

    def held(monitor: Any) -> Any:
        with Path(directory, "hold").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        return read_events(monitor)

    vars(listener)["read_events"] = held
    with_few_descriptors()


def with_a_gpu() -> None:
    """A daemon over the fake of CUDA's runtime, with that directory for caches."""
    os.environ.update({"XDG_CACHE_HOME": sys.argv.pop(), kernel_cache.VARIABLE: ""})
    fake.install("1")
    main()
