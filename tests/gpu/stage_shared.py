"""Shared device memory: values as arrays of CuPy and PyTorch and back, in one process and through a daemon, a client
that is killed while it holds some, and the time of a view of a large tensor.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import tensord as td

from ..daemon import Daemon
from ..puppet import Puppet, eventually
from .record import Skip
from .rows import Row, state
from .stage import Given, main

PATIENCE = 60.0  # seconds: the first use of a GPU compiles
SMALL, LARGE = 1 << 20, 1 << 28  # elements of float32: 4 MiB over the fake, 1 GiB on a GPU
TURNS = 5
ROWS = {
    "first": Row("the first view of a daemon's tensor in a process", "ms", 500, 300, flat=True),
    "new": Row("a view in a new block", "ms", 2, 1, flat=True),
    "opened": Row("a view in a block that is open", "ms", 0.5, 0.2, flat=True),
}
MEASURE = """
import gc, time, cupy
from tensord.client.device_arrays.returns import RETURNS
def view():
    begun = time.perf_counter()
    found = x.cupy()
    cupy.cuda.get_current_stream().synchronize()
    return found, time.perf_counter() - begun
def settled():
    gc.collect()
    thread = RETURNS._thread
    if thread is not None:
        thread.join(10)
    s.sync()
"""


@contextmanager
def daemon_with(device: str) -> Iterator[Daemon]:
    """A daemon with cpu:0 and the device."""
    with tempfile.TemporaryDirectory(prefix="tdg-") as folder:
        config = Path(folder, "tensord.toml")
        config.write_text(f'devices = ["cpu:0", {{name = "{device}"}}]\n')
        with Daemon.start(Path(folder), "--config", str(config), program=("-m", "tensord.client.cli")) as daemon:
            yield daemon


def both_ways(session: td.Session, device: str, count: int) -> None:
    """A value as an array, also on a stream of the reader's own, and arrays as values."""
    import cupy

    values = np.arange(count, dtype=np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    x = session.asarray(values, device=device)
    for _ in range(TURNS):
        y = x * 2.0 + 1.0
        with stream:
            found = y.cupy()
            y += 1.0
            np.testing.assert_array_equal(found.get(), values * 2 + 1)
            given = found * 0.5
            z = session.asarray(given, device=device)
            given[:] = -1.0
        np.testing.assert_array_equal(z.numpy(), values + 0.5)
        np.testing.assert_array_equal(y.numpy(), values * 2 + 2)
    rows = x.reshape((-1, 16))
    np.testing.assert_array_equal(rows[:, 3:5].cupy().get(), values.reshape(-1, 16)[:, 3:5])
    np.testing.assert_array_equal(session.asarray(cupy.asarray(values)[::-3], device=device).numpy(), values[::-3])


def with_torch(session: td.Session, device: str, count: int) -> None:
    """The same with PyTorch, by DLPack."""
    if importlib.util.find_spec("torch") is None:
        raise Skip("there is no PyTorch")
    import torch

    if not torch.cuda.is_available():
        raise Skip("this PyTorch has no CUDA")
    x = session.asarray(np.arange(count, dtype=np.float32), device=device)
    y = x + 1.0
    there = torch.from_dlpack(y)
    assert there.is_cuda
    y += 1.0
    assert bool((there == torch.arange(count, device="cuda", dtype=torch.float32) + 1).all())
    with torch.cuda.stream(torch.cuda.Stream()):
        back = session.asarray(there * 2.0, device=device)
    np.testing.assert_array_equal(back.numpy(), (np.arange(count, dtype=np.float32) + 1) * 2)
    np.testing.assert_raises(BufferError, x.__dlpack__, dl_device=(2, 99))


def killed_while_it_holds(daemon: Daemon, device: str, count: int) -> None:
    """The killed client's blocks are free again, and the others go on."""
    with daemon.connect() as session:
        before = allocated(session, device)
        with Puppet.start(daemon.address) as puppet:
            puppet.do(f"x = s.asarray(np.ones({count}, np.float32), device={device!r})\na = x.cupy()", PATIENCE)
            puppet.do(f"s2 = td.connect(s.address)\nb = s2.asarray(np.ones(9), device={device!r}).cupy()", PATIENCE)
            puppet.do("s2.close()", PATIENCE)
            assert allocated(session, device) >= before + 8 * count
            puppet.kill()
        eventually(lambda: allocated(session, device) == before)
        np.testing.assert_array_equal((session.asarray(np.ones(9), device=device) + 1.0).numpy(), np.full(9, 2.0))


def allocated(session: td.Session, device: str) -> int:
    session.sync()
    found: int = session.stats()["devices"][device]["allocated"]
    return found


def views(given: Given, daemon: Daemon, count: int) -> None:
    """The time of views in a process that has not used CUDA before."""
    with Puppet.start(daemon.address) as puppet:
        puppet.do(f"x = s.asarray(np.ones({count}, np.float32), device={given.device!r})\nx.wait()", PATIENCE)
        puppet.do(MEASURE)
        times: dict[str, float] = {"first": puppet.do("a, seconds = view()\nseconds", PATIENCE)}
        found: dict[str, list[float]] = {"new": [], "opened": []}
        for _ in range(TURNS):
            puppet.do("x += 1.0\na = None\nsettled()\nx.wait()", PATIENCE)
            found["new"].append(puppet.do("a, seconds = view()\nseconds", PATIENCE))
            found["opened"].append(puppet.do("b, seconds = view()\nb = None\nseconds", PATIENCE))
        puppet.do("a = None\nsettled()", PATIENCE)
    times |= {name: sorted(each)[len(each) // 2] for name, each in found.items()}
    slow = [name for name, seconds in times.items() if state(given, ROWS[name], 1000 * seconds) == "missed"]
    assert not slow, f"slower than they must be: {', '.join(ROWS[name].name for name in slow)}"


def work(given: Given) -> None:
    """In one process, then between two."""
    record, device = given.record, given.device
    count = LARGE if given.is_real else SMALL
    with record.check("arrays both ways in one process"), td.connect("local", devices=["cpu:0", device]) as session:
        both_ways(session, device, SMALL)
    with record.check("PyTorch in one process"), td.connect("local", devices=["cpu:0", device]) as session:
        with_torch(session, device, SMALL)
    with daemon_with(device) as daemon:
        with record.check("arrays both ways through a daemon"), daemon.connect() as session:
            both_ways(session, device, SMALL)
        with record.check("PyTorch through a daemon"), daemon.connect() as session:
            with_torch(session, device, SMALL)
        with record.check("a client that is killed while it holds memory"):
            killed_while_it_holds(daemon, device, SMALL)
        with record.check("how long views take"):
            views(given, daemon, count)


if __name__ == "__main__":
    main(work)
