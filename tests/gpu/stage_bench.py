"""The speed of the device through tensord, against its array module alone (CuPy, or NumPy) in the same run.

Each row is a median over some turns, ours and the baseline's alternating. A row that misses its must on a GPU is a
failed check; elsewhere nothing is judged, and sizes are small.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

import tensord as td
from bench.training import RATE, numpy_step, train_on_vm
from examples.train_digits import initial_parameters, load, minibatches

from .routine_rows import RoutineRows
from .rows import Row, Yardstick
from .stage import Given, main

GIB = 1 << 30
CHAIN = 5  # elementwise ops on 100 million elements
PAIRS = 64  # tensors that are written in place, and as many that are read
KINDS = ("float32", "float64", "int32", "int64", "int16", "uint8", "float16", "complex64")
FRESH = 8  # shapes and dtypes whose kernels compile while launches are timed


class Bench(Yardstick):
    """The workloads that are ops by themselves."""

    def chain(self, where: str, elements: int = 16, name: str = "chain") -> None:
        """Ops, each on the result of the one before: microseconds per op. On few elements the time is that of launches,
        on many that of kernels, which take longer than launches.
        """
        count = self.size(10_000, 500)
        limits = (1.15, 1.05) if elements > 16 else (1.5, 1.0) if where == "embedded" else (1.2, 0.9)
        array = np.ones(self.size(elements, 16), np.float32)

        def loop(x: Any, y: Any) -> Any:
            for _ in range(count):
                x = x + y
            return x

        with self.session(where) as s:
            tensor = s.asarray(array, device=self.device)
            there = self.xp.asarray(array)
            scale = 1e6 / count
            self.compare(
                Row(f"{name}, {where}", "us per op", *limits),
                lambda: scale * self.timed(lambda: loop(tensor, tensor).wait()),
                lambda: scale * self.timed(lambda: loop(there, there)),
            )

    def in_place(self) -> None:
        """Small ops that write one of two operands, in turn: microseconds per op."""
        count = self.size(10_000, 500)
        array = np.ones(16, np.float32)

        def loop(targets: list[Any], sources: list[Any]) -> None:
            for step in range(count):
                targets[step % PAIRS] += sources[step * 7 % PAIRS]

        with self.session("embedded") as s:
            ours = [[s.asarray(array, device=self.device) for _ in range(PAIRS)] for _ in range(2)]
            alone = [[self.xp.asarray(array) for _ in range(PAIRS)] for _ in range(2)]

            def run() -> None:
                loop(*ours)
                s.sync()

            scale = 1e6 / count
            self.compare(
                Row("in place, embedded", "us per op", 1.7, 1.0),
                lambda: scale * self.timed(run),
                lambda: scale * self.timed(lambda: loop(*alone)),
            )

    def beside_compiling(self) -> None:
        """The longest time that a launch holds the driving thread while kernels of another session compile: ms. The
        baseline is the same without these."""
        count = self.size(20_000, 500)
        where, devices = "local:beside", list(dict.fromkeys(["cpu:0", self.device]))
        with td.connect(where, devices=devices) as s, td.connect(where, devices=devices) as other:
            x = s.asarray(np.ones(16, np.float32), device=self.device)
            fresh = (other.asarray(np.ones((2,) * rank, kind), device=self.device) for rank in (2, 3) for kind in KINDS)

            def longest(*, compiling: bool) -> float:
                begun = max((record.id for record in s.trace().records), default=0)
                y, some = x, list(islice(fresh, FRESH)) if compiling else []
                new = [(tensor * tensor + tensor).sum(axis=0) for tensor in some]
                other.flush()
                for step in range(count):
                    y = y + x
                    if step % 1000 == 0:
                        y.wait()
                del new
                launched = [one for one in s.trace().records if one.launch and one.id > begun and one.op == "add"]
                return max(((one.finished - one.started) / 1e6 for one in launched), default=0.0)

            longest(compiling=False)
            without, beside = longest(compiling=False), longest(compiling=True)
            self.state(Row("longest launch beside compiling", "ms", 5, 0.5, flat=True), beside, without)

    def result(self, where: str) -> None:
        """One op and its value on the host, the median: microseconds."""
        count = self.size(1_000, 50)
        array = np.ones(16, np.float32)
        with self.session(where) as s:
            tensor, there = s.asarray(array, device=self.device), self.xp.asarray(array)

            def ours() -> Any:
                return (tensor + tensor).numpy()

            def alone() -> Any:
                value = there + there
                return value.get() if self.given.is_cuda else value.copy()

            def median(work: Callable[[], object]) -> float:
                return 1e6 * statistics.median(self.timed(work) for _ in range(count))

            limits = (35, 10) if where == "embedded" else (130, 80)
            row = Row(f"op and result, {where}", "us", *limits, more=True)
            self.compare(row, lambda: median(ours), lambda: median(alone))

    def training(self, where: str) -> None:
        """A step that is bound by launches, op by op: milliseconds."""
        steps = self.size(100, 5)
        batches = list(minibatches(load(), np.random.default_rng(0)))
        layers = [(self.xp.asarray(w), self.xp.asarray(b)) for w, b in initial_parameters(np.random.default_rng(0))]
        alone = [(self.xp.asarray(images), self.xp.asarray(labels)) for images, labels in batches]

        def train() -> None:
            for step in range(steps):
                numpy_step(layers, *alone[step % len(alone)], RATE, self.xp)

        with self.session(where) as s:
            put = [tuple(s.asarray(array, device=self.device) for array in batch) for batch in batches]
            limits = (1.5, 1.0) if where == "embedded" else (1.4, 0.9)
            row = Row(f"training step, {where}", "ms", *limits)
            ours = partial(train_on_vm, s, put, steps, self.device)  # type: ignore[arg-type]
            self.compare(row, lambda: 1e3 * ours(), lambda: 1e3 / steps * self.timed(train))

    def up(self) -> None:
        """1 GiB from the host to the device, as a tensor on cpu:0 that lies in pinned memory, as large uploads do."""
        host, there, link = self.transfer()
        with self.session("embedded") as s:

            def move() -> float:
                tensor = s.asarray(host, device="cpu:0").wait()
                return self.rate(lambda: tensor.to_device(self.device).wait())

            self.compare(Row("1 GiB up from pinned", "GB/s", 0.93, 0.97, rate=True), move, lambda: link(1))
        del there

    def up_staged(self) -> None:
        """The same from pageable memory, against the driver's own copy. No limits are set."""
        host, there, _ = self.transfer()
        pageable = host.copy()
        with self.session("embedded") as s:

            def move() -> float:
                attributes = {"shape": host.shape, "dtype": "float32"}
                tensor = s.call("ones", [], attributes, device="cpu:0")[0].wait()
                return self.rate(lambda: tensor.to_device(self.device).wait())

            def drivers() -> float:
                return self.rate(lambda: there.set(pageable) if self.given.is_cuda else np.copyto(there, pageable))

            self.compare(Row("1 GiB up from pageable", "GB/s", 0, 1, rate=True), move, drivers)

    def up_from_numpy(self) -> None:
        """`asarray`, which copies the values first, against the array module's. No limits are set."""
        pageable = np.ones(self.size(GIB, 1 << 20) // 4, np.float32)
        with self.session("embedded") as s:
            self.compare(
                Row("1 GiB by asarray", "GB/s", 0, 1, rate=True),
                lambda: self.rate(lambda: s.asarray(pageable, device=self.device).wait()),
                lambda: self.rate(lambda: self.xp.array(pageable)),
            )

    def down(self) -> None:
        """1 GiB from the device to the host."""
        host, there, link = self.transfer()
        with self.session("embedded") as s:
            tensor = s.asarray(host, device=self.device)

            def fetch() -> float:
                fresh = (tensor + 1).wait()  # a result that was read is kept, and a second read costs nothing
                return self.rate(fresh.numpy)

            self.compare(Row("1 GiB down", "GB/s", 0.93, 0.97, rate=True), fetch, lambda: link(2))
        del there

    def transfer(self) -> tuple[Any, Any, Callable[[int], float]]:
        """An array in pinned memory, one on the device, and the link's GB/s in a direction: 1 is up, 2 down."""
        count = self.size(GIB, 1 << 20) // 4
        if not self.given.is_cuda:
            host, there = np.ones(count, np.float32), np.empty(count, np.float32)
            return host, there, lambda _: self.rate(lambda: np.copyto(there, host))
        import cupyx

        host, there = cupyx.empty_pinned(count, np.float32), self.xp.empty(count, np.float32)
        host[...] = 1
        stream = self.xp.cuda.get_current_stream()

        def copy(direction: int) -> None:
            pair = (there.data.ptr, host.ctypes.data) if direction == 1 else (host.ctypes.data, there.data.ptr)
            self.xp.cuda.runtime.memcpyAsync(*pair, host.nbytes, direction, stream.ptr)

        return host, there, lambda direction: self.rate(lambda: copy(direction))

    def rate(self, work: Callable[[], object]) -> float:
        """GB/s of 1 GiB."""
        return self.size(GIB, 1 << 20) / 1e9 / self.timed(work)

    def elementwise(self) -> None:
        """A chain of elementwise ops on 100 M float32: the bytes that the ops read and write one by one, GB/s, against
        a copy on the device."""
        count = self.size(100_000_000, 100_000)

        def chain(x: Any) -> Any:
            for _ in range(CHAIN):
                x = x * 1.0001
            return x

        with self.session("embedded") as s:
            x = s.call("ones", [], {"shape": (count,), "dtype": "float32"}, device=self.device)[0]
            one, other = self.xp.ones(count, np.float32), self.xp.empty(count, np.float32)
            row = Row("elementwise chain, not fused", "GB/s", 0.7, 0.9, rate=True)
            self.compare(
                row,
                lambda: CHAIN * 8 * count / 1e9 / self.timed(lambda: chain(x).wait()),
                lambda: 8 * count / 1e9 / self.timed(lambda: self.xp.copyto(other, one)),
            )


def work(given: Given) -> None:
    """Every row, those within one process first."""
    bench = Bench(given)

    def of_three(where: str) -> list[tuple[str, Callable[[], None]]]:
        three = (("chain", bench.chain), ("op and result", bench.result), ("training", bench.training))
        return [(f"{name}, {where}", partial(run, where)) for name, run in three]

    rows: list[tuple[str, Callable[[], None]]] = [
        *of_three("embedded"),
        ("in place", bench.in_place),
        ("kernels of 20 us", partial(bench.chain, "embedded", 4 << 20, "kernels of 20 us")),
        ("kernels of 50 us", partial(bench.chain, "embedded", 10 << 20, "kernels of 50 us")),
        ("up from pinned memory", bench.up),
        ("down", bench.down),
        ("elementwise", bench.elementwise),
        *of_three("daemon"),
        ("beside compiling", bench.beside_compiling),
        *RoutineRows(given).all(),
        ("up from pageable memory", bench.up_staged),
        ("up by asarray", bench.up_from_numpy),
    ]
    for index, (name, run) in enumerate(rows):
        if given.remaining < 0:
            given.record.unreached(len(rows) - index, len(rows), f"{given.seconds:.0f} s are over")
            break
        with given.record.check(name):
            run()


if __name__ == "__main__":
    main(work)
