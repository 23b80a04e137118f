"""What a timeout may be, at every public entry that takes one, wherever the machine is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session import Session
from tensord.client.tensor import Tensor

ENTRIES: dict[str, Callable[[Tensor, Any], Any]] = {
    "Session.sync": lambda tensor, timeout: tensor._session.sync(timeout=timeout),
    "Tensor.wait": lambda tensor, timeout: tensor.wait(timeout=timeout),
}
WRONG_TYPES: tuple[Any, ...] = (True, False, np.True_, "1", b"1", [1.0], 1j, {})
NOT_NUMBERS: tuple[Any, ...] = (float("nan"), np.float32("nan"))
LONG: tuple[Any, ...] = (1e300, float("inf"), 10**400, 2**63, np.float64(1e18), 1e10)

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)


def test_every_entry_with_a_timeout_is_in_the_table() -> None:
    takes = {
        f"{kind.__name__}.{name}"
        for kind in (Session, Tensor)
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and "timeout" in inspect.signature(function).parameters
    }
    assert takes == ENTRIES.keys()
    functions = (getattr(td, name) for name in td.__all__)
    assert not [f for f in functions if inspect.isfunction(f) and "timeout" in inspect.signature(f).parameters]


@anywhere
@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_no_number_of_seconds_is_refused_at_the_users_line(make_session: Any, entry: str) -> None:
    tensor = make_session().asarray([1.0])
    what = entry.rpartition(".")[2]
    for value in WRONG_TYPES:
        with pytest.raises(td.MetadataError, match=f"^{what}: a timeout is a number of seconds or None") as caught:
            ENTRIES[entry](tensor, value)
        assert isinstance(caught.value, TypeError)
        assert "test_timeouts.py" in (caught.value.location or "")
    for value in NOT_NUMBERS:
        with pytest.raises(td.MetadataError, match=f"^{what}: the timeout is not a number") as caught:
            ENTRIES[entry](tensor, value)
        assert isinstance(caught.value, ValueError)
    assert tensor.numpy().tolist() == [1.0]


@anywhere
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_timeout_of_any_length_is_good(make_session: Any, entry: str) -> None:
    session = make_session()
    for value in LONG:
        ENTRIES[entry](session.asarray(np.ones(1 << 18)) + 1.0, value)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_over_already_does_not_wait(session: Session, entry: str) -> None:
    machine = session._transport.machine
    machine.devices["cpu:0"].hold("compute")
    tensor = session.asarray(np.ones(1 << 21)) @ session.asarray(np.ones(1 << 21))
    for value in (0, 0.0, -1, -1e300, float("-inf"), -(10**400)):
        with pytest.raises(TimeoutError):
            ENTRIES[entry](tensor, value)
    machine.devices["cpu:0"].resume("compute")
    ENTRIES[entry](tensor, None)
