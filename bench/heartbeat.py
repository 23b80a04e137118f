"""The longest delay of an event loop's ticks while its tasks await values over a slow link.

The link is that of a simulated accelerator of the process's own machine, or tcp at the same rate to a daemon. Beside a
ticker of one millisecond, tasks await a large value, several values at once, statistics, and the end of everything that
was issued. The baseline is the ticker alone for as long. The note says for how long a blocking call stops the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon

from .measure import DAEMON_CONFIG, Row, Settings, median
from .slow_link import slow_link

BYTES = 40_000_000  # of the large value
RATE = 84e6  # bytes per second
TICK = 0.001
PARTS = 4


def measure(settings: Settings) -> list[Row]:
    """Milliseconds by which the ticker's longest gap exceeds its period."""
    row = Row("heartbeat beside slow reads", "ms", None, None, 5.0, 1.0, baseline_name="alone")
    if settings.baseline_only:
        return [row]
    row.runs = {"ours": [], "baseline": [], "blocked": []}
    with connected(settings) as session:
        values = np.ones(settings.size(BYTES, 1 << 16) // 4, np.float32)
        x = session.asarray(values, device=session.devices[-1]).wait()
        for turn in settings.turns:
            settings.collect()
            late, taken = asyncio.run(beside(partial(reads, session, x)))
            alone, _ = asyncio.run(beside(partial(asyncio.sleep, taken)))
            blocked, _ = asyncio.run(beside(partial(waits, x)))
            if turn:
                for name, seconds in (("ours", late), ("baseline", alone), ("blocked", blocked)):
                    row.runs[name].append(1e3 * seconds)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    row.note = f"numpy() on the loop's thread: {median(row.runs, 'blocked'):.0f} ms"
    return [row]


@contextmanager
def connected(settings: Settings) -> Iterator[td.Session]:
    """A session whose last device is behind a slow link; with a daemon, the session itself is."""
    if not settings.through_daemon:
        slow = {"name": "sim:0", "bandwidth": int(RATE), "memory": 8 * BYTES}
        with td.connect("local", devices=["cpu:0", slow]) as session:
            yield session
        return
    with (
        own_daemon(config=DAEMON_CONFIG, also=["tcp://127.0.0.1:0"]) as daemon,
        slow_link(daemon.addresses[1], RATE) as address,
        td.connect(address) as session,
    ):
        yield session


async def reads(session: td.Session, x: td.Tensor) -> object:
    """Run tasks that await values and statistics.

    Returns the values, since freeing their memory takes some milliseconds, too.
    """
    part = x.shape[0] // PARTS

    async def whole() -> object:
        return await (x + 1).numpy_async()

    async def parts() -> object:
        return await session.fetch_async([x[n * part : (n + 1) * part] for n in range(PARTS)])

    async def figures() -> None:
        await session.stats_async()
        await session.names_async()
        await session.sync_async()

    return await asyncio.gather(whole(), parts(), figures())


async def waits(x: td.Tensor) -> None:
    """Wait for the same value on the loop's thread."""
    (x + 1).numpy()
    await asyncio.sleep(0)


async def beside(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The ticker's longest delay beside the work, and the duration of the work, in seconds."""
    gaps: list[float] = []
    ticker = asyncio.ensure_future(tick(gaps))
    await asyncio.sleep(10 * TICK)
    gaps.clear()
    start = perf_counter()
    result = await work()
    taken = perf_counter() - start
    await asyncio.sleep(2 * TICK)  # so that a gap that the work has caused is over
    ticker.cancel()
    del result
    return max(gaps) - TICK, taken


async def tick(gaps: list[float]) -> None:
    """Record the time between two ticks, for ever."""
    before = perf_counter()
    while True:
        await asyncio.sleep(TICK)
        now = perf_counter()
        gaps.append(now - before)
        before = now
