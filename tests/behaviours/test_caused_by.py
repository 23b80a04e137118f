"""Instructions that the machine plans belong to no session: traces name the session that caused them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import tensord as td
from tensord.vm.tracing.record import Record

from .looking_inside import WAIT, device_of, machine_of, ones, store_of, until

KIB = 256  # float32 elements
DEVICES = [
    "cpu:0",
    {"name": "sim:0", "memory": 8 * 1024, "peer": False},
    {"name": "sim:1", "memory": 8 * 1024, "peer": False},
]


@pytest.fixture
def pair(make_session: Callable[..., td.Session]) -> tuple[td.Session, td.Session]:
    """Two sessions of one machine. The first one has published a value on each device, on sim:0 with a view of it."""
    first, second = (make_session("local:caused", devices=DEVICES) for _ in range(2))
    w = first.asarray(ones(4, KIB // 2), device="sim:0")
    first.publish({"w": w, "part": w[1:3], "host": first.asarray(ones(KIB)), "other": first.asarray(ones(4), "sim:1")})
    first.sync()
    return first, second


def number_of(session: td.Session) -> int:
    found: int = session.stats()["session"]["id"]
    return found


def planned_for(session: td.Session, does: Callable[[], object]) -> list[Record]:
    """The instructions that the machine planned during an action, all caused by that session, at a line."""
    before = max(record.id for record in session.trace().records)
    does()
    session.sync()
    found = [record for record in session.trace().records if record.id > before and not record.session]
    assert {record.caused_by for record in found} == {number_of(session)}
    assert all("test_caused_by.py" in record.location for record in found)
    return found


def kinds(found: list[Record]) -> Counter[str]:
    return Counter(record.op for record in found)


def test_a_result_that_is_read_and_an_operand_that_is_brought(pair):
    """Launches read the device's value in place, by an instruction of the reader: nothing is planned."""
    _, s = pair
    found = planned_for(s, lambda: (s.lookup("w").numpy(), (s.lookup("other") + s.asarray(ones(4))).numpy()))
    in_order = device_of(s, "sim:0").launches
    assert kinds(found)["d2h sim:0->cpu:0"] == (not in_order)
    assert kinds(found)["h2d cpu:0->sim:1"] == 1
    (read,) = (one for one in s.trace().records if one.op == "fetch" and one.nbytes == 4 * KIB // 2 * 4)
    assert read.device == ("sim:0" if in_order else "cpu:0")
    assert read.session == read.caused_by == number_of(s)
    assert "test_caused_by.py" in read.location


def test_a_stopover_on_the_host(pair):
    _, s = pair
    found = planned_for(s, lambda: s.lookup("w").to_device("sim:1").wait(WAIT))
    assert set(kinds(found)) == {"d2h sim:0->cpu:0", "h2d cpu:0->sim:1"}


def test_a_view_that_moves_alone_and_a_prefetch(pair):
    _, s = pair
    part, host = s.lookup("part"), s.lookup("host")
    found = planned_for(s, lambda: (part.numpy(), host.prefetch("sim:1")))
    assert set(kinds(found)) == {"d2h sim:0->cpu:0", "h2d cpu:0->sim:1"}


def test_the_copy_that_a_write_to_a_shared_value_needs(pair):
    _, s = pair

    def write() -> None:
        part = s.lookup("part")
        part[0] = 2.0

    assert kinds(planned_for(s, write))["copy"] == 1


def test_evictions_and_what_comes_back(pair):
    first, s = pair
    kept: list[td.Tensor] = []
    found = planned_for(s, lambda: kept.extend(s.asarray(ones(KIB), device="sim:0") for n in range(8)))
    assert kinds(found)["evict sim:0->cpu:0"] > 0
    back = planned_for(s, lambda: [each + 1 for each in kept])
    assert "return cpu:0->sim:0" in kinds(back)
    theirs = planned_for(first, lambda: kept.extend(first.asarray(ones(KIB), device="sim:0") for n in range(6)))
    assert kinds(theirs)["evict sim:0->cpu:0"] > 0
    evictions = [record for record in s.trace().records if record.op.startswith("evict")]
    by = {row["id"]: row for row in s._core.answers.query("sessions")}
    assert sum(row["evicted"]["count"] for row in by.values()) == len(evictions)
    for session in pair:
        mine = [record.nbytes for record in evictions if record.caused_by == number_of(session)]
        assert by[number_of(session)]["evicted"] == {"count": len(mine), "bytes": sum(mine)}
        moved = [r.nbytes for r in s.trace().records if r.opcode == "Transfer" and r.caused_by == number_of(session)]
        assert by[number_of(session)]["moved"] == {"count": len(moved), "bytes": sum(moved)}


def test_a_checkpoint_and_what_it_brings_to_the_host(pair, tmp_path: Path):
    _, s = pair
    found = planned_for(s, lambda: s.checkpoint(tmp_path).wait(WAIT))
    assert kinds(found) == {"checkpoint": 5, "d2h sim:0->cpu:0": 2, "d2h sim:1->cpu:0": 1}


def test_durable_names_that_are_written_once_more(make_session: Callable[..., td.Session], tmp_path: Path):
    """The machine writes them on its own behalf at first; then for the first session that has asked meanwhile."""
    devices = ["cpu:0", "sim:0", {"name": "store:0", "durable": str(tmp_path)}]
    first, second = (make_session("local:lasting", devices=devices) for _ in range(2))
    checkpoints = machine_of(first).engine.admission.durable.checkpoints
    x = first.asarray(ones(3), device="sim:0")
    first.publish("x", x, durable=True)
    store_of(first).hold("save")
    x += 1
    first.sync()
    told: list[object] = []
    with machine_of(first).inside():
        machine_of(first).engine.keep_durable(lambda *answer: told.append(answer[1]))
    x += 1
    first.sync()
    begun = max(record.id for record in first.trace().records)
    waits = Thread(target=lambda: second.sync(durable=True))
    waits.start()
    until(first, lambda: checkpoints.waiting)
    store_of(first).resume("save")
    waits.join(WAIT)
    assert told == [None]
    found = [(r.op, r.caused_by, r.id > begun) for r in first.trace().records if not r.session]
    mine = number_of(second)
    assert found[-6:] == [
        *((op, 0, False) for op in ("d2h sim:0->cpu:0", "checkpoint", "checkpoint")),
        *((op, mine, True) for op in ("d2h sim:0->cpu:0", "checkpoint", "checkpoint")),
    ]
