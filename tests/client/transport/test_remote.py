"""A session on a daemon, as its user sees it: threads, signals, asyncio, callbacks, forks, large arrays, sharing."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.client.transport.idle_flush import BUSY_FLUSH, IDLE_FLUSH
from tensord.interpreter.concurrency.leader_followers import NEVER, Awaited

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import PATIENCE, Failed, Puppet, eventually, paused

BIG = 1 << 17  # elements; far beyond the size of a header
MANY = 1 << 20  # a few of these are far beyond the variation of a process's memory


@pytest.fixture
def observer(daemon: Daemon) -> Iterator[Session]:
    """A session that inspects the daemon. At the end of a test the daemon holds nothing but this session's tensors:
    none.
    """
    with daemon.connect() as session:
        yield session
        eventually(lambda: len(session._core.answers.query("sessions")) == 1)
        session.unpublish(*session.names())
        eventually(lambda: used(session) == 0)


@pytest.fixture
def session(daemon: Daemon, observer: Session) -> Iterator[Session]:
    """A session on the daemon; at the end of a test nothing is left of it."""
    del observer
    with daemon.connect() as session:
        yield session


def used(session: Session) -> int:
    """Bytes of tensors on all devices."""
    return sum(device["allocated"] for device in session.stats()["devices"].values())


def tensors_of(session: Session) -> int:
    """How many tensors the daemon keeps for the session."""
    return int(session.stats()["session"]["tensors"])


def failing(session: Session) -> Any:
    """A tensor whose kernel fails."""
    return session.asarray([2, 3]) ** session.asarray([1, -1])


def is_waited_for(session: Session, count: int = 1) -> Callable[[], bool]:
    """Do so many threads wait, one of them asleep on the socket?"""
    transport = session._core.transport
    return lambda: transport.lock.polling and len(transport._incoming.replies) >= count


def in_threads(*work: Callable[[], object]) -> list[object]:
    """Run each in a thread of its own, at once; the errors."""
    errors: list[object] = []
    start = threading.Barrier(len(work))

    def run(what: Callable[[], object]) -> None:
        try:
            start.wait(PATIENCE)
            what()
        except BaseException as error:  # handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(what,)) for what in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    return errors


# -- threads -----------------------------------------------------------------------------------------------------------

OPS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}


def random_work(session: Session, seed: int, steps: int) -> None:
    """Random ops on tensors of one's own, each result compared with NumPy's."""
    rng = random.Random(seed)
    pairs = [(session.asarray(values), values) for values in (np.arange(12.0) + n for n in range(3))]
    for _ in range(steps):
        name, (x, a), (y, b) = rng.choice(list(OPS)), rng.choice(pairs), rng.choice(pairs)
        match rng.randrange(6):
            case 0:
                expected = OPS[name](a, b) % 7.0
                session.call("remainder", [session.call(name, [x, y])[0], 7.0], out=[x])
                a[:] = expected
            case 1 | 2 | 3:
                pairs[rng.randrange(3)] = (session.call(name, [x, y])[0] % 7.0, OPS[name](a, b) % 7.0)
            case 4:
                device = rng.choice(["cpu:0", "sim:0"])
                pairs[rng.randrange(3)] = (x.to_device(device), a.copy())
            case _:
                np.testing.assert_array_equal(x.numpy(), a)
    for x, a in pairs:
        np.testing.assert_array_equal(x.numpy(), a)


def test_many_threads_use_one_session(session):
    """Each thread sees its own program order and its own values."""
    assert in_threads(*[lambda seed=seed: random_work(session, seed, 60) for seed in range(5)]) == []
    assert tensors_of(session) == 0


def test_many_threads_wait_and_each_gets_its_own_answer(session, daemon):
    x = session.asarray(np.ones(4))
    x.wait()
    found: dict[int, Any] = {}
    with paused(daemon):
        tensors = [x + float(n) for n in range(8)]
        threads = [threading.Thread(target=lambda n=n: found.update({n: tensors[n].numpy()[0]})) for n in range(8)]
        for thread in threads:
            thread.start()
        eventually(is_waited_for(session, 8))
    for thread in threads:
        thread.join(PATIENCE)
    assert found == {n: 1.0 + n for n in range(8)}


def test_who_submits_is_not_held_up_by_who_waits(session, daemon):
    """A thread sleeps in its wait; another one sends, and gets the socket for that."""
    x = session.asarray(np.ones(4))
    x.wait()
    with paused(daemon):
        waiter = threading.Thread(target=x.numpy)
        waiter.start()
        eventually(is_waited_for(session))
        before = session._core.transport._outgoing.sent
        for _ in range(3):
            x + 1.0
            session.flush()
        assert session._core.transport._outgoing.sent > before
    waiter.join(PATIENCE)


def test_a_wait_with_a_timeout_ends_and_the_value_comes_later(session, daemon):
    x = session.asarray(np.ones(4))
    x.wait()
    with paused(daemon):
        y = x + 1.0
        for wait in (y.wait, session.sync):
            with pytest.raises(TimeoutError):
                wait(timeout=0.02)
        waiter = threading.Thread(target=y.numpy)
        waiter.start()
        eventually(is_waited_for(session, 3))
        with pytest.raises(TimeoutError):
            y.wait(0.02)  # beside another thread that reads
    waiter.join(PATIENCE)
    assert y.wait(PATIENCE).tolist() == [2.0] * 4


def test_asking_whether_it_is_ready_does_not_wait(session):
    x = session.asarray(np.ones(4))
    eventually(x.is_ready)
    assert x.error is None
    bad = failing(session)
    error = eventually(lambda: bad.error)
    assert isinstance(error, td.KernelError)
    assert bad.is_ready()


@pytest.mark.usefixtures("observer")
def test_closing_ends_the_waits_of_other_threads(daemon):
    """The error says that the session was closed."""
    session = daemon.connect()
    x = session.asarray(np.ones(4))
    x.wait()
    told: list[str] = []

    def wait(what: Callable[[], object]) -> None:
        with pytest.raises(td.ConnectionLost) as lost:
            what()
        told.append(str(lost.value))

    with paused(daemon):
        threads = [threading.Thread(target=wait, args=(what,)) for what in (x.numpy, session.sync, x.wait)]
        for thread in threads:
            thread.start()
        eventually(is_waited_for(session, 3))
        session.close()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(told) == 3
    assert all("closed" in text for text in told)
    with pytest.raises(td.ConnectionLost, match="closed"):
        x + 1.0


@pytest.mark.usefixtures("observer")
def test_a_session_may_be_closed_by_many_at_once(daemon):
    for _ in range(5):
        session = daemon.connect()
        x = session.asarray(np.ones(4))
        assert in_threads(session.close, session.close, x.release, session.close) == []


def test_a_dropped_session_is_closed(daemon, observer):
    """Never closed: its tensors are released, its thread and its descriptors, too."""
    before = threading.active_count()
    session = daemon.connect()
    x = session.asarray(np.ones(1000))
    x.wait()
    assert len(observer._core.answers.query("sessions")) == 2
    del x, session
    eventually(lambda: len(observer._core.answers.query("sessions")) == 1)
    eventually(lambda: threading.active_count() == before)


# -- signals -----------------------------------------------------------------------------------------------------------


@each_case("wait", ["numpy", "sync", "shape", "stats", "credit"])
def test_ctrl_c_in_a_wait_leaves_the_session_usable(session, daemon, wait):
    x = session.asarray([3, 1, 3])
    x.wait()
    waits = {
        "numpy": lambda tensor: tensor.numpy(),
        "sync": lambda _: session.sync(),
        "shape": lambda tensor: tensor.shape,
        "stats": lambda _: session.stats(),
        "credit": lambda _: session._core.transport._wait(NEVER, None),
    }
    with paused(daemon):
        y = session.call("unique_values", [x])[0]

        def interrupt() -> None:
            eventually(lambda: session._core.transport.lock.polling)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            waits[wait](y)
        thread.join(PATIENCE)
    np.testing.assert_array_equal(y.numpy(), [1, 3])
    np.testing.assert_array_equal((y + 1).numpy(), [2, 4])


def interrupted(client: Puppet) -> None:
    """The client's output after Ctrl-C; Python ignores one that comes while a handle is finalised."""
    while True:
        client.signal(signal.SIGINT)
        with suppress(TimeoutError):
            return client.answer(1.0)


def shows(tensor: td.Tensor, number: int) -> bool:
    return tensor.item() == number


def has_worked(session: Session, before: int) -> bool:
    """Is it past so many instructions?"""
    return bool(session.stats()["instructions"] > before)


def test_ctrl_c_anywhere_leaves_the_session_usable(daemon, observer):
    """Many times, at any point of a loop that submits and waits: no message is half sent, no value is wrong."""
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.zeros(8))\nturn = s.asarray(-1)\ns.publish('turn', turn)")
        turn = observer.lookup("turn")
        for number in range(20):
            loop = "while True:\n    x += 1.0\n    y = (x * 2.0).numpy()\n    assert (y == y[0]).all()"
            client.tell(f"turn[...] = {number}\n{loop}")
            eventually(partial(shows, turn, number))  # the client is no longer at its prompt
            before = observer.stats()["instructions"]
            eventually(partial(has_worked, observer, before))
            with pytest.raises(Failed, match="KeyboardInterrupt"):
                interrupted(client)
            assert client.do("'usable'") == "usable"
        values = client.do("x.numpy().tolist()")
        assert len(set(values)) == 1
        assert client.do("(x * 2.0).numpy().tolist()") == [2.0 * value for value in values]


@pytest.mark.parametrize("wakes", [True, False], ids=["which wakes", "which wakes nobody"])
def test_a_signal_handler_may_cancel(session, daemon, wakes):
    """While the main thread waits: the wait ends with the cancellation, also if the signal interrupts no sleep."""
    x = session.asarray(np.ones(4))
    x.wait()
    before = signal.signal(signal.SIGUSR1, lambda *_: session.cancel())
    try:
        with paused(daemon):
            y = x
            for _ in range(4000):
                y = y + 1.0

            def interrupt() -> None:
                eventually(is_waited_for(session))
                thread = threading.main_thread() if wakes else threading.current_thread()
                signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
                eventually(lambda: session._core.transport._generation == 1 and not session._core.transport._cancel_due)
                daemon.signal(signal.SIGCONT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(td.CancelledError):
                y.numpy()
            thread.join(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    session.restart()
    np.testing.assert_array_equal((x + 1.0).numpy(), np.full(4, 2.0))


def flood(session: Session, x: Any, told: list[object]) -> None:
    """Issue many more ops than may be unfinished, and read the last one."""
    try:
        for _ in range(20_000):
            y = session.call("add", [x, 1.0])[0]
        told.append(y.numpy())
    except td.TensordError as error:
        told.append(type(error))


def test_what_is_sent_while_a_callback_cancels_is_cancelled_although_the_daemon_is_done_with_it(
    session, observer, monkeypatch
):
    """Between the callback's call of `cancel` and the message to the daemon, another thread asks for the chain."""
    outgoing, effects = session._core.transport._outgoing, session._core.transport._effects
    cancel, called = effects.cancel, threading.Event()

    def is_done() -> bool:
        (row,) = [
            row for row in observer._core.answers.query("sessions") if row["pid"] == os.getpid() and not row["asks"]
        ]
        return bool(outgoing.effects) and row["consumed"] >= outgoing.sent

    def slowly(number: int) -> None:
        cancel(number)
        if not called.is_set():
            called.set()
            eventually(is_done)

    def fail() -> None:
        session.cancel()
        raise ValueError("after the cancellation")

    monkeypatch.setattr(effects, "cancel", slowly)
    session.effect(fail)
    session.flush()
    assert called.wait(PATIENCE)
    with pytest.raises(td.CancelledError):
        session.check_chain()
    session.restart()
    seen: list[str] = []
    session.effect(lambda: seen.append("afterwards"))
    session.check_chain()
    assert seen == ["afterwards"]


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_wait_for_credit_holds_nobody_else_up(session, daemon, how):
    """Behaviour 47: one thread waits for credit; another one cancels, releases, and closes."""
    x, y = session.asarray(np.ones(4)), session.asarray(np.ones(1000))
    session.sync()
    told: list[object] = []
    with paused(daemon):
        thread = threading.Thread(target=flood, args=(session, x, told))
        thread.start()
        eventually(lambda: session._core.transport._outgoing.sent > session._core.transport._credit.window)
        y.release()
        if how == "cancel":
            session.cancel()
        else:
            session.close()
            thread.join(PATIENCE)
    thread.join(PATIENCE)
    assert told == [{"cancel": td.CancelledError, "close": td.ConnectionLost}[how]]
    if how == "cancel":
        assert tensors_of(session) == 1


def test_who_waits_for_credit_is_told_of_it_twice_per_window(session):
    """Each credit message wakes the client, and the daemon continues the remaining work."""
    transport = session._core.transport
    x = session.asarray(np.ones(4))
    session.sync()
    before, window = transport._incoming.received, transport._credit.window
    rounds = 3
    for _ in range(rounds * window):
        x += 1.0
    assert x.numpy()[0] == 1.0 + rounds * window
    assert rounds <= transport._incoming.received - before <= 2 * rounds + 3


def test_who_waits_for_credit_goes_on_with_the_first_half_window(session, monkeypatch):
    """The second half would come when the daemon is already idle."""
    transport = session._core.transport
    session.sync()
    waits: list[Awaited] = []
    monkeypatch.setattr(transport, "_wait", lambda awaited, _timeout: waits.append(awaited))
    window, outgoing, incoming = transport._credit.window, transport._outgoing, transport._incoming
    monkeypatch.setattr(outgoing, "sent", incoming.consumed + window + 200)
    transport.await_credit()
    (enough,) = waits
    assert not enough.done
    monkeypatch.setattr(incoming, "consumed", incoming.consumed + window // 2)
    assert enough.done


def test_the_background_looks_less_often_while_the_session_sends_by_itself(session, monkeypatch):
    transport = session._core.transport
    transport.background.stop()
    transport.background.join(PATIENCE)
    transport._look_around()

    def nap(*, sends: bool, unsent: bool = False) -> float:
        if sends:
            session.sync()
        monkeypatch.setattr(transport._flush, "hook", lambda: unsent)
        transport._look_around()
        return transport._flush.nap

    assert [nap(sends=sends) for sends in (False, True, True, False)] == [
        IDLE_FLUSH,
        BUSY_FLUSH,
        BUSY_FLUSH,
        IDLE_FLUSH,
    ]
    what_is_left = [nap(sends=True, unsent=True) for _ in range(4)]  # it looks soon, in case the message lies idle
    assert what_is_left == [BUSY_FLUSH, IDLE_FLUSH] * 2
    monkeypatch.setattr(transport._outgoing, "number", transport._outgoing.number)  # restored at the end

    def send_by_itself() -> bool:
        transport._outgoing.number += 1
        return True

    monkeypatch.setattr(transport._flush, "hook", send_by_itself)
    for _ in range(3):
        transport._look_around()
    assert transport._flush.nap == IDLE_FLUSH


# -- asyncio -----------------------------------------------------------------------------------------------------------


async def wait_for(tensor: Any) -> Any:
    return await tensor


def test_hundreds_of_tensors_are_awaited_at_once(session, daemon):
    x = session.asarray(np.ones(4))
    session.sync()

    async def main() -> None:
        with paused(daemon):
            tensors = [x + float(n) for n in range(400)]
            bad = failing(session)
            tasks = [asyncio.ensure_future(wait_for(tensor)) for tensor in (*tensors, bad)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
        assert all(a is b for a, b in zip(results, tensors, strict=False))
        assert isinstance(results[400], td.KernelError)
        for n in (0, 17, 399):
            np.testing.assert_array_equal(tensors[n].numpy(), np.full(4, 1.0 + n))

    asyncio.run(main())


def test_a_cancelled_await_and_a_closed_loop_harm_nothing(session, daemon):
    x = session.asarray(np.ones(4))
    x.wait()

    async def main(y: Any) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_for(y), 0.01)
        task = asyncio.ensure_future(wait_for(y))
        await asyncio.sleep(0)
        task.cancel()
        abandoned = asyncio.ensure_future(wait_for(y))  # no task waits for it when the loop ends
        await asyncio.sleep(0)
        assert not abandoned.done()

    with paused(daemon):
        y = x + 1.0
        asyncio.run(main(y))
    np.testing.assert_array_equal(y.numpy(), np.full(4, 2.0))


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_callbacks_come_in_program_order(session, capsys):
    """For every receiving thread, and every device that computes the values."""
    seen: list[tuple[int, float]] = []
    x = session.asarray(np.zeros(4))
    for n in range(200):
        x = (x + 1.0).to_device(("cpu:0", "sim:0")[n % 2])
        session.effect(lambda array, n=n: seen.append((n, float(array[0]))), x)
    session.print("the end", x)
    session.check_chain()
    assert seen == [(n, n + 1.0) for n in range(200)]
    assert capsys.readouterr().out == "the end [200. 200. 200. 200.]\n"


def test_callbacks_come_although_nobody_waits(session):
    called = threading.Event()
    session.effect(lambda _: called.set(), session.asarray([1]))
    assert called.wait(PATIENCE)


def test_a_callback_s_arrays_are_its_own(session):
    seen: list[Any] = []

    def keep(array: Any) -> None:
        array += 1.0
        seen.append(array)

    x = session.asarray(np.ones(BIG))
    session.effect(keep, x)
    session.check_chain()
    np.testing.assert_array_equal(x.numpy(), np.ones(BIG))
    np.testing.assert_array_equal(seen[0], np.full(BIG, 2.0))


def test_a_callback_s_error_stops_its_chain_and_no_other(session):
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    other = session.chain()
    session.effect(lambda: seen.append("before"))
    session.effect(fail)
    session.effect(lambda: seen.append("behind"))
    session.effect(lambda: seen.append("beside"), chain=other)
    with pytest.raises(td.KernelError, match="effect: ValueError: no") as caught:
        session.check_chain()
    assert "test_remote.py" in (caught.value.location or "")
    assert isinstance(caught.value.__cause__, ValueError)
    session.check_chain(other)
    assert sorted(seen) == ["before", "beside"]
    assert session.asarray([1]).numpy().tolist() == [1]


# -- handles -----------------------------------------------------------------------------------------------------------


def test_an_idle_session_releases_what_was_dropped(session, observer):
    """The session makes no more calls."""
    x = session.asarray(np.ones(1000))
    x.wait()
    assert used(observer) == 8000
    del x
    eventually(lambda: used(observer) == 0)


# -- forks -------------------------------------------------------------------------------------------------------------


def test_a_child_has_no_share_in_its_parent_s_session(daemon, observer):
    """The error says so; the child may connect anew; the parent's session goes on."""
    with Puppet.start(daemon.address) as parent:
        parent.do("x = s.asarray(np.ones(4))\nx.wait()")
        told = parent.do(FORK)
        assert set(told) == {"numpy", "add", "sync", "cancel", "anew"}
        for what in ("numpy", "add", "sync", "cancel"):
            assert "connect again after a fork" in told[what], told
        assert told["anew"] == [5.0]
        assert parent.do("(x + 1.0).numpy().tolist()") == [2.0] * 4
        eventually(lambda: len(observer._core.answers.query("sessions")) == 2)


FORK = """
import json
s_address = s._core.transport._link.address
ours, theirs = os.pipe()
child = os.fork()
if not child:
    told = {}
    for name, what in {"numpy": x.numpy, "add": lambda: (x + 1.0).numpy(), "sync": s.sync, "cancel": s.cancel}.items():
        try:
            what()
        except td.ConnectionLost as error:
            told[name] = str(error)
    del x
    s.close()
    with td.connect(s_address) as own:
        told["anew"] = (own.asarray([2.0]) + 3.0).numpy().tolist()
    os.write(theirs, json.dumps(told).encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(theirs)
json.loads(os.read(ours, 1 << 16))
"""


@pytest.mark.usefixtures("observer")
def test_multiprocessing_forks_of_a_process_with_a_session_work(daemon):
    """Children that never touch the session end well, with all their exit handlers."""
    with Puppet.start(daemon.address) as parent:
        parent.do("x = s.asarray(np.ones(4))\nx.wait()\nimport multiprocessing")
        squares = "multiprocessing.get_context('fork').Pool(2)"
        assert parent.do(f"with {squares} as pool:\n    found = pool.map(abs, [-1, -2])\nfound") == [1, 2]
        assert parent.do("(x + 1.0).numpy().tolist()") == [2.0] * 4


# -- finding a daemon --------------------------------------------------------------------------------------------------


def embedded(session: Session) -> bool:
    return hasattr(session._core.transport, "machine")


def test_connect_finds_the_daemon_that_runs_else_it_embeds(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with td.connect() as session:
        assert embedded(session)
    home = Path("/tmp") / f"tensord-test-{os.getpid()}"  # noqa: S108 - a socket's path is short
    home.mkdir(mode=0o700)
    try:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
        address = f"ipc://{home}/tensord/socket"
        with Daemon.start(tmp_path, address=address, XDG_RUNTIME_DIR=str(home)) as daemon:
            with td.connect() as session:
                assert session._core.transport._link.address == address
            daemon.kill()
            with td.connect() as session:  # its socket lies there, and no process has the lock
                assert embedded(session)
    finally:
        for path in (home / "tensord").iterdir():
            path.unlink()
        (home / "tensord").rmdir()
        home.rmdir()


# -- sharing -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def other(daemon: Daemon, observer: Session) -> Iterator[Session]:
    """A second session."""
    del observer
    with daemon.connect() as session:
        yield session


def test_many_writers_of_one_tensor_lose_nothing(daemon, session, other):
    """In-place ops of several sessions are one sequence; readers see whole values, which only grow."""
    session.publish("sum", session.asarray(np.zeros(1000)))
    seen: list[float] = []

    def write(number: int) -> None:
        with daemon.connect() as own:
            total = own.lookup("sum")
            for _ in range(80):
                total += float(number)
            own.sync()

    def read() -> None:
        total = other.lookup("sum")
        while not seen or seen[-1] < 80 * (1 + 2 + 3):
            values = total.numpy()
            assert (values == values[0]).all()
            seen.append(float(values[0]))

    assert in_threads(read, *[lambda n=n: write(n) for n in (1, 2, 3)]) == []
    assert seen == sorted(seen)
    assert seen[-1] == 480.0


def test_republishing_is_never_half_seen(session, other):
    """A dict is published anew again and again; each lookup gets both tensors of one generation."""
    stop = threading.Event()

    def publish() -> None:
        for n in range(80):
            session.publish({name: session.asarray(np.full(4, float(n))) for name in ("w", "b")})
        stop.set()

    def look() -> None:
        while not stop.is_set():
            both = other.lookup(["w", "b"])
            np.testing.assert_array_equal(both["w"].numpy(), both["b"].numpy())

    session.publish({name: session.asarray(np.zeros(4)) for name in ("w", "b")})
    assert in_threads(publish, look) == []


# -- large arrays ------------------------------------------------------------------------------------------------------


def test_large_arrays_go_up_and_down_unharmed(session):
    """By shared memory; the caller may change the array right after."""
    source = np.arange(float(BIG))
    x = session.asarray(source)
    source[:] = -1.0
    found = x.numpy()
    np.testing.assert_array_equal(found, np.arange(float(BIG)))
    assert not found.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        found.flags.writeable = True


@pytest.mark.usefixtures("observer")
def test_a_result_stays_what_it_was(daemon):
    """After in-place writes, after the tensor is gone, and after the session was closed."""
    session = daemon.connect()
    x = session.asarray(np.arange(float(BIG)))
    first = x.numpy()
    x += 1.0
    second = x.numpy()
    view = second[100:200]
    x *= 0.0
    x.wait()
    np.testing.assert_array_equal(first, np.arange(float(BIG)))
    np.testing.assert_array_equal(second, np.arange(float(BIG)) + 1.0)
    del x, second
    others = [session.asarray(np.full(BIG, -1.0)) for _ in range(4)]
    session.sync()
    np.testing.assert_array_equal(first, np.arange(float(BIG)))
    session.close()
    with daemon.connect() as next_one:
        others = [next_one.asarray(np.full(BIG, -2.0)) for _ in range(4)]
        next_one.sync()
        np.testing.assert_array_equal(first, np.arange(float(BIG)))
        np.testing.assert_array_equal(view, np.arange(100.0, 200.0) + 1.0)
    del others


def write_over(session: Session) -> None:
    """Write to the tensor "w" in place, and make others of its size."""
    w = session.lookup("w")
    w += 1.0
    w[5] = 7.0
    others = [session.asarray(np.full(BIG, -1.0)) + float(n) for n in range(3)]
    session.sync()
    del others


def test_a_result_stays_what_it_was_when_the_daemon_cuts_the_session(daemon, observer):
    session = daemon.connect()
    w = session.asarray(np.zeros(BIG)) + 0.0
    session.publish("w", w)
    array = w.numpy()
    session._core.transport._link.send([99])  # no header of that kind exists
    eventually(lambda: len(observer._core.answers.query("sessions")) == 1)
    write_over(observer)
    assert not array.any()
    session.close()
    assert not array.any()


READER = """
w = s.asarray(np.zeros({size})) + 0.0
s.publish("w", w)
a = w.numpy()
if not os.fork():
    open({asks!r}).read()
    with open({tells!r}, "w") as answer:
        answer.write(str(float(abs(a).sum())))
    os._exit(0)
"""


@pytest.mark.parametrize("end", ["closes", "dies"])
def test_a_result_stays_what_it_was_in_a_child_of_a_process_whose_session_has_ended(daemon, observer, tmp_path, end):
    asks, tells = tmp_path / "asks", tmp_path / "tells"
    os.mkfifo(asks)
    os.mkfifo(tells)
    with Puppet.start(daemon.address) as parent:
        parent.do("import os")
        parent.do(READER.format(size=BIG, asks=str(asks), tells=str(tells)))
        if end == "closes":
            parent.do("s.close()")
        else:
            parent.kill()
        eventually(lambda: len(observer._core.answers.query("sessions")) == 1)
        write_over(observer)
        asks.write_text("")
        assert tells.read_text() == "0.0"


def test_what_is_not_contiguous_goes_up_and_comes_down(session):
    source = np.arange(float(BIG)).reshape(-1, 256)
    for values in (source.T, source[::2, ::-1], source[:, 5], np.asfortranarray(source)):
        np.testing.assert_array_equal(session.asarray(values).numpy(), values)
    x = session.asarray(source)
    np.testing.assert_array_equal(x.T.numpy(), source.T)
    np.testing.assert_array_equal(x[3:500, 7].numpy(), source[3:500, 7])
    np.testing.assert_array_equal(x[::3, ::2].numpy(), source[::3, ::2])


@each_case("dtype", ["bool", "int8", "uint64", "float32", "complex128"])
@each_case("shape", [(), (0,), (3, 0, 2), (7,), (300, 300), (1, 200_000)])
def test_every_shape_and_dtype_survives(session, shape, dtype):
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    for device in ("cpu:0", "sim:0"):
        found = session.asarray(values, device=device).numpy()
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        np.testing.assert_array_equal(found, values)


def test_the_daemon_s_memory_returns_to_its_baseline(session, daemon, observer):
    """Up and down again and again: blocks and segments are reused."""
    values = np.arange(float(MANY))

    def round_() -> None:
        x = session.asarray(values)
        np.testing.assert_array_equal((x + 1.0).numpy()[-1], float(MANY))

    for _ in range(5):
        round_()
    gc.collect()
    session.sync()
    baseline, held = daemon.memory(), used(observer)
    for _ in range(20):
        round_()
    gc.collect()
    session.sync()
    eventually(lambda: used(observer) == held == 0)
    assert daemon.memory() < baseline + 4 * 8 * MANY


def test_more_uploads_than_credit_wait_and_arrive(session):
    """Uploads beyond the window are held up, not refused."""
    tensors = [session.asarray(np.full(BIG // 8, float(n))) for n in range(50)]
    assert [float(t[0].numpy()) for t in tensors] == [float(n) for n in range(50)]
    many = [session.asarray(np.full(2, float(n))) for n in range(10_000)]
    assert float(many[-1].numpy()[0]) == 9_999.0


def test_a_large_atomic_group_arrives_whole(session):
    """More arrays than one message has frames, and small ones of more bytes than a header may have."""
    with session.atomic():
        small = [session.asarray(np.full(100, float(n))) for n in range(3000)]
    assert float(small[-1].numpy()[0]) == 2999.0


def test_what_cannot_travel_takes_nothing_else_along(session):
    x = session.asarray(np.ones(3))
    with session._core.outbox.lock:  # so that they leave together
        session._core.outbox._first = session._core.outbox.limit = 256  # the background may set the limit back
        y = x + 1.0
        with pytest.raises(td.MetadataError, match="cannot be sent to the daemon"):
            session._core.answers.query("tensors", "\ud800")
    assert y.numpy().tolist() == [2.0, 2.0, 2.0]
    assert session.names() == []
