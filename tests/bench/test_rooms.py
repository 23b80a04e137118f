"""The number of rooms that each trip passes through does not grow: calls, entries and upward calls are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rooms import TRIPS, Counts, ProfiledCall, counted, is_upward

from ..each_case import each_case

ROOT = Path(__file__).parents[2]
MOST = {
    "small op": Counts(60, 25, 21, 3),
    "sim op": Counts(281, 52, 69, 8),
    "sim op, daemon": Counts(278, 46, 67, 1),
    "run": Counts(115, 40, 37, 2),
    "eviction": Counts(545, 64, 134, 11),
    "checkpoint": Counts(742, 74, 148, 12),
}
ALONE = ("small op", "run")  # one thread runs the whole trip
TURNS = 0.04  # of the counts, which vary as threads wake each other on a busy machine


def measured(*options):
    """The counts of a process of its own, which has run nothing else before."""
    command = [sys.executable, "-m", "bench.rooms", "--json", *options]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)  # noqa: S603
    return json.loads(process.stdout)


def growth(counts, trip):
    """The counts of a trip that are larger than before."""
    most, share = MOST[trip]._asdict(), 0 if trip in ALONE else TURNS
    return {name: value for name, value in counts[trip].items() if value > most[name] * (1 + share) + 100 * share}


@pytest.fixture(scope="module")
def counts():
    """Counts of a few runs, or of many if the few were larger than before: the order of threads varies."""
    few = measured("--steady", "4")
    return measured() if any(growth(few, trip) for trip in MOST) else few


@each_case("trip", MOST)
def test_a_trip_passes_through_no_more_rooms_than_before(counts, trip):
    grown = growth(counts, trip)
    assert not grown, (
        f"{trip}: {grown} where {MOST[trip]} was reached; `python -m bench.rooms --list {trip!r}` shows the calls"
    )


def test_each_trip_has_its_figures():
    assert MOST.keys() == TRIPS.keys()


def test_a_call_into_another_folder_is_an_entry_and_one_against_the_order_of_the_contracts_is_upward():
    calls = [
        ProfiledCall(1, "vm/memory/ledger.py", "expect", "vm/scheduler/scheduler.py"),
        ProfiledCall(1, "vm/scheduler/edges.py", "consume", "vm/scheduler/scheduler.py"),
        ProfiledCall(1, "vm/admission/accesses.py", "answer", "vm/scheduler/scheduler.py"),
        ProfiledCall(1, "vm/machine.py", "sink", "streams/threads/worker.py"),
    ]
    assert counted(calls) == Counts(calls=4, files=4, entries=3, upwards=2)


@pytest.mark.parametrize(
    ("path", "source", "upward"),
    [
        ("vm/machine.py", "vm/engine.py", True),
        ("vm/engine.py", "vm/machine.py", False),
        ("client/outbox/outbox.py", "vm/machine.py", True),
        ("vm/log.py", "vm/engine.py", False),  # no contract ranks this package
        ("streams/pool.py", "vm/memory/allocation.py", False),
    ],
)
def test_what_is_upward(path, source, upward):
    assert is_upward(path, source) == upward
