"""The daemon and its clients as processes that are killed, stopped, cut off, and asked to leave."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

import tensord as td
from tensord.client.session.session import Session
from tensord.client.transport.link import DealerSocket
from tensord.interpreter.wire.frames import VERSION
from tensord.interpreter.wire.messages import Fetch

from ..daemon import Daemon
from ..ports import free_port
from ..puppet import PATIENCE, Failed, Puppet, cut, eventually, paused

MIB = 1 << 20
AT_ONCE = 0.25  # seconds within which a dead client's tensors are gone
ROUNDS = 3, 15  # at least, and at most: on a busy machine only some clients are gone that soon
SOON = 4.0  # seconds: "at once" on a busy machine, and less than a grace
NOISE = 0.25  # seconds that other processes on this machine may add to an op
SLOW = """
grace = {grace}
devices = ["cpu:0", {{name = "sim:0", compute_delay = {delay}}}]
"""
TCP = """
heartbeat = {heartbeat}
lease = {lease}
"""


# -- inspection --------------------------------------------------------------------------------------------------------


def used(session: Session) -> int:
    """Bytes of tensors on all devices."""
    return sum(device["allocated"] for device in session.stats()["devices"].values())


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used (Linux: clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def sessions_of(session: Session) -> dict[int, dict[str, Any]]:
    """The daemon's other sessions, by their client processes."""
    return {row["pid"]: row for row in session._core.answers.query("sessions") if not row["asks"]}


def has_arrived(session: Session, observer: Session) -> bool:
    """Has the daemon received all messages that the only other session of this process has sent?"""
    row = sessions_of(observer)[os.getpid()]
    return bool(row["consumed"] + row["pending"] + row["live"] >= session._core.transport._outgoing.sent)


def descriptors(daemon: Daemon) -> int:
    """How many descriptors the daemon has open."""
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def round_trips(session: Session, count: int) -> list[float]:
    """Seconds that each of so many ops took, including the fetch of its result."""
    x = session.asarray(np.ones(4))
    times = []
    for _ in range(count):
        before = time.perf_counter()
        (x + 1.0).numpy()
        times.append(time.perf_counter() - before)
    return times


@pytest.fixture
def observer(daemon: Daemon) -> Iterator[Session]:
    """A session that inspects the daemon. At the end of a test the daemon holds nothing but this session's tensors:
    none.
    """
    with daemon.connect() as session:
        yield session
        eventually(lambda: not sessions_of(session))
        session.unpublish(*session.names())
        eventually(lambda: used(session) == 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """start(configuration, *options, address=None) -> a daemon of the test's own."""
    running: list[Daemon] = []

    def start(configuration: str = "", *options: str, **others: Any) -> Daemon:
        directory = tmp_path / str(len(running))
        directory.mkdir()
        (directory / "tensord.toml").write_text(configuration)
        running.append(Daemon.start(directory, "--config", str(directory / "tensord.toml"), *options, **others))
        return running[-1]

    yield start
    for daemon in running:
        with daemon:
            if daemon.process.poll() is None:
                daemon.kill()
        assert "Traceback" not in daemon.log, daemon.log


@pytest.fixture
def slow(start: Callable[..., Daemon]) -> Callable[..., Daemon]:
    """slow(delay, grace=5.0) -> a daemon on whose sim:0 every op takes `delay` seconds."""
    return lambda delay, grace=5.0: start(SLOW.format(delay=delay, grace=grace))


# -- 33: a client dies -------------------------------------------------------------------------------------------------

BUSY = """
kept = s.asarray(np.full((512, 512), 3.0, np.float32))
s.publish("kept-" + str(os.getpid()), kept)
x = s.asarray(np.ones((512, 512), np.float32))
small = [s.asarray(np.ones(8)) for _ in range(100)]
"""
ENDLESS = """
while True:
    y = x + 1.0
    y *= 2.0
    x = s.asarray(np.ones((512, 512), np.float32)) + y * 0.0
    z = [one + 1.0 for one in small]
"""


def killed(daemon: Daemon, observer: Session) -> float:
    """Kill a client in mid-batch; seconds until everything but its published tensors is gone."""
    before = used(observer)
    with Puppet.start(daemon.address) as client:
        client.do(BUSY)
        client.tell(ENDLESS)
        row = eventually(lambda: sessions_of(observer).get(client.pid))
        eventually(lambda: sessions_of(observer)[client.pid]["consumed"] > row["consumed"] + 1000)
        client.process.kill()
        start = time.monotonic()
        eventually(lambda: not sessions_of(observer) and used(observer) == before + MIB)
        return time.monotonic() - start


def test_a_killed_client_leaves_only_what_it_has_published(daemon, observer):
    """Behaviour 33: gone within 250 ms, memory back at its baseline, time after time."""
    took: list[float] = []
    resident, open_files = [], []
    fewest, most = ROUNDS
    while len(took) < fewest or (min(took) > AT_ONCE and len(took) < most):
        took.append(killed(daemon, observer))
        (name,) = observer.names()
        np.testing.assert_array_equal(observer.lookup(name).numpy(), np.full((512, 512), 3.0))
        observer.unpublish(name)
        eventually(lambda: used(observer) == 0)
        resident.append(daemon.memory())
        open_files.append(descriptors(daemon))
    assert min(took) <= AT_ONCE
    assert resident[-1] < resident[0] + 32 * MIB
    assert open_files[-1] < open_files[0] + 8


MANY = """
x = s.asarray(np.ones(4))
many = [x + x for _ in range(100_000)]
s.sync()
"""


def test_100_000_tensors_of_a_killed_client_are_gone_as_soon(daemon, observer):
    """Behaviour 33: releasing the tensors takes the daemon less time than making them did. The test compares the
    daemon's own processor time, since other processes on this machine make everything late.
    """
    with Puppet.start(daemon.address) as client:
        begin = processor_time(daemon.pid)
        client.do(MANY)
        made = processor_time(daemon.pid)
        assert used(observer) > 100_000 * 32
        client.process.kill()
        eventually(lambda: not sessions_of(observer) and used(observer) == 0)
    assert processor_time(daemon.pid) - made < (made - begin) / 2


def test_on_ipc_a_process_is_dead_although_its_child_keeps_the_socket(daemon, observer):
    """Behaviour 33: the kernel reports the death of the process, not only of the connection."""
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.ones(1000))\nx.wait()")
        child = client.do("child = os.fork()\nif not child:\n    signal.pause()\nchild")
        try:
            client.kill()
            eventually(lambda: not sessions_of(observer) and used(observer) == 0, SOON)
            os.kill(child, 0)  # the child is alive, and has the socket
        finally:
            os.kill(child, signal.SIGKILL)
    assert "its process has died" in daemon.log


def test_on_ipc_a_disconnect_is_death(daemon, observer):
    """Behaviour 33: a client without a connection has no session any more, although its process is alive."""
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.ones(1000))\nx.wait()")
        client.do("cut(s)")
        eventually(lambda: not sessions_of(observer) and used(observer) == 0, SOON)
        assert client.do("try: x.numpy()\nexcept td.ConnectionLost as error: told = str(error)\ntold").startswith(
            f"the daemon at {daemon.address} is gone"
        )
        client.do(f"s = td.connect({daemon.address!r})")  # it may connect again, as a new session
        assert client.do("s.asarray([1, 2]).numpy().tolist()") == [1, 2]


def test_what_a_killed_client_wrote_for_others_comes_out_right(daemon, observer):
    """Behaviour 33, 42: a write into a shared tensor that it has begun is finished."""
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.zeros(100_000))\ns.publish('x', x)")
        mine = observer.lookup("x")
        with paused(daemon):
            client.do("for _ in range(200): x += 1.0\ns.flush()")
            client.kill()
        eventually(lambda: not sessions_of(observer))
    values = mine.numpy()
    assert mine.error is None
    assert (values == values[0]).all()
    observer.unpublish("x")
    mine.release()


# -- 34: a client stalls -----------------------------------------------------------------------------------------------


def test_a_stopped_client_slows_only_itself(daemon, observer):
    """Behaviour 34: other clients do not notice that it stands still with work and answers outstanding; it goes on
    later.
    """
    alone = statistics.median(round_trips(observer, 300))
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.zeros((256, 256)))\nx.wait()")
        client.tell("for _ in range(3000): x += 1.0\nfloat(x.numpy().sum())")
        with paused(client):
            beside = statistics.median(round_trips(observer, 300))
            assert client.pid in sessions_of(observer)
        assert client.answer() == 3000.0 * 256 * 256
    assert beside < 10 * alone + NOISE  # the benchmark measures the figure; this bound tells a stall from noise


class Mute:
    """A client, written by hand, that asks and never reads."""

    def __init__(self, daemon: Daemon) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger, self.socket.rcvhwm, self.socket.reconnect_ivl = 0, 1, -1
        self.socket.rcvbuf = 4096
        self.socket.sndtimeo = 1000
        self.socket.connect(daemon.address)
        self.send([0, VERSION, "mute", 0, "", False, None, 0])
        assert msgpack.unpackb(self.socket.recv())[0] == 16
        self.number = 0

    def send(self, header: list[Any], *payloads: bytes) -> None:
        self.socket.send_multipart([msgpack.packb(header), *payloads])

    def batch(self, messages: list[Any], uploads: Any = (), *payloads: bytes) -> None:
        self.number += 1
        self.send([1, self.number, messages, uploads], *payloads)

    def close(self) -> None:
        self.socket.close()
        self.context.term()


def test_a_client_that_never_reads_slows_only_itself(start):
    """Behaviour 34: it is not served any more, costs no more memory than its window, and harms no other client."""
    daemon = start('limits.window_bytes = "16 MiB"\n')
    mute = Mute(daemon)
    with daemon.connect() as observer, closing(mute):
        alone = statistics.median(round_trips(observer, 300))
        mute.batch([[2, 1, [MIB], "uint8", "cpu:0", None, 0]], [[0, -1, 0]], bytes(MIB))
        before = daemon.memory()
        for number in range(100):
            mute.batch([[3, 1, 1 + 20 * number + n, 0, 0] for n in range(20)])
        beside = statistics.median(round_trips(observer, 300))
        eventually(lambda: next(iter(sessions_of(observer).values()))["pending"] > 1000)  # of its 2000 fetches of 1 MiB
        assert daemon.memory() < before + 64 * MIB
    assert beside < 10 * alone + NOISE


def test_a_client_stopped_for_longer_than_the_heartbeat_keeps_its_session(start):
    """Behaviour 34: the daemon takes it for lost, and it comes back. No message is lost, none takes effect twice."""
    daemon = start(TCP.format(heartbeat=0.1, lease=30), address=f"tcp://127.0.0.1:{free_port()}")
    with daemon.connect() as observer, Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.zeros(16))\nx.wait()")
        client.tell("for _ in range(2000): x += 1.0\nx.numpy().tolist()")
        with paused(client):
            eventually(lambda: sessions_of(observer)[client.pid]["state"] == "away")
            round_trips(observer, 10)
        assert client.answer() == [2000.0] * 16
        assert client.do("x += 1.0; x.numpy().tolist()") == [2001.0] * 16
        assert sessions_of(observer)[client.pid]["state"] == "open"
    assert "session resumed" in daemon.log


# -- 35: clients share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["name first", "name last"])
def test_a_published_tensor_lives_as_long_as_somebody_holds_it(daemon, observer, order):
    """Behaviour 35: two processes use one tensor, which goes with the last of them and its name."""
    with Puppet.start(daemon.address) as a, Puppet.start(daemon.address) as b:
        a.do("x = s.asarray(np.ones(1000))\ns.publish('x', x)")
        b.do("y = s.lookup('x')")
        a.do("x += 1.0\nx.wait()")
        assert b.do("y.numpy()[0]") == 2.0
        assert used(observer) == 8000  # both hold one tensor
        if order == "name first":
            observer.unpublish("x")
        a.kill()
        eventually(lambda: len(sessions_of(observer)) == 1)
        assert b.do("y += 1.0; y.numpy()[0]") == 3.0
        b.do("s.close()")
        eventually(lambda: not sessions_of(observer))
    if order == "name last":
        assert used(observer) == 8000
        assert observer.lookup("x").numpy()[0] == 3.0
        observer.unpublish("x")
    eventually(lambda: used(observer) == 0)


# -- 36: bad input -----------------------------------------------------------------------------------------------------


def test_an_id_of_another_session_is_nobody_s(daemon, observer):
    """Behaviour 36: each session has its own ids; an unknown id is refused, and the session goes on."""
    secret = observer.asarray(np.full(4, 42.0))
    secret.wait()
    mute = Mute(daemon)
    with closing(mute):
        mute.batch([[3, secret._id, 1, 0, 0], [1, [secret._id]], [10, ["mine"], [secret._id], 2], [16, 3]])
        answers: dict[int, Any] = {}
        while len(answers) < 3:
            for request, kind, body in msgpack.unpackb(mute.socket.recv())[4]:
                answers[request] = (kind, body)
        assert [answers[n][0] for n in (1, 2, 3)] == [1, 1, 0]
        assert answers[1][1][0] == "ProtocolError"
    assert secret.numpy().tolist() == [42.0] * 4
    secret.release()


# -- 37: the daemon is asked to leave ----------------------------------------------------------------------------------


def left_over(daemon: Daemon) -> list[str]:
    """Files that an ended daemon has left, but for the one that this test's harness made."""
    found = [path for path in daemon.home.rglob("*") if not path.is_dir() and path.name != "notify"]
    return sorted(map(str, found))


def goodbye(session: Session) -> str:
    """The error that a session gets when its daemon leaves."""
    with pytest.raises(td.ConnectionLost) as lost:
        session.sync()
    return str(lost.value)


def test_sigterm_lets_what_is_pending_finish(slow):
    """Behaviour 37: waiting calls get the result, then the goodbye; nothing is left behind."""
    daemon = slow(0.05)
    with daemon.connect() as session, daemon.connect() as idle:
        x = session.asarray(np.zeros(4), device="sim:0")
        for _ in range(10):
            x = x + 1.0
        reply = session._core.outbox.ask(lambda request, at: Fetch(x._id, request, at, 0))
        eventually(lambda: has_arrived(session, idle))
        assert daemon.stop() == 0
        assert session._core.outbox.await_reply(reply).tolist() == [10.0] * 4
        assert "it was stopped by SIGTERM" in goodbye(session)
        assert "it was stopped by SIGTERM" in goodbye(idle)
    assert left_over(daemon) == []
    with pytest.raises(td.ConnectionLost, match="tensord serve"):
        daemon.connect()


def test_sigterm_cancels_what_does_not_finish_in_time(slow, caplog):
    """Behaviour 37: when the grace is over, waiting calls get the error that the daemon has ended, and open prints are
    counted.
    """
    daemon = slow(0.1, grace=0.3)
    with daemon.connect() as session, daemon.connect() as observer:
        x = session.asarray(np.zeros(4), device="sim:0")
        for _ in range(1000):
            x = x + 1.0
        for _ in range(3):
            session.print("late", x)
        reply = session._core.outbox.ask(lambda request, at: Fetch(x._id, request, at, 0))
        eventually(lambda: has_arrived(session, observer))
        daemon.signal(signal.SIGTERM)
        with pytest.raises(td.ConnectionLost, match="it was stopped by SIGTERM"):
            session._core.outbox.await_reply(reply, PATIENCE)
        assert daemon.process.wait(PATIENCE) == 0
    assert "3 prints were lost with the end of their session: the daemon has ended: it was stopped by" in caplog.text
    assert "closed by its client" not in daemon.log
    assert left_over(daemon) == []


def test_a_second_sigterm_hurries(slow):
    """Behaviour 37: a long grace period can be cut short."""
    daemon = slow(0.1, grace=600)
    with daemon.connect() as session:
        x = session.asarray(np.zeros(4), device="sim:0")
        for _ in range(6000):
            x = x + 1.0
        session.flush()
        daemon.signal(signal.SIGTERM)
        eventually(lambda: "stopping" in daemon.log)
        assert daemon.process.poll() is None
        daemon.signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE) == 0
        with pytest.raises(td.TensordError):
            x.numpy()
    assert left_over(daemon) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_knocks_while_the_daemon_leaves_is_turned_away(slow, number):
    """Behaviour 37: it takes no new connections, and no new work of its sessions."""
    daemon = slow(0.1)
    with daemon.connect() as session:
        x = session.asarray(np.zeros(4), device="sim:0")
        for _ in range(10):
            x = x + 1.0
        session.flush()
        daemon.signal(number)
        eventually(lambda: "stopping" in daemon.log)
        with pytest.raises(td.ConnectionLost):
            daemon.connect()
        with pytest.raises(td.ConnectionLost):
            (x + 1.0).numpy()
        assert daemon.process.wait(PATIENCE) == 0


def test_a_result_that_was_mapped_outlives_the_daemon(start):
    """Behaviour 37: the memory goes with the last process that maps it."""
    daemon = start()
    with daemon.connect() as session:
        values = session.asarray(np.arange(1_000_000.0))
        seen = (values + 1.0).numpy()
        assert daemon.stop() == 0
        np.testing.assert_array_equal(seen, np.arange(1_000_000.0) + 1.0)


def test_a_daemon_under_load_leaves_in_time(start):
    """Behaviour 37: although clients go on sending."""
    daemon = start("grace = 1.0\n")
    with Puppet.start(daemon.address) as a, Puppet.start(daemon.address) as b, daemon.connect() as observer:
        for client in (a, b):
            client.do(BUSY)
            client.tell(ENDLESS)
        before = observer.stats()["instructions"]
        eventually(lambda: observer.stats()["instructions"] > before + 1000)
        assert daemon.stop() == 0
        for client in (a, b):
            with pytest.raises(Exception, match="ConnectionLost"):
                client.answer()
    assert left_over(daemon) == []


# -- 38: the daemon dies -----------------------------------------------------------------------------------------------


@contextmanager
def waiting(waits: list[Callable[[], object]]) -> Iterator[list[object]]:
    """Waiting threads, one each; the errors that they got."""
    told: list[object] = []

    def run(wait: Callable[[], object]) -> None:
        try:
            told.append(wait())
        except BaseException as error:  # handed to the test
            told.append(error)

    threads = [threading.Thread(target=run, args=(wait,)) for wait in waits]
    for thread in threads:
        thread.start()
    try:
        yield told
    finally:
        for thread in threads:
            thread.join(PATIENCE)


def test_a_killed_daemon_ends_every_wait_at_once(slow):
    """Behaviour 38: in every thread, in every kind of wait; and from then on every call."""
    daemon = slow(3600)
    with daemon.connect() as session:
        x = session.asarray(np.zeros(4), device="sim:0")
        never = x + 1.0
        pending = session.call("unique_values", [never])[0]
        waits = [never.numpy, never.wait, session.sync, lambda: pending.shape, lambda: never.wait(3600)]
        with waiting(waits) as told:
            eventually(lambda: len(session._core.transport._incoming.replies) == len(waits))
            daemon.kill()
            start = time.monotonic()
        assert time.monotonic() - start < SOON
        assert [type(error) for error in told] == [td.ConnectionLost] * len(waits)
        for call in (never.numpy, session.sync, session.stats, session.names, lambda: session.lookup("x")):
            with pytest.raises(td.ConnectionLost, match="is gone"):
                call()


def test_a_killed_daemon_ends_every_await_at_once(slow):
    """Behaviour 38, in asyncio."""
    daemon = slow(3600)

    async def wait_for(tensor: Any) -> Any:
        return await tensor

    async def main() -> None:
        never = session.asarray(np.zeros(4), device="sim:0") + 1.0
        tasks = [asyncio.ensure_future(wait_for(never)) for _ in range(50)]
        await asyncio.sleep(0)
        daemon.kill()
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON)
        assert {type(error) for error in told} == {td.ConnectionLost}

    with daemon.connect() as session:
        asyncio.run(main())


def test_after_a_killed_daemon_every_op_is_refused(start):
    """Behaviour 38: at the line of an op, as soon as the session knows of it, although the op waits for nothing."""
    daemon = start()
    with daemon.connect() as session:
        x = session.asarray([1.0])
        x.wait()
        daemon.kill()
        eventually(lambda: session.closed)
        for issue in (lambda: x + 1.0, lambda: session.asarray([2.0]), lambda: session.print(x)):
            with pytest.raises(td.ConnectionLost, match=f"the daemon at {daemon.address} is gone"):
                issue()


def test_a_killed_daemon_ends_the_wait_for_credit(start):
    """Behaviour 38: also for a session that only submits."""
    daemon = start()
    with daemon.connect() as session:
        x = session.asarray(np.zeros(4))
        x.wait()
        with paused(daemon):

            def submit() -> None:
                for _ in range(100_000):
                    session.call("add", [x, 1.0])

            with waiting([submit]) as told:
                window = session._core.transport._credit.window
                eventually(lambda: session._core.transport._outgoing.sent > window)
                daemon.kill()
                daemon.signal = lambda _number: None
        assert [type(error) for error in told] == [td.ConnectionLost]


def test_a_new_daemon_starts_where_one_was_killed(start):
    """Behaviour 38: its socket and lock remain and do not hinder a new daemon; the old session stays lost."""
    first = start()
    with first.connect() as session:
        x = session.asarray([1, 2])
        x.wait()
        first.kill()
        assert left_over(first) != []
        second = start(address=first.address)
        with second.connect() as anew:
            assert anew.asarray([3]).numpy().tolist() == [3]
            with pytest.raises(td.ConnectionLost):
                x.numpy()
        assert second.stop() == 0


def test_two_daemons_do_not_share_an_address(start):
    """The second daemon names the process that has the address."""
    first = start()
    with pytest.raises(AssertionError, match=str(first.pid)):
        start(address=first.address)
    with first.connect() as session:
        assert session.asarray([1]).numpy().tolist() == [1]


# -- tcp: a connection is cut ------------------------------------------------------------------------------------------


@pytest.fixture
def tcp(start: Callable[..., Daemon]) -> Callable[..., Daemon]:
    """tcp(lease) -> a daemon on a tcp address of this machine."""
    return lambda lease: start(TCP.format(heartbeat=1, lease=lease), address=f"tcp://127.0.0.1:{free_port()}")


def test_a_session_over_tcp_survives_its_connection(tcp):
    """No message is lost or takes effect twice, however often the connection is cut; waiting calls go on."""
    daemon = tcp(30)
    with daemon.connect() as session:
        x = session.asarray(np.zeros(16))
        counted = 0
        for round_ in range(6):
            for n in range(300):
                x += 1.0
                counted += 1
                if n == 50 * round_:
                    session.flush()
                    cut(session)
            np.testing.assert_array_equal(x.numpy(), np.full(16, float(counted)))
        big = np.arange(500_000.0)
        y = session.asarray(big)
        cut(session)
        np.testing.assert_array_equal((y + 1.0).numpy(), big + 1.0)
    assert daemon.log.count("session resumed") >= 6
    assert daemon.stop() == 0


def test_waiting_calls_go_on_after_a_cut(tcp):
    """In several threads; a side effect happens once."""
    daemon = tcp(30)
    with daemon.connect() as session:
        x = session.asarray(np.ones(4))
        x.wait()
        seen: list[float] = []
        with paused(daemon):
            y = x + 1.0
            session.effect(lambda array: seen.append(float(array[0])), y)
            waits = [y.numpy, y.wait, session.sync, session.check_chain]
            with waiting(waits) as told:
                eventually(lambda: len(session._core.transport._incoming.replies) >= 3)
                cut(session)
                eventually(lambda: session._core.transport._outgoing.away)
                daemon.signal(signal.SIGCONT)
        assert not [error for error in told if isinstance(error, BaseException)]
        assert seen == [2.0]
    assert daemon.stop() == 0


def test_a_cancel_that_a_cut_swallowed_comes_again(tcp):
    """Calls that the session makes without its connection take effect when the connection is back."""
    daemon = tcp(30)
    with daemon.connect() as session:
        x = session.asarray(np.ones(4))
        x.wait()
        cut(session)
        session.cancel()
        y = x + 1.0
        with pytest.raises(td.CancelledError):
            y.numpy()
        session.restart()
        np.testing.assert_array_equal((x + 1.0).numpy(), np.full(4, 2.0))
    assert daemon.stop() == 0


def test_a_lease_that_is_over_ends_the_session(tcp):
    """The client learns that it is too late; the daemon has released its tensors."""
    daemon = tcp(0.5)
    with daemon.connect() as observer, Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.ones(1000))\nx.wait()\ns.publish('kept', s.asarray(np.ones(4)))")
        client.do("from tensord.client.transport.link import DealerSocket")
        client.do("DealerSocket.reopen = lambda link: None\nDealerSocket.hello = lambda *_: None")
        client.do("cut(s)")
        with pytest.raises(Failed, match="out of reach too long"):
            client.do("session_lost = s.sync(30)")
        eventually(lambda: not sessions_of(observer) and used(observer) == 32)
        np.testing.assert_array_equal(observer.lookup("kept").numpy(), np.ones(4))
    assert daemon.stop() == 0


def test_what_keeps_a_client_from_coming_back_is_no_end_while_the_lease_lasts(tcp, monkeypatch):
    """The name of its host cannot be resolved for a moment, or no descriptor is free."""
    daemon = tcp(30)
    left = [2]
    configure = DealerSocket.configure

    def refuse(link, socket):
        if left[0]:
            left[0] -= 1
            raise zmq.ZMQError(errno.ENODEV)
        configure(link, socket)

    with daemon.connect() as session:
        x = session.asarray(np.ones(4))
        x.wait()
        monkeypatch.setattr(DealerSocket, "configure", refuse)
        cut(session)
        assert (x + 1.0).tolist() == [2.0] * 4
        assert left == [0]
    assert daemon.stop() == 0


def test_a_session_that_could_not_come_back_says_why(tcp):
    daemon = tcp(0.5)
    with Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.ones(4))\nx.wait()")
        client.do("import errno, zmq\nfrom tensord.client.transport.link import DealerSocket")
        client.do("def refuse(*_): raise zmq.ZMQError(errno.EMFILE)")
        client.do("DealerSocket.configure = refuse\ncut(s)")
        with pytest.raises(Failed, match="out of reach too long: Too many open files"):
            client.do("x.numpy()")
    assert daemon.stop() == 0


def test_a_client_that_comes_back_too_late_is_told(tcp):
    """The client stood still for longer than the lease."""
    daemon = tcp(0.3)
    with daemon.connect() as observer, Puppet.start(daemon.address) as client:
        client.do("x = s.asarray(np.ones(1000))\nx.wait()")
        client.do("cut(s)")
        with paused(client):
            eventually(lambda: not sessions_of(observer) and used(observer) == 0)
        with pytest.raises(Failed) as failed:
            client.do("x.numpy()")
        assert failed.value.kind == "ConnectionLost"
    assert daemon.stop() == 0


def test_a_new_daemon_does_not_know_a_session_of_the_old_one(start):
    """On tcp, too, a session ends with its daemon; it gets the error when another daemon answers there."""
    address = f"tcp://127.0.0.1:{free_port()}"
    first = start(TCP.format(heartbeat=1, lease=30), address=address)
    with first.connect() as session:
        x = session.asarray(np.ones(4))
        x.wait()
        first.kill()
        second = start(TCP.format(heartbeat=1, lease=30), address=address)
        with pytest.raises(td.ConnectionLost, match="no longer known"):
            x.numpy()
        assert second.stop() == 0
