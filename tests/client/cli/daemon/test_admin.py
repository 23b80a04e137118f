"""`tensord status`, `sessions`, `tensors`, `devices` and `top`, on a machine in this process."""

from __future__ import annotations

import json
import os
import re
import time

import numpy as np
import pytest

from tensord.client.cli.daemon import listed
from tensord.client.cli.daemon.screen import DaemonSample, screen_state
from tensord.client.cli.drawing import figures, terminal
from tensord.interpreter.wire.addresses import default_address
from tensord.streams.faults import Fault, FaultKind

from .... import forked
from ....daemon import MAIN
from ....each_case import each_case

COMMANDS = ["status", "sessions", "tensors", "names", "devices", "evict", "checkpoint", "restore", "load", "top"]
COMMANDS += ["doctor", "trace"]
ON_A_DAEMON = [
    ["status"],
    ["sessions"],
    ["tensors"],
    ["names"],
    ["devices"],
    ["evict", "weights"],
    ["checkpoint", "/tmp/checkpoints"],  # noqa: S108
    ["restore", "/tmp/checkpoints"],  # noqa: S108
    ["top", "--once"],
    ["trace", "show"],
    ["trace", "why", "1"],
]


class TestNobodyRuns:
    @pytest.fixture(autouse=True)
    def nowhere(self, monkeypatch, tmp_path):
        monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    @each_case("command", ON_A_DAEMON)
    def test_it_is_one_line_that_says_how_to_start_one(self, run, command):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        there = default_address()
        assert err == (
            f"tensord: no daemon is running at {there}; start one with `tensord serve`, or name another's address\n"
        )

    @each_case("command", ON_A_DAEMON)
    def test_it_is_an_object_for_programs(self, run, command):
        code, out, err = run(*command, "--json")
        assert (code, err) == (1, "")
        assert "`tensord serve`" in json.loads(out)["error"]

    def test_a_wrong_address_is_one_line(self, run):
        code, out, err = run("status", "--address", "nonsense")
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert "'nonsense'" in err


@pytest.mark.usefixtures("watched")
class TestStatus:
    def test_for_people(self, run, address):
        code, out, err = run("status", "--address", address)
        assert (code, err) == (0, "")
        assert "3 tensors; 1 published name" in out
        assert re.search(r"of memory, \d+ of [\d,]+ open files\n", out)
        assert "0 of them failed" in out
        assert any(line.split()[:1] == ["sim:0"] and "h2d 1 x, 256 KiB" in line for line in out.splitlines())

    def test_for_programs(self, run, address):
        found = json.loads(run("status", "--address", address, "--json")[1])
        assert found["pid"] == os.getpid()
        assert found["devices"]["sim:0"]["limit"] == 1 << 30
        assert found["hung"] == found["recent_errors"] == []

    def test_the_address_is_taken_from_the_environment(self, run, address, monkeypatch):
        monkeypatch.setenv("TENSORD_ADDRESS", address)
        assert run("status")[0] == 0

    def test_recent_errors_are_told_with_their_lines(self, run, watched, address, machine_of):
        machine_of(watched).devices["cpu:0"].inject(Fault(FaultKind.FAIL, label="negative"))
        bad = watched.call("negative", [watched.keep[0]])[0]
        watched.sync()
        out = run("status", "--address", address)[1]
        (line,) = [line for line in out.splitlines() if line.startswith("error: ")]
        assert "KernelError: " in line
        assert "test_admin.py" in line
        assert bad.error is not None


@pytest.mark.usefixtures("watched")
class TestTables:
    def test_sessions(self, run, address):
        out = run("sessions", "--address", address)[1]
        assert "this command" in out
        assert "2 sessions" in out
        rows = json.loads(run("sessions", "--address", address, "--json")[1])
        assert [row["tensors"] for row in rows] == [3, 0]
        assert [row["asks"] for row in rows] == [False, True]

    def test_tensors(self, run, address):
        out = run("tensors", "--address", address, "--limit", 2)[1]
        assert out.count("float32[256, 256]") == 2
        assert "the 2 tensors shown are the largest" in out
        named = next(line for line in run("tensors", "--address", address)[1].splitlines() if "weights" in line)
        assert "cpu:0, sim:0" in named
        assert "256 KiB" in named

    def test_tensors_of_a_device_and_of_a_session(self, run, address):
        out = run("tensors", "--address", address, "--device", "sim:0", "--json")[1]
        assert all("sim:0" in (*row["residency"], row["home"]) for row in json.loads(out))
        code, _, err = run("tensors", "--address", address, "--session", 99)
        assert code == 1
        assert "unknown session 99" in err

    def test_a_limit_of_0_means_all(self, run, address):
        everything = json.loads(run("tensors", "--address", address, "--json")[1])
        assert json.loads(run("tensors", "--address", address, "--json", "--limit", 0)[1]) == everything
        assert len(everything) > 1

    def test_no_tensors_are_a_sentence(self, capsys):
        listed.show_tensors([], limit=20, session=7, device="sim:0")
        assert capsys.readouterr().out == "no tensors of session 7 on sim:0\n"

    def test_names(self, run, watched, address):
        w = watched.asarray(np.ones(1000))
        f = watched.routine(lambda x, rate: x * w * rate).link(watched.asarray(1.0), 0.5)
        watched.publish("scaled", f)
        out = run("names", "--address", address)[1]
        scaled, weights = (next(line for line in out.splitlines() if name in line) for name in ("scaled", "weights"))
        assert weights.split() == ["weights", "float32[256,", "256]", "256", "KiB", "cpu:0"]
        assert "routine of 2 ops, captures 1 tensor  7.81 KiB  cpu:0  x float64[], rate float" in scaled
        assert f.program.digest[:12] in scaled
        rows = json.loads(run("names", "--address", address, "--json", "--kind", "routine")[1])
        assert [(row["name"], row["ops"], row["captured"]) for row in rows] == [("scaled", 2, ["w"])]
        assert len(json.loads(run("names", "--address", address, "--json", "--limit", 1)[1])) == 1
        watched.unpublish("scaled", "weights")
        assert run("names", "--address", address)[1] == "no tensor or routine is published\n"
        watched.publish("weights", watched.keep[0])

    def test_devices(self, run, address):
        out = run("devices", "--address", address)[1]
        assert "sim:0\n  memory     " in out
        assert "used of 1 GiB" in out
        assert "  idle       compute0, h2d0, d2h0, p2p0" in out
        found = json.loads(run("devices", "--address", address, "--json")[1])
        assert [one["name"] for one in found] == ["cpu:0", "sim:0"]

    def test_what_runs(self, run, watched, address, machine_of):
        device = machine_of(watched).devices["sim:0"]
        device.inject(Fault(FaultKind.HANG, label="add"))
        late = watched.asarray(np.ones(3), device="sim:0") + 1
        watched._core.outbox.flush()
        out = ""
        while " add for " not in out:
            out = run("devices", "--address", address)[1]
        assert "test_admin.py" in out
        assert device.faults.hanging.wait(10.0)
        device.release_hangs()
        assert late.numpy()[0] == 2

    @pytest.mark.parametrize("command", ["status", "sessions", "tensors"])
    def test_they_fit_80_columns(self, run, address, command, monkeypatch):
        monkeypatch.setattr(terminal, "PIPED_WIDTH", 80)
        out = run(command, "--address", address)[1]
        assert max(map(len, out.splitlines())) <= 80

    def test_names_of_tensors_mean_nothing_to_the_terminal(self, run, watched, address):
        watched.publish("[red]evil", watched.keep[0])
        out = run("tensors", "--address", address)[1]
        assert "[red]evil" in out


class TestEvict:
    def test_what_has_a_name_leaves_and_comes_back(self, run, watched, address):
        watched.publish("product", watched.keep[1])
        code, out, err = run("evict", "product", "--address", address)
        assert (code, err) == (0, "")
        assert out == "sim:0 -> cpu:0: 1 value, 256 KiB\n"
        watched.sync()
        assert watched.keep[1].residency() == {"cpu:0": "valid"}
        assert "1 to cpu:0, 256 KiB" in run("status", "--address", address)[1]
        watched.call("negative", [watched.keep[1]])[0].wait()
        assert "  evicted    1 to cpu:0, 256 KiB; 1 back, 256 KiB\n" in run("devices", "--address", address)[1]
        watched.unpublish("product")

    def test_everything_on_a_device_leaves_but_what_is_pinned(self, run, watched, address):
        pinned = watched.asarray(np.ones(1024, np.float32), device="sim:0").pin()
        many = [watched.asarray(np.ones(256, np.float32), device="sim:0") for _ in range(600)]
        watched.sync()
        (left,) = json.loads(run("evict", "--device", "sim:0", "--address", address, "--json")[1])
        assert left["values"] >= 600
        assert left["bytes"] >= 600 * 1024
        watched.sync()
        assert "sim:0" in pinned.residency()
        assert not any("sim:0" in one.residency() for one in (*many, *watched.keep[:2]))
        assert "4 KiB pinned" in run("devices", "--address", address)[1]

    def test_of_a_session_what_it_made_leaves(self, run, watched, address):
        number = next(one["id"] for one in watched._core.answers.query("sessions") if one["asks"])
        (left,) = json.loads(run("evict", "--session", str(number), "--address", address, "--json")[1])
        assert left["device"] == "sim:0"
        code, out, _ = run("evict", "--session", str(number), "--address", address)
        assert code == 0
        assert out == (
            "nothing was evicted: these tensors are pinned, read in place, or not on a device with a tier below it\n"
        )

    @each_case(
        ("arguments", "message", "status"),
        [
            ((), "say which tensors: names, --session or --device", 2),
            (("nothing",), "nothing", 1),
            (("--device", "gpu"), "unknown device 'gpu'", 1),
            (("--session", "999"), "unknown session 999", 1),
        ],
    )
    def test_what_is_not_there_is_one_line(self, run, watched, address, arguments, message, status):
        code, _, err = run("evict", *arguments, "--address", address)
        assert code == status
        assert message in err
        assert err.count("\n") == 1
        assert not watched.closed


@pytest.mark.usefixtures("watched")
class TestTop:
    def test_once(self, run, address):
        code, out, err = run("top", "--once", "--interval", "0.1", "--address", address)
        assert (code, err) == (0, "")
        assert "0/s instructions" in out
        assert "cpu:0" in out
        assert re.search(r"all +idle", out)

    def test_once_for_programs(self, run, address):
        found = json.loads(run("top", "--once", "--interval", "0.1", "--address", address, "--json")[1])
        assert set(found) == {"status", "per_second", "sessions", "devices"}

    def test_ctrl_c_leaves_cleanly(self, run, address, monkeypatch):
        def interrupt(_seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", interrupt)
        assert run("top", "--address", address)[::2] == (0, "")

    def test_rates_are_differences(self):
        def look(at: float, retired: int, consumed: dict[int, int], moved: int, back: int) -> DaemonSample:
            sessions = [
                {"id": id_, "consumed": number, "live": 0, "moved": {"bytes": moved}, "evicted": {"bytes": back}}
                for id_, number in consumed.items()
            ]
            left = {"evicted": {"bytes": back}, "dropped": {"bytes": back}, "returned": {"bytes": back}}
            transfers = {"h2d": {"count": 1, "bytes": moved}}
            devices = [{"name": "sim:0", "transfers": transfers, "eviction": left}]
            return DaemonSample(at, {"instructions": {"retired": retired}}, sessions, devices)

        now = look(12.0, 1_100, {1: 50, 2: 400, 3: 7}, 300, 50)
        found = screen_state(look(10.0, 100, {1: 50, 2: 200}, 100, 30), now)
        assert found["per_second"] == 500.0
        assert [(one["id"], one["per_second"]) for one in found["sessions"]] == [(2, 100.0), (1, 0.0), (3, 0.0)]
        caused = [(one["moved_per_second"], one["evicted_per_second"]) for one in found["sessions"]]
        assert caused == [(100.0, 10.0), (100.0, 10.0), (0.0, 0.0)]
        (device,) = found["devices"]
        rates = [device[f"{name}_per_second"] for name in ("moved", "evicted", "returned")]
        assert rates == [100.0, 20.0, 10.0]


class TestHelpAndCompletion:
    @each_case("command", [[name] for name in COMMANDS if name != "trace"] + [["trace", "record"]])
    def test_every_command_has_an_example_in_its_help(self, run, command):
        code, out, _ = run(*command, "--help")
        assert code == 0
        examples = [line.strip() for line in out.splitlines() if "Example:" in line]
        assert len(examples) == out.count("Example:") > 0
        assert all(one.startswith(f"Example: tensord {' '.join(command)}") for one in examples)
        assert "--json" in out
        assert "--address" in out

    def complete(self, line: str) -> list[str]:
        words = line.split(" ")
        environment = os.environ | {
            "_TENSORD_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        done = forked.run(MAIN, ["tensord"], env=environment)
        return [one.partition(",")[2] for one in done.stdout.split()]

    def test_bash_completes_commands(self):
        assert set(COMMANDS) <= set(self.complete("tensord "))
        assert self.complete("tensord stat") == ["status"]
        assert {"record", "dump", "dag", "timeline", "why", "verify", "show"} <= set(self.complete("tensord trace "))

    def test_bash_completes_formats(self):
        assert self.complete("tensord trace dag --format ") == ["dot", "mermaid", "json", "html", "svg", "png"]


class TestFigures:
    @each_case(
        ("nbytes", "text"),
        [
            (None, "?"),
            (0, "0"),
            (5, "5 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            (1 << 62, "4,194,304 TiB"),
        ],
    )
    def test_sizes(self, nbytes, text):
        assert figures.size(nbytes) == text

    @each_case(
        ("seconds", "text"),
        [
            (0, "0 s"),
            (12.3e-6, "12.3 us"),
            (0.0015, "1.5 ms"),
            (59.4, "59.4 s"),
            (59.6, "1 min"),
            (125, "2 min 5 s"),
            (12_000, "3 h 20 min"),
            (90_000, "1 d 1 h"),
        ],
    )
    def test_durations(self, seconds, text):
        assert figures.duration(seconds) == text

    def test_counts_rates_and_shapes(self):
        assert (figures.count(1_234_567), figures.plural(1, "tensor"), figures.plural(2_000, "tensor")) == (
            "1,234,567",
            "1 tensor",
            "2,000 tensors",
        )
        assert [figures.rate(n) for n in (0, 0.5, 3_400)] == ["0/s", "0.5/s", "3,400/s"]
        assert (figures.shape([2, 3], "float32"), figures.shape([], "int64"), figures.shape(None, None)) == (
            "float32[2, 3]",
            "int64[]",
            "?",
        )


def test_a_mistyped_command_is_a_question(run):
    assert run("stauts")[2] == "tensord: No such command 'stauts'. Did you mean 'status'? Try --help.\n"
