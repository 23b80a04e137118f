"""Global tensors under names, in files and checkpoints."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensord as td
from tensord.client.global_tensors.tensor import GlobalTensor
from tensord.client.sharing.global_names import part_of, shown

ROWS = np.arange(12.0).reshape(4, 3)
DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2"]


@pytest.fixture
def sessions(make_session, tmp_path):
    address = f"local:{tmp_path.name}"
    found = [make_session(address, devices=DEVICES), make_session(address, devices=None)]
    yield found
    first = found[0]
    names = first.names()
    if names:
        first.unpublish(*names)


@pytest.fixture
def pair():
    return td.placement(["sim:0", "sim:1"])


def test_another_session_finds_the_global_tensor_by_its_one_name(sessions, pair):
    mine, other = sessions
    x = mine.global_tensor(ROWS, pair, td.split(0))
    mine.publish("x", x)
    assert mine.names() == other.names() == other.names("tensor") == ["x"]
    found = other.lookup("x")
    assert type(found) is GlobalTensor
    assert (found.placement, found.layout) == (pair, (td.split(0),))
    np.testing.assert_array_equal(found.numpy(), ROWS)
    found += 1
    found.wait()
    np.testing.assert_array_equal(x.numpy(), ROWS + 1)
    other.unpublish("x")
    assert mine.names() == []
    with pytest.raises(KeyError, match="nothing is published as 'x'"):
        other.lookup("x")


def test_names_of_plain_and_global_tensors_are_published_and_found_together(sessions, pair):
    mine, other = sessions
    given = {
        "w": mine.global_tensor(ROWS, pair),
        "b": mine.asarray([1.0]),
        "p": mine.global_tensor([2], pair, td.partial("sum")),
    }
    mine.publish(given)
    found = other.lookup(["p", "w", "b"])
    assert list(found) == ["p", "w", "b"]
    assert [each.tolist() for each in found.values()] == [[2], ROWS.tolist(), [1.0]]
    assert found["p"].layout == (td.partial("sum"),)
    assert {row["names"][0] for row in mine._core.answers.query("tensors") if row["names"]} == {
        "b", "w @0 of 2: broadcast", "w @1 of 2: broadcast", "p @0 of 2: partial(sum)", "p @1 of 2: partial(sum)"
    }  # fmt: skip


def test_a_snapshot_has_the_present_value(sessions, pair):
    mine, other = sessions
    x = mine.global_tensor(ROWS, pair, td.split(1))
    mine.publish("x", x)
    taken = other.lookup("x", snapshot=True)
    x *= 0
    x.wait()
    np.testing.assert_array_equal(taken.numpy(), ROWS)
    np.testing.assert_array_equal(other.lookup("x").numpy(), 0 * ROWS)


def test_what_is_published_anew_takes_the_place_of_what_was(sessions, pair):
    mine, other = sessions
    for value in (
        mine.asarray([0]),
        mine.global_tensor([1, 2], pair, td.split(0)),
        mine.global_tensor([3], pair),
        mine.global_tensor([4], td.placement([["sim:0", "sim:1"]]), (td.broadcast, td.broadcast)),
        mine.asarray([5]),
    ):
        mine.publish("x", value)
        assert other.lookup("x").tolist() == value.tolist()
        assert other.names() == ["x"]
    mine.unpublish("x")
    assert other.names() == []


def test_a_name_that_comes_later_is_waited_for(sessions, pair):
    mine, other = sessions
    x = mine.global_tensor(ROWS, pair)
    timer = threading.Timer(0.05, lambda: mine.publish("late", x))
    timer.start()
    np.testing.assert_array_equal(other.lookup("late", wait=10).numpy(), ROWS)
    timer.join()


def test_nobody_sees_half_a_write(sessions, pair):
    mine, other = sessions
    x = mine.global_tensor(np.zeros((64, 64)), pair, td.split(0))
    mine.publish("x", x)
    found = other.lookup("x")
    done = threading.Event()

    def write():
        for _ in range(100):
            found.__iadd__(1)
        found.wait()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not done.is_set():
            seen = x.numpy()
            assert (seen == seen[0, 0]).all()
            whole = x.to_global(layout=td.broadcast).numpy()
            assert (whole == whole[0, 0]).all()
    finally:
        writer.join()
    assert (x.numpy() == 100).all()


def test_a_file_has_the_whole_and_may_be_loaded_on_a_placement(make_session, tmp_path, pair):
    session = make_session(devices=DEVICES)
    path = tmp_path / "x.safetensors"
    session.save(path, {"x": session.global_tensor(ROWS, pair, td.split(0))}).wait()
    np.testing.assert_array_equal(session.load(path)["x"].numpy(), ROWS)
    loaded = session.load(path, device=pair)["x"]
    assert (loaded.placement, loaded.layout) == (pair, (td.broadcast,))
    np.testing.assert_array_equal(loaded.to_global(layout=td.split(1)).numpy(), ROWS)


@pytest.mark.parametrize("layout", [td.split(0), td.broadcast, td.partial("sum")], ids=str)
@pytest.mark.parametrize("devices", [DEVICES, ["cpu:0", "sim:2", "sim:0"], ["cpu:0"]], ids=["same", "fewer", "none"])
def test_a_checkpoint_is_restored_where_devices_are_missing_too(make_session, tmp_path, pair, layout, devices):
    first = make_session(devices=DEVICES)
    first.publish("x", first.global_tensor(ROWS, pair, layout))
    report = first.checkpoint(tmp_path / "there", "x").wait()
    assert report["names"] == 2
    first.unpublish("x")
    second = make_session(devices=devices)
    second.restore(tmp_path / "there")
    found = second.lookup("x")
    np.testing.assert_array_equal(found.numpy(), ROWS)
    if devices is DEVICES:
        assert (found.placement, found.layout) == (pair, (layout,))
        other = td.placement(["sim:2", "sim:1"])
        np.testing.assert_array_equal(found.to_global(other, td.split(0)).numpy(), ROWS)
    second.unpublish("x")


def test_names_of_parts_are_told_from_other_names():
    names = [
        "w @1 of 2: split(0)",
        "w @0 of 2: split(0)",
        "a @0 of 2x2: broadcast, split(1)",
        "b @ c",
        "d @2 of 2: broadcast",
    ]
    assert shown(names) == ["a", "b @ c", "d @2 of 2: broadcast", "w"]
    assert part_of("w @0 of 2: split(0), broadcast") is None
    assert part_of("w @0 of 2: twice") is None
