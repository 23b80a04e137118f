"""Tensors of files: known at once, read when an op needs them, read again after an eviction, never mapped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensord as td
from tensord.interpreter.errors import CaptureError, FileError, MetadataTypeError
from tensord.interpreter.wire.file_messages import File
from tensord.streams.faults import Fault, FaultKind

from ..each_case import each_case
from .looking_inside import WAIT, allocated, assert_sound, held, machine_of, ones, records, store_of

VALUES: dict[str, Any] = {
    "w": np.arange(64 * 32, dtype=np.float32).reshape(64, 32),
    "i": np.arange(7, dtype=np.int64),
    "flags": np.array([True, False, True]),
    "one": np.array(2.5),
    "none": np.zeros((0, 3), np.float32),
}


def safetensors(path: Path) -> None:
    save_file(VALUES, path)


def npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **VALUES)


def deflated(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **VALUES)


@pytest.fixture(params=[safetensors, npz, deflated], ids=lambda write: write.__name__)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "values"
    request.param(path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    safetensors(path)
    return path


DEVICES = ["cpu:0", "sim:0"]


@pytest.mark.parametrize("device", DEVICES)
def test_every_value_is_that_of_the_file(make_session, file, device):
    s = make_session(devices=DEVICES)
    found = s.load(file, device=device)
    assert set(found) == set(VALUES)
    for name, values in VALUES.items():
        tensor = found[name]
        assert (tensor.shape, tensor.dtype, tensor.device) == (values.shape, values.dtype, device)
        np.testing.assert_array_equal((tensor + 0).numpy() if values.dtype != bool else tensor.numpy(), values)
        np.testing.assert_array_equal(tensor.numpy(), values)


@each_case("device", DEVICES)
@each_case(
    "index",
    [np.s_[3:9], np.s_[::-1], np.s_[:, 5], np.s_[::7, ::3], np.s_[5], np.s_[60:2:-9, 1:30:4], np.s_[7:7]],
    ids=str,
)
def test_views_are_read_by_themselves(make_session, file, device, index):
    s = make_session(devices=DEVICES)
    w = s.load(file, device=device)["w"]
    np.testing.assert_array_equal((w[index] * 2).numpy(), VALUES["w"][index] * 2)
    np.testing.assert_array_equal(
        (w.T[index[::-1] if isinstance(index, tuple) else index] + 1).numpy(),
        VALUES["w"].T[index[::-1] if isinstance(index, tuple) else index] + 1,
    )


def test_nothing_is_read_before_it_is_needed_and_then_once(make_session, model):
    s = make_session(devices=DEVICES)
    found = s.load(model, device="sim:0")
    s.sync()
    assert records(s, "read") == []
    assert allocated(s, "sim:0") == allocated(s, "cpu:0") == 0
    w = found["w"]
    for _ in range(3):
        (w + 1).wait(WAIT)
    assert [record.op for record in records(s, "read")] == ["read store:0->sim:0"]
    assert s.stats()["transfers"]["sim:0"]["read"] == {"count": 1, "bytes": VALUES["w"].nbytes}
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_small_view_moves_only_its_own_bytes(make_session, model):
    s = make_session(devices=DEVICES)
    w = s.load(model, device="sim:0")["w"]
    (w[3:5] + 1).wait(WAIT)
    assert s.stats()["transfers"]["sim:0"]["read"]["bytes"] == 2 * 32 * 4


def test_weights_of_four_times_the_memory_are_dropped_and_read_again(make_session, tmp_path):
    """A value that lies in a file is evicted without a transfer."""
    layers = {f"w{n}": ones(256, value=n) for n in range(32)}
    save_file(layers, tmp_path / "layers")
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 8 * 1024}])
    found = s.load(tmp_path / "layers", device="sim:0")
    x = s.asarray(ones(256), device="sim:0")
    for _ in range(3):
        for n in range(32):
            x = x * 1.0 + found[f"w{n}"]
    assert x.numpy()[0] == 1 + 3 * sum(range(32))
    assert records(s, "evict") == []
    assert len(records(s, "read")) + len(records(s, "return store:0->sim:0")) >= 64
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_write_in_place_makes_the_value_the_tensors_own(make_session, model):
    s = make_session(devices=DEVICES)
    w = s.load(model)["w"]
    w += 1
    assert w.wait(WAIT).residency() == {"cpu:0": "valid"}
    np.testing.assert_array_equal(w.numpy(), VALUES["w"] + 1)
    np.testing.assert_array_equal(s.load(model)["w"].numpy(), VALUES["w"])


def test_a_part_of_what_is_owned_is_read_where_the_host_has_no_room_for_the_whole(make_session, tmp_path):
    save_file({"w": np.arange(1024.0).reshape(4, 256)}, tmp_path / "model")
    s = make_session(devices=[{"name": "cpu:0", "memory": 4096}, "sim:0"])
    w = s.load(tmp_path / "model", device="sim:0", own=True)["w"]
    part = w[1:2].prefetch("host")
    assert part.numpy()[0, 0] == 256
    assert w.numpy()[3, 255] == 1023
    assert_sound(s)


def test_what_is_owned_needs_the_file_no_more(make_session, model):
    s = make_session(devices=DEVICES)
    w = s.load(model, ["w"], own=True)["w"]
    (w + 0).wait(WAIT)
    assert w.residency() == {"cpu:0": "valid"}
    model.write_bytes(b"other")
    machine_of(s).watch_files()
    np.testing.assert_array_equal((w + 0).numpy(), VALUES["w"])


@pytest.mark.parametrize("evicted", [False, True])
def test_a_file_that_changes_takes_its_values_with_it(make_session, model, evicted):
    """Whether a value happens to be in memory makes no difference."""
    s = make_session(devices=DEVICES)
    found = s.load(model)
    w, other = found["w"], (found["w"] * 2).wait(WAIT)
    if evicted:
        found["i"].wait(WAIT)
    model.write_bytes(model.read_bytes() + b" ")
    machine_of(s).watch_files()
    for name in ("w", "i"):
        with pytest.raises(FileError, match=r"model\.safetensors: has changed since it was loaded"):
            (found[name] + 1).numpy()
        with pytest.raises(FileError, match=r"model\.safetensors"):
            found[name].numpy()
    np.testing.assert_array_equal(other.numpy(), VALUES["w"] * 2)
    del w
    assert_sound(s)


def test_a_change_is_noticed_when_the_file_is_read(make_session, model):
    s = make_session(devices=DEVICES)
    found = s.load(model)
    found["w"].wait(WAIT)
    (found["w"] + 1).wait(WAIT)
    os.truncate(model, 100)
    with pytest.raises(FileError, match=r"model\.safetensors"):
        (found["i"] + 1).wait(WAIT)
    with pytest.raises(FileError, match=r"model\.safetensors"):
        (found["w"] + 1).wait(WAIT)
    assert_sound(s)


def test_a_file_that_is_replaced_or_removed_is_still_the_one_that_was_loaded(make_session, model, tmp_path):
    s = make_session(devices=DEVICES)
    found = s.load(model)
    save_file({"w": ones(4)}, tmp_path / "new")
    (tmp_path / "new").rename(model)
    np.testing.assert_array_equal(found["w"].numpy(), VALUES["w"])
    model.unlink()
    np.testing.assert_array_equal(found["i"].numpy(), VALUES["i"])


def test_a_digest_notices_what_times_do_not_tell(make_session, model):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 16 * 1024}])
    w = s.load(model, device="sim:0", digest=True)["w"]
    (w + 1).wait(WAIT)
    status = model.stat()
    data = bytearray(model.read_bytes())
    data[-1200] ^= 1
    with model.open("r+b") as file:
        file.write(data)
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    for copy in list(w.residency()):
        if copy != "store:0":
            forget(s, copy)
    with pytest.raises(FileError, match="digest"):
        (w + 1).wait(WAIT)


def load_for_ever(session: td.Session, path: Path, kept: list[Any]) -> None:
    """Load a file again and again."""
    while True:
        kept.append(session.load(path))


def forget(session: td.Session, name: str) -> None:
    """Drop the copies that a device holds besides those in the store."""
    from tensord.vm.memory.replicas import forget as drop

    machine = machine_of(session)
    with machine.inside():
        for storage in machine.engine.directory.storages():
            for copy in storage.current():
                if copy.device.name == name and len(storage.copies) > 1:
                    drop(copy, storage)


def test_a_failed_read_reaches_only_what_depends_on_it_and_is_tried_again(make_session, model):
    s = make_session(devices=DEVICES)
    found = s.load(model)
    store_of(s).inject(Fault(FaultKind.FAIL, label="read store:0->cpu:0"))
    failed = found["w"] + 1
    with pytest.raises(td.KernelError):
        failed.wait(WAIT)
    np.testing.assert_array_equal((found["w"] + 1).numpy(), VALUES["w"] + 1)
    np.testing.assert_array_equal((found["i"] + 1).numpy(), VALUES["i"] + 1)
    assert_sound(s)


def test_a_release_while_it_is_read_is_harmless(make_session, model):
    s = make_session(devices=DEVICES)
    found = s.load(model)
    store_of(s).hold("read")
    y = found["w"] + 1
    s.flush()
    del found
    s.flush()
    store_of(s).resume("read")
    np.testing.assert_array_equal(y.numpy(), VALUES["w"] + 1)
    assert_sound(s)


def test_the_file_is_open_as_long_as_a_tensor_lies_in_it(make_session, model):
    s = make_session(devices=DEVICES)
    found = s.load(model)
    s.publish("w", found["w"])
    engine = machine_of(s).engine
    assert len(engine.residency.files.open) == 1
    del found
    s.sync()
    assert len(engine.residency.files.open) == 1
    s.unpublish("w")
    s.sync()
    assert len(engine.residency.files.open) == 0


def test_sessions_share_what_was_loaded(make_session, model):
    first = make_session("local:loaded", devices=DEVICES)
    second = make_session("local:loaded", devices=DEVICES)
    first.publish("w", first.load(model, device="sim:0")["w"])
    theirs = second.lookup("w")
    first.close()
    np.testing.assert_array_equal((theirs + 1).numpy(), VALUES["w"] + 1)


def test_a_part_of_a_file_is_loaded_by_its_names(make_session, file):
    s = make_session(devices=DEVICES)
    assert list(s.load(file, ["i", "one"])) == ["i", "one"]
    assert list(s.load(file, "i")) == ["i"]
    with pytest.raises(td.MetadataError, match="has no tensor 'v'"):
        s.load(file, ["v"])


def test_what_is_wrong_with_a_file_is_raised_at_the_line(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    with pytest.raises(FileError, match=r"nowhere: cannot be opened: No such file .* \[.*test_loading\.py"):
        s.load(tmp_path / "nowhere")
    (tmp_path / "text").write_text("no tensors at all")
    with pytest.raises(td.MetadataError, match="of no known format"):
        s.load(tmp_path / "text")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(td.MetadataError, match="not a regular file"):
        s.load(tmp_path / "fifo")
    with pytest.raises(td.MetadataError, match="not a regular file"):
        s.load(tmp_path)
    with pytest.raises(td.MetadataError, match="unknown device"):
        s.load(tmp_path / "nowhere", device="cuda:9")
    with pytest.raises(MetadataTypeError):
        s.load(None)


def test_a_dtype_that_is_not_there_fails_for_its_tensor_alone(make_session, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "half"
    save_file({"h": np.ones(4, ml_dtypes.bfloat16), "w": ones(4)}, path)
    s = make_session(devices=DEVICES)
    found = s.load(path)
    assert found["w"].numpy()[0] == 1
    with pytest.raises(td.MetadataError, match=r"'h'.*BF16"):
        found["h"].numpy()
    raw = s.load(path, raw=True)["h"]
    assert raw.dtype == np.uint16
    np.testing.assert_array_equal(raw.numpy(), np.ones(4, ml_dtypes.bfloat16).view(np.uint16))


def test_no_routine_loads(make_session, model):
    s = make_session(devices=DEVICES)
    with pytest.raises(CaptureError, match="no file can be loaded"):
        s.routine(lambda x: x + s.load(model)["w"])(s.asarray(1.0))


def test_a_file_of_many_tensors_is_there_at_once(make_session, tmp_path):
    save_file({f"t{n}": np.full(3, n, np.int32) for n in range(10_000)}, tmp_path / "many")
    s = make_session(devices=DEVICES)
    found = s.load(tmp_path / "many")
    assert len(found) == 10_000
    assert found["t9999"].tolist() == [9999] * 3
    assert int(sum(found[f"t{n}"].numpy()[0] for n in range(0, 10_000, 1000))) == sum(range(0, 10_000, 1000))


def test_the_quota_of_files_is_kept(make_session, model):
    s = make_session(devices=DEVICES)
    kept: list[Any] = []
    with pytest.raises(td.QuotaError, match="files"):
        load_for_ever(s, model, kept)
    assert 64 <= len(kept) <= 256
    kept.pop()
    s.sync()
    assert s.load(model)["i"].numpy()[3] == 3


def test_a_load_that_waits_for_room_goes_on(make_session, model):
    """A read waits for room on a device that is full."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 16 * 1024}])
    found = s.load(model, device="sim:0")
    with held(s, "sim:0", "compute"):
        x = s.asarray(ones(1000), device="sim:0")
        y = x * 2
        z = found["w"] * 2
        s.flush()
    np.testing.assert_array_equal(z.numpy(), VALUES["w"] * 2)
    assert y.numpy()[0] == 2
    assert_sound(s)


def test_a_session_that_ends_leaves_no_file_open(make_session, model):
    s = make_session("local:keeper", devices=DEVICES)
    other = make_session("local:keeper", devices=DEVICES)
    held_file = os.open(model, os.O_RDONLY)
    try:
        other._core.outbox.await_reply(
            other._core.outbox.ask(lambda request, _: File(1, (held_file, "x"), request), located=False)
        )
    finally:
        os.close(held_file)
    assert len(machine_of(s).engine.residency.files.open) == 1
    other.close()
    assert len(machine_of(s).engine.residency.files.open) == 0


def test_no_read_runs_on_the_driving_thread(make_session, model):
    s = make_session(devices=DEVICES)
    w = s.load(model, device="sim:0")["i"]
    (w + 1).wait(WAIT)
    (w[2:3] + 1).wait(WAIT)
    for record in records(s, "read"):
        assert record.stream == "sim:0/h2d0"


def test_what_is_owned_is_owned_after_a_read_that_failed_too(make_session, model):
    s = make_session(devices=DEVICES)
    w = s.load(model, ["w"], own=True)["w"]
    store_of(s).inject(Fault(FaultKind.FAIL, label="read store:0->cpu:0"))
    with pytest.raises(td.KernelError):
        (w + 1).wait(WAIT)
    np.testing.assert_array_equal((w[2:4] + 1).numpy(), VALUES["w"][2:4] + 1)
    assert w.residency() == {"cpu:0": "valid"}


def test_a_strict_session_uses_what_it_loaded_where_it_loaded_it_to(make_session, model):
    s = make_session(devices=DEVICES, strict=True)
    w = s.load(model, device="sim:0")["w"]
    np.testing.assert_array_equal((w + 1).numpy(), VALUES["w"] + 1)


def test_what_is_read_counts_against_the_quota(make_session, model):
    s = make_session(devices=DEVICES)
    session = machine_of(s).engine.directory.sessions[s._core.transport._session.id]
    found = s.load(model)
    s.sync()
    assert session.account.bytes == 0
    session.account.limit = 1000
    with pytest.raises(td.QuotaError):
        (found["w"] + 1).wait(WAIT)
    with pytest.raises(td.QuotaError):
        (found["w"][1:2] + 1).wait(WAIT)
    session.account.limit = 1 << 20
    (found["w"][1:2] + 1).wait(WAIT)
    s.sync()
    assert session.account.bytes >= VALUES["w"].nbytes


def test_without_a_host_what_has_to_be_read_whole_is_refused(make_session, tmp_path):
    deflated(tmp_path / "values")
    s = make_session(devices=["sim:0"])
    with pytest.raises(td.MetadataError, match="this machine has none"):
        s.load(tmp_path / "values")["w"].wait(WAIT)
    safetensors(tmp_path / "plain")
    np.testing.assert_array_equal(s.load(tmp_path / "plain")["w"].numpy(), VALUES["w"])
