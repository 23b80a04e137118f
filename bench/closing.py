"""What a session waits at the longest while another one ends that holds 100,000 tensors, until they are released.

The machine releases them in pieces, between which it serves others. Embedded, another thread closes the session;
through a daemon another process does.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

import tensord as td

from .latency import sample
from .measure import Row, Settings, median
from .partner import Partner
from .small_ops import LENGTH

TENSORS = 100_000
CHUNK = 50  # ops between two looks at what is left

# Make so many tensors; what ends their session; what waits for that.
Begin: TypeAlias = Callable[[int], None]
End: TypeAlias = Callable[[], None]


def measure(settings: Settings) -> list[Row]:
    """Milliseconds of the longest `(x + y).numpy()` until all are released, against that of as many alone."""
    row = Row("longest beside a close", "ms", None, None, 20.0, 2.0, baseline_name="alone")
    if settings.baseline_only:
        return [row]
    row.runs = {"ours": [], "baseline": [], "ops": []}
    count = settings.size(TENSORS, 1_000)
    with neighbour(settings) as (session, begin, end, await_end):
        tensor = session.asarray(np.ones(LENGTH, np.float32))

        def op() -> object:
            return (tensor + tensor).numpy()

        sample(op, CHUNK)
        for turn in range(settings.runs + 1):
            before = held(session)
            begin(count)
            gc.collect()
            end()
            beside = [float(sample(op, CHUNK).max())]
            while held(session) > before:
                beside.append(float(sample(op, CHUNK).max()))
            await_end()
            gc.collect()
            alone = [float(sample(op, CHUNK).max()) for _ in beside]
            if turn > 0:
                row.runs["ours"].append(max(beside) / 1e3)
                row.runs["baseline"].append(max(alone) / 1e3)
                row.runs["ops"].append(len(beside) * CHUNK)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    row.note = f"{median(row.runs, 'ops'):,.0f} ops of the other session until {count:,} tensors were released"
    return [row]


def held(session: td.Session) -> int:
    """Bytes in use."""
    return int(session.stats()["devices"]["cpu:0"]["allocated"])


@contextmanager
def neighbour(settings: Settings) -> Iterator[tuple[td.Session, Begin, End, End]]:
    """A session that waits; and how another one gets many tensors, is ended, and has ended."""
    if settings.through_daemon:
        with settings.connect() as session, Partner("client", settings.server.address) as other:
            other.hear()
            yield session, lambda count: told(other, f"hold {count}"), lambda: other.tell("leave"), lambda: heard(other)
        return
    with td.connect("local:closing", devices=["cpu:0"]) as session:
        here = Here()
        yield session, here.begin, here.end, here.await_end


def told(other: Partner, line: str) -> None:
    """Tell another process to do something, and wait until it has done so."""
    other.ask(line)


def heard(other: Partner) -> None:
    """Wait until another process has done what it was told."""
    other.hear()


class Here:
    """Another session on the machine of this process, closed by a thread."""

    def begin(self, count: int) -> None:
        """Make tensors."""
        self.session = td.connect("local:closing")
        self.kept = keep(self.session, count)
        self.thread = threading.Thread(target=self.session.close)

    def end(self) -> None:
        """Have the session closed."""
        self.thread.start()

    def await_end(self) -> None:
        """It is closed; its handles go only now, since what they cost is no matter of the machine."""
        self.thread.join()
        self.kept.clear()


def keep(session: td.Session, count: int) -> list[td.Tensor]:
    """So many small tensors."""
    x = session.asarray(np.ones(LENGTH, np.float32))
    kept = [x + x for _ in range(count)]
    session.sync()
    return kept
