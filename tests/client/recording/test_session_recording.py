"""`session.record`: a session that records itself, from Python."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import MetadataError, MetadataTypeError
from tensord.interpreter.recordings.reader import RecordingReader


def test_what_is_outside_of_the_block_is_not_in_the_file(session, tmp_path):
    session.asarray([1.0]).numpy()
    with session.record(tmp_path / "x.rec") as recording:
        session.asarray([2.0]).numpy()
    session.asarray([3.0]).numpy()
    assert recording.path == tmp_path / "x.rec"
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert [np.asarray(reader.value(number)).tolist() for number in reader.values] == [[2.0], [2.0]]


def test_a_session_can_be_recorded_again(session, tmp_path):
    for name in ("a.rec", "b.rec"):
        with session.record(tmp_path / name):
            session.asarray([2.0]).numpy()
        with RecordingReader(tmp_path / name) as reader:
            assert reader.counts
            assert len(reader.values) == 2


def test_an_error_in_the_block_leaves_a_whole_recording(session, tmp_path):
    with pytest.raises(td.KernelError), session.record(tmp_path / "x.rec"):
        session.xp.linalg.inv(session.asarray([[0.0]])).wait()
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert reader.counts
        assert len(reader.values) == 1


def test_what_is_still_being_computed_at_the_end_is_waited_for(make_session, tmp_path):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.05}])
    x = session.asarray([1.0], device="sim:0")
    y = x * 2
    with session.record(tmp_path / "x.rec"):
        z = y + 1
    assert z.tolist() == [3.0]
    with RecordingReader(tmp_path / "x.rec") as reader:
        assert sorted(np.asarray(reader.value(number)).tolist() for number in reader.values) == [[1.0], [2.0]]


@pytest.mark.parametrize("without", ["weights", [7]])
def test_patterns_are_a_list_of_texts(session, tmp_path, without):
    with pytest.raises(MetadataTypeError, match="without="):
        session.record(tmp_path / "x.rec", without=without)


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_recorded(session, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/x\.rec"):
        session.record(tmp_path / "nowhere/x.rec")
    with session.record(tmp_path / "x.rec"):
        pass


def test_a_session_records_once_at_a_time(session, tmp_path):
    with session.record(tmp_path / "x.rec"), pytest.raises(MetadataError, match="already recording"):
        session.record(tmp_path / "y.rec")


def test_the_serial_engine_records_nothing(tmp_path):
    with td.connect("local", engine="serial") as session, pytest.raises(td.TensordError, match="record"):
        session.record(tmp_path / "x.rec")
