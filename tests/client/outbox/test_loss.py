"""Once a session knows that its machine is gone, every call that needs the machine raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensord as td
from tensord.client.session.session import Session

from ...each_case import each_case


@pytest.fixture
def lost(make_session: Callable[..., Session]) -> tuple[Session, td.Tensor]:
    """A session whose machine has ended, and a tensor of it."""
    session = make_session()
    x = session.asarray([1.0])
    (x + 1.0).wait()
    session._core.outbox.lost(td.ConnectionLost("the machine has ended for the test"))
    return session, x


@each_case(
    "issue",
    [
        lambda _, x: x + 1.0,
        lambda _, x: x.__iadd__(1.0),
        lambda session, x: session.call("sum", [x]),
        lambda session, _: session.asarray([1.0]),
        lambda session, _: session.print("lost"),
        lambda session, _: session.sync(),
        lambda _, x: x.numpy(),
    ],
)
def test_every_call_that_needs_the_machine_raises(lost: tuple[Session, td.Tensor], issue: Callable[..., Any]) -> None:
    with pytest.raises(td.ConnectionLost, match="ended for the test") as caught:
        issue(*lost)
    assert "test_loss.py" in str(caught.value)


def test_an_atomic_block_raises_at_its_first_line(lost: tuple[Session, td.Tensor]) -> None:
    session, x = lost
    with pytest.raises(td.ConnectionLost), session.atomic():
        x + 1.0
