"""`tensord trace record --values`, `trace replay` and `trace bisect`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.traces import recorder as cli_record
from tensord.interpreter.recordings.reader import RecordingReader
from tensord.vm.tracing.analysis.trace import Trace

from ....own_ops import own_ops_end


@pytest.fixture(autouse=True)
def off_on_sim() -> Iterator[Any]:
    """An op that gives another number on `sim`."""
    with own_ops_end():

        @td.op(name="replay_tests.off_on_sim", version="1", infer=lambda x: x)
        def off_on_sim(x: td.Tensor) -> td.Tensor:
            return x + 1

        @off_on_sim.kernel("sim")
        def off_by_a_bit(x: td.Tensor) -> td.Tensor:
            return x + 1.5

        yield off_on_sim


@pytest.fixture
def file(run, watched, off_on_sim, address, monkeypatch, tmp_path):
    """A recording, made by the command line of a session that works meanwhile."""
    rounds = iter(range(100))

    def work(stop: cli_record.Stop) -> None:
        x = watched.asarray(np.arange(4.0), device="sim:0")
        off_on_sim(x * watched.keep[0].sum()).numpy()
        stop.asked = next(rounds) >= 2

    monkeypatch.setattr(cli_record.Stop, "sleep", lambda stop, _: work(stop))
    path = tmp_path / "x.rec"
    code, out, err = run("trace", "record", "-o", path, "--address", address, "--values")
    assert code == 0
    assert f"{path} holds data: " in out
    assert "will contain data" in err
    return path


def test_a_recording_is_a_trace_too_and_says_that_it_holds_data(run, file):
    trace = Trace.load(file)
    assert trace.verify() == []
    assert any(record.op == "replay_tests.off_on_sim" for record in trace.records)
    code, out, _ = run("trace", "show", file, "--limit", 3)
    assert code == 0
    assert out.startswith(f"{file} holds data: ")
    assert file.read_bytes().split(b"\n")[0].count(b"This file holds data")
    assert [path.name for path in file.parent.iterdir()] == ["x.rec"]
    assert run("trace", "stats", file)[0] == 0


def test_it_is_replayed_with_the_same_bits(run, file):
    code, out, _ = run("trace", "replay", file, "--against", "sim:0,sim:1")
    assert code == 0
    assert out.startswith("no difference: ")
    assert "3 fetched values compared with the recording" in out
    code, out, _ = run("trace", "replay", file, "--speed", "recorded", "--json")
    found = json.loads(out)
    assert (code, found["sides"], found["compared"], found["fetched"], found["findings"]) == (0, ["vm"], 0, 3, [])


def test_on_other_devices_what_differs_is_listed_and_is_the_exit_code(run, file):
    code, out, _ = run("trace", "replay", file, "--devices", "cpu:0", "--against", "none", "--limit", 1)
    assert code == 1
    assert out.startswith("3 results differ: ")
    assert "what was recorded" in out
    assert "and 2 more" in out
    found = json.loads(run("trace", "replay", file, "--devices", "cpu:0", "--against", "sim:0", "--json")[1])
    assert found["findings"][0]["op"] == "replay_tests.off_on_sim"
    assert found["findings"][0]["size"] == 0.5


def test_bisect_names_the_op_its_operands_and_the_command_that_looks_further(run, file, tmp_path):
    code, out, _ = run("trace", "bisect", file, "--second", "cpu:0")
    assert code == 1
    assert "replay_tests.off_on_sim" in out.split("\n")[0]
    assert "float64[4] on sim:0, equal on both sides" in out
    assert "test_replay.py" in out
    command = out.rstrip().split("\n")[-1].split()
    assert command[:2] == ["tensord", "trace"]
    saved = tmp_path / "first.npz"
    code, out, _ = run(*command[1:-1], saved)
    assert code == 1
    with np.load(saved, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["result_first"], arrays["operand_0_first"] + 1.5)
        assert np.array_equal(arrays["result_second"], arrays["operand_0_second"] + 1)


def test_bisect_without_a_difference(run, file):
    code, out, _ = run("trace", "bisect", file, "--first", "cpu:0")
    assert (code, out) == (0, "no result differs between cpu:0 and serial\n")
    found = json.loads(run("trace", "bisect", file, "--first", "cpu:0", "--json")[1])
    assert found["found"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("replay", "missing.rec"), 1, "missing.rec: No such file"),
        (("replay", "FILE", "--devices", "warp"), 1, "'vm=warp' is not a machine"),
        (("replay", "FILE", "--devices", "cpu:0", "--address", "ipc://x"), 2, "exclude each other"),
        (("replay", "FILE", "--map", "sim:0"), 2, "--map is OLD=NEW"),
        (("replay", "FILE", "--map", "sim:7=cpu:0"), 1, "the recording has no device 'sim:7'"),
        (("replay", "FILE", "--against", "warp"), 2, "is not a machine"),
        (("replay", "FILE", "--address", "ipc:///nowhere/x.sock"), 1, "no daemon"),
        (("bisect", "FILE", "--at", "100000"), 1, "there is no step 100000"),
        (("record", "-o", "x", "--without", "a"), 2, "--session and --without need --values"),
        (("record", "-o", "x", "--limit", "much"), 2, "a size is a number of bytes"),
    ],
)
def test_what_goes_wrong_is_one_line(run, file, arguments, code, said):
    given = [file if one == "FILE" else one for one in arguments]
    found, out, err = run("trace", *given)
    assert (found, out) == (code, "")
    assert said in " ".join(err.split())


def test_a_file_that_is_none_or_damaged_is_one_line(run, file):
    whole = file.read_bytes()
    file.write_bytes(whole[:300] + b"X" + whole[301:])
    for command in ("replay", "bisect", "show"):
        code, _, err = run("trace", command, file)
        assert code == 1
        assert "the file is damaged" in err or "cut short" in err
    file.write_bytes(b"GIF89a")
    code, _, err = run("trace", "replay", file)
    assert code == 1
    assert "not a recording" in err


def test_failures_of_the_recorded_program_are_not_logged_again(run, watched, address, monkeypatch, tmp_path, caplog):
    def work(stop: cli_record.Stop) -> None:
        watched.xp.linalg.inv(watched.asarray(np.zeros((2, 2))))
        watched.sync()
        stop.asked = True

    monkeypatch.setattr(cli_record.Stop, "sleep", lambda stop, _: work(stop))
    path = tmp_path / "x.rec"
    assert run("trace", "record", "-o", path, "--address", address, "--values")[0] == 0
    caplog.clear()
    assert run("trace", "replay", path)[0] == 0
    assert run("trace", "bisect", path)[0] == 0
    assert caplog.records == []


def test_a_trace_without_values_says_so(run, watched, address, tmp_path):
    del watched
    path = tmp_path / "x.trace"
    assert run("trace", "dump", "-o", path, "--address", address)[0] == 0
    code, _, err = run("trace", "replay", path)
    assert code == 1
    assert "not a recording" in err


def test_a_limit_and_a_pattern_and_one_session(run, watched, address, monkeypatch, tmp_path):
    other = np.full(3, 7.25)
    number = watched.stats()["session"]["id"]

    def work(stop: cli_record.Stop) -> None:
        watched.publish("secret/x", watched.asarray(other))
        watched.sync()
        stop.asked = True

    monkeypatch.setattr(cli_record.Stop, "sleep", lambda stop, _: work(stop))
    path = tmp_path / "x.rec"
    command = ("trace", "record", "-o", path, "--address", address, "--values", "--session", number)
    code, out, _ = run(*command, "--without", "secret/*", "--json")
    found = json.loads(out)
    assert (code, found["values_lost"], found["full"]) == (0, 1, False)
    assert other.tobytes() not in path.read_bytes()
    with RecordingReader(path) as reader:
        assert list(reader.sessions) == [number]
    code, out, _ = run(*command, "--limit", "20KiB")
    assert code == 0
    assert "3 of them lost or left out" in out
    assert run("trace", "replay", path, "--against", "none")[0] == 0
    code, out, _ = run(*command, "--limit", "1KiB")
    assert code == 0
    assert "note: the limit of 1024 bytes was reached" in out
    watched.unpublish("secret/x")
