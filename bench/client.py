"""A client process that obeys commands: `python -m bench.client ADDRESS [NICE]`, controlled by `partner.Partner`.

- `tidy`: collect garbage, so that the collector does not run while other processes are measured
- `ops N`: N ops over 100 tensors, until they have run; answers when they began and ended (time.perf_counter)
- `steps N`: the same with N captured training steps
- `flood`: ops as fast as the daemon takes them, until the next command
- `chain`: a chain of ops on the last device, until the next command
- `choke`: as `flood`, with large values that are fetched; stopping the process meanwhile makes it a stalled client
- `hold N`: open another session with N tensors; `leave`: close that session
- `spin`: keep a core busy, without the daemon
"""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import cached_property
from typing import Any

import numpy as np

import tensord as td
from examples.train_digits import Network, initial_parameters, load, minibatches

from .closing import small_tensors
from .partner import is_told, listen, say
from .small_ops import LENGTH, chain, spread
from .training import RATE

TENSORS = 100
CHUNK = 1_000  # ops between two checks for a command
LARGE = 1 << 16  # elements of a value that is fetched


class Client:
    """The commands."""

    def __init__(self, session: td.Session) -> None:
        self.session = session

    @cached_property
    def operands(self) -> list[td.Tensor]:
        """The operands of small ops."""
        operands = [self.session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(TENSORS + 1)]
        self.session.sync()
        return operands

    @cached_property
    def large(self) -> td.Tensor:
        """A large value, to be fetched."""
        return self.session.asarray(np.zeros(LARGE, np.float32))

    def tidy(self) -> None:
        gc.collect()
        say("tidy")

    def ops(self, count: int) -> None:
        operands = list(self.operands)
        start = time.perf_counter()
        spread(operands, count)
        self.session.sync()
        say(f"{start} {time.perf_counter()}")

    def steps(self, count: int) -> None:
        step, batch = self.captured_step
        start = time.perf_counter()
        for _ in range(count):
            step(*batch, RATE)
        self.session.sync()
        say(f"{start} {time.perf_counter()}")

    @cached_property
    def captured_step(self) -> tuple[Any, list[Any]]:
        """A routine that is compiled, and its operands."""
        batch = [self.session.asarray(each) for each in next(minibatches(load(), np.random.default_rng(0)))]
        network = Network(self.session, "cpu:0", initial_parameters(np.random.default_rng(0)))
        step: Any = self.session.routine(network.step)
        for _ in range(3):
            step(*batch, RATE)
        self.session.sync()
        return step, batch

    def flood(self) -> None:
        self.go_on(lambda: spread(list(self.operands), CHUNK))

    def chain(self) -> None:
        values, device = np.full(LENGTH, 1e-3, np.float32), self.session.devices[-1]
        x, y = self.session.asarray(values, device=device), self.session.asarray(values, device=device)

        def work() -> None:
            nonlocal x
            x = chain([x, y], CHUNK)[0]

        self.go_on(work)

    def choke(self) -> None:
        def work() -> None:
            spread(list(self.operands), CHUNK)
            self.session.effect(lambda _value: None, self.large)

        self.go_on(work)

    def hold(self, count: int) -> None:
        self.other = td.connect(sys.argv[1])
        self.tensors = small_tensors(self.other, count)
        say("held")

    def leave(self) -> None:
        self.other.close()
        say("left")
        self.tensors.clear()

    def spin(self) -> None:
        self.go_on(lambda: sum(range(CHUNK)))

    def go_on(self, work: Any) -> None:
        """Do the work until the next command. Answer once it is running, and again when it is over."""
        for _ in range(10):
            work()
        say("going on")
        while not is_told():
            work()
        listen()
        self.session.sync()
        say("over")


def main() -> None:
    os.nice(int(sys.argv[2]) if len(sys.argv) > 2 else 0)  # before threads start, which inherit it
    with td.connect(sys.argv[1]) as session:
        client = Client(session)
        say("ready")
        while True:
            command, *numbers = listen()
            getattr(client, command)(*map(int, numbers))


if __name__ == "__main__":
    main()
