"""The ceiling of a session's memory on a device: beyond it, the session's own values are evicted and no other
session's.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import tensord as td
from tensord.client.cli.daemon.listed import session_remark
from tensord.streams.disk.spill import PAGE

from .looking_inside import WAIT, allocated, assert_sound, held, ones, records, until

KIB = 256  # float32 elements
PLENTY = 1 << 20


def capped(ceiling: int, **options: object) -> list[dict[str, object]]:
    """A host and a device with plenty of memory; each session may have so many KiB on the device."""
    return [
        {"name": "cpu:0", "memory": PLENTY},
        {"name": "sim:0", "memory": PLENTY, "ceiling": ceiling * 1024, **options},
    ]


def capped_host(directory: Path, store: int) -> list[object]:
    """A host with plenty of memory, of which each session may have 4 KiB, and a store of that many bytes."""
    return [
        {"name": "cpu:0", "memory": PLENTY, "ceiling": 4 * 1024},
        {"name": "sim:0", "memory": PLENTY},
        {"name": "store:0", "directory": str(directory), "quota": store},
    ]


def share(session: td.Session, name: str = "sim:0") -> int:
    """Bytes that count toward the session's share of a device."""
    nbytes: int = session.stats()["session"]["shares"][name]["bytes"]
    return nbytes


def test_a_session_keeps_within_its_ceiling_though_there_is_room(make_session):
    s = make_session(devices=capped(8))
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(24)]
    doubled = [x * 2.0 for x in xs]
    for n, (x, y) in enumerate(zip(xs, doubled, strict=True)):
        assert (x + y).numpy()[0] == 3.0 * n
        assert share(s) <= 8 * 1024
    assert s.stats()["failed"] == 0
    assert len(records(s, "evict sim:0->cpu:0")) > 20
    assert s.trace().verify() == []
    assert_sound(s)
    del x, y
    xs.clear()
    doubled.clear()
    s.sync()
    assert share(s) == 0


def test_values_of_others_stay(make_session):
    mine, yours = (make_session("local:others stay", devices=capped(8)) for _ in range(2))
    kept = [yours.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(8)]
    many = [mine.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(20)]
    assert [tensor.residency() for tensor in kept] == [{"sim:0": "valid"}] * 8
    assert sum("sim:0" in tensor.residency() for tensor in many) == 8
    assert [tensor.numpy()[0] for tensor in many] == list(range(20))


def test_what_cannot_leave_is_refused_and_nothing_else_happens(make_session):
    s = make_session(devices=capped(4))
    pinned = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(3)]
    for tensor in pinned:
        tensor.pin()
    with pytest.raises(td.QuotaError, match=r"2 KiB .* more on sim:0 exceed the session's share: of 4 KiB"):
        s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT)
    with pytest.raises(td.QuotaError, match="ceiling"):
        s.call("concat", [pinned[0], pinned[1]], {"axis": 0})[0].wait(WAIT)
    assert (pinned[0] + pinned[1]).numpy()[0] == 1.0
    for tensor in pinned:
        tensor.unpin()
    assert s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT).numpy()[0] == 1
    assert_sound(s)


@pytest.mark.parametrize("segments", [1, 2])
def test_a_run_whose_operand_stops_over_where_the_session_has_its_share_is_refused_at_that_step(make_session, segments):
    """Run as one instruction, or continued after the message that asked for it."""
    devices = [
        {"name": "cpu:0", "memory": PLENTY, "ceiling": 4096},
        *({"name": f"sim:{n}", "peer": False} for n in (0, 1)),
    ]
    s = make_session(devices=devices)
    x, y = (s.asarray(ones(2 * KIB), device=f"sim:{n}").wait(WAIT) for n in (0, 1))
    one = s.routine(lambda x, y: ((y + x) * 2.0,))
    two = s.routine(lambda x, y: ((y + x) * 2.0, (x + 1.0) * 3.0))
    run = one if segments == 1 else two
    for n in range(3):
        assert [z.numpy()[0] for z in run(x + n, y)] == [4 + 2 * n, 6 + 3 * n][:segments]
    assert len(records(s, opcode="RunRoutine")) >= segments
    filling = s.asarray(ones(3 * KIB), device="cpu:0")
    first, *rest = run(x + 1.0, y)
    with pytest.raises(td.QuotaError, match="more on cpu:0 exceed the session's share"):
        first.wait(WAIT)
    filling.release()
    assert [z.numpy()[0] for z in rest] == [9] * (segments - 1)
    assert run(x, y)[0].numpy()[0] == 4
    assert_sound(s)


def test_without_eviction_a_full_share_is_refused(make_session):
    s = make_session(devices=capped(4, eviction="never"))
    kept = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(4)]
    with pytest.raises(td.QuotaError, match="exceed the session's share"):
        s.asarray(ones(1), device="sim:0").wait(WAIT)
    del kept[0]
    s.sync()
    assert s.asarray(ones(KIB), device="sim:0").wait(WAIT).numpy()[0] == 1


def test_a_host_has_one_too_and_what_leaves_a_device_counts_there(make_session, tmp_path):
    devices: list[object] = [
        {"name": "cpu:0", "memory": PLENTY, "ceiling": 4 * 1024},
        {"name": "sim:0", "memory": PLENTY, "ceiling": 4 * 1024},
        {"name": "store:0", "directory": str(tmp_path), "quota": PLENTY, "ceiling": 24 * PAGE},
    ]
    mine, yours = (make_session("local:on each tier", devices=devices) for _ in range(2))
    xs = [mine.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(32)]
    assert [share(mine, name) for name in ("sim:0", "cpu:0", "store:0")] == [4 * 1024, 4 * 1024, 24 * PAGE]
    with pytest.raises(td.QuotaError, match="on sim:0"):
        mine.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with pytest.raises(td.QuotaError, match="on cpu:0"):
        mine.asarray(ones(KIB)).wait(WAIT)
    assert yours.asarray(ones(KIB), device="sim:0").wait(WAIT).numpy()[0] == 1
    assert [x.numpy()[0] for x in xs] == list(range(32))
    assert_sound(mine)
    xs.clear()
    mine.sync()
    assert [share(mine, name) for name in ("sim:0", "cpu:0", "store:0")] == [0, 0, 0]


def test_a_result_that_takes_the_memory_of_anothers_value_counts(make_session):
    a, b = (make_session("local:inherits", devices=capped(4, inline=False)) for _ in range(2))
    _pinned = b.asarray(ones(4 * KIB), device="sim:0").wait(WAIT).pin()
    a.publish("x", a.asarray(ones(KIB), device="sim:0"))
    handles = [b.lookup("x")]
    a.unpublish("x")
    a.sync()
    with pytest.raises(td.QuotaError, match=r"1 KiB .* more on sim:0"):
        (-handles.pop()).wait(WAIT)
    assert share(b) == 4 * 1024


def test_another_reader_is_not_refused_for_what_the_maker_keeps(make_session):
    """The result reads the maker's value on a device where the maker is at its ceiling."""
    mine, yours = (make_session("local:innocent", devices=capped(2)) for _ in range(2))
    pinned = [mine.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(2)]
    for tensor in pinned:
        tensor.pin()
    x = mine.asarray(ones(KIB, value=7.0))
    mine.publish("x", x)
    mine.sync()
    assert (yours.lookup("x").to_device("sim:0") + 1.0).numpy()[0] == 8.0
    assert_sound(mine)


def test_what_is_written_in_place_and_views_count(make_session):
    s = make_session(devices=capped(4))
    x = s.asarray(ones(2 * KIB), device="sim:0")
    view = x[KIB:]
    x += 1.0  # x gets memory of its own: the view keeps the old value, which is evicted
    assert share(s) == 4 * 1024
    assert view.numpy()[0] == 1
    assert x.numpy()[0] == 2
    host = s.asarray(ones(KIB))
    host.to_device("sim:0")[3:5] += 2.0
    assert share(s) <= 4 * 1024
    assert_sound(s)


def test_what_is_written_leaves_for_nothing_that_is_written_with_it(make_session):
    s = make_session(devices=capped(12, eviction="lru"))
    square = np.eye(32, dtype=np.float32)  # 4 KiB
    x, q = (s.asarray(square, device="sim:0").wait(WAIT) for _ in range(2))
    other = s.asarray(square, device="sim:0").wait(WAIT)
    r = s.asarray(square).wait(WAIT)
    s.call("qr", [x], {}, out=[q, r], device="sim:0")
    s.sync()
    assert share(s) == 12 * 1024
    assert other.residency() == {"cpu:0": "valid"}
    assert_sound(s)


def test_a_view_takes_no_memory_beside_the_whole_that_comes_with_it(make_session):
    s = make_session(devices=capped(16))
    x = s.asarray(np.arange(8 * KIB, dtype=np.float32).reshape(2, -1))
    (y,) = s.call("add", [x[:1], x], device="sim:0")
    assert y.numpy()[1, 0] == 4 * KIB
    assert s.stats()["transfers"]["sim:0"]["h2d"]["count"] == 1
    assert_sound(s)


def test_a_size_that_data_decide_counts(make_session):
    s = make_session(devices=capped(16, eviction="never"))
    x = s.asarray(np.ones(KIB, np.int64), device="sim:0")  # 2 KiB
    kept = [s.call("nonzero", [x])[0] for _ in range(7)]
    s.sync()
    assert share(s) == 16 * 1024
    with pytest.raises(td.QuotaError, match="share"):
        s.call("nonzero", [x])[0].wait(WAIT)
    assert [one.shape for one in kept] == [(1, KIB)] * 7
    assert_sound(s)


@pytest.mark.parametrize("waits", [True, False], ids=["known", "pending"])
@pytest.mark.parametrize(("filled", "idle", "fits"), [(3328, 0, True), (3332, 0, False), (1408, 2, True)])
def test_what_is_made_of_a_size_that_data_decide_counts_once_whenever_that_is_known(
    make_session, waits, filled, idle, fits
):
    """The session's own values are evicted for it, too, and a refusal does not depend on the time of the request."""
    s = make_session(devices=capped(4))
    for n in range(idle):
        s.publish(f"idle{n}", s.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT))
    kept = s.asarray(ones(filled // 4), device="sim:0").pin().wait(WAIT)
    x = s.asarray(np.ones(64, np.bool_), device="sim:0").wait(WAIT)
    with nullcontext() if waits else held(s, "sim:0", "compute"):
        i = s.call("nonzero", [x])[0]  # 512 bytes, both as the upper bound and in fact
        if waits:
            i.wait(WAIT)
        x.release()
        y = i.astype("float32")  # 256
        s.flush()
    if fits:
        assert y.numpy()[0, -1] == 63.0
    else:
        with pytest.raises(td.QuotaError, match="256 bytes more on sim:0 exceed the session's share"):
            y.wait(WAIT)
    assert i.numpy()[0, -1] == 63
    assert kept.residency() == {"sim:0": "valid"}
    assert share(s) <= 4 * 1024
    assert_sound(s)


@pytest.mark.parametrize("waits", [True, False], ids=["known", "pending"])
def test_all_that_is_made_of_such_a_size_counts(make_session, waits):
    s = make_session(devices=capped(4, eviction="never"))
    kept = s.asarray(ones(768), device="sim:0").wait(WAIT)  # 3 KiB
    x = s.asarray(np.ones(64, np.bool_), device="sim:0").wait(WAIT)
    with nullcontext() if waits else held(s, "sim:0", "compute"):
        i = s.call("nonzero", [x])[0]
        if waits:
            i.wait(WAIT)
        first, second = (i.astype("float32") for _ in range(2))
        s.flush()
    assert first.numpy()[0, -1] == 63.0
    with pytest.raises(td.QuotaError, match="256 bytes more on sim:0"):
        second.wait(WAIT)
    assert share(s) == kept.nbytes + x.nbytes + i.nbytes + first.nbytes
    assert_sound(s)


@pytest.mark.parametrize("waits", [True, False], ids=["known", "pending"])
@pytest.mark.parametrize(("filled", "fits"), [(2048, True), (2564, False)])
def test_a_size_that_data_decide_twice_over_counts_at_the_most_once_that_is_known(make_session, waits, filled, fits):
    """One of all elements is distinct, but each could be."""
    s = make_session(devices=capped(4))
    kept = s.asarray(ones(filled // 4), device="sim:0").pin().wait(WAIT)
    x = s.asarray(np.ones(64, np.bool_), device="sim:0").wait(WAIT)
    with nullcontext() if waits else held(s, "sim:0", "compute"):
        i = s.call("nonzero", [x])[0]  # 512 bytes
        if waits:
            i.wait(WAIT)
        zeros = i * 0  # 512
        if waits:
            zeros.wait(WAIT)
        values, counts = s.call("unique_counts", [zeros])  # 16, and at most 1024
        tenfold = counts * 10
        s.flush()
    if fits:
        assert (values.numpy()[0], counts.numpy()[0], tenfold.numpy()[0]) == (0, 64, 640)
    else:
        with pytest.raises(td.QuotaError, match=r"1 KiB .* more on sim:0"):
            values.wait(WAIT)
    assert kept.residency() == {"sim:0": "valid"}
    assert_sound(s)


def test_what_was_asked_for_since_leaves_for_a_size_that_has_become_known(make_session):
    """As if the sizes had been known: first results are evicted for later ones, or later for first, but none fails."""
    s = make_session(devices=capped(4))
    x = s.asarray(np.ones(64, np.bool_), device="sim:0").wait(WAIT)
    y = s.asarray(ones(KIB, value=5.0), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        i = s.call("nonzero", [x])[0]
        z = i.astype("float32")
        later = [y + float(n) for n in range(6)]
        s.flush()
    assert z.numpy()[0, -1] == 63.0
    assert share(s) <= 4 * 1024
    assert [one.numpy()[0] for one in later] == [5.0 + n for n in range(6)]
    assert s.stats()["failed"] == 0
    assert_sound(s)


@pytest.mark.parametrize("eviction", ["cost", "never"])
def test_what_results_may_have_at_the_most_is_refused_to_others_only_where_nothing_leaves(make_session, eviction):
    """The values are evicted as soon as their sizes are known."""
    s = make_session(devices=capped(4, eviction=eviction))
    x = s.asarray(np.ones(128, np.bool_), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        found = [s.call("nonzero", [x])[0] for _ in range(8)]  # 1 KiB each, both as the upper bound and in fact
        last = found[0].astype("float32")
        s.flush()
    kept = 8 if eviction == "cost" else 3
    assert [one.numpy()[0, -1] for one in found[:kept]] == [127] * kept
    for one in found[kept:]:
        with pytest.raises(td.QuotaError, match=r"1 KiB .* more on sim:0"):
            one.wait(WAIT)
    assert last.numpy()[0, -1] == 127.0
    assert share(s) <= 4 * 1024
    assert_sound(s)


def test_a_write_to_a_view_of_what_has_left_counts_the_view_alone(make_session):
    s = make_session(devices=capped(8))
    base = s.asarray(ones(6 * KIB), device="sim:0").wait(WAIT)
    base.evict()
    s.sync()
    view = base[:KIB]
    kept = s.asarray(ones(6 * KIB, value=2.0), device="sim:0").pin().wait(WAIT)
    y = s.asarray(ones(KIB, value=3.0), device="sim:0").wait(WAIT)
    s.call("add", [y, 1.0], out=[view])
    assert view.numpy()[0] == 4.0
    assert share(s) == 8 * 1024
    y.pin().wait(WAIT)
    other = base[KIB : 3 * KIB]
    s.call("concat", [y, y], {"axis": 0}, out=[other])
    with pytest.raises(td.QuotaError, match=r"2 KiB .* more on sim:0"):
        other.wait(WAIT)
    assert base.numpy()[0] == 1.0
    assert kept.residency() == {"sim:0": "valid"}
    assert_sound(s)


def test_who_asks_about_sessions_is_told(make_session):
    s = make_session(devices=capped(8))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    (row,) = s._core.answers.query("sessions")
    assert row["shares"] == {"sim:0": {"bytes": x.nbytes, "ceiling": 8 * 1024}}
    assert session_remark(row | {"state": "open"}).startswith("1 KiB of 8 KiB on sim:0")


def test_a_routine_keeps_within_it(make_session):
    s = make_session(devices=capped(6))

    def chain(x: td.Tensor) -> td.Tensor:
        return ((x * 2.0 + x) * x - 1.0) % 7.0

    run = s.routine(chain)
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(12)]
    found = [run(x) for x in xs]
    for n, y in enumerate(found):
        assert y.numpy()[0] == np.float32(((n * 2.0 + n) * n - 1.0) % 7.0)
        assert share(s) <= 6 * 1024
    assert s.stats()["failed"] == 0
    assert_sound(s)


def test_files_count_once_they_are_read(make_session, tmp_path):
    np.savez(tmp_path / "w.npz", **{f"w{n}": ones(KIB, value=n) for n in range(12)})
    s = make_session(devices=[*capped(4), {"name": "store:0", "directory": str(tmp_path), "quota": PLENTY}])
    weights = s.load(tmp_path / "w.npz", device="sim:0")
    s.sync()
    assert share(s) == 0
    assert [(weights[f"w{n}"] + 1.0).numpy()[0] for n in range(12)] == [n + 1.0 for n in range(12)]
    assert 0 < share(s) <= 4 * 1024
    assert_sound(s)


def test_a_checkpoint_reads_what_the_host_may_not_keep(make_session, tmp_path):
    np.savez(tmp_path / "w.npz", w=ones(KIB, value=5.0))
    devices: list[object] = [{"name": "cpu:0", "ceiling": 512}, {"name": "sim:0"}]
    s = make_session(devices=devices)
    s.publish("w", s.load(tmp_path / "w.npz", device="sim:0")["w"])
    assert s.checkpoint(tmp_path / "there").wait(WAIT)["failed"] == {}
    assert_sound(s)


def test_what_a_session_has_no_share_of_the_host_for_is_saved_past_it(make_session, tmp_path):
    s = make_session(devices=capped_host(tmp_path, store=PLENTY))
    pinned = s.asarray(ones(3 * KIB), device="cpu:0").pin().wait(WAIT)
    x = s.asarray(ones(2 * KIB, value=5.0), device="sim:0").wait(WAIT)
    s.save(tmp_path / "x.safetensors", {"x": x}).wait(WAIT)
    assert load_file(tmp_path / "x.safetensors")["x"].tolist() == [5.0] * (2 * KIB)
    until(s, lambda: allocated(s, "store:0") == 0)
    assert share(s, "cpu:0") == 3 * 1024
    assert pinned.residency() == {"cpu:0": "valid"}
    assert x.residency() == {"sim:0": "valid"}
    assert_sound(s)


def test_what_neither_the_share_of_the_host_nor_the_store_has_room_for_is_not_saved(make_session, tmp_path):
    s = make_session(devices=capped_host(tmp_path, store=1024))
    pinned = s.asarray(ones(3 * KIB), device="cpu:0").pin().wait(WAIT)
    x = s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT)
    with pytest.raises(td.QuotaError, match="on cpu:0 exceed the session's share"):
        s.save(tmp_path / "x.safetensors", {"x": x}).wait(WAIT)
    del pinned
    s.sync()
    s.save(tmp_path / "x.safetensors", {"x": x}).wait(WAIT)
    assert_sound(s)


def test_what_a_session_had_counts_no_more_when_it_is_closed(make_session):
    mine, yours = (make_session("local:closed", devices=capped(8)) for _ in range(2))
    x = mine.asarray(ones(KIB, value=3.0), device="sim:0")
    mine.publish("kept", x)
    mine.sync()
    mine.close()
    assert yours.lookup("kept").numpy()[0] == 3.0
    yours.unpublish("kept")
    until(yours, lambda: allocated(yours, "sim:0") == 0)
    assert_sound(yours)


def test_a_refusal_says_that_the_tiers_below_are_full(make_session):
    s = make_session(devices=[{"name": "cpu:0", "memory": 4096}, {"name": "sim:0", "memory": PLENTY, "ceiling": 4096}])
    kept = [s.asarray(ones(KIB), device="sim:0") for _ in range(8)]
    s.sync(WAIT)
    with pytest.raises(td.QuotaError, match="be evicted now; nothing can be evicted to cpu:0, with 4 KiB of 4 KiB"):
        s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    del kept
