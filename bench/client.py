"""A client process that does what it is told: `python -m bench.client ADDRESS [NICE]`, led by `partner.Partner`.

- `tidy`: collect garbage, so that this does not happen while others are measured
- `ops N`: N ops over 100 tensors, until they have run; says when they began and ended (time.perf_counter)
- `flood`: ops as fast as they are taken, until it is told something else
- `choke`: the same, and large values that come back; whoever stops the process meanwhile makes it a stalled one
- `spin`: nothing with the daemon, but a core kept busy
"""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

import numpy as np

import tensord as td

from .partner import is_told, listen, say
from .small_ops import LENGTH, spread

TENSORS = 100
CHUNK = 1_000  # ops between two looks at the leader
LARGE = 1 << 16  # elements of a value that comes back


class Client:
    """The commands."""

    def __init__(self, session: td.Session) -> None:
        self.session = session
        self.operands = [session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(TENSORS + 1)]
        self.large = session.asarray(np.zeros(LARGE, np.float32))
        session.sync()

    def tidy(self) -> None:
        gc.collect()
        say("tidy")

    def ops(self, count: int) -> None:
        operands = list(self.operands)
        start = time.perf_counter()
        spread(operands, count)
        self.session.sync()
        say(f"{start} {time.perf_counter()}")

    def flood(self) -> None:
        self.go_on(lambda: spread(list(self.operands), CHUNK))

    def choke(self) -> None:
        def work() -> None:
            spread(list(self.operands), CHUNK)
            self.session.effect(lambda _value: None, self.large)

        self.go_on(work)

    def spin(self) -> None:
        self.go_on(lambda: sum(range(CHUNK)))

    def go_on(self, work: Any) -> None:
        """Say so once it is in full swing, and again once it is over."""
        for _ in range(10):
            work()
        say("going on")
        while not is_told():
            work()
        listen()
        self.session.sync()
        say("over")


def main() -> None:
    os.nice(int(sys.argv[2]) if len(sys.argv) > 2 else 0)  # before there are threads, which inherit it
    with td.connect(sys.argv[1]) as session:
        client = Client(session)
        say("ready")
        while True:
            command, *numbers = listen()
            getattr(client, command)(*map(int, numbers))


if __name__ == "__main__":
    main()
