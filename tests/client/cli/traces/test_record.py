"""`tensord trace dump` and `trace record`, on a machine in this process."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest

from tensord.client.cli.traces import recorder as cli_record
from tensord.client.cli.traces.record import Seconds
from tensord.interpreter.errors import ConnectionLost
from tensord.vm.tracing.analysis.trace import Trace

from ....each_case import each_case
from ....full_disk import longest_file


@pytest.fixture
def work(watched, monkeypatch):
    """work(): some instructions, done whenever the recorder would sleep; `work.after` runs after them."""

    class Work:
        def __init__(self) -> None:
            self.rounds = 0
            self.after = lambda: None

        def __call__(self, stop: cli_record.Stop) -> None:
            self.rounds += 1
            for _ in range(5):
                watched.call("add", [watched.keep[0], 1.0])
            watched.sync()
            if self.rounds >= 4:
                self.after()
                stop.asked = True

    made = Work()
    monkeypatch.setattr(cli_record.Stop, "sleep", lambda stop, _: made(stop))
    return made


@pytest.mark.usefixtures("watched")
class TestDump:
    def test_it_saves_what_the_ring_has(self, run, address, tmp_path):
        path = tmp_path / "x.trace"
        code, out, err = run("trace", "dump", "-o", path, "--address", address)
        trace = Trace.load(path)
        assert (code, err) == (0, "")
        assert out.startswith(f"{len(trace)} records in {path}, ")
        assert trace.verify() == []
        assert any("conftest.py" in record.location for record in trace.records)

    def test_for_programs(self, run, address, tmp_path):
        path = tmp_path / "x.trace"
        found = json.loads(run("trace", "dump", "-o", path, "--address", address, "--json")[1])
        assert found == {
            "file": str(path),
            "records": len(Trace.load(path)),
            "lost": 0,
            "bytes": path.stat().st_size,
        }

    def test_a_session_with_what_was_planned_for_it(self, run, watched, address, tmp_path, make_session):
        path = tmp_path / "x.trace"
        other = make_session(address, devices=["cpu:0", "sim:0"])
        other.asarray(np.ones(3), device="sim:0").numpy()
        number = watched.stats()["session"]["id"]
        assert run("trace", "dump", "-o", path, "--address", address, "--session", number)[0] == 0
        trace, whole = Trace.load(path), watched.trace()
        assert {record.caused_by for record in trace.records} == {number}
        assert {record.session for record in trace.records} == {number, 0}
        assert trace.before > 0
        assert [record.id for record in trace.records] == [r.id for r in whole.records if r.caused_by == number]
        assert trace.verify() == []

    def test_since_an_instruction(self, run, watched, address, tmp_path):
        path = tmp_path / "x.trace"
        first = watched.trace().records[2].id
        for text in (str(first), f"#{first}"):
            assert run("trace", "dump", "-o", path, "--address", address, "--since", text)[0] == 0
            trace = Trace.load(path)
            assert trace.records[0].id == first
            assert (trace.before, trace.dropped) == (2, 0)
            assert trace.verify() == []

    def test_since_a_time(self, run, watched, address, tmp_path):
        path = tmp_path / "x.trace"
        for text, count in (("1h", len(watched.trace())), ("0ms", 0)):
            assert run("trace", "dump", "-o", path, "--address", address, "--since", text)[0] == 0
            assert len(Trace.load(path)) == count

    @pytest.mark.parametrize(
        ("more", "code", "said"),
        [
            (("--since", "yesterday"), 2, "'yesterday' is neither a time like 10s, 500ms or 2min, nor the id"),
            (("--since", "1.5"), 2, "'1.5' is neither a time"),
            (("--since", "1000000"), 1, "the trace has no instruction #1000000: it holds"),
            (("--session", "77"), 1, "the trace has no session 77: it has"),
        ],
    )
    def test_what_there_is_not_is_one_line_and_writes_nothing(self, run, address, tmp_path, more, code, said):
        found, out, err = run("trace", "dump", "-o", tmp_path / "x.trace", "--address", address, *more)
        assert (found in {1, code}, out) == (True, "")
        assert said in err
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_is_one_line_and_leaves_nothing(self, run, address, tmp_path):
        with longest_file(500):
            code, out, err = run("trace", "dump", "-o", tmp_path / "x.trace", "--address", address)
            assert (code, out) == (1, "")
            assert err == f"tensord: {tmp_path / 'x.trace'}: File too large. Make room.\n"
            assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
    def test_dev_full(self, run, address):
        code, out, err = run("trace", "dump", "-o", "/dev/full", "--address", address)
        assert (code, out) == (1, "")
        assert err == "tensord: /dev/full: No space left on device. Make room.\n"


@pytest.mark.usefixtures("watched")
class TestEveryCommandOnADaemon:
    @each_case("command", [["verify"], ["dag"], ["timeline"], ["show"], ["why", "1"]])
    def test_without_a_file_it_is_about_the_daemon(self, run, address, command):
        code, out, err = run("trace", *command, "--address", address)
        assert (code, err) == (0, "")
        assert out

    def test_for_programs_there_is_no_file(self, run, address):
        found = json.loads(run("trace", "verify", "--address", address, "--json")[1])
        assert "file" not in found
        assert found["problems"] == []


@pytest.mark.usefixtures("watched")
class TestRecord:
    @pytest.mark.usefixtures("work")
    def test_it_records_what_happens_from_then_on(self, run, watched, address, tmp_path):
        path = tmp_path / "x.trace"
        before = {record.id for record in watched.trace().records}
        code, out, err = run("trace", "record", "-o", path, "--address", address)
        trace = Trace.load(path)
        assert (code, err) == (0, "")
        assert out.startswith(f"{len(trace)} records in {path}, ")
        assert "lost" not in out
        assert before.isdisjoint(record.id for record in trace.records)
        assert sum(record.op == "add" for record in trace.records) == 20
        assert (trace.dropped, trace.before) == (0, len(before))
        assert trace.verify() == []

    @pytest.mark.usefixtures("work")
    def test_more_than_the_ring_holds(self, run, watched, address, tmp_path, machine_of):
        from collections import deque

        ring = machine_of(watched).engine.ring
        ring.entries = deque(maxlen=16)  # a round has at least 10 records: the file gets more than the ring ever had
        ring.append = ring.entries.append
        path = tmp_path / "x.trace"
        found = json.loads(run("trace", "record", "-o", path, "--address", address, "--json")[1])
        trace = Trace.load(path)
        assert found["records"] == len(trace) > 16
        assert trace.verify() == []

    @pytest.mark.usefixtures("work")
    def test_what_is_lost_is_counted_and_excused(self, run, watched, address, tmp_path, machine_of):
        from collections import deque

        ring = machine_of(watched).engine.ring
        ring.entries = deque(maxlen=4)
        ring.append = ring.entries.append
        path = tmp_path / "x.trace"
        code, out, _ = run("trace", "record", "-o", path, "--address", address)
        trace = Trace.load(path)
        assert code == 0
        assert " lost" in out
        assert trace.base_tick > 0
        assert trace.verify() == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_signals_end_it_with_a_whole_file(self, run, address, tmp_path, number, monkeypatch):
        monkeypatch.setattr(time, "sleep", lambda _seconds: os.kill(os.getpid(), number))
        before = signal.getsignal(number)
        path = tmp_path / "x.trace"
        code, out, err = run("trace", "record", "-o", path, "--address", address)
        assert (code, err) == (0, "")
        assert "records in" in out
        Trace.load(path)
        assert signal.getsignal(number) is before

    def test_it_ends_when_its_time_is_over(self, run, address, tmp_path):
        code, _, _ = run("trace", "record", "-o", tmp_path / "x.trace", "--for", "10ms", "--address", address)
        assert code == 0

    def test_a_daemon_that_dies_leaves_a_whole_file_and_one_line(self, run, work, address, tmp_path, monkeypatch):
        def die() -> None:
            def lost(*_: object, **__: object) -> None:
                raise ConnectionLost("the daemon is gone")

            monkeypatch.setattr(cli_record.TraceRecorder, "ask", lost)

        work.after = die
        path = tmp_path / "x.trace"
        code, out, err = run("trace", "record", "-o", path, "--address", address)
        assert (code, out) == (1, "")
        assert err.startswith("tensord: the recording ended early: the daemon is gone. ")
        assert f"holds the {len(Trace.load(path))} records before that" in err

    @pytest.mark.usefixtures("work")
    def test_a_full_disk_leaves_a_whole_file_and_one_line(self, run, address, tmp_path):
        with longest_file(4_000):
            path = tmp_path / "x.trace"
            code, out, err = run("trace", "record", "-o", path, "--address", address)
            assert (code, out) == (1, "")
            assert "ended early: File too large" in err
            assert err.count("\n") == 1
            assert Trace.load(path).verify() == []

    @pytest.mark.usefixtures("work")
    def test_no_room_at_all_is_one_line_and_no_file(self, run, address, tmp_path):
        with longest_file(50):
            code, out, err = run("trace", "record", "-o", tmp_path / "x.trace", "--address", address, "--json")
            assert (code, err) == (1, "")
            assert "File too large" in json.loads(out)["error"]
            assert list(tmp_path.iterdir()) == []

    @pytest.mark.usefixtures("work")
    def test_the_progress_is_told_and_taken_away(self, run, address, tmp_path, monkeypatch):
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        _, _, err = run("trace", "record", "-o", tmp_path / "x.trace", "--address", address)
        assert "Ctrl-C ends it" in err
        assert err.endswith("\r\x1b[2K")

    @pytest.mark.parametrize("path", ["/dev/full", "/dev/null"])
    def test_what_is_no_regular_file_is_refused(self, run, address, path):
        code, _, err = run("trace", "record", "-o", path, "--address", address)
        assert code == 1
        assert f"{path} is not a regular file" in err

    def test_a_machine_without_tracing_is_refused(self, run, make_session, address, tmp_path):
        make_session(f"{address}-dark", tracing=False)
        code, _, err = run("trace", "record", "-o", tmp_path / "x", "--address", f"{address}-dark")
        assert code == 1
        assert "this daemon does not trace" in err

    @each_case(("text", "seconds"), [("10s", 10), ("500ms", 0.5), ("2min", 120), ("2 m", 120), ("1h", 3600), ("3", 3)])
    def test_durations(self, text, seconds):
        assert Seconds().convert(text, None, None) == seconds

    @each_case("text", ["", "s", "-1s", "ten", "1d", "1e9"])
    def test_what_is_no_duration_is_wrong_usage(self, run, text):
        code, _, err = run("trace", "record", "-o", "x", "--for", text)
        assert code == 2
        assert "is not a duration" in err


@pytest.mark.usefixtures("work")
class TestRoutines:
    def test_a_recording_has_the_programs_of_routines_that_ran_before_and_the_times_it_asks_for(
        self, run, watched, work, address, tmp_path
    ):
        path = tmp_path / "x.trace"
        before, during = watched.routine(lambda x: (x + 1) * 2), watched.routine(lambda x: (x - 1) * 3)
        x = watched.keep[0]
        for _ in range(3):
            before(x)
        watched.sync()
        work.after = lambda: [each(x) for each in (before, during, during, during)] and watched.sync()
        code, _, err = run("trace", "record", "-o", path, "--address", address, "--detail=2", "--for", "1min")
        assert (code, err) == (0, "")
        trace = Trace.load(path)
        parts = [record for record in trace.records if record.part]
        digests = {trace.routines[record.part.routine].digest for record in parts if record.part}
        assert digests == {each.program(x).digest for each in (before, during)}
        assert sorted(len(record.stamps) for record in parts) == [0, 0, 4]
        assert any(trace.run_of(record) for record in trace.records if not record.part)
        assert trace.verify() == []
        newest = trace.records[-1].id
        for _ in range(4):
            before(x)
        watched.sync()
        later = [record for record in watched.trace().records if record.part and record.id > newest]
        assert [len(record.stamps) for record in later] == [0] * 4  # the recording is over
