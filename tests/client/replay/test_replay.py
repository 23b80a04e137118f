"""Recordings that run again on other devices and engines, with the same bits."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

import tensord as td
from tensord.client.recording.recorder import ValueRecorder
from tensord.client.replay.sides import spec_of
from tensord.interpreter.errors import MetadataError, ProtocolError
from tensord.interpreter.recordings.chunks import head_line, pack
from tensord.interpreter.recordings.entries import BEGIN, MESSAGE
from tensord.interpreter.recordings.reader import RecordingReader
from tensord.interpreter.schema import opdef
from tensord.interpreter.wire.codec import Encoder
from tensord.interpreter.wire.message_kinds import CALL, FETCH, FILE, LINK, PROGRAM, RUN, SIGNATURE, UPLOAD

from ...model.clients import Clients
from ...model.ops import failing_ops
from ...model.programs import prepared

ELSEWHERE = ("sim:0,sim:1,sim:2", "serial")


@pytest.mark.parametrize("seed", [7, 145, 157, 195, 261])
def test_random_programs_give_the_same_bits_on_other_devices_and_engines(seed, tmp_path, played):
    """With control flow, in-place writes, failing ops, several sessions, and routines."""
    with failing_ops(), np.errstate(all="ignore"):
        program, expected = prepared(seed, honest=True)
        address = f"local:recorded-{seed}"
        clients = Clients(program, address, td.connect, expected)
        with td.connect(address) as session:
            with ValueRecorder(session._core.answers.query, tmp_path / "x.rec") as recorder:
                assert clients.run(program) == []
            assert recorder.lost == 0
        for sides in (("vm", "serial"), ELSEWHERE):
            player = played(*sides)
            assert player.findings == []
            assert player.compared > 0


def work(session):
    """Uploads, ops on two devices, writes in place, random numbers, a routine, views, a pending shape."""
    x = session.asarray(np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4))
    w = session.asarray(np.ones((4, 4), np.float32), device="sim:0")
    step = session.routine(lambda a, b: session.xp.tanh(a @ b) * 0.5)
    y = x.to_device("sim:0")
    for _ in range(3):
        y = step(y, w)
        w += 0.25
    noise = session.random.normal((3, 4), dtype="float32")
    mask = session.xp.nonzero(noise > 0)
    return [y.numpy(), w.T.numpy(), noise.numpy(), (noise + x).sum().numpy(), mask[0].numpy()]


@pytest.mark.parametrize("sides", [("vm", "serial"), ELSEWHERE, ("serial=cpu:0", "cpu:0"), ("sim:0",)])
def test_every_result_and_every_fetched_value_is_compared(sim_session, recorded, played, sides):
    with recorded(sim_session):
        work(sim_session)
    player = played(*sides)
    assert (player.findings, player.fetched, player.unknown) == ([], 5, 0)
    assert (player.compared > 10) is (len(sides) > 1)


def test_a_recording_may_begin_in_the_middle(sim_session, recorded, played):
    """Tensors, lines, chains, signatures and routines from before the recording have lost the order of their ids."""
    session = sim_session
    double = session.routine(lambda a: a * 2 + 1)
    early = session.asarray([1.0, 2.0])
    session.print("before", early)
    late = double(double(early))
    again = late + 1
    third = session.asarray([9.0], device="sim:1")
    del early
    with recorded(session):
        results = [double(late).tolist(), (again + 1).tolist(), (third * 2).tolist()]
    assert results == [[15, 23], [9, 13], [18]]
    player = played("vm", "serial")
    assert (player.findings, player.fetched) == ([], 3)


def test_what_was_looked_up_and_what_host_calls_have_returned_is_replayed_without_them(make_session, recorded, played):
    here, there = (make_session("local:replay-lookup", devices=["cpu:0", "sim:0"]) for _ in range(2))
    there.publish("weights", there.asarray([4.0, 5.0], device="sim:0"))
    with recorded(here):
        weights = here.lookup("weights")
        called = here.host_call(lambda x: x.astype(np.float64) * 3, weights, result=((2,), "float64"))
        assert (called + weights).tolist() == [16, 20]
    player = played("vm", "serial")
    assert (player.findings, player.fetched) == ([], 1)


def test_a_difference_from_what_was_recorded_is_found(session, recorded, played, monkeypatch):
    with recorded(session):
        x = session.asarray([4.0, 9.0])
        session.xp.sqrt(x).numpy()
    monkeypatch.setitem(opdef.REGISTRY, "sqrt", replace(opdef.REGISTRY["sqrt"], ufunc="square"))
    player = played("vm")
    (found,) = player.findings
    assert (found.op, found.against, found.difference.elements) == ("fetch", "what was recorded", 2)
    assert "16.0 and 2.0" in found.difference.text or "81.0 and 3.0" in found.difference.text
    assert "test_replay.py" in found.line


def test_an_error_that_was_recorded_is_one_again(session, recorded, played):
    with recorded(session):
        x = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
        with pytest.raises(td.KernelError):
            x.numpy()
    player = played("vm", "serial")
    assert (player.findings, player.fetched) == ([], 1)


def test_values_that_are_left_out_are_not_in_the_file_and_others_take_their_place(session, recorded, played, tmp_path):
    secret, weights = np.full(5, 123.456), np.full(5, 654.321)
    with recorded(session, without=["weights/*", "test_replay.py:*"]):
        x = session.asarray(secret)
        y = x + 1
    body = (tmp_path / "x.rec").read_bytes()
    assert secret.tobytes() not in body
    with recorded(session, without=["weights/*"]):
        w = session.asarray(weights)
        z = session.asarray([2.0])
        session.publish("weights/0", w)
        w.numpy()
        (w + y).numpy()
        z.numpy()
    session.unpublish("weights/0")
    body = (tmp_path / "x.rec").read_bytes()
    assert weights.tobytes() not in body
    assert struct.pack("<d", 2.0) in body
    player = played("vm", "serial")
    assert (player.findings, player.fetched, player.unknown) == ([], 1, 2)
    assert set(player.reader.lost.values()) == {"left out (--without)"}


def test_devices_are_mapped_by_name_by_order_or_as_given(sim_session, recorded, played):
    with recorded(sim_session):
        sim_session.asarray([1.0], device="sim:1") + 1
    for sides, given, wanted in (
        ("vm", {}, "sim:1"),
        ("cpu:0,sim:4", {}, "cpu:0"),
        ("sim:7,sim:8,sim:9", {}, "sim:9"),
        ("vm", {"sim:1": "cpu:0"}, "cpu:0"),
    ):
        with RecordingReader(played("vm").reader.path) as reader:
            from tensord.client.replay.bisect import opened_sides

            with opened_sides(reader, [spec_of(sides)], given) as (side,):
                assert side.device("sim:1") == wanted


@pytest.mark.parametrize(
    ("mapping", "said"), [({"gpu:0": "cpu:0"}, "the recording has no device"), ({"cpu:0": "sim:9"}, "has no device")]
)
def test_a_device_that_is_not_there_is_named(session, recorded, played, mapping, said):
    with recorded(session):
        session.asarray([1.0])
    with pytest.raises(MetadataError, match=said):
        played("vm", mapping=mapping)


@pytest.mark.parametrize("text", ["", "cpu", "vm=", "engine=cpu:0", "cpu:0,sim"])
def test_what_is_no_machine_is_refused(text):
    with pytest.raises(MetadataError, match="is not a machine"):
        spec_of(text)


def test_a_node_is_replayed_on_a_machine_on_its_own(make_session, recorded, played):
    session = make_session(devices=["cpu:0", "sim:0"], node="node0")
    with recorded(session):
        x = session.asarray([1.0, 2.0], device="node0/sim:0")
        (x.to_device("node0/cpu:0") + 1).numpy()
    for sides in (("vm", "serial"), ("sim:3", "cpu:0")):
        player = played(*sides)
        assert (player.findings, player.fetched) == ([], 1)


def test_at_the_recorded_speed_a_step_waits_for_its_time(session, recorded, played, monkeypatch):
    with recorded(session):
        for _ in range(3):
            session.asarray([1.0]).numpy()
    slept: list[float] = []
    monkeypatch.setattr("tensord.client.replay.player.time.sleep", slept.append)
    assert played("vm", paced=True).fetched == 3
    assert slept
    assert all(0 < each < 10 for each in slept)


class TestHostile:
    """Recordings from an untrusted source: the replay checks their entries, and then the machine does."""

    def written(self, path, *messages, values=()):
        encode = Encoder().encode
        entries = [(BEGIN, 1, "x", False, 0), *((MESSAGE, 1, 0, message, values) for message in messages)]
        path.write_bytes(head_line({"devices": ["cpu:0"]}) + b"".join(pack(encode(entry)) for entry in entries))

    def test_an_op_that_this_version_lacks_is_named_with_its_line(self, tmp_path, played):
        self.written(tmp_path / "x.rec", (9, 1, "train.py:7 in f"), (SIGNATURE, 1, "warp", (), (), "cpu:0", None))
        with pytest.raises(MetadataError, match=r"x\.rec: this version of tensord has no op 'warp' \(near train.py:7"):
            played("vm")

    @pytest.mark.parametrize(
        "message",
        [
            (99,),
            (),
            (CALL, 5, (1,), (2,), 0, 0),
            (CALL, 1, (1, 2, 3), (2,), 0, 0),
            (CALL, 1, (1,), (), 1 << 63, 0),
            (CALL, 1, (50, 50), (), 0, 0),
            (CALL, 1, (50, 50), (60, 61), 0, 0),
            (RUN, 7, (1,), (), (3,), (), 0),
            (LINK, 5, 4, ("cpu:0",), (1,), 0, "", ("all",)),
            (LINK, 5, 4, ("nowhere:3",), (), 0, "x" * 100, ("some",)),
            (PROGRAM, 4, (("no", "record"), 7, None)),
            (UPLOAD, 59, (1 << 40,), "float32", "cpu:0", None, 0),
            (UPLOAD, 59, (2,), "float31", "cpu:0", None, 0),
            (FETCH, 77, 3, 0, 0),
            (FILE, 1, ("/etc/passwd", False), 3, False),
            (SIGNATURE, 2, "add", (("x", (1,)),), ((1 << 62,) * 3, "zz"), "cpu:0", None),
            (SIGNATURE, 2, "add", (), (((1 << 62, 1 << 62), "float32"),) * 2, "cpu:0", None),
            (SIGNATURE, 2, "sum", 7, (), "cpu:0", None),
            (15, ((15, ()), (0,), "x")),
        ],
    )
    @pytest.mark.parametrize("sides", [("vm",), ("vm", "serial")])
    def test_a_damaged_message_harms_nothing(self, tmp_path, played, message, sides):
        add = (SIGNATURE, 1, "add", (), (((2,), "float64"), ((2,), "float64")), "cpu:0", None)
        known = (UPLOAD, 50, (2,), "float64", "cpu:0", None, 0)
        self.written(
            tmp_path / "x.rec", (CALL, 1, (8, 8), (9,), 0, 0), add, known, message, (CALL, 1, (50, 50), (70,), 0, 0)
        )
        try:
            assert played(*sides).findings == []
        except (MetadataError, ProtocolError, MemoryError) as error:
            assert str(error)  # noqa: PT017

    def test_messages_of_a_session_that_never_began_are_left_out(self, tmp_path, played):
        encode = Encoder().encode
        entry = encode((MESSAGE, 5, 0, (UPLOAD, 9, (2,), "float64", "cpu:0", None, 0), ()))
        (tmp_path / "x.rec").write_bytes(head_line({"devices": ["cpu:0"]}) + pack(entry))
        assert played("vm", "serial").steps == 0
