"""The common parts of the stages' programs: their options, and the record of their results."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from . import fake
from .record import ITSELF, Recorder, begun

Item = TypeVar("Item")


class Given:
    """The options of a stage. `device`: the device to be proven. `part`, `parts`: its share of the work, if it is one
    of several processes. `record`: the file for its results.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.device: str = options.device
        self.deadline: float = options.until  # of time.monotonic(), which all processes of a machine share
        self.seconds = self.remaining
        self.chosen: str = options.chosen
        self.part, self.parts = (int(number) for number in options.part.split("/"))
        self.begun = begun(options.record)  # checks, if this process goes on where one was ended
        self.record = Recorder(options.record)
        self._done = set(json.loads(options.done.read_text())) if options.done else set()

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def is_cuda(self) -> bool:
        """Is it a GPU, as far as CuPy can tell?"""
        return self.device.startswith("cuda")

    @property
    def is_real(self) -> bool:
        """Is it a real GPU, whose sizes and times count, and not the fake of its runtime?"""
        return self.is_cuda and not fake.is_installed()

    @property
    def beside(self) -> list[str]:
        """cpu:0 and the device."""
        return list(dict.fromkeys(["cpu:0", self.device]))

    def mine(
        self, items: Iterable[Item], name: Callable[[Item], str], group: Callable[[Item], str] | None = None
    ) -> list[Item]:
        """The items of this part, without those whose checks, by their names, were made or begun before. Items of one
        `group` are of one part.
        """
        left = [item for item in items if self.is_left(name(item))]
        group = group or name
        groups = list(dict.fromkeys(map(group, left)))
        part = set(groups[self.part :: self.parts])
        return [item for item in left if group(item) in part and name(item) not in self.begun]

    def is_left(self, check: str) -> bool:
        """Has no earlier run made that check?"""
        return check not in self._done

    def stand_in_for(self, kind: str) -> None:
        """Let the device stand in for those of that kind, also in processes that this one starts."""
        from ..stand_in import VARIABLE

        os.environ[VARIABLE] = f"{kind}={self.device}"


def main(work: Callable[[Given], None]) -> None:
    """Do the work of a stage, and report that it is done; an exception that leaves it is a failed check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("chosen", nargs="?", default="", help="which of several, where the program is for several")
    parser.add_argument("--device", required=True)
    parser.add_argument("--until", type=float, required=True, help="when to end, by time.monotonic()")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--done", type=Path, help="a list of checks that an earlier run has made")
    given = Given(parser.parse_args())
    with given.record.check(ITSELF):
        work(given)
    given.record.finish()
