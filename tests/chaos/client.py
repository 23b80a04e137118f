"""One client of a chaotic round: random work, each value compared with NumPy's, until it is done or interrupted.

`python -m tests.chaos.client ADDRESS SEED STEPS PLAN` reports its progress on stdout, a line of JSON per step, and its
end. `PLAN` is JSON: step -> the client's act against itself there (`Act`). SIGUSR1 cancels.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np

import tensord as td
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

from ..puppet import cut

SIZES = (1, 16, 1000, 20_000, 100_000)  # elements; the largest ones go through shared memory
KEPT = 6  # tensors that a client has at a time
TOTAL = 1000.0  # the sum of the two tensors that change together
LEFT_THREADS = 5.0
EXPECTED = (td.DeviceMemoryError, td.CancelledError)  # errors that a value may have instead of being right


class Act(StrEnum):
    """A client's act against itself."""

    CUT = "cut"
    CANCEL = "cancel"
    VANISH = "vanish"
    THREADS = "threads"


def polynomial(x: Any, number: Any) -> Any:
    """The computation of a routine, on tensors or arrays."""
    return ((x * 2.0 + number) * x - 3.0) % 101.0


def write(x: Any, number: Any) -> None:
    """The in-place write of a routine."""
    x += number
    x %= 103.0


class WrongError(AssertionError):
    """A value differs from NumPy's."""


class Work:
    """A session and the tensors that it has made, each beside its expected value.

    `low`, `high`: the least and the greatest number of increments of the shared counter that may have happened.
    """

    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self.rng = random.Random(seed)
        self.pairs: list[tuple[Tensor, Any]] = []
        self.low = self.high = 0
        self.uncertain = 0
        self.cancelled = False
        self.captured = False  # was a capture going on at the cancellation?
        self.routine, self.in_place = session.routine(polynomial), session.routine(write)
        self.shared = session.lookup(["counter", "left", "right"])
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (20, self.upload),
            (30, self.compute),
            (20, self.compute_in_place),
            (8, self.take_view),
            (8, self.move),
            (6, self.write_element),
            (8, self.check_one),
            (10, self.count),
            (6, self.shift),
            (5, self.look_at_both),
            (3, self.publish),
            (3, self.look_up),
            (8, self.run_routine),
            (6, self.run_loop),
            (3, self.publish_routine),
            (4, self.run_published),
            (3, self.drop),
            (2, self.confirm),
        ]

    def step(self) -> None:
        """One random action."""
        weights, actions = zip(*self.steps, strict=True)
        self.rng.choices(actions, weights)[0]()
        if self.cancelled:  # by the signal handler, anywhere in there
            self.start_over()

    # -- its own values --------------------------------------------------------------------------------------------

    def device(self) -> str:
        return self.rng.choice(("cpu:0", "sim:0", "sim:1", "sim:1"))

    def keep(self, tensor: Tensor, values: Any) -> None:
        self.pairs.append((tensor, values))
        if len(self.pairs) > KEPT:
            del self.pairs[self.rng.randrange(KEPT)]

    def one(self) -> tuple[Tensor, Any]:
        if not self.pairs:
            self.upload()
        return self.rng.choice(self.pairs)

    def upload(self) -> None:
        values = np.full(self.rng.choice(SIZES), float(self.rng.randrange(100)), np.float32)
        values[0] += 1.0
        self.keep(self.session.asarray(values, device=self.device()), values.copy())
        values[:] = -1.0  # it has been copied

    def compute(self) -> None:
        x, a = self.one()
        match self.rng.randrange(3):
            case 0:
                self.keep((x + 3.0) % 101.0, (a + np.float32(3.0)) % np.float32(101.0))
            case 1:
                y, b = next(((y, b) for y, b in self.pairs if b.shape == a.shape), (x, a))
                self.keep(self.session.call("maximum", [x, y])[0], np.maximum(a, b))
            case _:
                self.keep(x * 1.0, a.copy())

    def compute_in_place(self) -> None:
        x, a = self.one()
        x *= 2.0
        x %= 103.0
        a *= np.float32(2.0)
        a %= np.float32(103.0)

    def take_view(self) -> None:
        x, a = self.one()
        self.keep(x[::2], a[::2].copy())

    def move(self) -> None:
        x, a = self.one()
        self.keep(x.to_device(self.device()), a.copy())

    def write_element(self) -> None:
        x, a = self.one()
        x[0] = 7.0
        a[0] = 7.0

    def drop(self) -> None:
        del self.pairs[: self.rng.randrange(KEPT)]

    def check_one(self) -> None:
        self.check(*self.one())

    def check(self, tensor: Tensor, values: Any) -> None:
        """Is the value right? It may also be missing, for lack of memory; then its dependents are missing, too."""
        try:
            found = tensor.numpy()
        except EXPECTED as error:
            if type(error) is td.CancelledError and not self.cancelled:
                raise WrongError(f"cancelled after a restart: {error}") from None
            self.pairs.clear()
            return
        if not self.cancelled and not np.array_equal(found, values):
            raise WrongError(f"{found!r} and not {values!r}")

    # -- shared tensors --------------------------------------------------------------------------------------------

    def count(self) -> None:
        counter = self.shared["counter"]
        self.uncertain += 1
        self.high += 1
        counter += 1.0

    def shift(self) -> None:
        left, right = self.shared["left"], self.shared["right"]
        amount = float(self.rng.randrange(10))
        with self.session.atomic():
            left += amount
            right -= amount

    def look_at_both(self) -> None:
        both = self.session.lookup(["left", "right"], snapshot=True)
        try:
            total = (both["left"] + both["right"]).numpy()
        except td.CancelledError:
            if not self.cancelled:
                raise
            return
        if not (total == TOTAL).all():
            raise WrongError(f"half of a group was seen: {total!r}")

    def publish(self) -> None:
        values = np.full(self.rng.choice(SIZES), float(self.rng.randrange(100)), np.float32)
        self.session.publish(f"{os.getpid()}-{self.rng.randrange(3)}", self.session.asarray(values, device="cpu:0"))

    def look_up(self) -> None:
        names = [name for name in self.session.names() if "-" in name]
        if not names:
            return
        try:
            found = self.session.lookup(self.rng.choice(names)).numpy()
        except (td.MetadataError, *EXPECTED):  # another client has replaced it, or we were cancelled
            return
        if not (found == found[0]).all():
            raise WrongError(f"a published tensor was changed: {found!r}")

    # -- routines --------------------------------------------------------------------------------------------------

    def run_routine(self) -> None:
        x, a = self.one()
        number = self.rng.randrange(5)
        self.keep(self.routine(x, number), polynomial(a, np.float32(number)))
        self.in_place(x, number)
        write(a, np.float32(number))

    def run_loop(self) -> None:
        """A loop with a choice in it."""
        x, a = self.one()
        rounds = self.rng.randrange(4)

        def body(x):
            return self.session.cond(x.sum() > 50.0, lambda: (x * 0.5) % 101.0, lambda: x + 7.0)

        values = a.copy()
        for _ in range(rounds):
            large = values.sum() > 50.0
            values = (values * np.float32(0.5)) % np.float32(101.0) if large else values + np.float32(7.0)
        self.keep(self.session.repeat(rounds, body, x), values)

    def publish_routine(self) -> None:
        x, _ = self.one()
        self.session.publish(f"routine {os.getpid()}", self.routine.link(x, 1))

    def run_published(self) -> None:
        x, a = self.one()
        try:
            found = self.session.lookup(self.rng.choice(self.session.names("routine") or [""]))
            self.keep(found(x, 3), polynomial(a, np.float32(3)))
        except (td.MetadataError, *EXPECTED):  # no routine has the name, or it takes other tensors
            return

    def confirm(self) -> None:
        """Everything issued until now has happened."""
        self.session.sync()
        if not self.cancelled:
            self.low += self.uncertain
            self.uncertain = 0

    # -- acts against itself ---------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel, from a signal handler or from here."""
        self.cancelled = True
        try:
            self.session.cancel()
        except td.CaptureError:
            self.captured = True

    def start_over(self) -> None:
        """Make everything anew: after a cancellation the values are unknown."""
        self.pairs.clear()
        if self.captured:
            self.captured = False
            self.session.cancel()
        self.session.restart()
        self.cancelled, self.uncertain = False, 0

    def act(self, what: str) -> None:
        match Act(what):
            case Act.CUT:
                cut(self.session)
            case Act.CANCEL:
                self.cancel()
                self.start_over()
            case Act.VANISH:
                os._exit(0)
            case Act.THREADS:
                threads = [threading.Thread(target=self.beside, args=(n,), daemon=True) for n in range(3)]
                for thread in threads:
                    thread.start()

    def beside(self, number: int) -> None:
        """Work of another thread, on tensors of its own."""
        try:
            x = self.session.asarray(np.full(100, float(number)))
            for _ in range(30):
                x += 1.0
                found = (x * 2.0).numpy()
                if not (found == found[0]).all():
                    tell(wrong=f"in a thread: {found!r}")
        except td.TensordError:
            pass  # cancelled, or lost; the main thread reports it

    def finish(self) -> None:
        """Every value is right at the end, too."""
        for pair in list(self.pairs):
            self.check(*pair)
        self.confirm()


def tell(**what: Any) -> None:
    """A line for the process that started the client."""
    os.write(1, json.dumps(what).encode() + b"\n")


def run(address: str, seed: int, steps: int, plan: dict[str, str]) -> None:
    """Work until done; reports how it ended."""
    session = work = None
    try:
        session = td.connect(address)
        work = Work(session, seed)
        signal.signal(signal.SIGUSR1, lambda *_: work.cancel())
        for number in range(steps):
            tell(step=number, low=work.low, high=work.high + 1)
            if str(number) in plan:
                work.act(plan[str(number)])
            work.step()
        work.finish()
        tell(end="done", low=work.low, high=work.high)
    except td.ConnectionLost as error:
        tell(end="lost", why=str(error))
    except Exception as error:
        tell(wrong=f"{type(error).__name__}: {error}")
        raise
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if work is not None:
            work.pairs.clear()
            work.shared.clear()
        if session is not None:
            session.close()
    left = [thread for thread in threading.enumerate() if thread.name == "tensord-remote"]
    if left:
        tell(wrong=f"threads were left: {left}")


def main() -> None:
    """The client that the arguments describe."""
    faulthandler.register(signal.SIGUSR2)  # to see where a client hangs
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))


if __name__ == "__main__":
    main()
