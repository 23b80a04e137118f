"""The device survives every call: hostile calls of each op that computes addresses or sizes of data.

Each op has a process of its own, so a device that is lost, a crash or a hang names the op. After each call the device
still answers, and a tensor that lay there before has its values. A call that `cpu:0` refuses, the device refuses too,
or it marks the result with NaN. On a GPU there are calls of vast sizes, too. First an op that does break its device
shows that the stage would notice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

import tensord
from tensord.client.session.session import Session
from tensord.interpreter.errors import ConnectionLost
from tensord.interpreter.schema.opdef import find

from ..equality import may_give_a_value
from . import faulty_ops, vast_calls
from .hostile_calls import calls, exposed
from .op_cases import Case
from .record import Tally, read
from .stage import Given, main
from .stage_ops import Results, call, results

LONGEST = 60.0  # seconds of one op
LEAST = 10.0  # seconds that a further op needs: its process has to start
LAST_WORDS = 5.0  # seconds for a hanging process to write its stacks
MEMORY = "96MiB"  # of each device: absurd sizes are refused early
GUARD = 4096  # elements of a tensor that no call touches
VAST = "vast"  # the name of the process that makes calls of vast sizes
MEANWHILE = "the device is lost"


def options(device: str) -> dict[str, object]:
    """A small device: many processes have one at the same time."""
    small: dict[str, object] = {"name": device, "memory": MEMORY}
    if device.startswith("cpu"):
        return {**small, "workers": 1}
    return {**faulty_ops.faulty(device), **small, **({"reserve": "64MiB"} if device.startswith("cuda") else {})}


class Guarded:
    """A session on cpu:0 and the device, with a tensor there that has to keep its values."""

    def __init__(self, session: Session, device: str) -> None:
        self.session, self.name = session, device
        self.has_ended = False  # the machine, with all devices
        self._device = session._core.transport.machine.devices[device]
        self._values = np.arange(GUARD, dtype=np.float64)
        self._tensor = session.asarray(self._values, device=device).wait()

    @property
    def is_lost(self) -> bool:
        """Is the device lost?"""
        return self._device.lost is not None

    def attack(self, case: Case) -> None:
        """Make the call, and check the device. AssertionError if it is not as it was."""
        try:
            self._attack(case)
        except ConnectionLost:
            self.has_ended = True
            raise

    def _attack(self, case: Case) -> None:
        here = results(call(self.session, "cpu:0", case))
        there = results(call(self.session, self.name, case))
        assert not self.is_lost, f"{MEANWHILE}: {self._device.lost}"
        found = (self._tensor + 1).numpy()
        assert not self.is_lost, f"{MEANWHILE}: {self._device.lost}"
        assert np.array_equal(found, self._values + 1), "memory of another tensor has changed"
        assert not is_accepted_silently(there, here), f"a value without a NaN; on cpu:0: {here}"


def is_accepted_silently(there: Results, here: Results) -> bool:
    """Has the device given plain values where cpu:0 refuses the call?"""
    if not isinstance(here, str) or isinstance(there, str) or may_give_a_value(here):
        return False
    return not any(np.isnan(each).any() for each in there if each.dtype.kind in "fc")


def attack(given: Given) -> None:
    """All hostile calls of the chosen op, until the device is lost, or the machine ends."""
    if given.chosen == faulty_ops.NAME:
        faulty_ops.add()
        made = [Case(faulty_ops.NAME, "on purpose", (np.ones(10, np.float32),), {})]
    else:
        made = calls(find(given.chosen))
    devices = [options(name) for name in given.beside]
    with tensord.connect("local", devices=devices) as session:
        guarded = Guarded(session, given.device)
        for index, case in enumerate(made):
            if given.remaining < 0:
                given.record.failed("all calls are made", f"{len(made) - index} of {len(made)} were not")
                return
            with given.record.check(str(case)):
                guarded.attack(case)
            if guarded.is_lost or guarded.has_ended:
                return


def attack_with_size(given: Given) -> None:
    """Calls with more elements than 32 bits can count, for which only a GPU has the time and the memory."""
    with tensord.connect("local", devices=given.beside) as session:
        device = session._core.transport.machine.devices[given.device]
        for vast in vast_calls.calls(session, given.device):
            if given.remaining < 0:
                given.record.failed("all calls are made", f"{vast.name} and those behind it were not")
                return
            with given.record.check(f"{VAST}: {vast.name}"):
                wrong = vast_calls.problem(vast)
                assert device.lost is None, f"{MEANWHILE}: {device.lost}"
                assert not wrong, wrong
            if device.lost is not None:
                return


def of_one(given: Given, op: str, folder: Path) -> tuple[Tally, str]:
    """The records of an op's process, and how it ended: "" if it ended well."""
    record = folder / f"{op}.jsonl"
    until = min(given.deadline, time.monotonic() + LONGEST)
    command = [sys.executable, "-m", "tests.gpu.stage_hostile", op, "--device", given.device]
    process = subprocess.Popen([*command, "--until", f"{until:.1f}", "--record", str(record)])  # noqa: S603 - our own
    try:
        status = process.wait(max(until - time.monotonic(), 0.0) + LAST_WORDS)
        ended = "" if status == 0 else f"exit status {status}"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_WORDS)
        ended = "it hangs"
    finally:
        process.kill()
        process.wait()
    return read([record]), ended


def judge(tally: Tally, ended: str) -> str:
    """The fault of an op; "" if there is none."""
    if tally.failures:
        first = tally.failures[0]
        return f"{first['check']}: {first['message']}" + (f"; {ended}" if ended else "")
    if ended or not tally.finished:
        return f"{ended or 'it did not finish'} in {', '.join(tally.running) or 'no call'}"
    return ""


def work(given: Given) -> None:
    """One check for each op."""
    if given.chosen:
        (attack_with_size if given.chosen == VAST else attack)(given)
        return
    made = 0
    with tempfile.TemporaryDirectory(prefix="tdg-") as folder:
        if given.part == 0 and not given.device.startswith("cpu"):
            with given.record.check("an op that loses the device is noticed"):
                wrong = judge(*of_one(given, faulty_ops.NAME, Path(folder)))
                assert MEANWHILE in wrong, f"it was not: {wrong or 'all is well'}"
        ops = given.mine([*exposed(), *([VAST] if given.is_real else [])], str)
        for index, op in enumerate(ops):
            if given.remaining < LEAST:
                given.record.unreached(len(ops) - index, len(ops), f"{given.seconds:.0f} s are over")
                return
            with given.record.check(op):
                tally, ended = of_one(given, op, Path(folder))
                made += tally.passed
                wrong = judge(tally, ended)
                assert not wrong, wrong
        given.record.figure("calls", made)


if __name__ == "__main__":
    main(work)
