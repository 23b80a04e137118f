"""Checks on a device without a machine, including its launcher."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tensord.streams.catalogue import open_devices

from ..streams.conftest import Reports
from .stage import Given

MakeProof = Callable[[Given, Any, Reports], Any]


def on_a_device(make: MakeProof, checks: Sequence[Callable[[Any], None]], given: Given) -> None:
    """Make every check of a proof, on a device of its own."""
    with opened(make, given, 2 << 30, 64 << 20, 60.0) as proof:
        for check in checks:
            with given.record.check(check.__name__.replace("_", " ")), np.errstate(all="ignore"):
                check(proof)


@contextmanager
def small_proof(make: MakeProof, folder: Path) -> Iterator[Any]:
    """A proof with little memory, for tests of its checks."""
    options = argparse.Namespace(
        device="cuda:0", until=time.monotonic() + 60, chosen="", part="0/1", record=folder / "record", done=None
    )
    given = Given(options)
    with opened(make, given, 256 << 20, 1 << 20, 10.0) as proof:
        yield proof
    given.record.close()


@contextmanager
def opened(make: MakeProof, given: Given, memory: int, reserve: int, patience: float) -> Iterator[Any]:
    reports = Reports()
    (device,) = open_devices([{"name": given.device, "memory": memory, "reserve": reserve}], reports).values()
    try:
        yield make(given, device, reports)
    finally:
        device.close(patience)
