"""What comes from a daemon: callbacks and their errors."""

from __future__ import annotations

from tensord.client.transport.incoming import call_back
from tensord.client.transport.outgoing import SideEffect
from tensord.interpreter.errors import KernelError


def test_an_error_that_several_callbacks_raise_stays_as_it_is() -> None:
    """It may be a tensor's, which others have, too: each effect tells its own line with a copy."""
    known = KernelError("broken")

    def fail() -> None:
        raise known

    found = [call_back(SideEffect(fail, 1, 0, f"user.py:{line}"), ()) for line in (1, 2)]
    assert [(error.message, error.op, error.location) for error in found if error] == [
        ("broken", "effect", "user.py:1"),
        ("broken", "effect", "user.py:2"),
    ]
    assert (known.op, known.location, known.__traceback__ is None) == (None, None, False)
