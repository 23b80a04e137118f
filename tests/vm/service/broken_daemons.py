"""Programs that are `tensord serve` with something broken, for processes that are forked (`tests/forked.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

from tensord.client.cli.main import main
from tensord.vm.runtime import Runtime
from tensord.vm.service import daemon
from tensord.vm.service.connections.front import Front


def fail(where: str) -> NoReturn:
    raise RuntimeError(f"made by the test in {where}")


def breaking(kind: type, name: str, when: Callable[[Any], bool], how: Callable[[Any], Any]) -> None:
    """Have something happen before a method is called with what `when` asks for."""
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
    """Is an answer about the daemon among a peer's?"""
    return any(type(answer.value) is dict for answer in peer.answers)


def impatient() -> None:
    """A daemon that waits hardly at all for kernels that were given up."""
    daemon.CANCELLED = 0.2
    main()


def without_a_terminal() -> None:
    """A daemon whose process leads a session of its own."""
    os.setsid()
    main()
