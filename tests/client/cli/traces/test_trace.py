from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tensord.client.cli.drawing import terminal
from tensord.client.cli.main import main
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import MetaRecord

from ....each_case import each_case
from ....vm.tracing.analysis.trace_programs import random_trace, record


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.trace"
    random_trace(3).save(path)
    return path


@pytest.fixture
def bad(tmp_path):
    """#2 reads the output of #1, and has no edge."""
    path = tmp_path / "bad.trace"
    Trace([record(1, (7, "mut"), op="[red]"), record(2, (7, "const"), location="a\x1b[31m.py:1 in f")]).save(path)
    return path


class TestRoot:
    def test_no_arguments_show_help(self, run):
        code, out, err = run()
        assert (code, err) == (0, "")
        assert "Usage: tensord" in out
        assert "trace" in out

    def test_version(self, run):
        assert run("--version") == (0, f"tensord {version('tensord')}\n", "")

    def test_a_group_without_command_shows_its_help(self, run):
        code, out, _ = run("trace")
        assert code == 0
        assert all(command in out for command in ("verify", "dag", "timeline", "why", "show"))

    @each_case("arguments", [["nonsense"], ["--nonsense"], ["trace", "why", "x"], ["trace", "dag", "--format", "gif"]])
    def test_wrong_usage_is_one_line(self, run, arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("tensord: ")
        assert err.endswith("Try --help.\n")
        assert err.count("\n") == 1

    def test_wrong_usage_says_nothing_twice(self, run):
        _, _, err = run("trace", "dag", "x", "--format", "gif")
        assert err.startswith("tensord: Invalid value for '--format': 'gif' is not one of ")
        _, _, err = run("trace", "why", "y", "x")
        assert err == "tensord: Invalid value for 'ID': 'y' is not a valid integer. Try --help.\n"

    def test_an_internal_error_is_one_line_unless_debugging(self, run, good, monkeypatch):
        monkeypatch.setattr(Trace, "verify", lambda _: 1 / 0)
        monkeypatch.delenv("TENSORD_DEBUG", raising=False)
        code, _, err = run("trace", "verify", good)
        assert code == 1
        assert err.startswith("tensord: internal error, ZeroDivisionError: division by zero.")
        monkeypatch.setenv("TENSORD_DEBUG", "1")
        with pytest.raises(ZeroDivisionError):
            main(["trace", "verify", str(good)])

    def test_a_reader_that_leaves_early_is_no_error(self, tmp_path):
        path = tmp_path / "long.trace"
        random_trace(1, steps=2_000).save(path)
        program = "from tensord.client.cli.main import main; main()"
        command = [sys.executable, "-c", program, "trace", "timeline", str(path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:  # noqa: S603 - our own interpreter
            assert process.stdout
            assert process.stderr
            assert process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""


class TestErrors:
    def test_a_missing_file(self, run, tmp_path):
        code, out, err = run("trace", "verify", tmp_path / "none")
        assert (code, out) == (1, "")
        assert err == f"tensord: {tmp_path / 'none'}: No such file or directory. Check the path and its permissions.\n"

    @each_case("command", [["verify"], ["dag"], ["timeline"], ["show"], ["why", "1"]])
    def test_a_damaged_file(self, run, good, command):
        good.write_bytes(good.read_bytes()[:-10])
        code, out, err = run("trace", *command, good)
        assert (code, out) == (1, "")
        assert "the file ends here, it was cut short" in err
        assert err.count("\n") == 1

    @each_case("command", [["verify"], ["show"], ["why", "1"]])
    def test_a_damaged_file_for_programs(self, run, good, command):
        good.write_bytes(good.read_bytes()[:-10])
        code, out, err = run("trace", *command, good, "--json")
        assert (code, err) == (1, "")
        parsed = json.loads(out)
        assert parsed["file"] == str(good)
        assert "the file ends here, it was cut short" in parsed["error"]

    def test_a_missing_file_for_programs(self, run, tmp_path):
        _, out, _ = run("trace", "verify", tmp_path / "none", "--json")
        assert json.loads(out)["error"] == "No such file or directory"

    def test_an_unknown_instruction(self, run, good):
        code, _, err = run("trace", "why", 9999, good)
        assert code == 1
        assert "no instruction #9999: it holds" in err

    def test_wrong_usage_and_unknown_instructions_for_programs(self, run, good):
        wrong = ((["why", 9999, good], 1), (["dag", good, "--first", 1, "--last", 1], 2), (["nonsense"], 2))
        for arguments, status in wrong:
            code, out, err = run("trace", *arguments, "--json")
            assert (code, err) == (status, "")
            assert set(json.loads(out)) == {"error"}

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_a_full_disk_is_one_line(self, run, good):
        code, out, err = run("trace", "dag", good, "-o", "/dev/full")
        assert (code, out) == (1, "")
        assert err == "tensord: /dev/full: No space left on device. Make room.\n"

    def test_an_output_that_cannot_be_written(self, run, good, tmp_path):
        code, _, err = run("trace", "dag", good, "-o", tmp_path / "no" / "x.dot")
        assert code == 1
        assert "No such file or directory" in err


class TestVerify:
    def test_a_good_trace(self, run, good):
        code, out, _ = run("trace", "verify", good)
        assert code == 0
        assert "every edge is correct" in out

    def test_a_bad_trace_exits_with_1(self, run, bad):
        code, out, _ = run("trace", "verify", bad)
        assert code == 1
        assert "1 problem" in out
        assert "the RAW edge to #1 about copy 7 should be there" in out

    def test_the_summary_counts_edges_and_dependences_met(self, run, tmp_path):
        path = tmp_path / "met.trace"
        done, reader = record(1, (7, "mut"), ticks=(1, 2)), record(2, (7, "const"), (8, "mut"), ticks=(3, 0))
        Trace([done, reader, record(3, (8, "const"), edges=[(2, "RAW", 8)])], dropped=4).save(path)
        _, out, _ = run("trace", "verify", path)
        assert out == (
            "every edge is correct\n"
            "3 records (4 older ones lost), 1 edge waited or elided, 1 dependence met at admission\n"
        )
        parsed = json.loads(run("trace", "verify", path, "--json")[1])
        assert (parsed["edges"], parsed["met"], parsed["dropped"]) == (1, 1, 4)
        assert "base_tick" not in parsed

    def test_json(self, run, bad, good):
        code, out, _ = run("trace", "verify", bad, "--json")
        parsed = json.loads(out)
        assert (code, parsed["records"], parsed["edges"]) == (1, 2, 0)
        (problem,) = parsed["problems"]
        assert (problem["kind"], problem["instruction"], problem["source"]) == ("missing edge", 2, 1)
        assert json.loads(run("trace", "verify", good, "--json")[1])["problems"] == []


class TestPictures:
    @each_case(("name", "start"), [("dot", "digraph"), ("mermaid", "flowchart"), ("json", "{")])
    def test_dag(self, run, good, name, start):
        code, out, err = run("trace", "dag", good, "--format", name)
        assert (code, err) == (0, "")
        assert out.startswith(start)

    def test_dag_into_a_file_with_limits(self, run, good, tmp_path):
        output = tmp_path / "x.json"
        arguments = ("--around", 5, "--depth", 1, "--session", 1, "--releases", "--last", 3)
        code, out, _ = run("trace", "dag", good, "--format", "json", "-o", output, *arguments)
        assert (code, out) == (0, "")
        assert len(json.loads(output.read_text())["nodes"]) <= 3

    def test_an_empty_picture_says_so(self, run, good):
        code, out, err = run("trace", "dag", good, "--op", "nope")
        assert (code, out[:7], err) == (0, "digraph", "tensord: no records match --op nope\n")

    def test_a_crowded_picture_comes_with_a_hint(self, run, tmp_path):
        path = tmp_path / "crowded.trace"
        Trace([record(number) for number in range(1, 550)]).save(path)
        code, _, err = run("trace", "dag", path)
        assert code == 0
        assert "549 nodes are hard to draw" in err
        assert "--around ID" in err
        assert run("trace", "dag", path, "--last", 400)[2] == ""

    def test_the_legend_can_be_left_out(self, run, good):
        assert "dashed: elided" in run("trace", "dag", good)[1]
        assert "dashed: elided" not in run("trace", "dag", good, "--no-legend")[1]

    def test_first_and_last_exclude_each_other(self, run, good):
        code, out, err = run("trace", "dag", good, "--first", 1, "--last", 1)
        assert (code, out) == (2, "")
        assert "--first and --last exclude each other" in err

    @pytest.mark.parametrize("command", ["dag", "show"])
    def test_an_unknown_session(self, run, good, command):
        code, out, err = run("trace", command, good, "--session", 9)
        assert (code, out) == (1, "")
        assert "the trace has no session 9: it has 1, 2" in err

    def test_timeline(self, run, good):
        code, out, _ = run("trace", "timeline", good)
        assert code == 0
        assert json.loads(out)["traceEvents"]

    def test_a_timeline_is_a_page_by_its_name_or_on_request(self, run, good, tmp_path):
        for arguments in (("-o", str(tmp_path / "run.html")), ("--format", "html", "-o", str(tmp_path / "page"))):
            assert run("trace", "timeline", good, *arguments)[0] == 0
            assert (tmp_path / Path(arguments[-1]).name).read_text().startswith("<!DOCTYPE html>")
        code, out, _ = run("trace", "timeline", good, "--format", "html", "--op", "nothing")
        assert (code, out.partition("\n")[0]) == (0, "<!DOCTYPE html>")
        run("trace", "timeline", good, "--format", "chrome", "-o", str(tmp_path / "page.html"))
        assert json.loads((tmp_path / "page.html").read_text())["traceEvents"]

    def test_a_timeline_in_a_file_is_reported_as_a_dump_is(self, run, good, tmp_path):
        path = tmp_path / "run.json"
        code, out, err = run("trace", "timeline", good, "-o", path)
        records = len(Trace.load(good))
        assert (code, err) == (0, "")
        assert out.startswith(f"{records} records in {path}, ")
        found = json.loads(run("trace", "timeline", good, "-o", path, "--json")[1])
        assert found == {"file": str(path), "records": records, "lost": 0, "bytes": path.stat().st_size}


class TestWhyAndShow:
    def test_why(self, run, good):
        code, out, _ = run("trace", "why", 20, good)
        assert code == 0
        assert out.startswith("#20 ")
        assert "critical path, " in out

    def test_why_names_the_span(self, run, tmp_path):
        path = tmp_path / "x.trace"
        Trace([record(1, started=5, finished=6, received=1, ready=2, ticks=(1, 2), span=("epoch 1", "step 2"))]).save(
            path
        )
        assert "in the span epoch 1/step 2" in run("trace", "why", 1, path)[1]
        assert json.loads(run("trace", "why", 1, path, "--json")[1])["story"]["span"] == ["epoch 1", "step 2"]

    def test_why_as_json(self, run, good):
        assert json.loads(run("trace", "why", 20, good, "--json")[1])["story"]["id"] == 20

    def test_show_obeys_neither_markup_nor_control_characters(self, run, bad):
        code, out, _ = run("trace", "show", bad)
        assert code == 0
        assert "[red]" in out
        assert "\x1b" not in out

    def test_show_lists_the_last(self, run, good):
        out = run("trace", "show", good, "--limit", 3, "--json")[1]
        assert len(json.loads(out)["shown"]) == 3
        assert "3 of " in run("trace", "show", good, "--limit", 3)[1]
        parsed = json.loads(run("trace", "show", good, "--limit", 0, "--json")[1])
        assert len(parsed["shown"]) == parsed["records"]

    def test_show_selects_by_id_and_neighbourhood(self, run, good):
        parsed = json.loads(run("trace", "show", good, "--id", 5, "--id", 7, "--json")[1])
        assert [one["id"] for one in parsed["shown"]] == [5, 7]
        near = json.loads(run("trace", "show", good, "--around", 5, "--depth", 1, "--json")[1])
        assert 5 in [one["id"] for one in near["shown"]]
        assert len(near["shown"]) < near["records"]
        assert "no instruction #9999" in run("trace", "show", good, "--id", 9999)[2]

    def test_show_says_what_runs_and_who_stands_behind_it(self, run, tmp_path):
        path = tmp_path / "hung.trace"
        live: dict[str, Any] = {"status": "DISPATCHED", "stream": "cpu:0/compute0", "received": 5, "ready": 5}
        Trace([record(1, started=1_000, **live), record(2, **live)], taken=3_000_001_000).save(path)
        out = run("trace", "show", path)[1]
        assert "RUNNING" in out
        assert "for 3 s" in out
        assert "behind #1" in out


class TestShowOnATerminal:
    @pytest.fixture
    def show(self, run, tmp_path, monkeypatch):
        def show(width: int, *records, **options) -> str:
            path = tmp_path / "x.trace"
            Trace(records, **options).save(path)
            monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
            return run("trace", "show", path)[1]

        return show

    @pytest.fixture
    def records(self):
        times = {"received": 1_000, "ready": 12_400, "started": 1_000_000, "finished": 123_400_000}
        fields = {
            "device": "sim:0",
            "stream": "sim:0/compute0",
            "op": "multiply",
            "location": "/a/b/c/train.py:12 in f",
        }
        edges = [(number, "RAW", 7) for number in range(1, 5)]
        return [record(1_000 + n, edges=edges, ticks=(n, n + 100), **(times | fields)) for n in range(1, 4)]

    @each_case("width", [60, 80, 100, 240])
    def test_op_status_and_where_are_never_broken(self, show, records, width):
        lines = show(width, *records).splitlines()
        rows = [line for line in lines if line.startswith(" 100")]
        assert len(rows) == 3
        assert all("multiply" in row and "DONE" in row and "sim:0/compute0" in row for row in rows)
        assert max(map(len, lines)) <= width

    def test_columns_that_say_nothing_are_left_out(self, show, records):
        head = show(240, *records).splitlines()[1].split()
        assert not {"session", "bytes", "error"} & set(head)
        assert "location" in head
        assert "session" in show(240, records[0], records[1]._replace(session=0, caused_by=2)).splitlines()[1]
        assert "bytes" in show(240, records[0]._replace(nbytes=5)).splitlines()[1]

    def test_the_location_is_left_out_before_anything_is_cut(self, show, records):
        assert "train.py:12 in f" in show(120, *records)
        assert "location" not in show(80, *records)

    def test_a_transfer_on_the_driving_thread_names_one_device(self, show):
        moved = record(1, opcode="Transfer", op="d2h sim:0->cpu:0", device="sim:0", stream="cpu:0/control")
        text = show(240, moved)
        assert " cpu:0/control" in text
        assert "sim:0/cpu:0" not in text

    def test_an_empty_trace_is_told_in_words(self, show):
        assert show(120) == "no records\n"

    @pytest.mark.parametrize("width", [160, 240])
    def test_words_stay_whole_however_long_other_columns_are(self, show, records, width):
        """A location of four frames took all the room; the shapes beside it were broken inside their words."""
        frames = [f"sklearn/utils/_a_rather_long_name.py:{n} in some_function_of_it" for n in (846, 12, 7, 3)]
        metas = (MetaRecord((4096, 4096), "complex128"), MetaRecord((4096,), "float32"))
        lines = show(width, *(one._replace(location=" <- ".join(frames), inputs=metas) for one in records)).splitlines()
        assert max(map(len, lines)) <= width
        assert any("sklearn/utils/_a_rather_long_name.py:846" in line for line in lines)
        assert all(any(word in line.split() for line in lines) for word in ("complex128", "float32", "(4096,"))

    def test_the_span_is_shown_where_there_is_room(self, show, records):
        assert "epoch 1/step 2" in show(240, records[0]._replace(span=("epoch 1", "step 2")))
        assert "span" not in show(80, records[0]._replace(span=("epoch 1", "step 2")))
