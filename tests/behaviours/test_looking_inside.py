"""The waits of the behaviour tests."""

from __future__ import annotations

from threading import Event, Thread, get_ident
from typing import Any

from .looking_inside import WAIT, machine_of, until


def test_what_is_waited_for_may_ask_the_session_since_no_other_thread_looks(session: Any) -> None:
    looked, woken, threads = Event(), Event(), set[int]()

    def holds() -> bool:
        threads.add(get_ident())
        session.stats()
        looked.set()
        return woken.is_set()

    def wake() -> None:
        looked.wait(WAIT)
        machine_of(session).waiting.wake()
        woken.set()

    other = Thread(target=wake)
    other.start()
    until(session, holds)
    other.join()
    assert threads == {get_ident()}
