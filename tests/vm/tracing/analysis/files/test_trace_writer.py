"""A file that is written while records come in is complete or absent, however the writing ends."""

from __future__ import annotations

import pytest

from tensord.vm.tracing.analysis.files.trace_file import save
from tensord.vm.tracing.analysis.files.trace_writer import TraceWriter
from tensord.vm.tracing.analysis.trace import Trace

from .....full_disk import longest_file
from ..trace_programs import random_trace, record


def test_records_that_come_in_pieces_are_the_trace(tmp_path):
    trace = random_trace(5)
    path = tmp_path / "x.trace"
    with TraceWriter(path, trace.devices) as recording:
        for start in range(0, len(trace), 7):
            recording.add(trace.records[start : start + 7])
            assert not path.exists()
        recording.finish(Trace([], dropped=3, base_tick=2, taken=9))
    again = Trace.load(path)
    assert again.records == trace.records
    assert (again.devices, again.dropped, again.base_tick, again.taken) == (trace.devices, 3, 2, 9)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.trace"]


def test_two_recordings_into_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "x.trace"
    with TraceWriter(path, ["cpu:0"]) as first, TraceWriter(path, ["cpu:0"]) as second:
        first.add([record(1)])
        second.add([record(2)])
        for recording, number in ((second, 2), (first, 1)):
            recording.finish(Trace([]))
            assert [one.id for one in Trace.load(path).records] == [number]
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_not_finished_leaves_nothing_and_what_was_there_stays(tmp_path):
    path = tmp_path / "x.trace"
    path.write_text("before")
    with TraceWriter(path, ["cpu:0"]) as recording:
        recording.add([record(1)])
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.trace"]


def test_an_interrupted_write_does_not_show(tmp_path):
    path = tmp_path / "x.trace"
    with TraceWriter(path, ["cpu:0"]) as recording:
        recording.add([record(1)])
        recording._file.write(b"x" * 5_000)  # the remains of a write that Ctrl-C broke off
        recording.finish(Trace([]))
    assert [one.id for one in Trace.load(path).records] == [1]


def fill(recording: TraceWriter) -> None:
    for number in range(1, 10_000):
        recording.add([record(number)])


@pytest.mark.parametrize("room", [2_000, 5_000, 40_000, 40_200, 40_400])
def test_a_full_disk_leaves_a_whole_trace_of_what_fits(tmp_path, room):
    path = tmp_path / "x.trace"
    with TraceWriter(path, ["cpu:0"]) as recording, longest_file(room):
        with pytest.raises(OSError, match="File too large"):
            fill(recording)
        kept = recording.records
        recording.finish(Trace([]))
    trace = Trace.load(path)
    assert 0 < len(trace) <= kept
    assert len(trace) + trace.dropped == kept
    assert path.stat().st_size <= room


def test_no_room_at_all_leaves_nothing(tmp_path):
    with longest_file(100):
        with pytest.raises(OSError, match=r"x\.trace"):
            TraceWriter(tmp_path / "x.trace", ["cpu:0"])
        assert list(tmp_path.iterdir()) == []


def test_no_room_for_the_last_line_leaves_nothing(tmp_path):
    with (
        TraceWriter(tmp_path / "x.trace", ["cpu:0"]) as recording,
        longest_file(recording.nbytes),
        pytest.raises(OSError, match=r"x\.trace"),
    ):
        recording.finish(Trace([]))
    assert list(tmp_path.iterdir()) == []


def test_saving_on_a_full_disk_keeps_what_was_there(tmp_path):
    path = tmp_path / "x.trace"
    random_trace(1, steps=20).save(path)
    before = path.read_bytes()
    with longest_file(len(before)):
        with pytest.raises(OSError, match=r"x\.trace"):
            random_trace(2, steps=2_000).save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["x.trace"]


def test_a_device_file_is_written_through():
    with pytest.raises(OSError, match="/dev/full"):
        save(random_trace(1), "/dev/full")
    save(random_trace(1), "/dev/null")


class TestGaps:
    """A writer between two others was lost: no record explains the missing edge from the first to the last."""

    records = (record(1, (7, "mut"), ticks=(1, 20)), record(3, (7, "mut"), edges=[(2, "WAW", 7)], ticks=(5, 22)))

    def test_what_was_admitted_before_the_end_of_a_gap_is_excused(self):
        assert Trace(self.records, dropped=1, base_tick=10).verify() == []
        assert [edge.mark for edge in Trace(self.records, dropped=1, base_tick=10).graph().edges] == []

    def test_without_a_gap_it_is_not(self):
        assert [str(problem.kind) for problem in Trace(self.records, dropped=1).verify()] == ["missing edge"]
        assert len(Trace(self.records, dropped=1).graph().edges) == 1


class TestBefore:
    """An instruction that had finished before the recording began is no loss, and an edge to it is no mistake."""

    records = (record(3, (7, "mut"), edges=[(2, "WAW", 7)], ticks=(5, 22)),)

    def test_an_edge_to_what_was_before_is_excused(self):
        assert Trace(self.records, before=2).verify() == []
        assert [str(problem.kind) for problem in Trace(self.records).verify()] == ["superfluous edge"]

    def test_it_is_kept_in_the_file_and_not_counted_as_lost(self, tmp_path):
        path = tmp_path / "x.trace"
        with TraceWriter(path, ["cpu:0"]) as recording:
            recording.add(self.records)
            recording.finish(Trace([], before=2))
        trace = Trace.load(path)
        assert (trace.dropped, trace.before) == (0, 2)
        assert repr(trace) == "<trace: 1 record, 0 dropped>"
