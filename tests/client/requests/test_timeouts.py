"""Valid and invalid timeouts, at every public entry that takes one, on every kind of machine."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.client.sharing import names
from tensord.client.tensor.tensor import Tensor

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import PATIENCE, eventually, paused

ENTRIES: dict[str, Callable[[Any, Any], Any]] = {
    "Session.lookup": lambda tensor, timeout: tensor._core.as_session().lookup("there", wait=timeout),
    "Session.sync": lambda tensor, timeout: tensor._core.as_session().sync(timeout=timeout),
    "Tensor.wait": lambda tensor, timeout: tensor.wait(timeout=timeout),
}
TIMES = {"timeout", "wait"}  # parameters that are a number of seconds
WRONG_TYPES: tuple[Any, ...] = (True, False, np.True_, "1", b"1", [1.0], 1j, {})
NOT_NUMBERS: tuple[Any, ...] = (float("nan"), np.float32("nan"))
LONG: tuple[Any, ...] = (1e300, float("inf"), 10**400, 2**63, np.float64(1e18), 1e10)

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)


def test_every_entry_with_a_timeout_is_in_the_table() -> None:
    takes = {
        f"{kind.__name__}.{name}"
        for kind in (Session, Tensor)
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and not name.endswith("_async")  # of the same steps: tests/client/waiting
        and TIMES & inspect.signature(function).parameters.keys()
    }
    assert takes == ENTRIES.keys()
    functions = (getattr(td, name) for name in td.__all__)
    takes = {f.__name__ for f in functions if inspect.isfunction(f) and TIMES & inspect.signature(f).parameters.keys()}
    assert takes == {"connect"}  # tests/client/transport/test_seeking.py


@anywhere
@each_case("entry", ENTRIES)
def test_what_is_no_number_of_seconds_is_refused_at_the_users_line(make_session: Any, entry: str) -> None:
    tensor = make_session().asarray([1.0])
    what = entry.rpartition(".")[2]
    for value in WRONG_TYPES:
        with pytest.raises(td.MetadataError, match=f"^{what}: a timeout must be a number of seconds or None") as caught:
            ENTRIES[entry](tensor, value)
        assert isinstance(caught.value, TypeError)
        assert "test_timeouts.py" in (caught.value.location or "")
    for value in NOT_NUMBERS:
        with pytest.raises(td.MetadataError, match=f"^{what}: the timeout is not a number") as caught:
            ENTRIES[entry](tensor, value)
        assert isinstance(caught.value, ValueError)
    assert tensor.numpy().tolist() == [1.0]


@anywhere
@each_case("entry", ENTRIES)
def test_a_timeout_of_any_length_is_good(make_session: Any, entry: str) -> None:
    session = make_session()
    session.publish("there", session.asarray(1.0))
    for value in LONG:
        ENTRIES[entry](session.asarray(np.ones(1 << 18)) + 1.0, value)
    session.unpublish("there")


OVER: tuple[Any, ...] = (0, 0.0, -1, -1e300, float("-inf"), -(10**400))


def test_a_name_that_nobody_publishes_in_no_time_is_missing(session: Session) -> None:
    for value in OVER:
        with pytest.raises(KeyError, match="nothing is published as 'there'"):
            session.lookup("there", wait=value)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry != "Session.lookup"])
def test_what_is_over_already_does_not_wait(session: Session, entry: str) -> None:
    machine = session._core.transport.machine
    machine.devices["cpu:0"].hold("compute")
    tensor = session.asarray(np.ones(1 << 21)) @ session.asarray(np.ones(1 << 21))
    for value in OVER:
        with pytest.raises(TimeoutError):
            ENTRIES[entry](tensor, value)
    machine.devices["cpu:0"].resume("compute")
    ENTRIES[entry](tensor, None)


# -- a daemon that does not answer within the timeout ------------------------------------------------------------------

SHORT = 0.2
BOUNDED: dict[str, Callable[[Session, Tensor], Any]] = {
    "wait": lambda _, tensor: tensor.wait(SHORT),
    "sync": lambda session, _: session.sync(SHORT),
    "sync durable": lambda session, _: session.sync(SHORT, durable=True),
    "lookup": lambda session, _: session.lookup("nothing", wait=SHORT),
    "checkpoint": lambda session, _: session.checkpoint("/tmp/never").wait(SHORT),  # noqa: S108 - it is not written
    "query": lambda session, _: session._core.answers.query("status", timeout=SHORT),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests may stop for a while."""
    with Daemon.start(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.mark.parametrize("what", BOUNDED)
def test_a_wait_with_a_limit_ends_though_the_daemon_stands_still(
    own: Daemon, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "ANSWER_TIMEOUT", SHORT)
    with own.connect() as session:
        tensor = session.asarray([1.0]) + 1.0
        tensor.wait()
        with paused(own), pytest.raises(TimeoutError):
            BOUNDED[what](session, tensor + 1.0)
        assert (tensor + 1.0).tolist() == [3.0]  # the session goes on


def test_the_second_half_of_a_durable_sync_has_what_the_first_has_left(session: Session) -> None:
    given: list[float | None] = []
    outbox = session._core.outbox
    await_reply = outbox.await_reply

    def slow(reply: Any, timeout: float | None = None) -> Any:
        given.append(timeout)
        return await_reply(reply, 0 if len(given) > 1 else timeout)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(outbox), "await_reply", lambda _, reply, timeout=None: slow(reply, timeout))
        with pytest.raises(td.ProtocolError, match="keeps no durable names"):
            session.sync(50, durable=True)
    first, second = given
    assert first == 50
    assert second is not None
    assert 0 < second <= 50


def test_what_a_late_answer_has_made_is_released(own: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with own.connect() as other, own.connect() as session:
        other.publish("w", other.asarray(np.ones(4)))
        with paused(own), monkeypatch.context() as patched:
            patched.setattr(names, "ANSWER_TIMEOUT", SHORT)
            with pytest.raises(TimeoutError):
                session.lookup("w", wait=0)
        session.sync()  # the answer has come
        eventually(lambda: held_by(other, session) == 0)
        assert session.lookup("w").tolist() == [1.0] * 4


def held_by(asking: Session, session: Session) -> int:
    """How many tensors the machine keeps for a session."""
    session.flush()
    number = session._core.transport._link.welcome.session
    return int(next(row["tensors"] for row in asking._core.answers.query("sessions") if row["id"] == number))


def test_names_that_come_in_the_meantime_are_found(session: Session) -> None:
    asked = threading.Event()
    found: list[Any] = []
    told = session._core.names._look_up_all

    def telling(*arguments: Any, **options: Any) -> Any:
        try:
            return told(*arguments, **options)
        finally:
            asked.set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            type(session._core.names), "_look_up_all", lambda _, *arguments, **options: telling(*arguments, **options)
        )
        waiting = threading.Thread(target=lambda: found.append(session.lookup("late", wait=60)))
        waiting.start()
        assert asked.wait(PATIENCE)
        session.publish("late", session.asarray([7.0]))
        waiting.join(PATIENCE)
    assert found[0].tolist() == [7.0]
    session.unpublish("late")
