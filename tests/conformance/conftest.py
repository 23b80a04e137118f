"""Fixtures of the conformance tests: a session for each module, and the checks that they run by the hundred.

The suite draws some calls of each function, has the tables of special cases on one device, and runs half of the user
code of other libraries on the devices in turn. `make conformance-long EXAMPLES=300` draws so many calls, and runs
everything on both devices, the user code with both dtypes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import array_api_strict
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensord
from tensord.client.session.session import Session

from ..conftest import assert_empty, machine_of
from ..stand_in import chosen
from .calls import Call
from .judge import Entry, Refusal, check, check_arrays_are_refused

LONG = "TENSORD_CONFORMANCE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("TENSORD_CONFORMANCE_EXAMPLES", "3"))
DEVICES = ["cpu:0", "sim:0"]
TABLED = DEVICES if LONG or chosen() else DEVICES[1:]  # the device for the tables of special cases
COMBINATIONS = [("cpu:0", "float64"), ("sim:0", "float32")]  # device and dtype
if LONG:
    COMBINATIONS += [("cpu:0", "float32"), ("sim:0", "float64")]
devices = st.sampled_from(DEVICES)


def in_turn(cases: Iterable[str]) -> list[tuple[str, str, str]]:
    """Every other case, with a device and a dtype; in the long run all cases with each of them."""
    if LONG:
        return [(case, *each) for case in cases for each in COMBINATIONS]
    return [(case, *COMBINATIONS[turn % len(COMBINATIONS)]) for turn, case in enumerate(islice(cases, 0, None, 2))]


@pytest.fixture(scope="module", autouse=True)
def strict() -> Iterator[None]:
    """array_api_strict at our version of the standard."""
    with array_api_strict.ArrayAPIStrictFlags(api_version="2025.12"):
        yield


@pytest.fixture(scope="module")
def session(pytestconfig: pytest.Config) -> Iterator[Session]:
    """A session for the tests of one module. At its end its machine is empty, and no instruction has failed
    unexpectedly.
    """
    if pytestconfig.getoption("--serial"):
        with tensord.connect("local", devices=DEVICES, engine="serial") as running:
            yield running
        return
    with tensord.connect("local", devices=DEVICES) as running:
        machine = machine_of(running)
        awaken(running)
        yield running
        assert running.trace().verify() == []
    assert_empty(machine.engine)


def awaken(session: Session) -> None:
    """Have the devices start their threads now, so that no test fails for leaving them behind."""
    xp = session.xp
    for device in DEVICES:
        counts = xp.ones(1, dtype=xp.int64, device=device)
        xp.repeat(counts, counts).wait()  # its duration is unknown, so a thread runs it
        xp.special.stdtrit(counts, counts).numpy()  # the same, and another thread brings the value


@pytest.fixture(scope="module")
def conforms(session: Session) -> Callable[..., None]:
    """conforms(name of a function, its entry): draws calls of it, on one device or the other, and checks them.

    `times` as many calls as of others. Each is refused if NumPy's arrays are in the place of tensors.
    """

    def run(name: str, entry: Entry, times: float = 1) -> None:
        @settings(max_examples=max(1, round(times * EXAMPLES)), suppress_health_check=list(HealthCheck))
        @given(devices, entry.calls)
        def holds(device: str, made: Call) -> None:
            if not isinstance(check(session, device, name, entry, made), Refusal):
                check_arrays_are_refused(session, name, entry, made)

        holds()

    return run
