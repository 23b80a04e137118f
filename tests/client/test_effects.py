"""Side effects, on every kind of machine."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td


def test_a_callback_may_cancel_and_the_effects_behind_it_do_not_run(session):
    """The effect that cancels has run; what the session issued before and has not run is cancelled."""
    x = session.asarray(np.ones(4))
    seen: list[str] = []

    def cancel(_: object) -> None:
        seen.append("cancels")
        session.cancel()

    session.effect(cancel, x)
    for _ in range(3):
        session.effect(lambda _: seen.append("behind it"), x)
    with pytest.raises(td.CancelledError):
        session.check_chain()
    assert seen == ["cancels"]
    with pytest.raises(td.CancelledError):
        (x + 1.0).wait()
    session.restart()
    session.effect(lambda _: seen.append("afterwards"), x)
    session.check_chain()
    assert seen == ["cancels", "afterwards"]
    assert (x + 1.0).tolist() == [2.0] * 4


def test_a_callback_that_cancels_and_raises_breaks_no_chain_for_good(session):
    def fail() -> None:
        session.cancel()
        raise ValueError("after the cancellation")

    session.effect(fail)
    with pytest.raises((td.CancelledError, td.KernelError)):
        session.check_chain()
    session.restart()
    seen: list[str] = []
    session.effect(lambda: seen.append("afterwards"))
    session.check_chain()
    assert seen == ["afterwards"]


def test_a_callback_may_not_restart(session):
    session.effect(session.restart)
    with pytest.raises(td.ProtocolError, match="may neither submit nor wait"):
        session.check_chain()


def test_an_exception_whose_text_cannot_be_made_is_an_error_of_its_effect(session):
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail() -> None:
        raise UnspeakableError

    session.effect(fail)
    with pytest.raises(td.KernelError, match="UnspeakableError"):
        session.check_chain()
    assert session.asarray([1.0]).tolist() == [1.0]
