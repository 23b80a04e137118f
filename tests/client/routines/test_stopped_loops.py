"""Loops that are stopped by a cancellation, or by the end of their session or process, as seen by other sessions that
hold the written tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tensord as td
from tensord.client.session.session import Session

from ...behaviours.looking_inside import WAIT
from ...puppet import eventually

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)
Pair = tuple[Session, Session]


@pytest.fixture
def pair(make_session: Callable[..., Session], request: pytest.FixtureRequest) -> Pair:
    """A session that runs a loop, and one that holds a tensor that the loop writes."""
    address = f"local:{request.node.name}"
    return make_session(address), make_session(address)


def endless(session: Session, w: Any, seen: Callable[[Any], None]) -> Any:
    """A loop that ends only when it is stopped."""

    def body(x: Any) -> Any:
        nonlocal w
        w += 1
        session.effect(seen, x)
        return x + 1

    return session.while_loop(lambda x: x >= 0, body, session.asarray(0.0))


def is_stopped(tensor: Any) -> td.CancelledError:
    """The error of a tensor that a stopped loop was writing."""
    with pytest.raises(td.CancelledError) as caught:
        eventually(lambda: tensor.numpy() is None)
    assert caught.value.op == "while_loop"
    assert "test_stopped_loops.py" in (caught.value.location or "")
    return caught.value


@anywhere
def test_a_loop_that_its_own_callback_cancels_poisons_what_others_hold(pair: Pair) -> None:
    s, other = pair
    w = s.asarray(0.0)
    s.publish("w", w)
    live = other.lookup("w")
    result = endless(s, w, lambda x: s.cancel() if x == 3 else None)
    error = is_stopped(live)
    assert "the session was cancelled in the middle of a while_loop; rounds begun: " in str(error)
    s.restart()
    with pytest.raises(td.CancelledError):
        result.numpy()
    other.call("multiply", [other.asarray(1.0), 0.0], out=[live])  # overwrites all of it
    assert (live.item(), w.item()) == (0.0, 0.0)
    assert s.repeat(2, lambda x: x + 1, w).item() == 2.0


@anywhere
def test_a_loop_whose_session_is_closed_poisons_what_others_hold(pair: Pair) -> None:
    s, other = pair
    w = s.asarray(0.0)
    s.publish("w", w)
    live, begun = other.lookup("w"), threading.Event()
    thread = threading.Thread(target=run_until_it_is_lost, args=(s, w, begun))
    thread.start()
    assert begun.wait(WAIT)
    s.close()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert "the session was closed in the middle of a while_loop; rounds begun: " in str(is_stopped(live))


def run_until_it_is_lost(session: Session, w: Any, begun: threading.Event) -> None:
    """Run a loop, and wait for its result."""
    with pytest.raises(td.TensordError):
        endless(session, w, lambda x: begun.set() if x == 3 else None).numpy()
