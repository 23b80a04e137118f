"""Runs of routines that are launched at admission: lists of launches on a device that launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError
from tensord.interpreter.opcodes import Opcode
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.launching.launcher import Launcher
from tensord.vm.model.linked import SessionProgram
from tensord.vm.routines.compiling.recipe import ARENA
from tensord.vm.routines.running.segment import MAX_IDLE_ARENA
from tensord.vm.scheduler.fences import FENCE_INTERVAL, MAX_AHEAD

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .looking_inside import assert_sound, device_of, held, machine_of

SIM: list[Any] = ["cpu:0", {"name": "sim:0", "memory": "64MiB", "launches": True}]
CUDA: list[Any] = ["cpu:0", {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"}]
ONES = np.ones(1024)
MACHINE = "local:launched-runs"


@pytest.fixture(params=["sim:0", "cuda:0"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    device = request.param
    with installed(Gpu(seed=1, memory=1 << 30)), td.connect("local", devices=SIM if device == "sim:0" else CUDA) as one:
        yield one


@pytest.fixture
def sim() -> Iterator[Any]:
    with td.connect(MACHINE, devices=SIM) as one:
        yield one


def put(session: Any, value: Any = 1.0) -> Any:
    """A tensor on the device that launches."""
    return session.asarray(ONES * value, device=session.devices[-1]).wait()


def polynomial(x: Any, y: Any) -> tuple[Any, Any]:
    """Two results of four ops, two of them inside."""
    product = (x + y) * x
    return product - y, product * 2.0


def warm(session: Any, function: Any, *operands: Any) -> Any:
    """A routine that runs as a segment whose kernels have run."""
    routine = session.routine(function)
    for _ in range(4):
        routine(*operands)
        session.sync()
    return routine


def runs(session: Any) -> list[Any]:
    """The records of runs that were launched at admission."""
    return [one for one in session.trace().records if one.launch and one.opcode == Opcode.RUN]


def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks that go to the launcher from now on; they are not launched."""
    found: list[Any] = []
    monkeypatch.setattr(Launcher, "submit", lambda *given: found.append(given))
    return found


def test_runs_are_launched_one_behind_the_other_without_a_wait(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = put(session, 3.0), put(session)
    f = warm(session, polynomial, x, y)
    before = len(runs(session))
    handed = handed_over(monkeypatch)
    for _ in range(50):
        x, _ = f(x, y)
        x = x * 0.5
    session.flush()
    assert not handed
    monkeypatch.undo()
    expected = 3.0
    for _ in range(50):
        expected = ((expected + 1.0) * expected - 1.0) * 0.5
    np.testing.assert_array_equal(x.numpy(), ONES * expected)
    found = runs(session)
    assert len(found) == before + 50
    numbers = [one.launch for one in found]
    assert numbers == sorted(numbers)
    assert_sound(session)


def test_a_run_writes_in_place_behind_what_reads_the_tensor(session: Any) -> None:
    def step(weights: Any, gradient: Any) -> Any:
        change = gradient * 0.5 + gradient
        weights -= change
        return change

    w, g = put(session, 10.0), put(session)
    f = warm(session, step, w, g)
    before, read = w.numpy()[0], []
    for _ in range(5):
        read.append(w * 1.0)
        f(w, g)
    assert [one.numpy()[0] for one in read] == [before - 1.5 * n for n in range(5)]
    assert w.numpy()[0] == before - 7.5
    assert_sound(session)


def test_arenas_are_used_again_behind_the_launches_that_use_them(session: Any) -> None:
    """Memory that no replay keeps is freed while its run is only launched; another run, or an upload, may get it."""
    large = np.arange(MAX_IDLE_ARENA // 4, dtype=np.float64)
    x, y = (session.asarray(large * n, device=session.devices[-1]).wait() for n in (1.0, 2.0))

    def inside(x: Any, y: Any) -> Any:
        return session.xp.max(x * y + x)  # no other tensor sees the reduced value

    f = warm(session, inside, x, y)
    found = [f(x, y) for _ in range(6)]
    uploaded = [session.asarray(large * n, device=session.devices[-1]) for n in range(3)]
    found += [f(x, each) for each in uploaded]
    last = large[-1]
    assert [one.numpy()[()] for one in found] == [last * last * 2 + last] * 6 + [
        last * last * n + last for n in range(3)
    ]
    assert runs(session)
    assert_sound(session)


def test_inner_values_on_a_gpu_begin_where_a_librarys_kernels_see_no_difference(cuda: Any) -> None:
    """Op by op each result has a block of its own. cuBLAS chooses its kernel by alignment, and another kernel has other
    bits.
    """
    x = cuda.asarray(np.ones(3), device="cuda:0").wait()
    warm(cuda, lambda x: (x + 1.0) * x - (x * 2.0) * (x - 3.0), x)
    sessions = machine_of(cuda).engine.directory.sessions.values()
    linked = [each for session in sessions for each in session.routines.values() if isinstance(each, SessionProgram)]
    segments = [one for each in linked for one in each.segments.values()]
    inside = [each for one in segments for each in one.recipe.buffer_slices.values() if each.slot == ARENA]
    assert len({argument.offset for argument in inside}) > 1
    assert not any(argument.offset % 256 for argument in inside)


def test_numbers_of_a_run_are_its_own(sim: Any) -> None:
    """The next run's arguments are put into the same places while this one is not computed yet."""
    x = put(sim)
    f = warm(sim, lambda x, number: (x * number) + number, x, 2.0)
    with held(sim, "sim:0", "compute"):
        found = [f(x, float(n)) for n in range(5)]
        sim.flush()
    assert [one.numpy()[0] for one in found] == [2.0 * n for n in range(5)]


def test_a_launch_that_fails_takes_only_what_depends_on_it(sim: Any) -> None:
    def both(x: Any, y: Any) -> tuple[Any, Any, Any]:
        total = x + y
        product = x * y
        return total - y, product - x, total

    x, y = put(sim, 5.0), put(sim, 2.0)
    f = warm(sim, both, x, y)
    before = len(runs(sim))
    device_of(sim, "sim:0").inject(Fault(FaultKind.FAIL, label="multiply"))
    difference, lost, total = f(x, y)
    with pytest.raises(KernelError, match=r"multiply failed on sim:0 \(injected\)") as caught:
        lost.numpy()
    assert "test_launched_runs.py" in str(caught.value.location)
    assert (difference.numpy()[0], total.numpy()[0]) == (5.0, 7.0)
    assert len(runs(sim)) == before + 1
    assert f(x, y)[1].numpy()[0] == 5.0
    assert_sound(sim)


def test_a_lost_device_names_the_runs_that_were_launched(sim: Any) -> None:
    x, y = put(sim), put(sim)
    f = warm(sim, polynomial, x, y)
    device_of(sim, "sim:0").inject(Fault(FaultKind.LATE, label="subtract"))
    results = [f(x, y) for _ in range(3)]
    for result in results:
        with pytest.raises(KernelError, match="sim:0 is lost"):
            result[0].numpy()
    with pytest.raises(KernelError, match=r"launched since.*run polynomial \(.*test_launched_runs.py"):
        (x + y).numpy()


def test_a_session_whose_runs_are_too_far_ahead_is_held_back_and_others_go_on(
    sim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = put(sim)

    def long(x: Any) -> Any:
        for _ in range(100):
            x = x + 1.0
        return x

    f = warm(sim, long, x)
    machine = machine_of(sim)
    monkeypatch.setattr(machine, "await_credit", lambda _session: None)
    launches = machine.engine.tiers["sim:0"].launches
    with held(sim, "sim:0", "compute"):
        session = machine.engine.directory.sessions[sim._core.transport._session.id]
        for _ in range(8):
            x = f(x)
        sim.flush()
        assert session.flooded
        assert launches is not None
        assert launches.order.issued - launches.order.reached <= MAX_AHEAD + FENCE_INTERVAL + 100
        with td.connect(MACHINE) as other:
            assert (other.asarray(ONES, device="cpu:0") + 1.0).numpy()[0] == 2.0
    assert x.numpy()[0] == 801.0
    assert_sound(sim)


def test_auto_makes_runs_of_a_plain_loop_on_a_device_that_launches(session: Any) -> None:
    with td.connect("local", devices=CUDA if session.devices[-1] == "cuda:0" else SIM, routines="auto") as auto:
        for _ in range(3):  # the program of the repeated calls is linked at a wait
            x, w, expected = put(auto), put(auto), 1.0
            for _ in range(60):
                a = x * 0.5 + w
                b = (a * a - x) * 0.25
                x = ((b + x) * 0.5 - w) * 0.125 + a
                a = expected * 0.5 + 1.0
                b = (a * a - expected) * 0.25
                expected = ((b + expected) * 0.5 - 1.0) * 0.125 + a
            np.testing.assert_array_equal(x.numpy(), ONES * expected)
        assert runs(auto)
        assert_sound(auto)


# -- errors that are known after a run -----------------------------------------------------------------------------


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def cuda(gpu: Gpu) -> Iterator[Any]:  # noqa: ARG001 - it has to be there before
    with td.connect("local", devices=CUDA) as one:
        yield one


class Gathering:
    """A routine that takes rows of a table and adds them to weights in place, and its model in NumPy. A value of the
    model is None once it has failed.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self.table = np.arange(40.0).reshape(10, 4)
        self.there = session.asarray(self.table, device="cuda:0").wait()
        self.weights, self.other = (session.asarray(np.ones((2, 4)) * n, device="cuda:0").wait() for n in (1.0, 2.0))
        self.model: Any = np.ones((2, 4))
        self.routine = session.routine(self.step)
        self.made: list[tuple[Any, Any]] = []

    def step(self, table: Any, positions: Any, weights: Any, other: Any) -> tuple[Any, Any, Any]:
        rows = self.session.xp.take(table, positions, axis=0)
        weights += rows
        return rows * 2.0, other * 3.0, weights - other

    def run(self, *positions: int) -> None:
        """A run with these positions, of which those beyond the table are refused."""
        at = self.session.asarray(np.array(positions), device="cuda:0")
        found = self.routine(self.there, at, self.weights, self.other)
        fails = any(not -10 <= position < 10 for position in positions)
        rows = None if fails else self.table[list(positions)]
        self.model = None if rows is None or self.model is None else self.model + rows
        wanted = (None if rows is None else rows * 2.0, np.full((2, 4), 6.0), None)
        self.made += zip(found, (*wanted[:2], None if self.model is None else self.model - 2.0), strict=True)

    def check(self) -> None:
        for tensor, wanted in (*self.made, (self.weights, self.model)):
            if wanted is None:
                with pytest.raises(KernelError, match=r"take.*index .* is out of bounds") as caught:
                    tensor.numpy()
                assert caught.value.op == "take"
                assert "Gathering.step" in str(caught.value.location)
            else:
                np.testing.assert_array_equal(tensor.numpy(), wanted)
        self.made.clear()


@pytest.fixture
def gathering(gpu: Gpu, cuda: Any) -> Gathering:
    """A routine whose kernels have run, as a graph, too."""
    found = Gathering(cuda)
    for _ in range(200):
        found.run(1, 2)
        found.check()
        if gpu.calls["graphLaunch"]:
            return found
    raise AssertionError("no run was a graph")


def hold(gpu: Gpu, session: Any) -> None:
    """Keep the compute stream from working until `gpu.release("compute")`."""
    gpu.enqueue(device_of(session, "cuda:0").compute[0].raw.queue, lambda: None, gpu.hold("compute"))


def test_runs_that_may_refuse_data_late_follow_each_other_without_a_wait(
    gpu: Gpu, cuda: Any, gathering: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driving thread uploads the positions, too, since they are few."""
    hold(gpu, cuda)
    gpu.blocked.clear()
    graphs, handed = gpu.calls["graphLaunch"], handed_over(monkeypatch)
    for n in range(5):
        gathering.run(n, n + 1)
    cuda.flush()
    assert not handed
    monkeypatch.undo()
    assert gpu.calls["graphLaunch"] == graphs + 5
    live = machine_of(cuda).engine.live.values()
    assert [one.status.name for one in live if one.opcode is Opcode.RUN] == ["DISPATCHED"] * 5
    assert not gpu.blocked["MainThread"]
    gpu.release("compute")
    gathering.check()
    assert_sound(cuda)


def test_what_a_run_refuses_late_fails_what_depends_on_it_in_this_run_and_in_those_behind_it(
    gpu: Gpu, cuda: Any, gathering: Gathering
) -> None:
    hold(gpu, cuda)
    gathering.run(3, 4)
    gathering.run(3, 12)
    gathering.run(5, 6)
    cuda.flush()
    gpu.release("compute")
    gathering.check()
    assert cuda.trace().verify() == []
    gathering.weights[...] = 7.0  # the weights are healthy again
    gathering.model = np.full((2, 4), 7.0)
    gathering.run(0, -1)
    gathering.check()
    assert_sound(cuda)


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_that_refuse_data_late(gpu: Gpu, cuda: Any, gathering: Gathering, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(30):
        kind = rng.random()
        if kind < 0.1:
            hold(gpu, cuda)
            gathering.run(1, 1)
            cuda.flush()
            gpu.release("compute")
        elif kind < 0.2:
            gathering.check()
        elif kind < 0.3:
            gathering.weights[...] = 1.0
            gathering.model = np.ones((2, 4))
        else:
            gathering.run(*(int(rng.integers(-10, 10)) if rng.random() < 0.9 else 30 for _ in range(2)))
    gathering.check()
    assert_sound(cuda)
