"""`tensord tensors --by`, and the memory columns of `tensord sessions`."""

from __future__ import annotations

import json
import re

import pytest

from tensord.client.cli.daemon import admin
from tensord.client.cli.daemon.listed import show_held
from tensord.vm.reporting.memory.held import KEYS

from ....each_case import each_case

WEIGHTS = 256 * 256 * 4


def cells(line):
    return re.split(r"\s{2,}", line.strip())


def test_memory_can_be_summed_up_by_all_that_the_machine_offers():
    assert set(admin.BY) == set(KEYS)


@pytest.mark.usefixtures("watched")
class TestBy:
    @each_case("by", admin.BY)
    def test_the_last_row_is_what_the_devices_have_allocated(self, run, address, by):
        found = json.loads(run("tensors", "--address", address, "--by", by, "--json")[1])
        assert sum(row["bytes"] for row in found["rows"]) == found["total"] == 3 * WEIGHTS
        code, out, err = run("tensors", "--address", address, "--by", by)
        assert (code, err) == (0, "")
        (total,) = [line for line in out.splitlines() if line.split()[:1] == ["total"]]
        assert cells(total) == ["total", "768 KiB"]
        assert re.search(r"^cpu:0: 256 KiB of ", out, re.MULTILINE)
        assert re.search(r"^sim:0: 512 KiB of 1 GiB", out, re.MULTILINE)

    def test_by_name(self, run, address):
        out = run("tensors", "--address", address, "--by", "name")[1]
        (line,) = [line for line in out.splitlines() if line.split()[:1] == ["weights"]]
        assert cells(line)[:4] == ["weights", "512 KiB", "66.7%", "2"]
        assert "cpu:0 256 KiB" in line
        assert "sim:0 256 KiB" in line
        assert "session 1; weights" in line
        assert "(no name)  256 KiB  33.3%" in re.sub(" {2,}", "  ", out)

    def test_by_location(self, run, address):
        out = run("tensors", "--address", address, "--by", "location")[1]
        assert out.count("conftest.py:") == 2

    def test_one_device(self, run, address):
        out = run("tensors", "--address", address, "--by", "device", "--device", "sim:0")[1]
        assert "cpu:0" not in out
        assert "total  512 KiB" in re.sub(" {2,}", "  ", out)

    def test_the_limit_leaves_a_row_for_the_rest(self, run, address):
        out = run("tensors", "--address", address, "--by", "device", "--limit", 1)[1]
        assert "(1 more; --limit 0 lists all)" in out
        assert "(1 more" not in run("tensors", "--address", address, "--by", "device", "--limit", 0)[1]

    def test_a_session_cannot_be_selected(self, run, address):
        code, _, err = run("tensors", "--address", address, "--by", "name", "--session", 1)
        assert code == 2
        assert "leave out --session" in err

    def test_sessions_tell_their_peak_and_what_they_alone_hold(self, run, address):
        ours, _ = json.loads(run("sessions", "--address", address, "--json")[1])
        assert ours["freed"] == {"sim:0": WEIGHTS}
        assert ours["peak"] == ours["bytes"] == 2 * WEIGHTS
        head, _, line, *_ = run("sessions", "--address", address)[1].strip().splitlines()
        found = dict(zip(cells(head), cells(line), strict=False))
        assert (found["bytes"], found["peak"], found["alone"]) == ("512 KiB", "512 KiB", "256 KiB")


ROW = {
    "key": "3",
    "what": "",
    "ended": True,
    "rest": 0,
    "bytes": 3 << 20,
    "count": 3,
    "age": 185.0,
    "youngest": 1.0,
    "devices": {"sim:0": 1 << 20, "cpu:0": 2 << 20},
    "sorts": {"tensor": 2 << 20, "temporaries": 1 << 20},
    "sessions": [4],
    "sessions_in_all": 3,
    "names": ["w"],
    "names_in_all": 1,
    "poisoned": 2,
    "poisoned_age": 720.0,
}
POOL = {
    "device": "cpu:0",
    "allocated": 4 << 20,
    "unaccounted": 1 << 20,
    "limit": 1 << 30,
    "rounding": 512,
    "cached": 3072,
    "cached_blocks": 2,
    "largest_cached": 2048,
    "run_arena": 1 << 20,
    "idle_arenas": [{"routine": "forward", "bytes": 4096}],
}


@pytest.mark.parametrize(
    ("still", "unaccounted", "line"),
    [
        (False, 1 << 20, "(taken or freed while this was counted)  1 MiB"),
        (False, -(1 << 20), "(taken or freed while this was counted)  -1 MiB"),
        (True, 1 << 20, "(unexplained)  1 MiB"),
    ],
)
def test_all_that_there_may_be_to_say_is_said(capsys, still, unaccounted, line):
    pool = POOL | {"unaccounted": unaccounted}
    show_held({"by": "session", "total": 4 << 20, "still": still, "rows": [ROW], "pools": [pool]})
    out = re.sub(" {2,}", "  ", capsys.readouterr().out)
    assert "3  temporaries" not in out
    assert "3  tensor 2 MiB, temporaries 1 MiB  3 MiB  75.0%  3  3 min 5 s  cpu:0 2 MiB, sim:0 1 MiB" in out
    assert "session 4 and 2 more; w  ended, 2 values with an error, since 12 min" in out
    assert line in out
    assert "total  4 MiB" in out
    assert (
        "cpu:0: 4 MiB of 1 GiB; its blocks have 512 B more; 3 KiB cached in 2 blocks, the largest of 2 KiB; "
        "1 MiB for small runs, which no limit counts; 4 KiB kept for the next run of forward" in out
    )
