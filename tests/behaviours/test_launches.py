"""Ops that are launched at admission: which instructions wait for them, and how.

The tests use a CUDA device over the fake of CUDA's runtime. Behaviour that simulated devices share is tested on both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.cuda.cuda import MAX_AXES, CudaDevice
from tensord.streams.launching.launcher import Launcher
from tensord.vm.scheduler.fences import EXCLUSIVE_NS, FENCE_INTERVAL, MAX_AHEAD

from ..streams.fake_cuda.gpu import Gpu, IllegalAddress, illegal_address
from ..streams.fake_cuda.module import installed
from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, until

DEVICES: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]
SIM: list[Any] = ["cpu:0", {"name": "sim:0", "memory": "64MiB", "launches": True}]
ONES = np.ones(1024)


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session() -> Iterator[Any]:
    with td.connect("local", devices=DEVICES) as opened:
        warm(opened, "cuda:0")
        yield opened


def warm(session: Any, device: str) -> None:
    """The first call of each op takes the long way: its kernels are compiled."""
    x = session.asarray(ONES, device=device)
    for _ in range(2):
        y = x + x
        y += x
        y = y * 2.0
        y.numpy()


def put(session: Any, value: float = 1.0) -> Any:
    """A tensor whose value has been computed."""
    return session.asarray(ONES * value, device="cuda:0").wait()


def hold(gpu: Gpu, session: Any, name: str = "compute") -> None:
    """Keep the compute stream from working until `gpu.release(name)`."""
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, lambda: None, gpu.hold(name))


def raise_illegal() -> None:
    """A kernel that uses an invalid address, as the device reports it."""
    raise IllegalAddress


def launches(session: Any) -> list[Any]:
    """The records of ops that were launched at admission."""
    return [one for one in session.trace().records if one.launch and one.opcode == Opcode.CALL]


def test_a_chain_is_launched_without_the_launcher_and_costs_few_events(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = one = put(session)
    session.sync()
    submitted: list[Any] = []
    submit = Launcher.submit

    def noting(*given: Any) -> None:
        submitted.append(given)
        submit(*given)

    monkeypatch.setattr(Launcher, "submit", noting)
    gpu.calls.clear()
    for _ in range(2000):
        x = x + one
    assert x.numpy()[0] == 2001
    assert not submitted
    assert gpu.calls["launchKernel"] == 2000
    assert gpu.calls["eventRecord"] + gpu.calls["eventCreate"] <= 0.02 * 2000
    found = launches(session)
    assert [one.launch for one in found] == sorted(one.launch for one in found)
    assert {one.stream for one in found} == {"cuda:0/compute0"}
    assert session.trace().verify() == []


def test_a_copy_waits_for_no_launch_while_there_is_memory(gpu: Gpu, session: Any) -> None:
    x = put(session)
    for _ in range(2):
        y = x + x
        y = y * 2.0
        y.wait()
    session.sync()
    hold(gpu, session)
    for _ in range(8):
        y = x + x  # the memory of y may be used once the device has got there
    session.flush()
    copied = [session.asarray(ONES * n, device="cuda:0") for n in range(6)]
    session.flush()
    until(session, lambda: sum("/h2d" in one.stream for one in session.trace().records) >= 6)
    uploads = [one for one in session.trace().records if one.op == "upload" and not one.erased]
    assert not any(edge.reason == "memory" for one in uploads for edge in one.edges)
    gpu.release("compute")
    assert [each.numpy()[0] for each in copied] == list(range(6))


def test_the_record_of_a_reading_in_the_order_of_launches_names_the_reader_and_its_line() -> None:
    with td.connect("local:read", devices=DEVICES) as first, td.connect("local:read", devices=DEVICES) as other:
        first.publish("x", put(first))
        first.sync()
        before = max(one.id for one in other.trace().records)
        assert other.lookup("x").numpy()[0] == 1.0
        (read,) = [one for one in other.trace().records if one.id > before and one.nbytes == ONES.nbytes]
        assert read.session == read.caused_by == other.stats()["session"]["id"]
    assert (read.op, read.device, read.stream) == ("fetch", "cuda:0", "cuda:0/compute0")
    assert "test_launches.py" in read.location


def test_a_task_that_waits_for_room_leaves_the_fences_to_threads_that_look(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background thread looks only now and then, and the device would run out of work."""
    x = one = put(session)
    session.sync()
    machine = machine_of(session)
    monkeypatch.setattr(machine, "await_credit", lambda _session: None)
    hold(gpu, session)
    for _ in range(MAX_AHEAD + FENCE_INTERVAL):
        x = x + one
    session._core.outbox.flush_if_free()
    assert not session._core.transport.has_room(0.5)
    assert not machine.engine.unwatched
    gpu.release("compute")
    assert x.numpy()[0] == MAX_AHEAD + FENCE_INTERVAL + 1


@pytest.mark.parametrize("others", [0, 1])
def test_how_far_ahead_goes_by_the_time_that_kernels_take(gpu: Gpu, session: Any, others: int) -> None:
    """At 1024 element operations in 10 ms; beside another session, less than one of them is enough."""
    x = put(session)
    session.sync()
    launches = machine_of(session).engine.tiers["cuda:0"].launches
    assert launches is not None
    launches.least_cost, launches.pace = 0, 1024 / (EXCLUSIVE_NS / 8)
    if others:
        machine_of(session).engine.tiers["cuda:0"].users.update({object(): None})  # type: ignore[dict-item]
    launches.fence_cost = 0
    hold(gpu, session)
    done = threading.Event()

    def run() -> None:
        y = x
        for _ in range(40):
            y = y + x
        y.wait()
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    most = 2 if others else 8
    until(session, lambda: launches.order.issued - launches.order.reached >= most)
    assert not done.wait(0.05)
    assert most <= launches.order.issued - launches.order.reached <= most + most // 2
    gpu.release("compute")
    thread.join(20)
    assert done.is_set()


def test_fences_that_are_found_together_do_not_say_how_fast_a_device_is(gpu: Gpu, session: Any) -> None:
    x = put(session)
    session.sync()
    machine = machine_of(session)
    launches = machine.engine.tiers["cuda:0"].launches
    assert launches is not None
    launches.least_cost = 1 << 40
    before = launches.pace
    hold(gpu, session)
    for _ in range(3):
        x = x + x
        session._core.outbox.flush_if_free()
        with machine.lock:
            machine.engine.fence()
    with machine.lock:
        gpu.release("compute")
        while gpu.step():
            pass
    session.sync()
    assert before <= launches.pace <= 2 * before


def test_a_small_value_is_read_without_a_fence_where_the_device_has_little_to_do(gpu: Gpu, session: Any) -> None:
    x = put(session)
    (x * 2.0).numpy()  # the first launch of all has a fence
    session.sync()
    gpu.calls.clear()
    before = session.stats()["transfers"]["cuda:0"]["d2h"]["count"]
    for n in range(10):
        assert (x * float(n)).numpy()[0] == n
    assert gpu.calls["eventRecord"] == 0
    assert session.stats()["transfers"]["cuda:0"]["d2h"]["count"] == before + 10
    read = [one for one in session.trace().records if one.op == "fetch"][-10:]
    assert {(one.stream, one.nbytes) for one in read} == {("cuda:0/compute0", ONES.nbytes)}
    assert session.trace().verify() == []


def test_a_small_value_has_its_number_once_its_copy_is_launched(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a thread that has waited for the stream up to that number would take the copy to be done."""
    x = put(session)
    session.sync()
    order = device_of(session, "cuda:0").order
    before, given = order.issued, []
    copy_out_soon = CudaDevice.copy_out_soon

    def noting(*asked: Any) -> bool:
        found = copy_out_soon(*asked)
        given.append(order.issued)
        return found

    monkeypatch.setattr(CudaDevice, "copy_out_soon", noting)
    x.numpy()
    assert given == [before]
    assert order.issued == order.reached == before + 1


def test_a_small_value_behind_much_work_is_read_behind_a_fence(gpu: Gpu, session: Any) -> None:
    x = put(session)
    session.sync()
    hold(gpu, session)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((x + x).numpy()))
    thread.start()
    until(session, lambda: any(one.opcode == Opcode.ACCESS for one in list(machine_of(session).engine.live.values())))
    assert not found
    gpu.release("compute")
    thread.join(10)
    np.testing.assert_array_equal(found[0], ONES * 2.0)
    assert session.trace().verify() == []


def test_calls_whose_operands_are_always_views_are_launched_too(session: Any) -> None:
    x = session.asarray(np.arange(12.0).reshape(3, 4), device="cuda:0").wait()
    for _ in range(3):
        y = x.T @ x
        y.wait()
    last = [one for one in session.trace().records if one.op == "matmul"][-1]
    assert last.launch
    np.testing.assert_array_equal(y.numpy(), x.numpy().T @ x.numpy())


def test_what_was_current_of_cupy_is_current_again(gpu: Gpu, session: Any) -> None:
    x = put(session)
    cupy = device_of(session, "cuda:0")._cupy
    with cupy.cuda.Device(1):
        mine = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Device(1), mine:
        (x + x).wait()
        x += x
        x.numpy()
        assert cupy.cuda.get_current_stream() is mine
        assert gpu.device == 1


def test_a_launch_that_faults_loses_the_device_for_what_depends_on_it_alone(gpu: Gpu, session: Any) -> None:
    x, there = put(session), session.asarray(ONES, device="cpu:0")
    session.sync()
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, raise_illegal)
    y = x + x
    z = y.to_device("cpu:0")
    for lost in (y, z, x + x):
        with pytest.raises(KernelError, match=r"illegal memory access|cuda:0 is lost"):
            lost.numpy()
    np.testing.assert_array_equal((there + 1.0).numpy(), ONES * 2.0)
    session.sync()


def test_the_error_of_a_lost_device_names_what_was_launched_since_it_was_sound(gpu: Gpu, session: Any) -> None:
    x = put(session)
    (x * 5.0).numpy()
    session.sync()
    x = x + x
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, raise_illegal)
    for _ in range(2):
        x = x * 2.0
    with pytest.raises(KernelError):
        x.numpy()
    with pytest.raises(KernelError, match=r"healthy.*: multiply \(.*test_launches.py:\d+.*\) 2 times, add") as raised:
        session.asarray(ONES, device="cuda:0").wait()
    assert "launch_blocking" in str(raised.value)


def test_a_device_is_seen_to_be_lost_where_its_fences_are_looked_for(gpu: Gpu, session: Any) -> None:
    """A busy machine never leaves the fences to another thread, which would notice the loss."""
    x = put(session)
    session.sync()
    device, machine = device_of(session, "cuda:0"), machine_of(session)
    gpu.enqueue(device.compute[0].raw.queue, raise_illegal)
    y = x + x
    session.flush()
    with machine.lock:
        machine.engine.fence()
        while gpu.step():
            pass
        machine.engine.poll()
        assert device.lost is not None
    with pytest.raises(KernelError, match="illegal"):
        y.numpy()


def test_launch_blocking_names_the_op_at_fault_and_its_line(gpu: Gpu) -> None:
    device = {**DEVICES[1], "launch_blocking": True}
    with td.connect("local", devices=["cpu:0", device]) as s:
        x = put(s)
        for _ in range(2):
            ((x + x) * 2.0).wait()
        y = x + x
        gpu.enqueue(device_of(s, "cuda:0").compute[0].raw.queue, raise_illegal)
        z = y * 2.0
        with pytest.raises(KernelError, match="illegal") as raised:
            z.wait()
        assert raised.value.op == "multiply"
        assert "test_launches.py" in str(raised.value.location)


def test_an_error_that_surfaces_where_the_driving_thread_calls_cuda_ends_no_machine(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the documentation of cudaSetDevice has it: it "may also return error codes from previous, asynchronous
    launches"."""
    x, there = put(session), session.asarray(ONES, device="cpu:0")
    session.sync()
    device = device_of(session, "cuda:0")
    enter = type(device.compute[0].raw).__enter__

    def surfaces(stream: Any) -> Any:
        gpu.broken[0] = illegal_address()
        gpu.call("setDevice", 0)
        return enter(stream)

    monkeypatch.setattr(type(device.compute[0].raw), "__enter__", surfaces)
    with pytest.raises(KernelError, match="illegal memory access"):
        (x + x).numpy()
    assert device.lost is not None
    assert device.allocate(1 << 20) is None
    np.testing.assert_array_equal((there + 1.0).numpy(), ONES * 2.0)
    assert machine_of(session).fault is None


def test_the_watch_over_kernels_leaves_an_engine_with_a_fault_alone(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = put(session)
    session.sync()
    hold(gpu, session)
    y = x + x  # the first one may have a fence
    y = y + x
    session.flush()
    machine = machine_of(session)
    with monkeypatch.context() as patched, machine.lock:
        patched.setattr(machine, "driving", nullcontext)  # this thread holds the lock
        patched.setattr(machine.engine, "fault", RuntimeError("in the middle of a step"))
        before = machine.engine.scheduler.ids
        machine.watch_kernels()
        assert machine.engine.scheduler.ids == before
    gpu.release("compute")
    assert y.numpy()[0] == 3.0


def test_an_fft_is_the_launchers_whose_plans_are_kept(session: Any) -> None:
    x = put(session)
    for _ in range(3):
        found = session.xp.fft.rfft(x).numpy()
    np.testing.assert_allclose(found, np.fft.rfft(ONES))
    assert "rfft" not in {one.op for one in launches(session)}


def test_what_is_sent_while_a_session_is_flooded_keeps_its_order(
    gpu: Gpu, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`await_credit` returns at once, as on the background and other threads."""
    x = one = put(session)
    session.sync()
    monkeypatch.setattr(machine_of(session), "await_credit", lambda _session: None)
    hold(gpu, session)
    ops = 0
    while not machine_of(session).engine.held:  # a batch that is sent once the session is flooded
        assert ops < 4 * MAX_AHEAD
        x, ops = x + one, ops + 1
        if ops > MAX_AHEAD:
            session._core.outbox.flush_if_free()
    gpu.release("compute")
    while gpu.step():
        pass  # the device has done it, and the machine does not know that yet
    x = x + one
    session._core.outbox.flush_if_free()
    assert x.numpy()[0] == ops + 2


def test_arrays_of_more_axes_than_the_device_has_fail_alone(session: Any) -> None:
    """Their kernels are known, and their values are there: nothing of them is bound at admission."""
    x = session.asarray(np.ones(1), device="cuda:0")
    for _ in range(3):
        (x + x).wait()
    y = session.xp.reshape(x, (1,) * (MAX_AXES + 1)).wait()
    for ask in (y.numpy, (y + y).wait, (y * 2.0).numpy):
        with pytest.raises(KernelError, match="axes"):
            ask()
    assert (x + x).numpy() == 2.0


# -- errors that are known after the launch ----------------------------------------------------------------------------


@pytest.fixture
def rows(session: Any) -> Any:
    """A tensor of rows, of which some were gathered before, and those multiplied."""
    x = session.asarray(np.arange(40.0).reshape(10, 4), device="cuda:0").wait()
    for _ in range(3):
        (gather(session, x, [1, 2]) * 2.0).wait()
    session.sync()
    return x


def gather(session: Any, x: Any, positions: list[int]) -> Any:
    """Rows of x; the positions lie on the device."""
    return session.call("take", [x, session.asarray(np.array(positions), device="cuda:0")], {"axis": 0})[0]


def test_a_gather_is_launched_and_nobody_waits_for_its_positions(
    gpu: Gpu, session: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = session.asarray(np.array([9, -10]), device="cuda:0").wait()
    session.sync()
    compute, submit, handed = device_of(session, "cuda:0").compute[0], Launcher.submit, list[Any]()

    def noting(launcher: Launcher, stream: Any, tasks: Any) -> None:
        handed.extend(tasks if stream is compute else ())
        submit(launcher, stream, tasks)

    monkeypatch.setattr(Launcher, "submit", noting)
    hold(gpu, session)
    y = session.call("take", [rows, some], {"axis": 0})[0]
    z = y * 2.0
    session.flush()
    assert not handed
    assert not y.is_ready()
    gpu.release("compute")
    np.testing.assert_array_equal(z.numpy(), rows.numpy()[[9, 0]] * 2.0)
    assert session.trace().verify() == []


@pytest.mark.parametrize("wrong", [10, -11])
def test_a_position_out_of_bounds_fails_the_gather_and_what_depends_on_it_alone(
    gpu: Gpu, session: Any, rows: Any, wrong: int
) -> None:
    bad = session.asarray(np.array([1, wrong]), device="cuda:0").wait()
    good = session.asarray(np.array([1, 2]), device="cuda:0").wait()
    session.sync()
    hold(gpu, session)
    lost = [session.call("take", [rows, bad], {"axis": 0})[0]]
    sound = session.call("take", [rows, good], {"axis": 0})[0] * 2.0
    for _ in range(3):
        lost.append(lost[-1] * 2.0)
    lost.append(lost[-1].to_device("cpu:0") + 1.0)
    lost.append(lost[1] + sound)
    session.flush()
    gpu.release("compute")
    for one in lost:
        with pytest.raises(KernelError, match=f"take.*index {wrong} is out of bounds for an axis of size 10") as raised:
            one.numpy()
        assert raised.value.op == "take"
        assert "test_launches.py" in str(raised.value.location)
    np.testing.assert_array_equal(sound.numpy(), rows.numpy()[[1, 2]] * 2.0)
    again = rows * 2.0  # the device goes on
    np.testing.assert_array_equal(again.numpy(), rows.numpy() * 2.0)
    assert session.trace().verify() == []


def test_what_was_overwritten_since_is_healthy(gpu: Gpu, session: Any, rows: Any) -> None:
    bad = session.asarray(np.array([1, 99]), device="cuda:0").wait()
    session.sync()
    hold(gpu, session)
    y = session.call("take", [rows, bad], {"axis": 0})[0]
    session.call("full", [7.0], {"shape": (2, 4), "dtype": "float64"}, out=[y], device="cuda:0")
    session.flush()
    gpu.release("compute")
    np.testing.assert_array_equal(y.numpy(), np.full((2, 4), 7.0))


def test_a_scatter_reports_late_too(gpu: Gpu, session: Any, rows: Any) -> None:
    for position, fails in ((3, False), (12, True)):
        target = (rows * 1.0).wait()
        at = session.asarray(np.array([position]), device="cuda:0").wait()
        session.sync()
        hold(gpu, session)
        target[at] = 5.0
        session.flush()
        gpu.release("compute")
        if fails:
            with pytest.raises(KernelError, match="index 12 is out of bounds"):
                target.numpy()
        else:
            assert target.numpy()[position, 0] == 5.0


@pytest.mark.parametrize("seed", range(4))
def test_random_gathers_and_what_depends_on_them(gpu: Gpu, session: Any, rows: Any, seed: int) -> None:
    """Against NumPy: each value equals NumPy's, or has failed because a position before it was out of bounds."""
    rng, base = np.random.default_rng(seed), rows.numpy()
    there: list[Any] = [rows, (rows + 1.0).wait()]
    expected: list[Any] = [base, base + 1.0]  # None for a failed value
    session.sync()
    for step in range(60):
        if step % 20 == 0:
            hold(gpu, session, f"compute {step}")
        one, other = rng.integers(0, len(there), 2)
        x, y = expected[one], expected[other]
        match rng.integers(0, 6):
            case 0 | 1:
                positions = rng.integers(-10, 11 if rng.random() < 0.2 else 10, 10)
                there.append(gather(session, there[one], list(positions)))
                expected.append(None if x is None or positions.max() > 9 else x[positions])
            case 2:
                there.append(there[one] - there[other])
                expected.append(None if x is None or y is None else x - y)
            case 3:
                session.call("multiply", [there[one], 0.5], out=[there[other]])
                expected[other] = None if x is None else x * 0.5
            case 4:
                there[one], expected[one] = session.asarray(base, device="cuda:0"), base
            case _:
                there.append((there[one].to_device("cpu:0") + 1.0).to_device("cuda:0"))
                expected.append(None if x is None else x + 1.0)
        if step % 20 == 19:
            session.flush()
            gpu.release(f"compute {step - 19}")
    for value, known in zip(there, expected, strict=True):
        if known is None:
            with pytest.raises(KernelError, match="index 10 is out of bounds"):
                value.numpy()
        else:
            np.testing.assert_array_equal(value.numpy(), known)
    assert session.trace().verify() == []


# -- on either device --------------------------------------------------------------------------------------------------


class Launching(NamedTuple):
    """A session on a device that launches, and a context manager that keeps the device from computing."""

    session: Any
    name: str
    holding: Callable[[], AbstractContextManager[None]]

    def put(self, value: float = 1.0) -> Any:
        """A tensor whose value has been computed."""
        return self.session.asarray(ONES * value, device=self.name).wait()


@pytest.fixture(params=["cuda:0", "sim:0"])
def launching(request: pytest.FixtureRequest, gpu: Gpu) -> Iterator[Launching]:
    """On a device that launches, the fake of a GPU or a simulated one."""

    @contextmanager
    def holding() -> Iterator[None]:
        hold(gpu, opened)
        yield
        gpu.release("compute")

    if request.param == "cuda:0":
        chosen, holds = DEVICES, holding
    else:
        chosen, holds = SIM, lambda: held(opened, "sim:0", "compute")
    with td.connect("local", devices=chosen) as opened:
        warm(opened, request.param)
        yield Launching(opened, request.param, holds)
    assert not gpu.bugs


def test_a_wait_and_a_sync_end_when_the_device_has_got_there(launching: Launching) -> None:
    session, x = launching.session, launching.put()
    over: list[str] = []

    def wait_by(wait: Any, name: str) -> None:
        wait()
        over.append(name)

    with launching.holding():
        y = x + x
        session.flush()
        threads = [threading.Thread(target=wait_by, args=each) for each in ((session.sync, "sync"), (y.wait, "wait"))]
        for thread in threads:
            thread.start()
        until(session, lambda: len(machine_of(session).engine.live) >= 2)
        assert not over
    for thread in threads:
        thread.join(WAIT)
    assert sorted(over) == ["sync", "wait"]


def test_a_value_is_ready_once_the_device_has_got_there(launching: Launching) -> None:
    x = launching.put()
    with launching.holding():
        y = x + x
        assert not any(y.is_ready() for _ in range(20))
    until(launching.session, y.is_ready)


def test_an_upload_into_memory_that_a_launch_reads_comes_behind_it(
    launching: Launching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other memory is free, but the upload does not look for it, as it does where there is none."""
    session = launching.session
    monkeypatch.setattr(type(device_of(session, launching.name)), "prefer_reached", lambda *_: None)
    x = launching.put(3.0)
    session.sync()
    with launching.holding():
        y = x + x
        del x  # its memory is free for launches that follow, and behind them for other streams
        session.flush()
        uploads = [session.asarray(ONES * 7.0, device=launching.name) for _ in range(3)]
        session.flush()
    np.testing.assert_array_equal(y.numpy(), ONES * 6.0)
    assert all((one.numpy() == 7.0).all() for one in uploads)
    assert any(edge.reason == "memory" for record in session.trace().records for edge in record.edges)
    assert_sound(session)


def test_a_copy_to_another_device_comes_behind_the_launch_that_makes_the_value(launching: Launching) -> None:
    session, x = launching.session, launching.put()
    with launching.holding():
        y = (x + x).to_device("cpu:0") * 2.0
        session.flush()
    np.testing.assert_array_equal(y.numpy(), ONES * 4.0)
    records = {one.id: one for one in session.trace().records}
    moved = max(id_ for id_, one in records.items() if one.opcode == Opcode.TRANSFER)
    assert [records[edge.source].opcode for edge in records[moved].edges] == [Opcode.FENCE]


def test_who_launches_too_far_ahead_waits(launching: Launching) -> None:
    session, x = launching.session, launching.put()
    session.sync()
    order = device_of(session, launching.name).order
    done = threading.Event()

    def run() -> None:
        y = x
        for _ in range(4 * MAX_AHEAD):
            y = y + x
        assert y.numpy()[0] == 1 + 4 * MAX_AHEAD
        done.set()

    thread = threading.Thread(target=run)
    with launching.holding():
        thread.start()
        until(session, lambda: order.issued - order.reached >= MAX_AHEAD)
        assert not done.wait(0.1)
        assert order.issued - order.reached <= MAX_AHEAD + FENCE_INTERVAL
    thread.join(2 * WAIT)
    assert done.is_set()


def test_a_session_that_ends_leaves_its_launches_to_the_device(launching: Launching) -> None:
    session, x = launching.session, launching.put()
    with launching.holding():
        y = x + x
        session.flush()
    del y
    session.close()
