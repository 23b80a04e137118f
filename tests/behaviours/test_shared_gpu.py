"""Values of a daemon's GPU in its clients' processes, by CUDA IPC: over the fake of CUDA's runtime, in each process."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.device_arrays.blocks import OPEN_BLOCKS

from ..daemon import Daemon
from ..each_case import each_case
from ..gpu.over_fake import FakeClient, fake_daemon
from ..ports import free_port
from ..puppet import Puppet, eventually
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .borrowed import given_back

NUMBERS = np.arange(1024.0)
MIB = 1 << 20


CONFIGURATION = """
devices = ["cpu:0", {name = "cuda:0", memory = "256MiB", reserve = 0}]
"""


@contextmanager
def serving(directory: Path, settings: str = "", fake: str = "1", address: str | None = None) -> Iterator[Daemon]:
    with fake_daemon(directory, CONFIGURATION + settings, fake, address) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=1, devices=1, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def session(daemon: Daemon) -> Iterator[td.Session]:
    with daemon.connect() as opened:
        yield opened
        given_back()
        assert not len(OPEN_BLOCKS)
        opened.sync()
        eventually(lambda: used(opened) == 0)


def used(session: td.Session) -> int:
    """Bytes of the daemon's GPU that have an owner."""
    session.sync()
    found: int = session.stats()["devices"]["cuda:0"]["allocated"]
    return found


def client(daemon: Daemon) -> Puppet:
    """Another process, over a fake of its own, with a session `s`."""
    return FakeClient.start(daemon.address)


def test_a_value_is_read_in_a_block_of_its_own(gpu: Gpu, session: td.Session) -> None:
    x = session.asarray(NUMBERS, device="cuda:0") + 1.0
    array = x.cupy()
    assert (array.shape, array.dtype, array.device.id) == ((1024,), np.float64, 0)
    x += 1.0
    session.sync()
    assert (array.get() == NUMBERS + 1).all()
    assert (x.numpy() == NUMBERS + 2).all()
    assert gpu.calls["ipcOpenMemHandle"] == 1


def test_a_handle_shows_nothing_but_the_value(session: td.Session) -> None:
    secrets = [session.asarray(np.full(1024, 7.0), device="cuda:0").wait() for _ in range(8)]
    array = session.asarray(NUMBERS[:10], device="cuda:0").cupy()
    block = next(iter(OPEN_BLOCKS._blocks.values()))
    import cupy

    memory = cupy.cuda.UnownedMemory(block.address, 2 * MIB, None, 0)
    whole = cupy.ndarray((2 * MIB,), "uint8", cupy.cuda.MemoryPointer(memory, 0)).get()
    assert (whole[:80].view("float64") == NUMBERS[:10]).all()
    assert not whole[80:].any()
    del array, secrets


def test_a_value_that_was_not_written_to_has_one_block_and_is_opened_once(gpu: Gpu, session: td.Session) -> None:
    x = session.asarray(NUMBERS, device="cuda:0")
    first, again = x.cupy(), x.cupy()
    assert first.data.ptr == again.data.ptr
    assert gpu.calls["ipcOpenMemHandle"] == 1
    del first
    given_back_in_part(gpu)
    assert (again.get() == NUMBERS).all()
    assert gpu.calls["ipcCloseMemHandle"] == 0
    x += 1.0
    other = x.cupy()
    assert other.data.ptr != again.data.ptr
    assert (other.get() == NUMBERS + 1).all()


def given_back_in_part(gpu: Gpu) -> None:
    """Wait until one of several arrays is given back."""
    gc.collect()
    eventually(lambda: gpu.calls["deviceSynchronize"])


def test_a_block_is_closed_behind_the_last_kernel_that_reads_it_and_then_released(
    gpu: Gpu, session: td.Session
) -> None:
    import cupy

    x = session.asarray(NUMBERS, device="cuda:0")
    array, mine = x.cupy(), cupy.cuda.Stream(non_blocking=True)
    gpu.enqueue(mine.queue, lambda: None, gpu.hold("reader"))
    with mine:
        doubled = array + array
    del array
    gc.collect()
    for _ in range(3):
        session.sync()
    assert gpu.calls["ipcCloseMemHandle"] == 0
    gpu.release("reader")
    with mine:
        assert (doubled.get() == NUMBERS * 2).all()
    given_back()
    assert gpu.calls["ipcCloseMemHandle"] == 1
    eventually(lambda: used(session) <= NUMBERS.nbytes)


@each_case("index", [np.s_[3:9], np.s_[::2], np.s_[::-3], np.s_[5:5]])
def test_a_part_of_a_tensor_is_packed(session: td.Session, index: Any) -> None:
    x = session.asarray(NUMBERS.reshape(32, 32), device="cuda:0")
    expected = NUMBERS.reshape(32, 32)[:, index]
    assert (x[:, index].cupy().get() == expected).all()


def test_a_shape_that_data_decide_is_waited_for(session: td.Session) -> None:
    x = session.asarray(NUMBERS, device="cuda:0")
    assert (x[x > 1000].cupy().get() == NUMBERS[1001:]).all()


def test_dlpack_hands_a_daemons_value_over_on_the_gpu(session: td.Session) -> None:
    import cupy

    x = session.asarray(NUMBERS, device="cuda:0")
    assert x.__dlpack_device__() == (2, 0)
    assert (cupy.from_dlpack(x).get() == NUMBERS).all()
    assert (np.from_dlpack(x, device="cpu") == NUMBERS).all()


@each_case("count", [100, 3 << 18])
def test_an_array_of_the_gpu_becomes_a_daemons_tensor(gpu: Gpu, session: td.Session, count: int) -> None:
    import cupy

    values, mine = np.arange(count, dtype="float64"), cupy.cuda.Stream(non_blocking=True)
    with mine:
        array = cupy.array(values.reshape(2, -1)) + 1.0
        x = session.asarray(array, device="cuda:0")
        array[:] = 0.0
    assert (x.numpy() == values.reshape(2, -1) + 1).all()
    assert (session.asarray(cupy.array(values), device="cpu:0").numpy() == values).all()
    assert bool(gpu.calls["ipcOpenMemHandle"]) is (values.nbytes >= MIB)


def test_bools_and_integers_are_the_machines_own(session: td.Session) -> None:
    import cupy

    values = np.arange(1 << 18) % 7
    x = session.asarray(cupy.array(values), device="cuda:0")
    assert (x.numpy() == values).all()
    flags = session.asarray(cupy.array(np.tile(values > 3, 8)), device="cuda:0", dtype="float32")
    assert (flags.numpy() == np.tile(values > 3, 8)).all()


def test_arrays_outlive_their_session_and_the_daemon_keeps_their_blocks_until_the_process_ends(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as daemon, daemon.connect() as session:
        with client(daemon) as puppet:
            puppet.do("a = s.asarray(np.arange(1024.0), device='cuda:0').cupy(); s.close()")
            eventually(lambda: left_open(session) == 2 * MIB)
            for n in range(4):
                session.asarray(NUMBERS * n, device="cuda:0").cupy()
            assert puppet.do("float(a.get().sum())") == NUMBERS.sum()
            assert used(session) >= 2 * MIB
        eventually(lambda: left_open(session) == 0)
        given_back()
        eventually(lambda: used(session) == 0)


def left_open(session: td.Session) -> int:
    """Bytes of blocks that processes of ended sessions have open, as the daemon reports."""
    found = session._core.answers.query("memory", "device", 20, "")
    return sum(row.get("sorts", {}).get("left open", 0) for row in found)


def test_a_client_that_is_killed_lets_go_of_everything(tmp_path: Path) -> None:
    with serving(tmp_path) as daemon, daemon.connect() as session:
        with client(daemon) as puppet:
            puppet.do("x = s.asarray(np.arange(1024.0), device='cuda:0'); a = [(x + n).cupy() for n in range(4)]")
            puppet.do("s2 = td.connect(s.address); b = s2.asarray(np.ones(10), device='cuda:0').cupy(); s2.close()")
            assert used(session) >= 10 * MIB
            puppet.kill()
        eventually(lambda: used(session) == 0)


def test_a_forked_child_closes_nothing_and_has_no_array(session: td.Session, gpu: Gpu) -> None:
    array = session.asarray(NUMBERS, device="cuda:0").cupy()
    pid = os.fork()
    if pid == 0:
        closes = gpu.calls["ipcCloseMemHandle"]
        del array
        gc.collect()
        os._exit(0 if gpu.calls["ipcCloseMemHandle"] == closes and not len(OPEN_BLOCKS) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (array.get() == NUMBERS).all()


def test_two_processes_read_one_published_tensor_and_neither_spoils_it(daemon: Daemon, session: td.Session) -> None:
    session.publish("weights", session.asarray(NUMBERS, device="cuda:0"))
    with client(daemon) as puppet:
        puppet.do("a = s.lookup('weights').cupy(); a[:] = -1.0")
        assert puppet.do("float(a.get().sum())") == -1024.0
        w = session.lookup("weights")
        assert (w.cupy().get() == NUMBERS).all()
        assert (w.numpy() == NUMBERS).all()
        puppet.do("del a; s.close()")
    session.unpublish("weights")


def test_a_gpu_without_handles_refuses_and_the_host_is_a_way(tmp_path: Path) -> None:
    with serving(tmp_path, fake="1,refuses=ipc") as daemon, daemon.connect() as session:
        import cupy

        x = session.asarray(NUMBERS, device="cuda:0")
        with pytest.raises(ValueError, match=r"gives no handles of its memory \(.*\); .*numpy\(\)"):
            x.cupy()
        assert (session.asarray(cupy.array(np.ones(1 << 18)), device="cuda:0").numpy() == 1).all()
        assert (x.numpy() == NUMBERS).all()


def test_a_client_that_cannot_open_the_memory_goes_through_the_host_from_then_on(gpu: Gpu, daemon: Daemon) -> None:
    gpu.ipc = False
    with daemon.connect() as session:
        x = session.asarray(NUMBERS, device="cuda:0")
        with pytest.raises(ValueError, match=r"cannot be opened in this process, .*; numpy\(\) gives the value"):
            x.cupy()
        assert x.__dlpack_device__() == (1, 0)
        assert (np.from_dlpack(x) == NUMBERS).all()
        eventually(lambda: used(session) <= NUMBERS.nbytes)


def test_the_configuration_may_refuse(tmp_path: Path) -> None:
    with serving(tmp_path, 'gpu_memory = "nobody"\n') as daemon, daemon.connect() as session:
        x = session.asarray(NUMBERS, device="cuda:0")
        with pytest.raises(ValueError, match="whose memory cannot be read here"):
            x.cupy()
        assert (np.from_dlpack(x) == NUMBERS).all()


def test_over_tcp_values_go_through_the_host(tmp_path: Path) -> None:
    with serving(tmp_path, address=f"tcp://127.0.0.1:{free_port()}") as daemon, daemon.connect() as session:
        x = session.asarray(NUMBERS, device="cuda:0")
        with pytest.raises(ValueError, match="whose memory cannot be read here"):
            x.cupy()
        assert (np.from_dlpack(x) == NUMBERS).all()


def test_a_lookup_is_not_held_up_by_a_stopped_client(daemon: Daemon, session: td.Session) -> None:
    with client(daemon) as puppet:
        puppet.do("a = s.asarray(np.arange(1024.0), device='cuda:0').cupy()")
        puppet.signal(signal.SIGSTOP)
        assert (session.asarray(NUMBERS, device="cuda:0").cupy().get() == NUMBERS).all()
        puppet.signal(signal.SIGCONT)
        puppet.do("del a; s.close()")
