"""Side effects that admission refuses."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.messages import Chain, Effect

from ..bare_engine import Bare


def test_a_refused_side_effect_stops_its_chain_with_an_error_that_names_its_line() -> None:
    """A later use of the chain fails with the error of the side effect that stopped it."""
    client = Bare().client()
    chain = client.new()
    client.send(Chain(chain), Effect((99,), chain, print, 0, 1))
    with pytest.raises(ProtocolError, match="tensor 99") as caught:
        client.ask(Effect((), chain, print, 0, 0))
    assert (caught.value.op, caught.value.location) == ("effect", "user.py:1")
