"""Checkpoints hold the published values as of one place in program order, while work goes on; restores are deferred."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.files.writes import UNFINISHED
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.checkpoints.record import INNER_SEPARATOR
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.durability.taking import CheckpointRequest

from ..compiled import replaces_parts
from ..puppet import Puppet, eventually
from .looking_inside import WAIT, allocated, assert_sound, device_of, held, machine_of, ones, records, store_of

DEVICES = ["cpu:0", "sim:0"]


def in_checkpoint(path: Path) -> dict[str, Any]:
    """The values of the last generation, by name."""
    with CheckpointReader.open(path) as reader:
        generation, damaged = reader.latest()
        assert generation is not None
        assert not damaged
        assert reader.verify(generation, deep=True) == {}
        return {name: reader.read(name, record) for name, record in generation.tensors.items()}


def homes_in(path: Path) -> dict[str, Any]:
    """The homes with which the tensors of the last generation were written, by name."""
    with CheckpointReader.open(path) as reader:
        generation, _ = reader.latest()
        assert generation is not None
        return {name: record.fields["device"] for name, record in generation.tensors.items()}


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_published_comes_back_in_another_machine(make_session, tmp_path, device):
    values = {"w": np.arange(12.0).reshape(3, 4), "i": np.arange(5), "c": np.array(1j), "none": np.zeros((0, 3))}
    s = make_session("local:first", devices=DEVICES)
    tensors = {name: s.asarray(value, device=device) for name, value in values.items()}
    s.publish({**tensors, "turned": tensors["w"].T, "same": tensors["w"]})
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert (report["generation"], report["names"], report["failed"]) == (1, 6, {})
    assert report["written"] == sum(value.nbytes for value in values.values()) + values["w"].nbytes
    other = make_session("local:second", devices=DEVICES)
    found = other.restore(tmp_path / "there")
    assert (found["generation"], found["names"], found["failed"], found["moved"]) == (1, 6, {}, {})
    for name, value in {**values, "turned": values["w"].T, "same": values["w"]}.items():
        tensor = other.lookup(name)
        assert tensor.device == device
        np.testing.assert_array_equal(tensor.numpy(), value)
    assert_sound(s)
    assert_sound(other)


def test_all_values_are_those_of_one_place_while_they_are_written_to(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    xs = [s.asarray(ones(100), device="sim:0") for _ in range(5)]
    s.publish({f"x{n}": x for n, x in enumerate(xs)})
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    for n in range(5):
        xs[n] += 1
    s.sync()  # no wait for the disk
    assert [x.numpy()[0] for x in xs] == [2] * 5
    assert not taken.done
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert all(value[0] == 1 for value in in_checkpoint(tmp_path / "there").values())
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_checkpoint_that_is_refused_at_once_keeps_no_session_alive(make_session, tmp_path):
    refused = make_session(devices=DEVICES).checkpoint(tmp_path, names=["missing"])
    with pytest.raises(td.MetadataError, match="nothing is published as 'missing'"):
        refused.wait(WAIT)
    assert refused not in UNFINISHED


def test_a_group_is_in_a_checkpoint_as_a_whole(make_session, tmp_path):
    writer, taker = make_session("local:group", devices=DEVICES), make_session("local:group", devices=DEVICES)
    a, b = writer.asarray(0.0), writer.asarray(0.0)
    writer.publish({"a": a, "b": b})
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with writer.atomic():
                a.__iadd__(1.0)
                b.__iadd__(1.0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(10):
            taker.checkpoint(tmp_path / "there").wait(WAIT)
            found = in_checkpoint(tmp_path / "there")
            assert found["a"] == found["b"]
    finally:
        stop.set()
        thread.join()


def test_a_member_of_a_group_that_failed_is_reported_and_the_others_are_written(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    a, b = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0")
    s.publish({"a": a, "b": b})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    with s.atomic():
        a += 1
        b += 1
    assert list(s.checkpoint(tmp_path / "there").wait(WAIT)["failed"]) == ["b"]
    assert {name: value[0] for name, value in in_checkpoint(tmp_path / "there").items()} == {"a": 2, "b": 1}


def test_no_writer_is_charged_for_what_only_a_checkpoint_reads(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    session = machine_of(s).engine.directory.sessions[s._core.transport._session.id]
    x = s.asarray(ones(1000))
    s.publish("x", x)
    s.sync()
    session.account.limit = 4000
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    x += 1
    s.sync()
    assert session.account.bytes == 4000
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert x.numpy()[0] == 2
    assert_sound(s)


def test_what_has_not_changed_is_neither_moved_nor_read_nor_written(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x, y = s.asarray(ones(1000), device="sim:0"), s.asarray(ones(10))
    s.publish({"x": x, "y": y})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    before = len(records(s))
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert (report["written"], report["kept"]) == (0, 4040)
    assert [record.op for record in records(s)[before:]] == ["checkpoint"]
    y += 1
    s.publish("z", x)
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert (report["written"], report["names"]) == (40, 3)
    assert in_checkpoint(tmp_path / "there")["y"][0] == 2
    s.unpublish("x")
    s.checkpoint(tmp_path / "there").wait(WAIT)
    assert sorted(in_checkpoint(tmp_path / "there")) == ["y", "z"]


def test_memory_that_is_used_again_is_another_value(make_session, tmp_path):
    """A new tensor that reuses a tensor's objects is not taken for the old one."""
    s = make_session(devices=DEVICES)
    for n in range(5):
        x = s.asarray(ones(4, value=n))
        s.publish("x", x)
        del x
        s.checkpoint(tmp_path / "there").wait(WAIT)
        assert in_checkpoint(tmp_path / "there")["x"][0] == n
        s.unpublish("x")


def test_an_error_keeps_the_value_before_and_is_reported(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x, y = s.asarray(ones(3), device="sim:0"), s.asarray(ones(3))
    s.publish({"x": x, "y": y})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    s.publish("x", x + 1.0)
    y += 1
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert list(report["failed"]) == ["x"]
    found = in_checkpoint(tmp_path / "there")
    assert (found["x"][0], found["y"][0]) == (1, 2)
    assert_sound(s)


def test_who_asks_is_told_how_far_it_has_come(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish({"x": s.asarray(ones(3)), "y": s.asarray(ones(5), device="sim:0")})
    store_of(s).hold("save")
    writing = s.checkpoint(tmp_path / "there")
    s.flush()
    row = {"directory": str(tmp_path / "there"), "names": 2, "written": 0, "bytes": 32}
    assert s._core.answers.query("checkpoints") == s._core.answers.query("status")["checkpoints"] == [row]
    store_of(s).resume("save")
    assert writing.wait(WAIT)["written"] == 32
    assert s._core.answers.query("checkpoints") == []


def test_a_failed_value_of_two_names_is_reported_for_both(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish({"x": s.asarray(ones(3)), "y": s.asarray(ones(3, value=2.0))})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    z = s.asarray(ones(3), device="sim:0") + 1.0
    s.publish("x", z)
    s.publish("y", z)
    assert list(s.checkpoint(tmp_path / "there").wait(WAIT)["failed"]) == ["x", "y"]
    found = in_checkpoint(tmp_path / "there")
    assert (found["x"][0], found["y"][0]) == (1, 2)


def test_restored_values_lie_in_the_files_until_they_are_read(make_session, tmp_path):
    s = make_session("local:a", devices=DEVICES)
    s.publish({f"x{n}": s.asarray(ones(256, value=n)) for n in range(64)})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    other = make_session("local:b", devices=["cpu:0", {"name": "sim:0", "memory": 16 * 1024}])
    other.restore(tmp_path / "there")
    names = [f"x{n}" for n in range(64)]
    found = other.lookup(names)
    assert records(other, "read") == []
    for _ in range(2):
        for n, tensor in enumerate(found.values()):
            assert (tensor.to_device("sim:0") * 2.0).numpy()[0] == 2 * n
    report = other.checkpoint(tmp_path / "there").wait(WAIT)
    assert report["written"] == 0
    assert_sound(other)


def test_files_that_cannot_be_opened_for_a_moment_stay_for_those_who_lie_in_them(make_session, tmp_path, monkeypatch):
    s = make_session(devices=DEVICES)
    s.publish("x", s.asarray(ones(3)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    x, opened = s.lookup("x"), os.open
    (file,) = (tmp_path / "there").glob("values-*")

    def refuse(name: Any, *args: Any, **options: Any) -> int:
        if name == file.name:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(name, *args, **options)

    s.publish("x", s.asarray(ones(3, value=2)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert s.checkpoint(tmp_path / "there", keep=1).wait(WAIT)["collected"] == 1
    assert file.exists()
    s.checkpoint(tmp_path / "there", keep=1).wait(WAIT)
    assert not file.exists()
    assert x.tolist() == [1, 1, 1]


def test_what_another_process_removes_says_so(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish("x", s.asarray(ones(3)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    with CheckpointDirectory.open(tmp_path / "there") as directory:
        directory.begin().commit()
        directory.begin().commit()
        directory.collect(1)
    for path in (tmp_path / "there").glob("values-*"):
        path.unlink()
    with pytest.raises(
        td.FileError, match="No such file or directory; another process has removed it; restore a later"
    ):
        s.lookup("x").numpy()


def test_what_is_collected_stays_for_those_who_lie_in_it(make_session, tmp_path):
    s = make_session("local:c", devices=DEVICES)
    s.publish("x", s.asarray(np.arange(2 << 20)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    other = make_session("local:d", devices=DEVICES)
    other.restore(tmp_path / "there")
    x = other.lookup("x")
    other.publish("x", other.asarray(ones(3)))
    for _ in range(3):
        other.checkpoint(tmp_path / "there", keep=1).wait(WAIT)
    assert len(list((tmp_path / "there").glob("values-*"))) == 1
    np.testing.assert_array_equal(x.numpy(), np.arange(2 << 20))


def test_routines_come_back_with_what_they_capture(make_session, tmp_path):
    s = make_session("local:e", devices=DEVICES)
    w = s.asarray(ones(3, value=2))
    f = s.routine(lambda x: x * w + 1)
    x = s.asarray(ones(3))
    expected = f(x).numpy()
    s.publish("f", f)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    other = make_session("local:f", devices=["cpu:0"])
    assert other.restore(tmp_path / "there")["names"] == 1
    assert other.names() == ["f"]
    np.testing.assert_array_equal(other.lookup("f")(other.asarray(ones(3))).numpy(), expected)


def test_a_device_that_is_missing_is_said(make_session, tmp_path):
    s = make_session("local:g", devices=["cpu:0", "sim:0"])
    s.publish("x", s.asarray(ones(3), device="sim:0"))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    other = make_session("local:h", devices=["cpu:0"])
    assert other.restore(tmp_path / "there")["moved"] == {"x": "sim:0"}
    assert other.lookup("x").device == "cpu:0"


def test_a_value_that_was_restored_elsewhere_is_kept_with_its_home_there(make_session, tmp_path):
    s = make_session("local:first", devices=DEVICES)
    s.publish({name: s.asarray(ones(4), device="sim:0") for name in ("x", "y")})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    other = make_session("local:second", devices=["cpu:0"])
    other.restore(tmp_path / "there")
    report = other.checkpoint(tmp_path / "there").wait(WAIT)
    assert (report["written"], report["names"]) == (0, 2)
    assert homes_in(tmp_path / "there") == {"x": "cpu:0", "y": "cpu:0"}
    report = other.checkpoint(tmp_path / "there").wait(WAIT)  # with the fields that it has written
    assert (report["written"], report["names"]) == (0, 2)
    assert homes_in(tmp_path / "there") == {"x": "cpu:0", "y": "cpu:0"}


def test_damage_is_named_and_the_rest_is_restored(make_session, tmp_path):
    s = make_session("local:i", devices=DEVICES)
    s.publish({"large": s.asarray(np.arange(1 << 20)), "small": s.asarray(ones(3))})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    largest = max((tmp_path / "there").glob("values-*"), key=lambda path: path.stat().st_size)
    os.truncate(largest, 100)
    other = make_session("local:j", devices=DEVICES)
    found = other.restore(tmp_path / "there")
    assert list(found["failed"]) == ["large"]
    assert other.names() == ["small"]
    largest.unlink()
    assert list(other.restore(tmp_path / "there")["failed"]) == ["large"]


@pytest.mark.parametrize("device", DEVICES)
def test_bits_that_have_changed_are_noticed_when_they_are_read(make_session, tmp_path, device):
    s = make_session("local:k", devices=DEVICES)
    s.publish("x", s.asarray(np.arange(1 << 20), device=device))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    (file,) = (tmp_path / "there").glob("values-*")
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    other = make_session("local:l", devices=DEVICES)
    assert other.restore(tmp_path / "there")["failed"] == {}
    with pytest.raises(td.FileError, match="checksum"):
        (other.lookup("x") + 1).wait(WAIT)
    assert list(other.restore(tmp_path / "there", deep=True)["failed"]) == ["x"]


def test_what_is_wrong_is_raised(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    x = s.asarray(1.0)
    s.publish("x", x)
    with pytest.raises(td.MetadataError, match="nothing is published as 'y'"):
        s.checkpoint(tmp_path / "there", "y").wait(WAIT)
    with pytest.raises(td.FileError, match="cannot be made"):
        s.checkpoint(tmp_path / "no" / "there").wait(WAIT)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(td.MetadataError):
        s.checkpoint(tmp_path / "full").wait(WAIT)
    with pytest.raises(td.FileError, match="cannot be opened"):
        s.restore(tmp_path / "nowhere")
    with (
        CheckpointDirectory.open(tmp_path / "locked", create=True),
        pytest.raises(td.FileError, match=str(os.getpid())),
    ):
        s.checkpoint(tmp_path / "locked").wait(WAIT)
    s.checkpoint(tmp_path / "locked").wait(WAIT)
    with pytest.raises(td.MetadataError, match="has no 'z'"):
        s.restore(tmp_path / "locked", "z")


def test_an_empty_list_of_names_does_not_mean_all(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish("x", s.asarray(1.0))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    empty: tuple[Any, ...] = ([], (), set(), {})
    for none in empty:
        with pytest.raises(td.MetadataError, match=r"checkpoint: .*leave it out for all.*test_checkpoints\.py"):
            s.checkpoint(tmp_path / "there", none)
        with pytest.raises(td.MetadataError, match=r"restore: .*leave it out for all.*test_checkpoints\.py"):
            s.restore(tmp_path / "there", none)
    for wrong in (0, False, b""):
        with pytest.raises(td.MetadataError, match="a list of names"):
            s.checkpoint(tmp_path / "there", wrong)
        with pytest.raises(td.MetadataError, match="a list of names"):
            s.restore(tmp_path / "there", wrong)
    assert s.restore(tmp_path / "there")["generation"] == 1


def test_two_at_once_in_one_directory_are_refused(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish("x", s.asarray(1.0))
    store_of(s).hold("save")
    first = s.checkpoint(tmp_path / "there")
    with pytest.raises(td.ProtocolError, match="is being written"):
        s.checkpoint(tmp_path / "there").wait(WAIT)
    store_of(s).resume("save")
    first.wait(WAIT)
    s.checkpoint(tmp_path / "there").wait(WAIT)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_disk_that_fails_leaves_the_last_generation(make_session, tmp_path, monkeypatch, call):
    s = make_session(devices=DEVICES)
    x = s.asarray(ones(1000))
    s.publish("x", x)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    x += 1

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        taken = s.checkpoint(tmp_path / "there")
        with pytest.raises(td.FileError, match="No space left"):
            taken.wait(WAIT)
    assert in_checkpoint(tmp_path / "there")["x"][0] == 1
    s.checkpoint(tmp_path / "there").wait(WAIT)
    assert in_checkpoint(tmp_path / "there")["x"][0] == 2
    assert_sound(s)


def test_the_session_that_asked_may_end(make_session, tmp_path):
    keeper = make_session("local:m", devices=DEVICES)
    s = make_session("local:m", devices=DEVICES)
    s.publish("x", s.asarray(ones(3)))
    store_of(s).hold("save")
    s.checkpoint(tmp_path / "there")
    s._core.writes = type(s._core.writes)()  # its client does not wait
    s.close()
    store_of(keeper).resume("save")
    keeper.sync()
    machine = machine_of(keeper)
    assert machine.wait_until(lambda: not machine.engine.live, WAIT)
    assert in_checkpoint(tmp_path / "there")["x"][0] == 1


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_the_maker_of_what_only_a_checkpoint_has_left_may_end(make_session, tmp_path, end):
    keeper = make_session("local:n", devices=DEVICES)
    s = make_session("local:n", devices=DEVICES)
    device_of(s, "sim:0").hold("compute")
    x = s.asarray(ones(3), device="sim:0") + 1
    s.publish("x", x)
    s.flush()
    taken = keeper.checkpoint(tmp_path / "there")
    keeper.flush()
    s.unpublish("x")
    del x
    s.flush()
    getattr(s, end)()
    device_of(keeper, "sim:0").resume("compute")
    assert taken.wait(WAIT)["failed"] == {}
    assert in_checkpoint(tmp_path / "there")["x"][0] == 2


def test_what_only_a_checkpoint_had_is_gone_when_it_could_not_leave_its_device(make_session, tmp_path):
    """An evicted copy stays until its transfer has arrived, and comes back if that failed, for users alone."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 6144}])
    device = device_of(s, "sim:0")
    x = s.asarray(ones(1024), device="sim:0")
    x.wait(WAIT)
    s.publish({"a": s.asarray(ones(3)), "x": x})  # 12 bytes on the host
    device.inject(Fault(FaultKind.FAIL, stream="d2h"))
    store_of(s).hold("save")  # the checkpoint is busy with the value in front of x
    with held(s, "sim:0", "d2h"):
        y = s.asarray(ones(1024, value=2), device="sim:0")  # x has to be evicted
        taken = s.checkpoint(tmp_path / "there")
        s.unpublish("x")
        del x
        s.flush()
    y.wait(WAIT)
    assert (allocated(s, "sim:0"), allocated(s, "cpu:0")) == (y.nbytes, 12)
    store_of(s).resume("save")
    assert list(taken.wait(WAIT)["failed"]) == ["x"]
    assert_sound(s)


KILLED = """
s = td.connect("local", devices=["cpu:0", "sim:0"])
xs = [s.asarray(np.zeros(300_000), device="sim:0") for _ in range(4)]
s.publish({{f"x{{n}}": x for n, x in enumerate(xs)}})
while True:
    s.checkpoint({!r}).wait()
    with s.atomic():
        for x in xs:
            x += 1
"""


@pytest.mark.parametrize("after", [1, 3, 4])
def test_a_process_that_is_killed_leaves_the_last_whole_generation(tmp_path, after):
    with Puppet.start() as process:
        process.tell(KILLED.format(str(tmp_path / "there")))
        eventually(lambda: any(int(path.name[-8:]) >= after for path in (tmp_path / "there").glob("generation-*")))
        process.kill()
    found = in_checkpoint(tmp_path / "there")
    (value,) = {float(x[0]) for x in found.values()}
    assert value >= after - 1
    assert all((x == value).all() for x in found.values())
    with CheckpointDirectory.open(tmp_path / "there") as directory:  # no lock is held
        directory.sweep()
        assert directory.orphans() == []
    shutil.rmtree(tmp_path / "there")


def test_a_write_on_a_device_waits_for_the_transfer_and_takes_no_more_memory(make_session, tmp_path):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 2 * 4096, "eviction": "never"}])
    w, g = s.asarray(ones(1024), device="sim:0"), s.asarray(ones(1024), device="sim:0")
    s.publish("w", w)
    for n in range(3):
        store_of(s).hold("save")
        taken = s.checkpoint(tmp_path / "there")
        w += g
        w.wait(WAIT)  # though the disk stands still
        store_of(s).resume("save")
        taken.wait(WAIT)
        assert in_checkpoint(tmp_path / "there")["w"][0] == 1 + n
    assert w.numpy()[0] == 4
    assert_sound(s)


def small_host(directory: Path, host: int) -> list[Any]:
    """A host of so many bytes between a large device and a large store."""
    store = {"name": "store:0", "directory": str(directory), "quota": 1 << 30}
    return [{"name": "cpu:0", "memory": host}, "sim:0", store]


def test_a_checkpoint_leaves_nothing_in_the_host(make_session, tmp_path):
    """Otherwise an op on a part of the value would find the whole value there, and not fit beside it."""
    s = make_session(devices=small_host(tmp_path, 6144))
    w = s.asarray(ones(1024), device="sim:0")
    s.publish({"w": w, "part": w[:512]})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    assert_sound(s)
    assert allocated(s, "cpu:0") == 0
    assert w.residency() == {"sim:0": "valid"}
    (part,) = s.call("add", [w[:768], 1], device="cpu:0")
    assert part.numpy()[0] == 2
    assert_sound(s)


def test_a_value_larger_than_the_host_is_written_past_it(make_session, tmp_path):
    s = make_session(devices=small_host(tmp_path, 6144))
    value = np.random.default_rng(1).random((40, 50))
    w = s.asarray(value, device="sim:0")
    s.publish({"w": w, "turned": w.T})
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert report["failed"] == {}
    assert w.residency() == {"sim:0": "valid"}  # it is gone from the store, too
    assert allocated(s, "store:0") == 0
    found = in_checkpoint(tmp_path / "there")
    np.testing.assert_array_equal(found["w"], value)
    np.testing.assert_array_equal(found["turned"], value.T)
    w += 1
    s.checkpoint(tmp_path / "there").wait(WAIT)
    np.testing.assert_array_equal(in_checkpoint(tmp_path / "there")["w"], value + 1)
    assert_sound(s)


def test_what_lies_in_a_file_is_written_from_there(make_session, tmp_path):
    s = make_session(devices=small_host(tmp_path, 1 << 20))
    value = np.random.default_rng(2).random((30, 40))
    np.savez(tmp_path / "values.npz", loaded=value)
    loaded = s.load(tmp_path / "values.npz")["loaded"]
    evicted = s.asarray(value).evict()
    s.publish({"loaded": loaded, "evicted": evicted, "column": evicted[:, 3], "turned": loaded.T})
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert report["failed"] == {}
    assert records(s, "read") == records(s, "return") == []
    assert loaded.residency() == evicted.residency() == {"store:0": "valid"}
    found = in_checkpoint(tmp_path / "there")
    for name, wanted in {"loaded": value, "evicted": value, "column": value[:, 3], "turned": value.T}.items():
        np.testing.assert_array_equal(found[name], wanted)
    assert_sound(s)


def test_damage_of_what_is_written_from_a_file_is_noticed_in_any_order_of_its_elements(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    np.savez(tmp_path / "values.npz", x=np.arange(600.0).reshape(20, 30))
    data = bytearray((tmp_path / "values.npz").read_bytes())
    data[1000] ^= 1
    (tmp_path / "values.npz").write_bytes(data)
    x = s.load(tmp_path / "values.npz")["x"]
    s.publish({"x": x, "turned": x.T, "sound": s.asarray(ones(3))})
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert sorted(report["failed"]) == ["turned", "x"]
    assert all("checksum" in why for why in report["failed"].values())
    assert list(in_checkpoint(tmp_path / "there")) == ["sound"]
    for device in DEVICES:
        with pytest.raises(td.FileError, match="checksum"):
            s.load(tmp_path / "values.npz", device=device)["x"].to_device(device).wait(WAIT)


@pytest.mark.parametrize("part", [(3,), (slice(None), 7), (slice(2, 9),)])
def test_damage_of_a_restored_value_is_noticed_where_a_part_of_it_is_written(make_session, tmp_path, part):
    s = make_session("local:first", devices=DEVICES)
    s.publish("x", s.asarray(np.arange(600.0).reshape(20, 30)))
    s.checkpoint(tmp_path / "damaged").wait(WAIT)
    s.checkpoint(tmp_path / "sound").wait(WAIT)
    (values,) = (tmp_path / "damaged").glob("values-*")
    data = bytearray(values.read_bytes())
    data[len(data) // 3] ^= 1
    values.write_bytes(data)
    other = make_session("local:second", devices=DEVICES)
    for directory in ("damaged", "sound"):
        other.restore(tmp_path / directory)
        other.publish(directory, other.lookup("x")[part])
    report = other.checkpoint(tmp_path / "parts", ["damaged", "sound"]).wait(WAIT)
    assert list(report["failed"]) == ["damaged"]
    assert "checksum" in report["failed"]["damaged"]
    np.testing.assert_array_equal(in_checkpoint(tmp_path / "parts")["sound"], np.arange(600.0).reshape(20, 30)[part])


def test_some_names_are_compared_and_counted_alone(make_session, tmp_path, monkeypatch):
    s = make_session(devices=DEVICES)
    w, big = s.asarray(ones(100)), s.asarray(ones(1 << 20))
    s.publish({"small": s.asarray(ones(3)), "add": s.routine(lambda x: x + w).link(w), "big": big})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    read = list[int]()
    preadv = os.preadv

    def note(*arguments: Any) -> int:
        read.append(preadv(*arguments))
        return read[-1]

    monkeypatch.setattr(os, "preadv", note)
    found = s.restore(tmp_path / "there", ["small", "add"], deep=True)
    text = found["bytes"] - 12 - 400  # the routine's
    assert 0 < text < 4096
    assert found["bytes"] <= sum(read) < 1 << 16


def test_what_was_to_be_read_once_is_read_by_a_checkpoint(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    np.save(tmp_path / "x.npy", np.arange(600.0))
    x = s.load(tmp_path / "x.npy", own=True)["array"]
    s.publish("x", x)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    os.truncate(tmp_path / "x.npy", 200)
    assert x.numpy().sum() == np.arange(600.0).sum()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("size", [100, 1 << 17])
def test_a_file_that_cannot_be_read_fails_its_value_alone(make_session, tmp_path, size, last):
    """A small value is in a pack with others, a large one has a file of its own; the commit follows right behind the
    last one.
    """
    s = make_session(devices=DEVICES)
    np.savez(tmp_path / "values.npz", x=np.arange(float(size)))
    x, y, z = s.load(tmp_path / "values.npz")["x"], s.asarray(ones(5)), s.asarray(ones(5, value=2))
    s.publish({"y": y, "x": x, "z": z} if not last else {"y": y, "z": z, "x": x})
    os.truncate(tmp_path / "values.npz", 500)
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert list(report["failed"]) == ["x"]
    assert "values.npz" in report["failed"]["x"]
    assert report["written"] == y.nbytes + z.nbytes
    found = in_checkpoint(tmp_path / "there")
    assert {name: value.sum() for name, value in found.items()} == {"y": 5, "z": 10}
    assert len(list((tmp_path / "there").glob("values-*"))) == 1
    assert_sound(s)


def test_what_the_host_has_before_a_checkpoint_stays_there(make_session, tmp_path):
    s = make_session(devices=small_host(tmp_path, 6144))
    w = s.asarray(ones(1024), device="sim:0")
    w.prefetch("host")
    s.publish("w", w)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    assert w.residency() == {"sim:0": "valid", "cpu:0": "valid"}


@pytest.mark.parametrize(("host", "waits"), [(6144, True), (8192, False)])
def test_a_write_in_the_host_waits_for_the_checkpoint_only_without_memory_for_a_second_copy(
    make_session, tmp_path, host, waits
):
    s = make_session(devices=small_host(tmp_path, host))
    w = s.asarray(ones(1024))
    s.publish("w", w)
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    s.call("setitem", [w, 2], {"index": slice(0, 5)}, out=[w])
    if not waits:
        assert w.numpy().sum() == 1029  # though the disk stands still
    s.flush()
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert w.numpy().sum() == 1029
    assert in_checkpoint(tmp_path / "there")["w"].sum() == 1024
    assert_sound(s)


def test_a_result_waits_for_the_memory_of_an_operand_that_only_a_checkpoint_reads(make_session, tmp_path):
    """The result needs no more memory than the operand has, as without the checkpoint."""
    s = make_session(devices=[{"name": "cpu:0", "memory": 6144, "eviction": "never"}])
    w = s.asarray(ones(1024))
    s.publish("w", w)
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    s.unpublish("w")
    w = w + 1
    s.flush()
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert w.numpy().sum() == 2048
    assert in_checkpoint(tmp_path / "there")["w"].sum() == 1024
    assert_sound(s)


@pytest.mark.parametrize("host", [6144, 1024])
def test_what_a_device_has_for_a_checkpoint_alone_is_gone_with_the_transfer(make_session, tmp_path, host):
    """To the host, or past it: no result on the device waits for the disk, or fails because it does not fit beside the
    values.
    """
    s = make_session(devices=[*small_host(tmp_path, host), {"name": "sim:1", "memory": 6144, "eviction": "never"}])
    w = s.asarray(ones(1024), device="sim:1")
    s.publish("w", w)
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    s.unpublish("w")
    w = w + 1
    s.call("add", [w, 1], out=[w])
    w.wait(WAIT)
    assert not taken.done
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert w[:2].tolist() == [3, 3]
    assert in_checkpoint(tmp_path / "there")["w"].sum() == 1024
    assert allocated(s, "store:0") == 0
    assert_sound(s)


def test_a_second_copy_leaves_room_for_what_the_write_needs_besides(make_session, tmp_path):
    size = 256 * 256 * 8
    s = make_session(devices=small_host(tmp_path, 11 * size // 2))
    w = s.asarray(np.eye(256) * 2)
    s.publish("w", w)
    store_of(s).hold("save")
    taken = s.checkpoint(tmp_path / "there")
    s.call("inv", [w], out=[w])  # its temporaries are four times as large
    s.flush()
    store_of(s).resume("save")
    taken.wait(WAIT)
    assert w.numpy()[0, 0] == 0.5
    assert_sound(s)


def test_a_path_that_leads_nowhere_harms_the_one_who_names_it_alone(make_session, tmp_path):
    s = make_session("local:paths", devices=DEVICES)
    other = make_session("local:paths", devices=DEVICES)
    x = other.asarray(ones(3))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", str(tmp_path / "a\0b")):
        with pytest.raises(td.FileError):
            s.checkpoint(path).wait(WAIT)
        with pytest.raises(td.FileError):
            s.restore(path)
    assert (x + 1).tolist() == [2, 2, 2]


def test_names_of_one_tensor_are_one_again(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    w = s.asarray(ones(2))

    @s.routine
    def step(by):
        w.__iadd__(by)
        return w * 1

    one = s.asarray(ones(2))
    step(one)  # w is 2
    s.publish({"weights": w, "alias": w, "copy": w.copy(), "step": step})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    restored = s.lookup(["weights", "alias", "copy", "step"])
    restored["step"](one)
    restored["alias"] += 10
    assert {name: restored[name].tolist()[0] for name in ("weights", "alias", "copy")} == {
        "weights": 13,
        "alias": 13,
        "copy": 2,
    }


def test_a_name_like_that_of_what_a_routine_captures_is_the_users(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    w = s.asarray(ones(1, value=10))

    @s.routine
    def f(x):
        return x * w

    two = s.asarray(ones(1, value=2))
    f(two)
    s.publish({"f": f, "f (captured 0)": s.asarray(ones(1, value=7))})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    assert s.lookup("f")(two).tolist() == [20]
    assert s.lookup("f (captured 0)").tolist() == [7]
    (inner,) = in_checkpoint(tmp_path / "there").keys() - {"f (captured 0)"}
    with pytest.raises(td.MetadataError, match="a name is printable text"):
        s.publish(inner, two)
    s.unpublish("f")
    with pytest.raises(td.MetadataError, match="generation 1 has no"):
        s.restore(tmp_path / "there", [inner])


def test_a_failed_routine_does_not_fall_back_upon_a_tensor_of_a_user(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    w, two = s.asarray(ones(1), device="sim:0"), s.asarray(ones(1, value=2), device="sim:0")

    @s.routine
    def f(x):
        return x * w

    f(two)
    s.publish("f", f)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.publish("f (captured 0)", s.asarray(ones(1, value=7)))
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    w += 1.0
    assert "f" in s.checkpoint(tmp_path / "there").wait(WAIT)["failed"]
    s.restore(tmp_path / "there")
    assert s.lookup("f")(two).tolist() == [2]
    assert s.lookup("f (captured 0)").tolist() == [7]


def test_a_routine_captures_any_number_of_tensors(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    captured = [s.asarray(ones(1, value=n)) for n in range(300)]

    @s.routine
    def total(x):
        for one in captured:
            x = x + one
        return x

    zero = s.asarray(ones(1, value=0))
    total(zero)
    s.publish("total", total)
    assert s.checkpoint(tmp_path / "there").wait(WAIT)["failed"] == {}
    s.restore(tmp_path / "there")
    assert s.lookup("total")(zero).tolist() == [sum(range(300))]


def test_a_routine_that_cannot_be_kept_fails_alone_and_stays_what_it_was(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    name, two = "f" * 1020, s.asarray(ones(1, value=2))  # the name of a captured tensor would be too long
    w = s.asarray(ones(1, value=10))

    @s.routine
    def f(x):
        return x + x

    @s.routine
    def g(x):
        return x * w

    f(two), g(two)
    s.publish({name: f, "x": two})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.publish({name: g, "x": s.asarray(ones(1, value=3))})
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert "limit is 1024" in report["failed"][name]
    s.restore(tmp_path / "there")
    assert s.lookup(name)(two).tolist() == [4]
    assert s.lookup("x").tolist() == [3]


def test_a_routine_of_which_a_tensor_failed_stays_what_it_was(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    v, w, two = s.asarray(ones(1)), s.asarray(ones(1), device="sim:0"), s.asarray(ones(1, value=2))

    @s.routine
    def f(x):
        return x * v + w.to_device("cpu:0")

    f(two)
    s.publish("f", f)
    s.checkpoint(tmp_path / "there").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    v += 1
    w += 1
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert report["failed"].keys() == {"f", f"f{INNER_SEPARATOR}(captured 0)", f"f{INNER_SEPARATOR}(captured 1)"}
    s.restore(tmp_path / "there")
    assert s.lookup("f")(two).tolist() == [3]


@replaces_parts
def test_a_generation_that_is_removed_while_it_is_restored_can_be_read(make_session, tmp_path, monkeypatch):
    monkeypatch.setattr("tensord.vm.durability.restoring.PIECE", 1)
    s = make_session("local:removed", devices=DEVICES)
    other = make_session("local:removed", devices=DEVICES)
    s.publish({f"x{n}": s.asarray(ones(4, value=n)) for n in range(4)})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.unpublish(*s.names())
    y = other.asarray(ones(2))
    other.publish("y", y)
    engine = machine_of(s).engine
    durable, reports = engine.admission.durable, list[Any]()
    on_disk = durable.on_disk

    def tell(report: Any, _error: Any) -> None:
        reports.append(report)

    def and_a_checkpoint(session: Any, kernel: Any, then: Any) -> None:
        on_disk(session, kernel, then)
        with suppress(td.ProtocolError):  # one is being written
            durable.checkpoints.take(
                CheckpointRequest(engine.scheduler.system_session, 0, tell), str(tmp_path / "there"), ("y",), 1
            )

    monkeypatch.setattr(durable, "on_disk", and_a_checkpoint)
    s.restore(tmp_path / "there")
    assert {name: s.lookup(name).tolist()[0] for name in ("x0", "x1", "x2", "x3")} == {
        "x0": 0,
        "x1": 1,
        "x2": 2,
        "x3": 3,
    }


def test_a_value_whose_file_is_gone_harms_no_other_name(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish("lost", s.asarray(ones(10)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    for path in (tmp_path / "there").glob("values-*"):
        path.unlink()
    s.publish("fresh", s.asarray(ones(2, value=3)))
    with pytest.raises(td.FileError, match="take the checkpoint again"):
        s.checkpoint(tmp_path / "there").wait(WAIT)
    report = s.checkpoint(tmp_path / "there").wait(WAIT)
    assert (report["names"], list(report["failed"])) == (1, ["lost"])
    assert in_checkpoint(tmp_path / "there")["fresh"][0] == 3
    with pytest.raises(td.FileError, match="values-"):
        s.lookup("lost").numpy()


def test_a_failed_value_of_a_directory_that_is_gone_harms_no_other_name(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    a, b = s.asarray(ones(2)), s.asarray(ones(2), device="sim:0")
    s.publish({"a": a, "b": b})
    s.checkpoint(tmp_path / "there").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="add"))
    b += 1
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(td.FileError, match="take the checkpoint again"):
        s.checkpoint(tmp_path / "there").wait(WAIT)
    assert list(s.checkpoint(tmp_path / "there").wait(WAIT)["failed"]) == ["b"]
    assert list(in_checkpoint(tmp_path / "there")) == ["a"]


def test_restoring_again_and_again_keeps_no_directory_open(make_session, tmp_path):
    s = make_session(devices=DEVICES)
    s.publish("x", s.asarray(ones(3)))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            s.restore(tmp_path / "there")
        opened = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    finally:
        gc.enable()
    assert opened.count(str(tmp_path / "there")) == 1


def test_nobody_pays_for_what_was_restored(make_session, tmp_path):
    s = make_session("local:payers", devices=DEVICES)
    other = make_session("local:payers", devices=DEVICES)
    s.publish("x", s.asarray(ones(1000), device="sim:0"))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s.restore(tmp_path / "there")
    assert other.lookup("x").sum().item() == 1000
    s.sync()
    assert [one.stats()["session"]["bytes"] for one in (s, other)] == [0, 0]
