"""Collectives that run inline leave the same state as collectives that run as groups of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.sim.sim import SimDevice
from tensord.vm.reporting.invariants import violations

from ...behaviours.looking_inside import device_of, machine_of
from ...each_case import each_case

SIMS = ("sim:0", "sim:1", "sim:2")
ROWS = np.arange(18.0).reshape(6, 3)


@contextmanager
def opened(**options: Any) -> Iterator[td.Session]:
    with td.connect("local", devices=["cpu:0", *({"name": name, **options} for name in SIMS)]) as session:
        yield session


def uploaded(session: td.Session, count: int = 3) -> list[td.Tensor]:
    found = [session.asarray(ROWS + 10 * n, device=name) for n, name in enumerate(SIMS[:count])]
    session.sync()
    return found


def ran_at_once(session: td.Session) -> bool:
    """Whether all steps of collectives ran on the driving thread, without waiting."""
    records = [each for each in session.trace().records if "#" in each.op]
    assert records
    return not any(each.edges for each in records)


Call = Callable[[list[td.Tensor]], list[td.Tensor]]
CALLS: dict[str, Call] = {
    "all_reduce": lambda tensors: td.collectives.all_reduce(tensors, "sum"),
    "maximum of two, in place": lambda tensors: td.collectives.all_reduce(tensors[:2], "max", merge="stream"),
    "one": lambda tensors: td.collectives.all_reduce(tensors[:1], "sum"),
    "all_gather": lambda tensors: td.collectives.all_gather(tensors, axis=1),
    "reduce_scatter": lambda tensors: td.collectives.reduce_scatter(tensors, "sum", axis=1),
    "broadcast": lambda tensors: td.collectives.broadcast(tensors[0], SIMS[1:]),
    "broadcast to itself, too": lambda tensors: td.collectives.broadcast(tensors[1], SIMS),
    "all_to_all": lambda tensors: td.collectives.all_to_all(tensors, 0, 1),
}


@each_case("name", [*CALLS])
def test_values_and_records_are_those_of_the_group(name: str) -> None:
    seen = []
    for inline in (True, False):
        with opened(inline=inline) as session:
            made = CALLS[name](uploaded(session))
            session.sync()
            assert ran_at_once(session) == inline
            assert violations(machine_of(session).engine) == []
            assert session.trace().verify() == []
            values = [(each.device, each.numpy().tobytes()) for each in made]
            records = [described(each) for each in session.trace().records if "#" in each.op]
            stats = session.stats()
            counts = [stats[what] for what in ("transfers", "collectives", "session")]
            seen.append((values, sorted(records), counts, planned(session)))
    assert seen[0] == seen[1]


def planned(session: td.Session) -> list[int]:
    """The bytes that each device has in use, or will."""
    return [figures["planned"] for figures in session.stats()["devices"].values()]


def described(record: Any) -> tuple[Any, ...]:
    """The fields of a record without its times."""
    operands = [(each.copy, each.kind, each.version) for each in record.operands]
    metas = record.inputs, record.outputs
    return record.id, record.opcode, record.op, record.device, operands, record.nbytes, metas, record.location


@each_case("name", [*CALLS])
def test_empty_values_too(name: str) -> None:
    with opened() as session:
        tensors = [session.asarray(np.zeros((3, 0)), device=device) for device in SIMS]
        session.sync()
        made = CALLS[name](tensors)
        session.sync()
        assert ran_at_once(session)
        assert all(each.size == 0 for each in made)
        assert session.trace().verify() == []


@each_case(
    "options",
    [{}, {"peer": False}, {"launches": True}, {"ceiling": 300}, {"memory": 700}, {"memory": 400, "ceiling": 300}],
)
def test_whatever_the_devices_are_the_outcome_is_that_of_the_group(options: dict[str, Any]) -> None:
    seen = []
    for inline in (True, False):
        with opened(inline=inline, **options) as session:
            tensors = uploaded(session)
            made = [each for _ in range(3) for each in td.collectives.all_reduce(tensors, "sum")]
            seen.append([outcome(each) for each in made])
            session.sync()
            assert violations(machine_of(session).engine) == []
    assert seen[0] == seen[1]


def outcome(tensor: td.Tensor) -> str:
    try:
        return str(tensor.tolist())
    except td.TensordError as error:
        return type(error).__name__


def test_a_view_is_packed_by_the_group() -> None:
    with opened() as session:
        tensors = [tensor.T for tensor in uploaded(session)]
        made = td.collectives.all_reduce(tensors, "sum")
        np.testing.assert_array_equal(made[2].numpy(), (3 * ROWS + 30).T)
        assert not ran_at_once(session)


@pytest.mark.parametrize("rows", [0, 6])
def test_a_tensor_that_failed_poisons_all_results_empty_or_not(rows: int) -> None:
    with opened() as session:
        whole = uploaded(session, 2)[0][:rows]
        broken = session.xp.linalg.inv(session.asarray(np.zeros((6, 6)), device="sim:1"))[:rows, :3]
        for made in (td.collectives.all_reduce([whole, broken], "sum"), td.collectives.all_gather([whole, broken])):
            for each in made:
                with pytest.raises(td.KernelError, match="Singular"):
                    each.numpy()


def test_a_fault_of_a_device_hits_the_group() -> None:
    with opened() as session:
        tensors = uploaded(session)
        device_of(session, "sim:1").inject(Fault(FaultKind.FAIL, stream="p2p"))
        made = td.collectives.all_reduce(tensors, "sum")
        session.sync()
        assert all(each.error is not None for each in made)
        again = td.collectives.all_reduce(tensors, "sum")
        np.testing.assert_array_equal(again[0].numpy(), 3 * ROWS + 30)
        assert violations(machine_of(session).engine) == []


def test_a_kernel_that_raises_is_an_error_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: Any) -> None:
        raise ValueError("no link")

    with opened() as session:
        tensors = uploaded(session)
        before = planned(session)
        monkeypatch.setattr(SimDevice, "peer_copy", copy)
        made = td.collectives.all_reduce(tensors, "sum")
        for each in made:
            with pytest.raises(td.KernelError, match="no link"):
                each.numpy()
        del made, each
        session.sync()
        assert planned(session) == before
        assert violations(machine_of(session).engine) == []
