"""`tensord run`: programs from their texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.main import main

TEXT = """\
tensord program 1
number $0 scale: float
parameter %0 x: float64[3] on d0
captured %1 w: float64[3] on d0
%2: float64[3] = multiply %0, %1 on d0
%3: float64[3] = multiply %2, $0 on d0
%4: float64[] = sum %3 on d0
return %3, %4
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "p.txt").write_text(TEXT)
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0, 3.0]))
    np.save(tmp_path / "w.npy", np.array([2.0, 2.0, 2.0]))
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["run", *map(str, arguments)])
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def usual(files: Path) -> tuple[object, ...]:
    return (
        files / "p.txt",
        "--input",
        f"x={files / 'x.npy'}",
        "--tensor",
        f"w={files / 'w.npy'}",
        "--number",
        "scale=0.5",
    )


def test_results_are_printed_or_go_to_files(capsys, files):
    code, out, err = run(capsys, *usual(files), "--output", files / "y.npy")
    assert (code, err) == (0, "")
    assert np.load(files / "y.npy").tolist() == [1.0, 2.0, 3.0]
    assert out.splitlines() == [f"%3 float64[3] -> {files / 'y.npy'}", "%4 float64[] =", "6.0"]


def test_a_report_with_sources_is_a_report(capsys, files):
    code, out, _ = run(capsys, *usual(files), "--json", "--times", 2, "--source")
    assert code == 0
    (piece,) = json.loads(out)["report"]["pieces"]
    assert piece["kernels"] == []  # no kernel is generated for the host


def test_json_has_the_values_and_the_report(capsys, files):
    code, out, _ = run(capsys, *usual(files), "--json", "--times", 2, "--report")
    found = json.loads(out)
    assert code == 0
    assert [each["values"] for each in found["results"]] == [[1.0, 2.0, 3.0], 6.0]
    (piece,) = found["report"]["pieces"]
    assert (piece["how"], piece["calls"]) == ("segment", 3)


@pytest.mark.parametrize(("given", "passes"), [("none", []), ("fusion,numbers", ["numbers", "fusion"])])
def test_passes_are_named_between_commas(capsys, files, given, passes):
    code, out, _ = run(capsys, *usual(files), "--json", "--times", 2, "--report", "--passes", given)
    assert code == 0
    assert [row["pass"] for row in json.loads(out)["report"]["passes"]] == passes


def test_an_unknown_pass_names_the_known_ones(capsys, files):
    code, _, err = run(capsys, *usual(files), "--passes", "fusoin")
    assert code == 1
    assert "unknown pass 'fusoin'; passes: dead_results" in err


def test_slots_have_the_devices_that_are_named(capsys, files):
    code, out, _ = run(capsys, *usual(files), "--device", "d0=sim:0", "--json", "--report", "--times", 2)
    assert code == 0
    report = json.loads(out)["report"]
    assert report["devices"] == ["sim:0"]
    assert [(piece["how"], piece["device"]) for piece in report["pieces"]] == [("segment", "sim:0")]
    code, out, _ = run(capsys, *usual(files), "--device", "d0=sim:0", "--report", "--times", 2)
    assert "steps 0 to 2 on sim:0: 3 calls" in out


def test_it_runs_on_a_daemon(capsys, files, daemon):
    code, out, _ = run(capsys, *usual(files), "--address", daemon.address, "--json")
    assert code == 0
    assert json.loads(out)["results"][1]["values"] == 6.0


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("--input", "z=x.npy"), "the program has no input z; it has x"),
        (("--input", "x=again"), "--input names x twice"),
        (("--input", "x"), "is not NAME=VALUE"),
        (("--number", "scale=0.1"), "--number names scale twice"),
        (("--output", "a", "--output", "b", "--output", "c"), "3 times, but the program has 2 results"),
        (("--times", "0"), "0 is not in the range"),
    ],
)
def test_wrong_usage_is_said_in_one_line(capsys, files, extra, said):
    code, out, err = run(capsys, *usual(files), *extra)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("--number", "other=0.1"), "takes the numbers scale, by name"),
        (("--device", "d5=cpu:0"), "no device slot 'd5'"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(capsys, files, extra, said):
    code, out, err = run(capsys, *usual(files), *extra)
    assert (code, out) == (1, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_what_is_missing_is_named(capsys, files):
    code, _, err = run(capsys, files / "p.txt")
    assert code == 2
    assert "the program needs --input x=FILE" in err


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"tensord program 9\n", b"\xff\xfe", b"\x00" * 100])
def test_what_is_no_program_is_refused(capsys, tmp_path, content):
    (tmp_path / "p.txt").write_bytes(content)
    code, out, err = run(capsys, tmp_path / "p.txt")
    assert (code, out) == (1, "")
    assert "internal error" not in err


def test_a_program_that_calls_back_is_refused_since_its_functions_are_elsewhere(capsys, tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("tensord program 1\nparameter %0 x: float64[1] on d0\neffect %0 {callback: 0}\nreturn")
    code, out, said = run(capsys, path, "--input", "x=x.npy")
    assert (code, out) == (1, "")
    assert "the program calls Python functions (effect), which do not exist in this process: use print instead" in said


def test_what_is_no_array_is_refused_and_not_unpickled(capsys, files):
    np.save(files / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    code, _, err = run(capsys, *usual(files))
    assert code == 1
    assert "is not a .npy file of numbers" in err
    assert "holds Python objects, whose pickles could run any code and are never read" in err


def as_npz(path):
    with path.open("wb") as file:
        np.savez(file, a=np.ones(3))


def as_text(path):
    np.save(path, np.array(["1.0"]))


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (as_npz, "is not a .npy file; numpy.save writes one"),
        (lambda path: path.write_text("1.0"), "is not a .npy file; numpy.save writes one"),
        (lambda path: path.write_bytes(b""), "is not a .npy file; numpy.save writes one"),
        (as_text, "is not a .npy file of numbers: it is <U3"),
        (cut_short, "15 bytes do not make a <f8[3]"),
    ],
)
def test_a_file_of_another_kind_is_named_with_what_is_wrong_with_it(capsys, files, make, why):
    make(files / "x.npy")
    code, _, err = run(capsys, *usual(files))
    assert code == 1
    assert f"{files / 'x.npy'}" in err
    assert why in err


def test_values_of_another_shape_are_refused_by_their_name(capsys, files):
    np.save(files / "x.npy", np.ones(4))
    code, _, err = run(capsys, *usual(files))
    assert code == 1
    assert "parameter x is float64[3], not float64[4]" in err


class TestAPublishedRoutine:
    @pytest.fixture
    def served(self, make_session, tmp_path):
        """The address of a machine with a published routine."""
        session = make_session(f"local:{tmp_path.name}")
        w = session.asarray([2.0, 2.0, 2.0])
        routine = session.routine(lambda x, scale: {"y": (y := x * w * scale), "total": y.sum()})
        session.publish({"scaled": routine.link(session.asarray([0.0, 0.0, 0.0]), 0.5), "w": w})
        return f"local:{tmp_path.name}"

    def test_runs_on_arrays_from_files(self, capsys, files, served):
        given = ("--input", f"x={files / 'x.npy'}", "--number", "scale=0.5")
        code, out, err = run(capsys, "--name", "scaled", *given, "--address", served, "--output", files / "y.npy")
        assert (code, err) == (0, "")
        assert np.load(files / "y.npy").tolist() == [1.0, 2.0, 3.0]
        assert out.splitlines()[1:] == ["%4 float64[] =", "6.0"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--name", "w"), "w is the name of a tensor, not of a routine"),
            (("--name", "nothing"), "nothing is published as 'nothing' (published: scaled, w)"),
            (("--name", "scaled"), "the program needs --input x=FILE"),
            (("--name", "scaled", "p.txt"), "name the file of a program, or the published routine"),
            (("--name", "scaled", "--device", "d0=cpu:0"), "leave out --tensor, --device and --passes"),
            ((), "name the file of a program, or the published routine"),
        ],
    )
    def test_is_asked_for_in_one_way(self, capsys, monkeypatch, files, served, arguments, said):
        monkeypatch.chdir(files)
        code, _, err = run(capsys, *arguments, "--address", served)
        assert code
        assert said in err

    def test_needs_a_daemon(self, capsys, monkeypatch, tmp_path):
        monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert "no daemon is running at" in run(capsys, "--name", "scaled")[2]
