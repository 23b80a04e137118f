"""The tier below the host: values that do not fit on the host lie in a file of the store, and come back from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.streams.disk.spill import PAGE, SpillBlock
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.memory import making_room
from tensord.vm.memory.victims import victims

from ..compiled import replaces_parts
from ..each_case import each_case
from .looking_inside import WAIT, allocated, assert_sound, held, ones, records, store_of, until

KIB = 256  # float32 elements


def tiers(directory: Path, host: int, device: int, store: int, **options: object) -> list[dict[str, object]]:
    """A host and a device with that many KiB, and a store for so many values of a KiB, of which each takes a page."""
    return [
        {"name": "cpu:0", "memory": host * 1024, **options},
        {"name": "sim:0", "memory": device * 1024},
        {"name": "store:0", "directory": str(directory), "quota": store * PAGE},
    ]


def wait_for(tensors: list[td.Tensor]) -> None:
    """Wait for each tensor in turn."""
    for tensor in tensors:
        tensor.wait(WAIT)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_values_of_many_times_host_and_device_are_kept(make_session, tmp_path, device):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    xs = [s.asarray(ones(KIB, value=n), device=device) for n in range(64)]
    for x in xs:
        s.call("add", [x, x], out=[x])
    for n, x in enumerate(xs):
        assert (x + 0.0).numpy()[0] == 2.0 * n
    assert s.stats()["failed"] == 0
    assert len(records(s, "evict cpu:0->store:0")) > 40
    assert store_of(s).allocated > 40 * PAGE
    assert list(tmp_path.iterdir()) == []  # the file has no name
    assert s.trace().verify() == []
    assert_sound(s)
    xs.clear()
    del x
    s.sync()
    assert store_of(s).allocated == 0


def test_the_quota_is_of_the_disk_which_is_given_back(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 32))
    store = store_of(s)
    for n in range(16):
        xs = [s.asarray(ones(KIB + n)) for _ in range(36)]
        s.sync()
        assert store.allocated > 24 * PAGE
        assert os.fstat(store.file.fd).st_blocks * 512 <= (32 + 8) * PAGE  # with the file system's own
        xs.clear()
    s.sync()
    assert store.allocated == 0
    until(s, lambda: os.fstat(store.file.fd).st_blocks * 512 <= store.pool.cached + 8 * PAGE)
    assert_sound(s)


def test_what_has_come_back_leaves_again_without_moving(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    xs = [s.asarray(ones(KIB, value=n)) for n in range(16)]
    for _ in range(4):
        for n, x in enumerate(xs):
            assert (x + 0.0).numpy()[0] == n
    assert len(records(s, "evict cpu:0->store:0")) <= 20
    assert len(records(s, "return store:0->cpu:0")) >= 30
    assert_sound(s)


def test_what_fits_nowhere_is_an_error_that_says_so(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 8))
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(30)]
    with pytest.raises(td.DeviceMemoryError, match=r"do not fit on sim:0.*evicted to cpu:0, with .*, or store:0, with"):
        wait_for(xs)
    kept = [n for n, x in enumerate(xs) if s._core.answers.look_at(x, WAIT)["state"] == "ready"]
    assert len(kept) >= 20
    for n in kept:
        assert xs[n].numpy()[0] == n
    assert_sound(s)


def test_a_write_that_fails_leaves_the_value_where_it_was(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    store_of(s).inject(Fault(FaultKind.FAIL, stream="write", count=3))
    xs = [s.asarray(ones(KIB, value=n)) for n in range(24)]
    s.sync()
    for n, x in enumerate(xs):
        assert x.numpy()[0] == n
    assert_sound(s)


def test_a_full_disk_is_as_a_full_store(make_session, tmp_path, monkeypatch):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    store = store_of(s)

    def full(_nbytes: int) -> Any:
        raise MemoryError("no space left")

    xs = [s.asarray(ones(KIB, value=n)) for n in range(12)]
    for x in xs:
        x.wait(WAIT)
    monkeypatch.setattr(store.file, "block", full)
    more = [s.asarray(ones(KIB, value=n)) for n in range(12, 30)]
    with pytest.raises(td.DeviceMemoryError):
        wait_for(more)
    for n, x in enumerate(xs):
        assert x.numpy()[0] == n
    assert_sound(s)


def test_a_store_that_is_lost_takes_only_what_lies_there_alone(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    xs = [s.asarray(ones(KIB, value=n)) for n in range(16)]
    s.sync()
    store_of(s).inject(Fault(FaultKind.LOST))
    failed = []
    for n, x in enumerate(xs):
        try:
            assert x.numpy()[0] == n
        except td.KernelError as error:
            failed.append(str(error))
    assert 8 <= len(failed) < 16
    assert all("store:0 is lost" in text or "read store:0" in text for text in failed)
    xs.clear()
    del x
    y = s.asarray(ones(KIB))
    assert y.numpy()[0] == 1
    assert_sound(s)


def test_never_keeps_values_in_the_host(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256, eviction="never"))
    xs = [s.asarray(ones(KIB, value=n)) for n in range(12)]
    with pytest.raises(td.DeviceMemoryError):
        wait_for(xs)
    assert store_of(s).allocated == 0


def test_evict_takes_a_value_of_the_host_to_the_store(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 64, 8, 256))
    x = s.asarray(ones(KIB, value=7))
    x.evict()
    s.flush()
    until(s, lambda: x.residency() == {"store:0": "valid"})
    assert x.residency() == {"store:0": "valid"}
    assert allocated(s, "cpu:0") == 0
    assert x.numpy()[0] == 7


@each_case(
    ("options", "why"),
    [
        ({"directory": "/nowhere/at/all", "quota": 1024}, "no file can be made in /nowhere/at/all: No such file"),
        ({"directory": "."}, "needs both a directory and a quota"),
        ({"quota": 5}, "needs both a directory and a quota"),
    ],
)
def test_a_directory_that_cannot_be_used_is_refused_when_it_is_opened(options, why):
    with pytest.raises(td.MetadataError, match=why):
        td.connect("local", devices=["cpu:0", {"name": "store:0", **options}])


def test_the_store_alone_is_no_machine():
    with pytest.raises(td.MetadataError, match="store:0 computes nothing"):
        td.connect("local", devices=["store:0"])
    with pytest.raises(td.MetadataError, match="there is one store"):
        td.connect("local", devices=["cpu:0", "store:1"])


def test_nobody_computes_in_the_store(make_session):
    s = make_session(devices=["cpu:0"])
    assert s.devices == ["cpu:0"]
    with pytest.raises(td.MetadataError, match="unknown device 'store:0'"):
        s.asarray([1.0], device="store:0")
    x = s.asarray([1.0, 2.0])
    np.testing.assert_array_equal(x.numpy(), [1, 2])


@pytest.mark.parametrize("peer", [True, False])
def test_what_leaves_for_a_value_of_the_host_goes_past_the_host_if_both_do_not_fit_there(make_session, tmp_path, peer):
    s = make_session(devices=[*tiers(tmp_path, 4, 4, 256), {"name": "sim:1", "peer": peer}])
    x, y = s.asarray(ones(3 * KIB)), s.asarray(ones(3 * KIB, value=2), device="sim:0")
    s.call("add", [x, 1], out=[x], device="sim:0")
    assert x.numpy()[0] == 2
    s.call("add", [y, 1], out=[y], device="sim:0")
    assert y.numpy()[0] == 3
    z = s.asarray(ones(3 * KIB, value=5), device="sim:1")
    s.call("add", [z, 1], out=[z], device="sim:0")
    assert [v.numpy()[0] for v in (x, y, z)] == [2, 3, 6]
    assert_sound(s)


def test_what_leaves_for_a_part_of_a_value_of_the_host_goes_past_the_host(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 4, 4, 256))
    x, y = s.asarray(ones(3 * KIB)), s.asarray(ones(3 * KIB, value=2), device="sim:0")
    (part,) = s.call("add", [x[: KIB + 8], 1], device="sim:0")
    assert part.numpy()[0] == 2
    assert (x.numpy()[0], y.numpy()[0]) == (1, 2)
    assert_sound(s)


def test_a_value_larger_than_the_host_is_evicted_past_it_and_comes_back(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 4, 32, 256))
    small = s.asarray(ones(KIB)).wait(WAIT)
    values = [np.random.default_rng(n).random(5 * KIB, "float32") for n in range(12)]
    xs = [s.asarray(v, device="sim:0") for v in values]
    for _ in range(2):
        for x in xs:
            s.call("add", [x, x], out=[x])
    s.sync()
    assert s.stats()["failed"] == 0
    assert len(records(s, "evict sim:0->store:0")) >= 6
    assert records(s, "evict sim:0->cpu:0") == []
    assert small.residency() == {"cpu:0": "valid"}  # no value was evicted in vain
    for x, value in zip(xs, values, strict=True):
        np.testing.assert_array_equal(x.numpy(), 4 * value)
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_device_evicts_past_a_host_that_is_full_of_what_may_not_leave(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256))
    pinned = s.asarray(ones(7 * KIB)).pin()
    xs = [s.asarray(ones(2 * KIB, value=n), device="sim:0") for n in range(8)]
    assert [x.numpy()[0] for x in xs] == list(range(8))
    assert pinned.residency() == {"cpu:0": "valid"}
    assert len(records(s, "evict sim:0->store:0")) >= 4
    assert_sound(s)


def test_a_device_evicts_past_a_host_from_which_nothing_leaves(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 8, 8, 256, eviction="never"))
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(32)]
    assert [(x + 0.0).numpy()[0] for x in xs] == list(range(32))
    assert store_of(s).allocated >= 16 * 1024
    assert s.stats()["failed"] == 0
    assert_sound(s)


@pytest.mark.parametrize("why", ["it is too large for that", "that is pinned", "of the ceiling there"])
@pytest.mark.parametrize("part", [False, True])
def test_between_devices_a_value_stops_over_in_the_store_if_it_cannot_on_the_host(make_session, tmp_path, why, part):
    options = {"ceiling": 2 * 1024} if why == "of the ceiling there" else {}
    devices = tiers(tmp_path, 8, 64, 256, **options)
    devices[1]["peer"] = False
    s = make_session(devices=[*devices, {**devices[1], "name": "sim:1"}])
    size = 12 if why == "it is too large for that" else 4
    if why == "that is pinned":
        _pinned = s.asarray(ones(6 * KIB)).pin()
    v = s.asarray(np.arange(2.0 * size * KIB, dtype=np.float32), device="sim:0").wait(WAIT)
    u = v[: size * KIB] if part else v
    (y,) = s.call("negative", [u], device="sim:1")
    assert y.numpy()[-1] == -u.numpy()[-1]
    assert s.stats()["failed"] == 0
    assert len(records(s, "read store:0->sim:1")) == 1
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_disk_that_fails_behind_a_device_leaves_the_value_there(make_session, tmp_path, monkeypatch):
    s = make_session(devices=tiers(tmp_path, 4, 16, 256))

    def fail(*_arguments: object) -> None:
        raise td.FileError("the store cannot be written: input/output error")

    x = s.asarray(ones(6 * KIB, value=3), device="sim:0").wait(WAIT)
    with monkeypatch.context() as broken:
        broken.setattr(SpillBlock, "write", fail)
        x.evict()
        s.flush()
        until(s, lambda: "store:0" not in x.residency())
    assert x.residency() == {"sim:0": "valid"}
    assert x.numpy()[0] == 3
    x.evict()
    s.flush()
    until(s, lambda: x.residency() == {"store:0": "valid"})
    assert x.numpy()[0] == 3
    assert_sound(s)


def test_a_move_of_an_operand_leaves_the_operand_where_it_is_needed(make_session, tmp_path):
    """The move begins with the fetch of the second operand, which evicts other values than the first."""
    s, other = (make_session("local:moves", devices=tiers(tmp_path, 8, 8, 256)) for _ in range(2))
    y = s.asarray(ones(3 * KIB, value=4)).evict()
    x, theirs = s.asarray(ones(3 * KIB)), other.asarray(ones(3 * KIB, value=2))
    theirs.wait(WAIT)
    moved = x.to_device("sim:0")
    s.call("add", [x, y], out=[y])
    assert y.numpy()[0] == 5
    assert (moved.numpy()[0], theirs.numpy()[0]) == (1, 2)
    assert records(s, "replan") == []
    assert_sound(s)


def test_what_stops_over_in_the_host_makes_way_for_the_next_one(make_session, tmp_path):
    devices = [*tiers(tmp_path, 4, 64, 256), {"name": "sim:1", "peer": False}]
    s = make_session(devices=devices)
    x, y = s.asarray(ones(4, KIB), device="sim:0"), s.asarray(ones(4, KIB, value=2), device="sim:0")
    with held(s, "sim:0", "d2h"):
        (both,) = s.call("add", [x[:1], y], device="sim:1")
        (later,) = s.call("add", [x[:1], 1], device="cpu:0")
        s.flush()
    assert s.call("sum", [both], device="sim:1")[0].item() == 3 * 4 * KIB
    assert later.numpy()[0, 0] == 2
    assert_sound(s)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The copies that are examined from now on as candidates for eviction."""
    looked_at: list[Any] = []

    def search(*args: Any, **options: Any) -> Iterator[Any]:
        for victim in victims(*args, **options):
            looked_at.append(victim)
            yield victim

    monkeypatch.setattr(making_room, "victims", search)
    return looked_at


@replaces_parts
@pytest.mark.parametrize("count", [16, 64])
def test_a_refusal_looks_at_each_value_a_few_times_however_many_there_are(make_session, tmp_path, monkeypatch, count):
    s = make_session(devices=tiers(tmp_path, count, count, count))
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(3 * count)]
    wait_for(xs)
    looked_at = counted(monkeypatch)
    for device in ("sim:0", "cpu:0"):
        with pytest.raises(td.DeviceMemoryError):
            s.asarray(ones(KIB), device=device).wait(WAIT)
    assert count <= len(looked_at) <= 10 * count
    assert [x.numpy()[0] for x in xs[:2]] == [0, 1]
    del xs[0]
    s.sync()
    assert s.asarray(ones(KIB), device="sim:0").wait(WAIT).numpy()[0] == 1
    assert_sound(s)


@replaces_parts
@pytest.mark.parametrize("count", [16, 64])
def test_a_checkpoint_on_full_tiers_looks_at_each_value_a_few_times(make_session, tmp_path, monkeypatch, count):
    s = make_session(devices=tiers(tmp_path, count, 2 * count, count))
    kept = [s.asarray(ones(KIB, value=n)) for n in range(2 * count)]
    wait_for(kept)
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(count)]
    wait_for(xs)
    s.publish({f"{where} {n}": x for n in range(count) for where, x in (("kept", kept[n]), ("x", xs[n]))})
    looked_at = counted(monkeypatch)
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert sorted(report["failed"]) == sorted(f"x {n}" for n in range(count))
    assert count <= len(looked_at) <= 10 * count
    assert_sound(s)


def test_after_a_refusal_what_is_small_enough_still_leaves(make_session, tmp_path):
    s = make_session(devices=tiers(tmp_path, 32, 64, 10))
    large = [s.asarray(ones(16 * KIB, value=n), device="sim:0") for n in range(7)]
    small = [s.asarray(ones(4 * KIB, value=n), device="sim:0") for n in range(4)]
    wait_for([*large, *small])
    x = s.asarray(ones(8 * KIB), device="sim:0").wait(WAIT)
    assert x.numpy()[0] == 1
    assert allocated(s, "store:0") == 10 * PAGE
    with pytest.raises(td.DeviceMemoryError):
        s.asarray(ones(16 * KIB), device="sim:0").wait(WAIT)
    assert [y.numpy()[0] for y in (*large[:2], *small[:2])] == [0, 1, 0, 1]
    assert_sound(s)
