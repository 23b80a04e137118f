"""`tensord trace stats`, `diff`, `memory`, the pictures of `dag`, and the options that select records."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from tensord.client.cli.traces import dag as cli_dag
from tensord.vm.tracing.analysis.recorded.records import Memory
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import Holding, MetaRecord

from ....each_case import each_case
from ....full_disk import longest_file
from ....vm.tracing.analysis.trace_programs import random_trace, record

F32 = (MetaRecord((256, 256), "float32"),)


def ran(number, op, begin, end, **fields):
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    full = {"inputs": F32 * 2, "outputs": F32, "used": 4096, **stamps} | fields
    return record(number, (number, "mut"), ticks=(2 * number, 2 * number + 1), op=op, **full)


@pytest.fixture
def saved(tmp_path):
    """A trace of two ops at two lines in spans, and its path."""
    records = [
        ran(1, "matmul", 1_000, 50_000, location="train.py:9 in step", span=("step 1",)),
        ran(2, "add", 60_000, 70_000, location="train.py:90 in step", span=("step 2",)),
    ]
    holding = Holding(1, "cpu:0", 4096, "matmul", 1, "train.py:9 in step", ("weights",))
    path = tmp_path / "run.trace"
    Trace(records, taken=80_000, memory=Memory({"cpu:0": 4096}, (holding,))).save(path)
    return path


class TestStats:
    def test_people_get_tables(self, run, saved):
        code, out, err = run("trace", "stats", saved)
        assert (code, err) == (0, "")
        assert "2 records of 2" in out
        for word in ("matmul", "train.py:9 in step", "step *", "cpu:0/compute", "GFLOP/s", "wire", "49 us"):
            assert word in out

    def test_programs_get_every_number(self, run, saved):
        found = json.loads(run("trace", "stats", saved, "--json", "--op", "add")[1])
        (row,) = found["ops"]
        assert (row["key"], row["count"], row["total"], row["operations"]) == ("add", 1, 10_000, 65_536)
        assert found["streams"][0]["lost"]["idle"] == 10_000

    def test_rows_are_limited(self, run, saved):
        assert "and 1 row more; --limit 0 lists all" in run("trace", "stats", saved, "--limit", 1)[1]

    def test_an_empty_trace(self, run, tmp_path):
        Trace([]).save(tmp_path / "x")
        assert run("trace", "stats", tmp_path / "x")[0] == 0


class TestNothingMatches:
    @pytest.mark.parametrize("command", ["show", "stats"])
    def test_a_sentence_says_what_was_asked(self, run, saved, command):
        out = run("trace", command, saved, "--span", "nonsense", "--op", "mat*")[1]
        assert out == "no records match --op mat* --span nonsense\n"

    def test_of_two_traces(self, run, saved):
        assert run("trace", "diff", saved, saved, "--op", "x")[1] == "no records match --op x\n"


class TestOneForm:
    def test_show_and_stats_name_a_line_alike(self, run, tmp_path):
        path = tmp_path / "x.trace"
        Trace([ran(1, "add", 1_000, 2_000, location="sklearn/utils/_array_api.py:846 in f")]).save(path)
        for command in ("show", "stats"):
            assert "sklearn/utils/_array_api.py:846 in f" in run("trace", command, path)[1]


class TestAdvise:
    @pytest.fixture
    def planted(self, tmp_path):
        """Ten uploads at a line, and a kernel that was compiled."""
        uploads = [
            ran(n, "upload", 10_000 * n, 10_000 * n + 100 * n, location="train.py:9 in step", opcode="Upload")
            for n in range(1, 11)
        ]
        compiled = ran(11, "matmul", 200_000, 290_000, location="train.py:5 in f", held="compiling", session=2)
        path = tmp_path / "planted.trace"
        Trace([*uploads, compiled], taken=300_000).save(path)
        return path

    def test_people_get_cost_lines_and_what_to_do(self, run, planted):
        code, out, err = run("trace", "advise", planted)
        assert (code, err) == (0, "")
        assert out.startswith(
            "2 findings in 280 us\n\n90 us, 32%: kernels compiled in the middle of work\n  train.py:5 in f: "
        )
        assert "uploads in a loop\n  train.py:9 in step: 5.4 us, 9 times\n  9 times after the first" in out
        assert "`tensord trace" not in out

    def test_programs_get_the_findings(self, run, planted):
        found = json.loads(run("trace", "advise", planted, "--json")[1])
        assert (found["length"], found["minor"], found["records"]) == (280_000, 0, 11)
        first = found["findings"][0]
        assert (first["rule"], first["cost"], first["instructions"]) == ("compiling", 90_000, [11])
        assert first["lines"] == [{"location": "train.py:5 in f", "times": 1, "cost": 90_000}]
        assert "tensord warm" in first["todo"]

    def test_findings_are_selected_and_limited(self, run, planted):
        assert run("trace", "advise", planted, "--session", 2)[1].startswith("1 finding in 280 us")
        assert "1 finding more; --limit 0 lists all" in run("trace", "advise", planted, "--limit", 1)[1]

    def test_a_trace_without_a_problem(self, run, saved):
        assert run("trace", "advise", saved)[1] == "0 findings in 69 us\n"


class TestDiff:
    def test_faster_things_are_not_on_top_of_what_got_slower(self, run, tmp_path):
        """`often` is faster and called more often; `slow` is slower by little."""
        files = [tmp_path / "a", tmp_path / "b"]
        Trace([ran(1, "often", 1_000, 2_000), ran(2, "slow", 3_000, 4_000)]).save(files[0])
        many = [ran(n, "often", 1_000 * n, 1_000 * n + 500) for n in range(1, 90)]
        Trace([*many, ran(99, "slow", 100_000, 101_100)]).save(files[1])
        speed, counts = run("trace", "diff", *files)[1].split("called more or less often")
        assert 0 < speed.index("slow  ") < speed.index("often  ")
        assert "1" in counts
        assert "89" in counts
        assert "often" in counts
        assert "slow" not in counts
        found = json.loads(run("trace", "diff", *files, "--json")[1])["changes"]
        assert [(one["op"], one["slower"], one["more"]) for one in found] == [
            ("slow", 100, 0),
            ("often", -500 * 89, 1_000 * 88),
        ]

    def test_what_got_slower_is_told_to_people_and_programs(self, run, saved, tmp_path):
        slower = tmp_path / "slower.trace"
        Trace([ran(1, "matmul", 1_000, 99_000, location="train.py:9 in step")]).save(slower)
        code, out, _ = run("trace", "diff", saved, slower)
        assert code == 0
        assert "2.00x" in out
        assert "+49 us" in out
        changes = json.loads(run("trace", "diff", saved, slower, "--json")[1])["changes"]
        assert [(one["op"], one["after"]["count"]) for one in changes] == [("matmul", 1), ("add", 0)]

    @pytest.fixture
    def edited(self, tmp_path):
        """Before and after an edit: two lines went down by one, an op is new, one is gone; and another session."""
        files = [tmp_path / "old.trace", tmp_path / "new.trace"]
        old = {"matmul": 9, "add": 10, "sin": 11}
        new = {"matmul": 10, "add": 11, "exp": 14}
        for path, lines, session in zip(files, (old, new), (1, 7), strict=True):
            records = [
                ran(n, op, 1_000 * n, 1_000 * n + 100 * session, location=f"train.py:{line} in step", session=session)
                for n, (op, line) in enumerate(lines.items(), 1)
            ]
            Trace([*records, ran(50, "tan", 90_000, 90_100, location="other.py:1 in f", session=3)]).save(path)
        return files

    def test_an_edit_moves_lines_and_they_are_found_again(self, run, edited):
        out = run("trace", "diff", *edited)[1]
        speed, _, rest = out.partition("only in the second trace:")
        new, _, gone = rest.partition("only in the first trace:")
        assert "train.py:10 in step (was :9)" in speed
        assert "train.py:11 in step (was :10)" in speed
        assert "7.00x" in speed
        assert "more often" not in out
        assert "exp" in new
        assert "train.py:14 in step" in new
        assert "sin" in gone
        assert "train.py:11 in step" in gone

    def test_sessions_with_different_ids_are_compared(self, run, edited):
        found = json.loads(run("trace", "diff", *edited, "--session", "1:7", "--json")[1])["changes"]
        assert sorted((one["op"], one["kind"]) for one in found) == [
            ("add", "both"),
            ("exp", "new"),
            ("matmul", "both"),
            ("sin", "gone"),
        ]
        assert [
            one["op"] for one in json.loads(run("trace", "diff", *edited, "--session", 3, "--json")[1])["changes"]
        ] == ["tan"]
        assert "no session 7: it has 1, 3" in run("trace", "diff", *edited, "--session", "7")[2]

    def test_a_line_is_selected_as_it_is_named_in_either_trace(self, run, edited):
        for line, ops in (("train.py:9", ["matmul"]), ("train.py:10", ["add", "matmul"])):
            found = json.loads(run("trace", "diff", *edited, "--location", line, "--json")[1])["changes"]
            assert sorted(one["op"] for one in found) == ops

    @pytest.mark.parametrize("text", ["x", "1:", ":2", "1:2:3", "-1"])
    def test_what_is_no_session_says_so(self, run, edited, text):
        code, _, err = run("trace", "diff", *edited, f"--session={text}")
        assert (code, err.count("\n")) == (2, 1)
        assert "3:5" in err

    def test_a_missing_file_is_one_line(self, run, saved, tmp_path):
        code, _, err = run("trace", "diff", saved, tmp_path / "none")
        assert code == 1
        assert "No such file" in err


class TestSelection:
    @each_case(
        ("options", "ids"),
        [
            (["--op", "mat*"], [1]),
            (["--location", "train.py:9"], [1]),
            (["--span", "step 2"], [2]),
            (["--slowest", "1"], [1]),
            (["--session", "1"], [1, 2]),
        ],
    )
    def test_every_command_that_lists_records_selects_them(self, run, saved, options, ids):
        shown = json.loads(run("trace", "show", saved, "--json", *options)[1])["shown"]
        assert [one["id"] for one in shown] == ids
        nodes = json.loads(run("trace", "dag", saved, "--json", *options)[1])["nodes"]
        assert [one["id"] for one in nodes] == ids
        events = json.loads(run("trace", "timeline", saved, *options)[1])["traceEvents"]
        assert [one["args"]["id"] for one in events if one["ph"] == "X"] == ids
        assert json.loads(run("trace", "stats", saved, "--json", *options)[1])["records"] == len(ids)

    def test_an_unknown_session_is_one_line(self, run, saved):
        code, _, err = run("trace", "stats", saved, "--session", 9)
        assert (code, err) == (1, "tensord: the trace has no session 9: it has 1\n")

    def test_show_says_what_of(self, run, saved):
        out = run("trace", "show", saved)[1]
        assert "(256, 256) x (256, 256) float32" in out
        assert "768 KiB" in out


class TestMemory:
    def test_people_see_the_peak_and_who_stood_in_it(self, run, saved):
        code, out, _ = run("trace", "memory", saved)
        assert code == 0
        assert "cpu:0: peak 4 KiB" in out
        assert "weights" in out

    def test_only_what_some_records_made(self, run, saved):
        (device,) = json.loads(run("trace", "memory", saved, "--op", "mat*", "--location", "train.py:9", "--json")[1])[
            "devices"
        ]
        assert {stay["op"] for stay in device["standing"]} == {"matmul"}
        assert (
            run("trace", "memory", saved, "--op", "no_such*")[1] == "none of the chosen records made a copy in memory\n"
        )

    @each_case("by", ["op", "location", "span", "session", "name"])
    def test_summed_up(self, run, saved, by):
        (device,) = json.loads(run("trace", "memory", saved, "--by", by, "--json")[1])["devices"]
        assert (device["peak"], device["holders"][0]["nbytes"]) == (4096, 4096)
        assert run("trace", "memory", saved, "--by", by)[0] == 0

    def test_a_span_and_when_the_names_were_those(self, run, saved):
        assert "step 1" in run("trace", "memory", saved, "--by", "span")[1]
        assert "when the trace was taken" in run("trace", "memory", saved, "--by", "name")[1].splitlines()[-1]

    def test_pictures(self, run, saved, tmp_path, monkeypatch):
        assert run("trace", "memory", saved, "-o", tmp_path / "m.svg")[0] == 0
        assert "<svg" in (tmp_path / "m.svg").read_text()
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        code, _, err = run("trace", "memory", saved, "-o", tmp_path / "m.png")
        assert (code, err) == (1, "tensord: a .png needs matplotlib, which is not installed; write a .svg\n")
        code, _, err = run("trace", "memory", saved, "-o", tmp_path / "m.gif")
        assert "must end in .svg or .png" in err
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.svg", "run.trace"]

    def test_a_png_is_drawn_by_matplotlib(self, run, saved, tmp_path, monkeypatch):
        drawn = []

        class Figure:
            def __init__(self, **_):
                pass

            def add_subplot(self, *_):
                return SimpleNamespace(
                    fill_between=lambda times, amounts, **_: drawn.append((times, amounts)),
                    axvline=lambda *_, **__: None,
                    set=lambda **_: None,
                )

            def savefig(self, file, **_):
                file.write(b"PNG")

        monkeypatch.setitem(sys.modules, "matplotlib", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "matplotlib.figure", SimpleNamespace(Figure=Figure))
        assert run("trace", "memory", saved, "-o", tmp_path / "m.png")[0] == 0
        assert (tmp_path / "m.png").read_bytes() == b"PNG"
        assert drawn[0][1][0] == 4096 / 2**20

    def test_an_unknown_device_is_one_line(self, run, saved):
        assert run("trace", "memory", saved, "--device", "gpu")[2] == (
            "tensord: the trace has no device 'gpu': it has cpu:0\n"
        )


class TestPictures:
    @pytest.fixture
    def graphviz(self, tmp_path, monkeypatch):
        """A program `dot` with the behaviour that the test asks for."""
        folder = tmp_path / "bin"
        folder.mkdir()

        def install(script: str) -> None:
            (folder / "dot").write_text(f"#!/bin/sh\n{script}\n")
            (folder / "dot").chmod(0o755)

        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return install

    @pytest.mark.parametrize("output_format", ["svg", "png"])
    def test_graphviz_draws_where_it_is_installed(self, run, saved, tmp_path, graphviz, output_format):
        graphviz('grep -q digraph && echo "drawn as $1"')
        out = tmp_path / "x"
        assert run("trace", "dag", saved, "--format", output_format, "-o", out)[0] == 0
        assert out.read_text() == f"drawn as -T{output_format}\n"

    def test_without_graphviz_it_is_said(self, run, saved, monkeypatch):
        monkeypatch.setattr(cli_dag, "which", lambda _: None)
        code, out, err = run("trace", "dag", saved, "--format", "svg")
        assert (code, out) == (1, "")
        assert "needs Graphviz, whose program dot is not installed: install graphviz, or write --format html" in err

    def test_what_graphviz_complains_about_is_told(self, run, saved, graphviz):
        graphviz("echo no memory >&2; exit 3")
        assert run("trace", "dag", saved, "--format", "png")[2] == "tensord: dot failed: no memory\n"

    def test_a_page(self, run, saved, tmp_path):
        assert run("trace", "dag", saved, "--format", "html", "-o", tmp_path / "x.html")[0] == 0
        assert "<!DOCTYPE html>" in (tmp_path / "x.html").read_text()

    @pytest.mark.parametrize(
        ("name", "options", "begins"),
        [
            ("x.html", (), "<!DOCTYPE html>"),
            ("x.json", (), "{"),
            ("x.dot", (), "digraph"),
            ("x.txt", (), "digraph"),
            ("x", (), "digraph"),
            ("x.html", ("--format", "mermaid"), "flowchart"),
        ],
    )
    def test_the_name_of_the_file_chooses_the_format(self, run, saved, tmp_path, name, options, begins):
        assert run("trace", "dag", saved, *options, "-o", tmp_path / name)[0] == 0
        assert (tmp_path / name).read_text().startswith(begins)

    def test_parts_fold_by_line_on_request(self, run, tmp_path):
        path = tmp_path / "x.trace"
        Trace(record(n, (n, "mut"), location=f"train.py:{n % 2} in f") for n in range(1, 41)).save(path)
        assert run("trace", "dag", path, "--fold-by", "line")[1].count("[label=") == 2
        page = run("trace", "dag", path, "--fold-by", "line", "--format", "html")[1]
        assert '"shown":"line"' in page
        assert '"shown":"instruction"' in run("trace", "dag", path, "--format", "html")[1]
        code, _, err = run("trace", "dag", path, "--fold-by", "line", "--no-fold")
        assert code == 2
        assert "--no-fold and --fold-by exclude each other: give one of them" in err

    def test_parts_and_folding(self, run, tmp_path):
        path = tmp_path / "x.trace"
        random_trace(3).save(path)
        part = json.loads(run("trace", "dag", path, "--json", "--upstream", 30, "--depth", 1)[1])["nodes"]
        whole = json.loads(run("trace", "dag", path, "--json", "--upstream", 30)[1])["nodes"]
        assert {one["id"] for one in part} < {one["id"] for one in whole}
        assert run("trace", "dag", path, "--fold")[1].count("[label=") <= run("trace", "dag", path)[1].count("[label=")


@pytest.mark.parametrize("command", [["timeline"], ["dag", "--format", "dot"], ["dag", "--format", "html"], ["memory"]])
def test_a_full_disk_is_one_line_and_leaves_no_part_of_a_file(run, saved, tmp_path, command):
    folder = tmp_path / "out"
    folder.mkdir()
    with longest_file(200):
        code, _, err = run("trace", *command, saved, "-o", folder / "x.svg")
        assert (code, err) == (1, f"tensord: {folder / 'x.svg'}: File too large. Make room.\n")
        assert list(folder.iterdir()) == []
