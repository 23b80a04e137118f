"""The checks after every test, and the sessions from which tests start.

After each test: no thread, file descriptor or shared memory more than before, and every virtual machine closed. A
machine opened through the fixtures here has to be empty after it was closed: no instruction, no memory.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import settings
from zmq.utils.garbage import gc as zero_copy

import tensord
from tensord.client.session.session import Session
from tensord.streams.threads.worker import WorkerStream
from tensord.vm.engine import Engine
from tensord.vm.machine import VirtualMachine

from . import on_serial, stand_in, through_daemon
from .compiled import COMPILED
from .daemon import Daemon
from .through_daemon import Daemons

# A busy machine would exceed deadlines.
settings.register_profile("tensord", deadline=None, max_examples=12, derandomize=True)
settings.load_profile("tensord")

JOIN = 20.0  # seconds that a thread may take to end after its test, and a machine to close
ROUND = 0.002  # seconds between two looks
SHM = "/dev/shm"  # noqa: S108 - looked at, never written to
PASSING = (".org.chromium.", "tensord-tests-", "sem.")  # prefixes of others' entries there
DESCRIPTORS = "/proc/self/fd"


gc.disable()  # until tests are collected: it would take a quarter of that time


def pytest_collection_finish() -> None:
    """Objects from before the first test stay: the collector does not examine them again in each test."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def what_a_module_leaves_stays() -> Iterator[None]:
    """As for objects from before the first test. Otherwise the tests that collect take longer, the later they run."""
    yield
    gc.collect()
    gc.freeze()


def entries(folder: str) -> set[str]:
    """The names in a folder; none where there is no such folder."""
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()  # noqa: PTH112, PTH208 - twice in each test


def open_descriptors() -> set[int]:
    """The descriptors of this process; none where the system does not list them."""
    found = set()
    for descriptor in map(int, entries(DESCRIPTORS)):
        with suppress(OSError):  # the descriptor that lists them
            fcntl.fcntl(descriptor, fcntl.F_GETFD)
            found.add(descriptor)
    return found


def left_in_shared_memory(before: set[str]) -> set[str]:
    """New entries of /dev/shm that are of this user, but for those that somebody else's process has open.

    A browser's do not count, nor folders of other tests, which may come and go meanwhile. Nor do semaphores: tensord
    has none, but another worker's tests of forks have some for a moment.
    """
    found = set()
    for name in {name for name in entries(SHM) - before if not name.startswith(PASSING)}:
        with suppress(OSError):  # gone meanwhile
            if Path(SHM, name).stat().st_uid == os.getuid():
                found.add(name)
    return found and {name for name in found - held_by_others(found) if Path(SHM, name).exists()}


def held_by_others(names: set[str]) -> set[str]:
    """The entries of /dev/shm among these that other processes than this one and its children have open, or mapped."""
    held = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ancestry = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if os.getpid() in (int(process.name), int(ancestry)):
                continue
            seen = (process / "maps").read_text() + " ".join(map(os.readlink, (process / "fd").iterdir()))
            held |= {name for name in names if f"{SHM}/{name}" in seen}
    return held


def new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads that were not there before and do not end in time. One that ends may have started another."""
    deadline = monotonic() + JOIN
    while (new := set(threading.enumerate()) - before) and monotonic() < deadline:
        for thread in new:
            with suppress(RuntimeError):  # it has not started yet
                thread.join(max(0.0, deadline - monotonic()))
    return new


@pytest.fixture(scope="session", autouse=True)
def away_from_the_users_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The default address has no listener, whatever runs on this machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patched.delenv("TENSORD_ADDRESS", raising=False)
        yield


MACHINES: list[VirtualMachine] = []  # of the test that runs


@pytest.fixture(scope="session", autouse=True)
def _machines_are_noted() -> Iterator[None]:
    """Once for all tests: patching a class anew for each takes longer than many a test."""
    initialise = VirtualMachine.__init__

    def note(machine: VirtualMachine, *args: Any, **kwargs: Any) -> None:
        MACHINES.append(machine)
        initialise(machine, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(VirtualMachine, "__init__", note)
        yield


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """No thread, descriptor, shared memory or open machine is left behind."""
    MACHINES.clear()
    threads, descriptors, shared = set(threading.enumerate()), open_descriptors(), entries(SHM)
    yield
    left_open = open_machines()
    for machine in left_open:
        machine.close()
    assert not left_open, f"{len(left_open)} virtual machines were not closed"
    MACHINES.clear()
    zero_copy.stop()  # pyzmq's own thread, which it starts again when it needs it
    assert not (left := new_threads(threads)), f"threads were left behind: {left}"
    assert not (extra := left_in_shared_memory(shared)), f"shared memory was left behind: {extra}"
    more = new_descriptors(descriptors)
    if more and all(where.startswith("/memfd:") for where in more.values()):
        gc.collect()  # of an array: `pytest.raises(...) as caught` makes a cycle of the test's frame
        more = new_descriptors(descriptors)
    assert not more, f"file descriptors were left open: {more}"


def open_machines() -> list[VirtualMachine]:
    """The machines that are not closed in time. If a session was dropped, its machine's background thread closes it."""
    deadline = monotonic() + JOIN
    while left := [machine for machine in MACHINES if not getattr(machine, "closed", True)]:
        if monotonic() > deadline:
            break
        gc.collect()  # the session may be in a cycle
        sleep(ROUND)
    return left


def new_descriptors(before: set[int]) -> dict[int, str]:
    """New descriptors, and the files that they are open on. The driver of a GPU opens some whenever it likes."""
    found = {}
    for descriptor in set() if stand_in.is_cuda() else open_descriptors() - before:
        with suppress(OSError):  # closed meanwhile
            found[descriptor] = os.readlink(f"{DESCRIPTORS}/{descriptor}")  # noqa: PTH115
    return found


def assert_empty(engine: Engine) -> None:
    """After its sessions were closed an engine holds nothing: no instruction, no entry of a name, no memory."""
    assert not engine.live, f"live instructions: {list(engine.live.values())[:5]}"
    assert not engine.pending
    assert not engine.scheduler.dispatcher.ready
    assert not engine.scheduler.dispatcher.doomed
    for device in engine.devices.values():
        ledger = (device.planned, len(device.unreserved), device.unreserved_bytes, device.unknown, len(device.live))
        assert ledger == (0, 0, 0, 0, 0), f"{device}: planned, unreserved, its bytes, unknown, live: {ledger}"
        assert not device.candidates, f"{device}: replicas {list(device.candidates)[:5]}"
        assert device.backend.allocated == 0, f"{device}: {device.backend.allocated} bytes are still allocated"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --daemon`, `pytest --serial`, `pytest --device cuda:0`."""
    parser.addoption("--daemon", action="store_true", help="run what starts from session fixtures on a daemon")
    parser.addoption("--serial", action="store_true", help="run what starts from session fixtures on the serial engine")
    parser.addoption(
        "--device", metavar="NAME", help="this device in place of those that tests name (tests/stand_in.py)"
    )
    parser.addoption("--in-place-of", choices=("sim", "cpu"), default="sim", help="the kind of those (default: sim)")


def pytest_configure(config: pytest.Config) -> None:
    """Tell the processes that tests start which device stands in for others.

    Ctrl-C and a hangup are the subject of tests; a shell that runs the tests in the background has both ignored.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if device := config.getoption("--device"):
        os.environ[stand_in.VARIABLE] = f"{config.getoption('--in-place-of')}={device}"


@pytest.fixture(scope="session", autouse=True)
def the_device() -> Iterator[None]:
    """With `--device`: it stands in for others. A GPU is opened once before any test checks for leaks."""
    with stand_in.installed(pytest.skip):
        if stand_in.is_cuda():
            with tensord.connect("local", devices=["cpu:0", "sim:0"]) as session:
                session.asarray([1.0], device=session.devices[-1]).wait()
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that the device that stands in cannot run."""
    if reason := stand_in.unfit(item):
        pytest.skip(reason)


CUDA_REASONS: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember why tests that need a GPU were skipped."""
    if report.skipped and "cuda" in report.keywords and isinstance(report.longrepr, tuple):
        CUDA_REASONS[report.longrepr[2]] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the reasons, in every mode of output."""
    for reason, count in CUDA_REASONS.items():
        terminalreporter.write_line(f"{count} tests need a GPU and were skipped: {reason.removeprefix('Skipped: ')}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some modules run in several ways: here, on a daemon, on the serial engine unless the other one is compiled."""
    if "machines" not in metafunc.fixturenames or metafunc.definition.get_closest_marker("cuda"):
        return
    if metafunc.config.getoption("--device") or chooses_machines(metafunc.definition):
        return
    ways = {"daemon": through_daemon.applies(metafunc.definition), "serial": on_serial.applies(metafunc.definition)}
    only = [way for way in ways if metafunc.config.getoption(f"--{way}") and ways[way] is not None]
    if COMPILED:
        ways["serial"] = False  # only if it is asked for: it has no compiled form
    chosen = only or ["here", *(way for way, also in ways.items() if also)]
    if chosen != ["here"]:
        metafunc.parametrize("machines", chosen, indirect=True)


def chooses_machines(test: pytest.Function) -> bool:
    """Does the test itself name the machines that it runs on?"""
    return any("machines" in mark.args[0] for mark in test.iter_markers("parametrize"))


@pytest.fixture(scope="session")
def daemons(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Daemons]:
    """The daemons of sessions that are not in this process."""
    running = Daemons(tmp_path_factory.mktemp, alone=pytestconfig.getoption("--daemon"))
    yield running
    running.close()


@pytest.fixture
def machines(request: pytest.FixtureRequest) -> str:
    """The place of the test's machines: "here" or "daemon"; "serial": here, with the serial engine."""
    where: str = getattr(request, "param", "here")
    if where == "daemon":
        request.getfixturevalue("daemons")
    return where


@pytest.fixture
def make_session(
    machines: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Session]]:
    """make_session(address="local", *, devices=["cpu:0"], expect_empty=True, **options of connect) -> a session.

    Closed at the end of the test, and then its machine has to be empty, unless `expect_empty` is False (for kernels
    that never end). `machine_of(session)` gives its machine.
    """
    if machines == "daemon":
        daemons = request.getfixturevalue("daemons")
        through_daemon.keep_outside(monkeypatch, alone=daemons.alone)
        yield from sessions_on_daemons(daemons)
    elif machines == "serial":
        yield from on_serial.sessions(monkeypatch)
    else:
        yield from sessions_here()


def sessions_on_daemons(daemons: Daemons) -> Iterator[Callable[..., Session]]:
    """Sessions on daemons."""

    def make(address: str = "local", *, expect_empty: bool = True, **options: Any) -> Session:
        if not expect_empty:
            through_daemon.skip()
        options.setdefault("devices", ["cpu:0"])
        return daemons.connect(address, **options)

    yield make
    daemons.close_sessions()


def sessions_here() -> Iterator[Callable[..., Session]]:
    """Sessions on machines in this process."""
    opened: list[tuple[Session, VirtualMachine, bool]] = []

    def make(address: str = "local", *, expect_empty: bool = True, **options: Any) -> Session:
        options.setdefault("devices", ["cpu:0"])
        if reason := stand_in.too_many(options["devices"]):
            pytest.skip(reason)
        session = tensord.connect(address, **options)
        opened.append((session, machine_of(session), expect_empty))
        return session

    yield make
    for _, machine, _ in opened:
        if isinstance(machine, VirtualMachine):  # the serial one has no streams
            resume_streams(machine)
    for session, _, _ in reversed(opened):
        session.close()
    for _, machine, expect_empty in opened:
        if expect_empty:
            names = list(machine.engine.directory.names)
            assert not names or machine.closed
            forget_names(machine)
            assert_empty(machine.engine)


def machine_of(session: Session) -> VirtualMachine:
    """The machine behind an embedded session."""
    machine: VirtualMachine = session._core.transport.machine
    return machine


def resume_streams(machine: VirtualMachine) -> None:
    """A test that failed may have left streams held, and its sessions wait for their saves."""
    for backend in machine.tiers.values():
        for stream in backend.streams:
            if isinstance(stream, WorkerStream) and stream.held:
                stream.resume()


def forget_names(machine: VirtualMachine) -> None:
    """A name keeps its tensor for ever; that is no leak."""
    machine.engine.admission.names.unpublish(list(machine.engine.directory.names))


@pytest.fixture(name="machine_of")
def machine_of_fixture() -> Callable[[Session], VirtualMachine]:
    """machine_of(session) -> the virtual machine behind it."""
    return machine_of


@pytest.fixture
def session(make_session: Callable[..., Session]) -> Session:
    """A session on a machine of its own with cpu:0."""
    return make_session()


@pytest.fixture
def sim_session(make_session: Callable[..., Session]) -> Session:
    """A session on a machine of its own with cpu:0, sim:0 and sim:1."""
    return make_session(devices=["cpu:0", "sim:0", "sim:1"])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for the tests of one module, with cpu:0 and sim:0. At its end it stops well, without errors."""
    with Daemon.start(tmp_path_factory.mktemp("daemon"), "--device", "cpu:0", "--device", "sim:0") as running:
        yield running
        with running.connect() as last:
            assert last.trace().verify() == []
        assert running.stop() == 0
        assert "Traceback" not in running.log
