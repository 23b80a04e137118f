"""Properties that only a real GPU shows: streams and events, copies under kernels, staging, pools, full memory, and, at
the end, since nothing of CUDA works in the process afterwards, an error that surfaces late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tensord as td
from tensord.client.session.session import Session

from .faulty_ops import NAME, add, faulty
from .overlap import Times, seconds_of
from .record import Skip
from .stage import Given, main

WAIT = 60.0  # seconds: the first use compiles
MIB = 1 << 20
NO_GPU = "no CUDA device: it shows nothing on another one"
OVERLAP = 0.9  # of copies and kernels, at least


class Proof:
    """The checks, on machines of their own."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.device = given.device

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        """A session with cpu:0 and the device. At the end its trace is sound, and nothing of the device is in use."""
        with td.connect("local", devices=["cpu:0", {"name": self.device, **options}]) as session:
            machine: Any = session._core.transport.machine
            yield session
            session.sync(WAIT)
            wrong = session.trace().verify()
            assert not wrong, f"the trace contradicts itself: {wrong[:2]}"
        assert machine.devices[self.device].allocated == 0, "memory is in use after the end"

    def put(self, session: Session, array: Any) -> td.Tensor:
        """The array on the device."""
        return session.asarray(array, device=self.device)

    def cupy(self) -> Any:
        """CuPy; skips the check where the device is no GPU."""
        if not self.given.is_cuda:
            raise Skip(NO_GPU)
        import cupy

        return cupy

    # -- values, streams, events -----------------------------------------------------------------------------------

    def copies_of_all_sizes(self) -> None:
        """Staged, direct, above the limit of staging; packed, and as views: each value comes back unchanged."""
        rng = np.random.default_rng(0)
        with self.session() as s:
            for elements in (0, 1, 1000, MIB, 80 * MIB):  # the last one is 320 MiB
                array = rng.random(elements, np.float32)
                tensor = self.put(s, array)
                assert np.array_equal(tensor.numpy(), array), f"{elements} elements"
                assert np.array_equal(tensor[::-3].numpy(), array[::-3]), f"a view of {elements} elements"
                assert np.array_equal((tensor + 1).numpy(), array + np.float32(1)), f"{elements} elements and a kernel"

    def a_long_chain(self) -> None:
        """Each op waits for the one before, without a return to the host."""
        with self.session() as s:
            x = self.put(s, np.zeros(16, np.float32))
            for _ in range(10_000):
                x = x + 1
            assert (x.numpy() == 10_000).all()

    def streams_wait_for_each_other(self) -> None:
        """On four compute streams a random graph of products gives NumPy's values."""
        rng = np.random.default_rng(1)
        arrays = [rng.integers(0, 3, (64, 64)).astype(np.float64) for _ in range(8)]
        with self.session(compute_streams=4) as s:
            tensors = [self.put(s, array) for array in arrays]
            for _ in range(2_000):
                i, j, k = (int(n) for n in rng.integers(0, 8, 3))
                tensors[k] = (tensors[i] @ tensors[j]) % 7
                arrays[k] = (arrays[i] @ arrays[j]) % 7
            for tensor, array in zip(tensors, arrays, strict=True):
                assert np.array_equal(tensor.numpy(), array)
            used = {r.stream for r in s.trace().records if "/compute" in r.stream}
            self.given.record.figure("compute streams that were used", len(used))

    def copies_run_under_kernels(self) -> None:
        """Chunks are uploaded while the ones before them are worked on."""
        size, chunks = (2048, 24) if self.given.is_real else (64, 4)
        with self.session(compute_streams=1) as s:
            arrays = [np.full((size, size), n, np.float32) for n in range(chunks)]
            weight = self.put(s, np.eye(size, dtype=np.float32))
            for _ in range(2):  # loads the libraries; the next run is launched at admission
                self.products(self.put(s, arrays[0]), weight).wait(WAIT)
            times = self.alone_and_together(s, arrays, weight)
            before = max(r.id for r in s.trace().records)
            results = self.chunks(s, arrays, weight)
            assert all(x[0, 0].item() == n for n, x in enumerate(results[1:]))
            records = [r for r in s.trace().records if r.id > before]
        self.say_why(times, records)
        if not self.given.is_real:
            raise Skip(NO_GPU)
        part = times.overlap
        assert part >= OVERLAP, f"{part:.0%} of the shorter one ran under the other; {OVERLAP:.0%} are wanted; {times}"

    def alone_and_together(self, s: Session, arrays: list[Any], weight: td.Tensor) -> Times:
        """The times of the copies, the kernels, and both."""
        times, ready = Times(), [weight, *(self.put(s, array) for array in arrays)]
        taken = partial(seconds_of, time.perf_counter, end=lambda: s.sync(WAIT))
        for _ in range(3):
            s.sync(WAIT)
            times.kernels.append(taken(lambda: [self.products(x, weight) for x in ready]))
            times.copies.append(taken(lambda: [self.put(s, array) for array in arrays]))
            times.both.append(taken(lambda: self.chunks(s, arrays, weight)))
        return times

    def chunks(self, s: Session, arrays: list[Any], weight: td.Tensor) -> list[td.Tensor]:
        """The ops on each copied chunk, behind kernels for the first copy to run under."""
        return [self.products(weight, weight), *(self.products(self.put(s, array), weight) for array in arrays)]

    def say_why(self, times: Times, records: list[Any]) -> None:
        """The figure, and its explanation: how long each part takes, and what the copies waited for."""
        figure = partial(self.given.record.figure, "copies under kernels")
        figure(round(100 * times.overlap, 1), "%", must=100 * OVERLAP, aim=97)
        uploads = [r for r in records if "/h2d" in r.stream]
        behind = sum(any(edge.reason == "memory" for edge in r.edges) for r in uploads)
        launched = sum(1 for r in records if r.launch and "/compute" in r.stream)
        self.given.record.note(
            f"copies under kernels: {times}; {behind} of {len(uploads)} copies had to wait for the memory of kernels "
            f"that were launched before, {launched} kernels were launched at admission"
        )

    def products(self, x: td.Tensor, weight: td.Tensor) -> td.Tensor:
        """Kernels that take longer than the copy of another chunk, the host's part included."""
        for _ in range(16):
            x = x @ weight
        return x

    # -- memory ----------------------------------------------------------------------------------------------------

    def staging_does_not_grow(self) -> None:
        """A thousand transfers of different sizes, both ways, take no more of the host's memory than a hundred."""
        rng = np.random.default_rng(2)
        with self.session() as s:
            seen = []
            for turn in range(1_000):
                array = rng.random(int(rng.integers(1, MIB)), np.float32)
                assert np.array_equal(self.put(s, array).numpy(), array)
                if turn in {99, 999}:
                    seen.append(resident())
        self.given.record.figure("host memory after 100 and 1,000 transfers", str([n // MIB for n in seen]), "MiB")
        assert seen[1] < seen[0] + 256 * MIB, f"{(seen[1] - seen[0]) // MIB} MiB more after 900 further transfers"

    def pools_under_pressure(self) -> None:
        """Tensors of many sizes come and go on a device that is nearly full."""
        rng = np.random.default_rng(3)
        kept: list[tuple[td.Tensor, int]] = []
        with self.session(memory=256 * MIB) as s:
            for turn in range(600):
                elements = int(rng.integers(1, 4 * MIB))
                attributes = {"shape": (elements,), "dtype": "float32"}
                kept.append((s.call("full", [turn], attributes, device=self.device)[0], turn))
                if len(kept) > 8:
                    tensor, value = kept.pop(int(rng.integers(0, len(kept))))
                    total = tensor[:: max(1, tensor.shape[0] - 1)].numpy()
                    assert (total == value).all(), f"{total} instead of {value}"
            kept.clear()
            s.sync(WAIT)

    def full_memory_is_an_error_of_its_own(self) -> None:
        """Values that do not fit fail, with their dependents; then there is room again."""
        with self.session(memory=64 * MIB) as s:
            small = self.put(s, np.ones(1000, np.float32))
            big = s.call("zeros", [], {"shape": (100 * MIB,), "dtype": "uint8"}, device=self.device)[0]
            reader = big + 1
            fails_with(td.DeviceMemoryError, big)
            fails_with(td.DeviceMemoryError, reader)
            assert (small + 1).numpy().sum() == 2000
            del big, reader
            fits = s.call("zeros", [], {"shape": (60 * MIB,), "dtype": "uint8"}, device=self.device)[0]
            assert not fits[:: 10 * MIB].numpy().any()
            del fits, small

    def the_gpu_itself_is_full(self) -> None:
        """Another program has the memory that the device was promised: an error of memory, and no lost device."""
        cupy = self.cupy()
        with self.session(reserve=0) as s:  # otherwise the memory is there
            free, _ = cupy.cuda.runtime.memGetInfo()
            hog = cupy.cuda.runtime.malloc(free - 256 * MIB)
            try:
                big = s.call("zeros", [], {"shape": (1 << 30,), "dtype": "uint8"}, device=self.device)[0]
                fails_with(td.DeviceMemoryError, big)
                del big
                assert (self.put(s, np.ones(1000, np.float32)) + 1).numpy().sum() == 2000
            finally:
                cupy.cuda.runtime.free(hog)
            again = s.call("ones", [], {"shape": (1 << 30,), "dtype": "uint8"}, device=self.device)[0]
            assert again[:: 1 << 28].numpy().all()
            del again

    def memory_goes_back_to_the_gpu(self) -> None:
        """After a machine's end the GPU has its former free memory, but for what libraries keep."""
        cupy = self.cupy()
        with self.session() as s:
            (self.put(s, np.ones(1000, np.float32)) + 1).wait(WAIT)
        before, _ = cupy.cuda.runtime.memGetInfo()
        with self.session() as s:
            x = s.call("ones", [], {"shape": (1 << 30,), "dtype": "uint8"}, device=self.device)[0]
            (x + x).wait(WAIT)
            del x
        after, _ = cupy.cuda.runtime.memGetInfo()
        kept = before - after
        self.given.record.figure("GPU memory kept after a machine's end", kept // MIB, "MiB")
        assert kept < 128 * MIB, f"{kept // MIB} MiB are kept"

    # -- errors ----------------------------------------------------------------------------------------------------

    def errors_of_a_kernel_stay_with_it(self) -> None:
        """A singular matrix and an index out of bounds fail, and the device goes on."""
        with self.session() as s:
            bad = s.call("inv", [self.put(s, np.zeros((3, 3)))])[0]
            fails_with(td.KernelError, bad)
            fails_with(td.KernelError, bad + 1)
            x = self.put(s, np.arange(5.0))
            fails_with(td.KernelError, s.call("take", [x, self.put(s, np.array([7]))], {"axis": 0})[0])
            assert (x + 1).numpy().sum() == 15
            del bad, x

    def an_error_that_surfaces_late_loses_the_device(self) -> None:
        """The kernel that faults and all behind it fail; values read before are right; cpu:0 goes on."""
        add()
        with td.connect("local", devices=["cpu:0", faulty(self.device)]) as s:
            x = self.put(s, np.ones(1000, np.float32))
            good = (x + 1).numpy()
            wild = s.call(NAME, [x])[0]
            behind = wild + 1
            fails_with(td.KernelError, wild, "is lost")
            fails_with(td.KernelError, behind, "is lost")
            fails_with(td.KernelError, self.put(s, np.ones(3)), "is lost")
            assert good.sum() == 2000
            assert s.asarray(np.ones(3), device="cpu:0").sum().item() == 3.0
            wrong = s.trace().verify()
            assert not wrong, wrong[:2]
            begun = time.monotonic()
        assert time.monotonic() - begun < 20, "a machine with a lost device takes long to close"


def fails_with(kind: type[Exception], tensor: td.Tensor, text: str = "") -> None:
    """Reading the tensor raises that error."""
    try:
        value = tensor.numpy()
    except kind as error:
        if text in str(error):
            return
        raise AssertionError(f"{error} does not say {text!r}") from error
    raise AssertionError(f"a value, {value.ravel()[:3]}, where {kind.__name__} was expected")


def resident() -> int:
    """Bytes of this process in main memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


CHECKS = (
    Proof.copies_of_all_sizes,
    Proof.a_long_chain,
    Proof.streams_wait_for_each_other,
    Proof.copies_run_under_kernels,
    Proof.staging_does_not_grow,
    Proof.pools_under_pressure,
    Proof.full_memory_is_an_error_of_its_own,
    Proof.the_gpu_itself_is_full,
    Proof.memory_goes_back_to_the_gpu,
    Proof.errors_of_a_kernel_stay_with_it,
    Proof.an_error_that_surfaces_late_loses_the_device,
)


def work(given: Given) -> None:
    """Every check; the one that breaks the device last."""
    proof = Proof(given)
    for check in CHECKS:
        with given.record.check(check.__name__.replace("_", " ")):
            check(proof)


if __name__ == "__main__":
    main(work)
