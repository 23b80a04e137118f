"""Values that have memory now, the ops that made them, and the holders named in an out-of-memory error."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import DeviceMemoryError
from tensord.interpreter.wire.messages import Release
from tensord.vm.model.directory import Leaving
from tensord.vm.reporting.locations import LocationTexts
from tensord.vm.reporting.memory import holdings
from tensord.vm.reporting.rows import tensors as tensor_rows
from tests.vm.bare_engine import Bare
from tests.vm.parts import Parts


@pytest.fixture
def small(make_session):
    """A session with a device of 10,000 bytes."""
    return make_session(devices=["cpu:0", {"name": "sim:0", "memory": 10_000, "eviction": "never"}])


def ones(session, count, device="sim:0"):
    return session.asarray(np.ones(count, np.int8), device=device)


def test_an_error_for_want_of_memory_names_the_five_largest_with_op_and_line(small):
    kept = [ones(small, 1000 + number) for number in range(7)]
    small.publish("weights", kept[-1])
    made = small.call("multiply", [kept[0], kept[0]])[0]
    with pytest.raises(DeviceMemoryError) as caught:
        ones(small, 5000).numpy()
    text = str(caught.value)
    named = text.partition("the largest there: ")[2].partition("; release")[0].split("), ")
    assert [one.split()[0] for one in named] == ["1006", "1005", "1004", "1003", "1002"]
    assert "1006 bytes by upload at " in named[0]
    assert "test_holdings.py" in named[0]
    assert "named 'weights'" in named[0]
    assert made.shape == (1000,)


def test_a_result_whose_size_the_data_decide_names_them_too(small):
    x = ones(small, 4000)
    y = ones(small, 3000)
    with pytest.raises(DeviceMemoryError, match=r"3.91 KiB \(4000 bytes\) by upload at .*test_holdings\.py"):
        small.call("nonzero", [x])[0].numpy()
    assert y.shape == (3000,)


def test_what_an_ended_session_still_has_to_release_is_held_too():
    parts = Parts()
    tensor = parts.tensor()
    directory = parts.engine.directory
    directory.leaving.append(Leaving(parts.session, dict([parts.session.tensors.popitem()])))
    assert list(holdings.tensors(directory)) == [tensor]


def test_the_search_is_bounded(small, monkeypatch):
    monkeypatch.setattr(holdings, "SEARCH_LIMIT", 3)
    kept = [ones(small, 1000 + number) for number in range(5)]
    with pytest.raises(
        DeviceMemoryError, match=r"the largest there \(of the 3 tensors examined\): 1002 bytes by upload"
    ):
        ones(small, 9000).numpy()
    assert len(kept) == 5


def test_a_storage_remembers_what_made_it_however_it_came_about(make_session, machine_of):
    session = make_session(devices=["cpu:0", "sim:0"])
    x = ones(session, 64, "cpu:0")
    inline = x + x
    streamed = session.call("add", [ones(session, 64), 1])[0]
    handed_on = (x + x) * x  # takes over the memory of the sum
    session.call("subtract", [x, x], out=[inline])  # a later write does not change the maker
    session.sync()
    tensors = session._core.transport._session.tensors
    made = {name: tensors[t._id].storage.maker[0] for name, t in locals().items() if hasattr(t, "_id")}
    assert made == {"x": "upload", "inline": "add", "streamed": "add", "handed_on": "multiply"}
    where = machine_of(session).locations
    storages = [tensors[t._id].storage for t in (x, inline, streamed, handed_on)]
    lines = {holdings.maker_of(storage, where) for storage in storages}
    assert len(lines) == 4
    assert all("test_holdings.py" in line for _, line in lines)


def test_tensors_tell_the_op_that_made_them_and_what_it_was_of(make_session):
    """For ops on the driving thread and on a stream's thread."""
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.001}])
    for device in ("cpu:0", "sim:0"):
        x = session.asarray(np.ones((4, 2), np.float32), device=device)
        y = session.xp.sum(x, axis=0)
        session.sync()
        rows = {row["id"]: (row["op"], row["of"]) for row in session._core.answers.query("tensors", 10, 0, "")}
        assert rows[x._id] == ("upload", "")
        assert rows[y._id] == ("sum", "(4, 2) float32  axis=0")


def test_a_trace_ends_with_the_copies_that_have_memory(small):
    x = ones(small, 100)
    small.publish("weights", x)
    small.sync()
    memory = small.trace().memory
    (held,) = [one for one in memory.holdings if one.device == "sim:0"]
    assert (held.nbytes, held.op, held.names) == (100, "upload", ("weights",))
    assert memory.used["sim:0"] == 100


def test_only_the_largest_are_listed_and_a_storage_once(small, machine_of):
    kept = [ones(small, 100 + number) for number in range(6)]
    view = kept[0][:50]
    small.sync()
    machine = machine_of(small)
    rows = [row for part in holdings.slices(machine.engine, machine.locations, 3) for row in part]
    assert [row.nbytes for row in rows] == [105, 104, 103]
    everything = [row for part in holdings.slices(machine.engine, machine.locations) for row in part]
    assert len(everything) == 6
    assert view.shape == (50,)


def test_the_search_for_an_error_is_repeated_only_once_it_has_paid_off(small, machine_of, monkeypatch):
    """Failing allocations must not slow down succeeding ones."""
    machine = machine_of(small)
    device = machine.engine.devices["sim:0"]
    time = [0.0]
    searches = []

    def search(*_arguments):
        searches.append(time[0])
        time[0] += 1.0
        return str(len(searches))

    monkeypatch.setattr(holdings, "largest_on", search)
    largest = holdings.Largest(machine.engine.directory, machine.locations, clock=lambda: time[0])
    told = []
    for _ in range(2 * holdings.SHARE):
        told.append(largest.on(device))
        time[0] += 1.0
    assert searches == [0.0, 1.0 + holdings.SHARE]
    assert told == ["1"] * holdings.SHARE + ["2"] * holdings.SHARE


def test_names_are_looked_through_in_slices(small, machine_of, monkeypatch):
    """A session may publish 65,536 names, and no other session is served during a slice."""
    x = ones(small, 100)
    small.sync()
    machine = machine_of(small)

    def slices():
        return len(list(holdings.slices(machine.engine, machine.locations))), len(list(tensors()))

    def tensors():
        return tensor_rows.tensor_slices(machine.engine, 50, 0, "", machine.locations)

    monkeypatch.setattr(holdings, "PER_SLICE", 3)
    monkeypatch.setattr(tensor_rows, "PER_SLICE", 3)
    before = slices()
    small.publish({f"name {n}": x for n in range(12)})
    after = slices()
    assert [now - then for now, then in zip(after, before, strict=True)] == [
        4 + 4,
        4,
    ]  # a name is a tensor to look at, too
    (row,) = [row for part in tensors() for row in part]
    assert len(row["names"]) == 12


def test_a_list_of_names_comes_in_slices(small, machine_of, monkeypatch):
    monkeypatch.setattr(tensor_rows, "DESCRIBED", 3)
    x = ones(small, 100)
    small.publish({f"name {n}": x for n in range(7)})
    names = machine_of(small).engine.directory.names
    parts = list(tensor_rows.name_slices(names, 100))
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [row["name"] for part in parts for row in part] == sorted(names)
    assert list(tensor_rows.name_slices({}, 100)) == [[]]


def test_what_was_released_while_the_answer_was_collected_is_nobody_elses() -> None:
    """The objects of the released tensor serve the next result."""
    bare = Bare()
    client = bare.client()
    large, small = client.upload([1.0] * 100), client.upload([1.0])
    released = client.call("square", large, meta=((100,), "float64"))
    rows = holdings.slices(bare.engine, LocationTexts(bare.engine))
    next(rows)
    client.send(Release((released,)))
    client.call("negative", small)
    found = [row for some in rows for row in some]
    assert {(row.op, row.nbytes) for row in found} == {("upload", 800), ("upload", 8)}
