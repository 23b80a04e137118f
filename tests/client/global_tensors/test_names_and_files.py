"""Global tensors under names, in files and checkpoints."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

import tensord as td
from tensord.client.global_tensors.tensor import GlobalTensor
from tensord.client.sharing.global_names import shown
from tensord.interpreter.layouts.part_names import part_of

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


def test_a_value_in_another_layout_takes_the_place_of_all_parts_within_a_group_too(sessions, pair):
    mine, other = sessions
    mine.publish("w", mine.global_tensor([1.0, 1.0], pair))
    with other.atomic():
        other.publish("w", other.global_tensor([2.0, 2.0], pair, td.split(0)))
    assert mine.lookup("w").tolist() == [2.0, 2.0]
    other.publish("w", other.asarray([7.0]))
    other.unpublish("w")
    assert mine.names() == []


def test_a_group_removes_the_name_of_a_global_tensor(sessions, pair):
    mine, other = sessions
    mine.publish({"v": mine.global_tensor([1.0, 1.0], pair, td.split(0)), "u": mine.asarray([1.0])})
    with other.atomic():
        other.unpublish("v")
    assert mine.names() == ["u"]


@pytest.mark.parametrize("now", ["another layout", "a plain tensor"])
def test_what_is_restored_takes_the_place_of_what_is_published(make_session, tmp_path, pair, now):
    s = make_session(devices=DEVICES)
    s.publish({"x": s.global_tensor([1.0, 2.0], pair, td.split(0)), "y": s.asarray([3.0])})
    s.checkpoint(tmp_path / "there").wait()
    s.unpublish("y")
    s.publish("x", s.asarray([5.0]) if now == "a plain tensor" else s.global_tensor([9.0, 9.0], pair))
    s.restore(tmp_path / "there", "x")
    assert s.lookup("x").tolist() == [1.0, 2.0]
    s.unpublish("x")
    assert s.names() == []


@pytest.mark.parametrize("layout", [td.broadcast, td.split(0)], ids=str)
def test_without_a_part_a_name_can_be_removed_and_replicas_can_be_read(sessions, pair, layout):
    mine, other = sessions
    mine.publish("b", mine.global_tensor([1.0, 2.0], pair, layout))
    mine.unpublish(f"b @1 of 2: {layout}")
    if layout == td.broadcast:
        assert other.lookup("b").tolist() == [1.0, 2.0]
    else:
        with pytest.raises(KeyError, match="nothing is published as 'b'"):
            other.lookup("b")
    other.unpublish("b")
    assert mine.names() == []


def test_each_column_of_a_grid_has_a_replica(sessions):
    mine, other = sessions
    grid = td.placement([["sim:0", "sim:1"]])
    mine.publish("b", mine.global_tensor(ROWS, grid, (td.broadcast, td.split(1))))
    square = {f"w @{n} of 2x2: broadcast, split(1)": mine.asarray(ROWS[:, n : n + 2]) for n in (0, 3)}
    square["w @3 of 2x2: broadcast, split(1)"] = mine.asarray(ROWS[:, 2:])
    mine.publish(square)
    np.testing.assert_array_equal(other.lookup("w").numpy(), ROWS)
    np.testing.assert_array_equal(other.lookup("b").numpy(), ROWS)


def lost_part(make_session, layout, placed):
    """A session with a published tensor, of which the part on the second device is lost after a first checkpoint."""
    faults = [{"kind": "lost", "label": "exp"}]
    s = make_session(devices=["cpu:0", "sim:0", {"name": "sim:1", "faults": faults}, "sim:2"])
    x = s.global_tensor(np.arange(4.0), placed, layout)
    s.publish("x", x)
    return s, x


def lose(s):
    with pytest.raises(td.KernelError):
        s.xp.exp(s.asarray([1.0], device="sim:1")).wait()


@pytest.mark.parametrize("layout", [td.broadcast, td.split(0)], ids=str)
def test_a_checkpoint_after_a_loss_is_of_one_moment(make_session, tmp_path, pair, layout):
    s, x = lost_part(make_session, layout, pair)
    s.checkpoint(tmp_path / "there").wait()
    x += 1
    x.wait()
    lose(s)
    report = s.checkpoint(tmp_path / "there").wait()
    assert f"x @1 of 2: {layout}" in report["failed"]
    fresh = make_session(devices=DEVICES)
    fresh.restore(tmp_path / "there")
    after = 1.0 if layout == td.broadcast else 0.0
    np.testing.assert_array_equal(fresh.lookup("x").numpy(), np.arange(4.0) + after)
    fresh.unpublish("x")
    s.unpublish("x")


def test_what_lacks_a_slice_is_not_restored(make_session, tmp_path, pair):
    s = make_session(devices=DEVICES)
    s.publish({"x": s.global_tensor([1.0, 2.0], pair, td.split(0)), "y": s.asarray([3.0])})
    s.checkpoint(tmp_path / "there", ["x @0 of 2: split(0)", "y"]).wait()
    s.unpublish("y")
    report = s.restore(tmp_path / "there")
    assert list(report["failed"]) == ["x @0 of 2: split(0)"]
    assert (s.lookup("x").tolist(), s.lookup("y").tolist()) == ([1.0, 2.0], [3.0])
    s.unpublish("x", "y")


def test_a_name_that_claims_many_parts_costs_nothing(sessions):
    mine, other = sessions
    mine.publish("w @0 of 9999x9999: broadcast, broadcast", mine.asarray([4.0]))
    assert other.lookup("w").tolist() == [4.0]
    mine.publish("w @0 of 9999x9999: broadcast, split(0)", mine.asarray([5.0]))
    assert other.lookup("w").tolist() == [4.0]


def test_a_part_that_is_published_alone_is_that_part_anew(sessions, pair):
    mine, other = sessions
    mine.publish("w", mine.global_tensor([1.0, 2.0], pair, td.split(0)))
    other.publish("w @1 of 2: split(0)", other.asarray([7.0], "sim:1"))
    assert mine.lookup("w").tolist() == [1.0, 7.0]


def test_parts_take_the_place_of_a_value_once_they_have_all_of_it(sessions, pair):
    mine, other = sessions
    for before in (mine.asarray([3.0, 4.0]), mine.global_tensor([3.0, 4.0], pair)):
        mine.publish("w", before)
        other.publish("w @0 of 2: split(0)", other.asarray([1.0], "sim:0"))
        assert mine.lookup("w").tolist() == [3.0, 4.0]
        other.publish("w @1 of 2: split(0)", other.asarray([2.0], "sim:1"))
        assert mine.lookup("w").tolist() == [1.0, 2.0]
        mine.unpublish("w")
        assert mine.names() == []


def test_a_replica_that_is_published_alone_is_the_value(sessions, pair):
    mine, other = sessions
    mine.publish("w", mine.global_tensor([1.0, 2.0], pair))
    other.publish("w @1 of 2: broadcast", other.asarray([7.0, 8.0], "sim:1"))
    assert mine.lookup("w").tolist() == [7.0, 8.0]


@pytest.mark.parametrize("layout", [td.split(0), td.broadcast], ids=str)
def test_a_quota_of_names_counts_what_there_is_afterwards(make_session, machine_of, pair, layout):
    s = make_session(devices=DEVICES)
    session = next(iter(machine_of(s).engine.directory.sessions.values()))
    session.limits = replace(session.limits, names=2)
    s.publish("w", s.global_tensor([1.0, 2.0], pair))
    s.publish("w", s.global_tensor([3.0, 4.0], pair, layout))
    with pytest.raises(td.QuotaError, match="1 name more: the session has published 2 of 2"):
        s.publish("v", s.asarray([1.0]))
    with pytest.raises(td.QuotaError, match="1 name more"):
        s.publish("w", s.global_tensor([5.0, 6.0], td.placement(DEVICES[1:]), layout))
    assert s.lookup("w").tolist() == [3.0, 4.0]
    s.publish("w", s.asarray([7.0]))
    s.publish("v", s.asarray([8.0]))
    assert s.names() == ["v", "w"]
    s.unpublish("v", "w")


def test_a_checkpoint_names_a_global_tensor_and_means_all_parts_at_that_moment(make_session, tmp_path, pair):
    s = make_session(devices=DEVICES)
    s.publish({"x": s.global_tensor([1.0, 2.0], pair), "y": s.asarray([3.0])})
    with s.atomic():
        s.publish("x", s.global_tensor([4.0, 5.0], pair, td.split(0)))
    s.checkpoint(tmp_path / "there", "x").wait()
    with pytest.raises(KeyError, match="nothing is published as 'z'"):
        s.checkpoint(tmp_path / "there", ["x", "z"]).wait()
    s.unpublish("x", "y")
    assert s.restore(tmp_path / "there")["names"] == 2
    assert (s.names(), s.lookup("x").tolist()) == (["x"], [4.0, 5.0])
    s.unpublish("x")


def test_names_of_parts_are_told_from_other_names():
    names = [
        "w @1 of 2: split(0)",
        "w @0 of 2: split(0)",
        "a @0 of 2x2: broadcast, split(1)",
        "b @ c",
        "d @2 of 2: broadcast",
        "e @00 of 2: broadcast",
    ]
    assert shown(names) == ["a", "b @ c", "d @2 of 2: broadcast", "e @00 of 2: broadcast", "w"]
    assert part_of("w @0 of 2: split(0), broadcast") is None
    assert part_of("w @0 of 2: twice") is None
