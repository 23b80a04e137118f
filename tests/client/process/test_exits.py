"""A program that ends without closing its sessions: the daemon sees them close; names of programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.names import MAX_NAME_LENGTH, clean, program_name

from ...daemon import Daemon
from ...each_case import each_case
from ...forked import run_script
from ...puppet import eventually

UNCLOSED = "import os, sys, tensord as td\ns = td.connect(sys.argv[1])\nx = s.asarray([1.0])\nx.wait()\n"
STUCK = "import threading\nheld = s._core.outbox.lock\nthreading.Thread(target=held.acquire, daemon=True).start()\n"
FORKED = """
import warnings
warnings.simplefilter("ignore")  # of forks with threads
pid = os.fork()
if not pid: sys.exit()
os.waitpid(pid, 0)
assert x.tolist() == [1.0]
"""
FAILS = "raise SystemExit(3)\n"


# A child of multiprocessing that ends without closing its session; with a thread that outlives the child's function.
CHILD = """
import multiprocessing, sys, threading, warnings, tensord as td

def work(address, more):
    s = td.connect(address)
    x = s.asarray([1.0])
    x.wait()
    s.print("printed", x + 1)
    begin = threading.Event()

    def outlive():
        begin.wait()
        print("outlived", x.tolist())

    if more:
        threading.Thread(target=outlive).start()
        begin.set()

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of forks with threads
    with td.connect("local") as mine:
        mine.asarray([1.0]).wait()
        child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(sys.argv[1], len(sys.argv) > 3))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


def run(daemon: Daemon, code: str) -> subprocess.CompletedProcess[str]:
    """Run code as a script, with the daemon's address as its argument."""
    (daemon.directory / "script.py").write_text(code)
    return run_script(str(daemon.directory / "script.py"), daemon.address)


def endings(daemon: Daemon) -> list[str]:
    return [line for line in daemon.log.splitlines() if "session closed" in line]


@each_case(
    ("code", "status"),
    [(UNCLOSED + FAILS, 3), (UNCLOSED + FORKED, 0), (UNCLOSED + "1/0", 1)],
    ids=["exit", "fork", "error"],
)
def test_the_end_of_the_interpreter_closes_the_session(daemon: Daemon, code: str, status: int) -> None:
    before = len(endings(daemon))
    assert run(daemon, code).returncode == status
    eventually(lambda: len(endings(daemon)) > before)
    (line,) = endings(daemon)[before:]
    assert "closed by its client" in line


@pytest.mark.parametrize("start", ["spawn", "fork and outlived"])
def test_the_end_of_a_child_of_multiprocessing_closes_its_session(daemon: Daemon, tmp_path: Path, start: str) -> None:
    before = len(endings(daemon))
    done = child(tmp_path, daemon.address, *start.split(" and "))
    assert "printed [2.]" in done.stdout
    assert ("outlived [1.0]" in done.stdout) == ("outlived" in start)
    eventually(lambda: len(endings(daemon)) > before)
    (line,) = endings(daemon)[before:]
    assert "closed by its client" in line


def test_the_end_of_a_child_of_multiprocessing_finishes_the_prints_of_its_own_machine(tmp_path: Path) -> None:
    assert "printed [2.]" in child(tmp_path, "local", "fork").stdout


def child(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose child of multiprocessing makes a session; the child's status is the program's."""
    (directory / "program.py").write_text(CHILD)
    done = run_script(str(directory / "program.py"), *arguments)
    done.check_returncode()
    return done


def test_the_end_does_not_wait_for_a_thread_that_holds_on_to_a_session(daemon: Daemon) -> None:
    assert run(daemon, UNCLOSED + STUCK).returncode == 0


def python(*arguments: str, folder: Path) -> str:
    """The output of a program, which can also import modules from the folder."""
    command = [sys.executable, "-W", "ignore", *arguments]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    return done.stdout.strip()


@each_case("way", ["script", "module", "code"])
def test_a_program_is_called_after_its_script(way: str, tmp_path: Path) -> None:
    code = "from tensord.interpreter.wire.names import program_name\nprint(program_name())"
    (tmp_path / "my_job.py").write_text(code)
    (tmp_path / "pack").mkdir(exist_ok=True)
    (tmp_path / "pack" / "__main__.py").write_text(code)
    arguments = {"script": [str(tmp_path / "my_job.py")], "module": ["-m", "pack"], "code": ["-c", code]}[way]
    assert python(*arguments, folder=tmp_path) == {"script": "my_job.py", "module": "pack", "code": "-c"}[way]


@pytest.mark.parametrize("engine", ["vm", "serial"])
def test_on_local_machines_too_sessions_have_the_programs_names_and_the_log_tells_them(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with td.connect("local:named", engine=engine, name="the trainer") as first, td.connect("local:named") as second:
        if engine == "vm":
            assert [row["name"] for row in second._core.answers.query("sessions")] == ["the trainer", program_name()]
        first.xp.linalg.inv(first.asarray(np.zeros((2, 2))))
        first.sync()
    assert "name='the trainer' op='inv' session=1" in caplog.text


def test_a_session_may_be_given_a_name(daemon: Daemon) -> None:
    with daemon.connect(name="the trainer") as session:
        assert session._core.answers.query("sessions")[-1]["name"] == "the trainer"
    with td.connect("local", name="the same program without a daemon") as session:
        assert [row["name"] for row in session._core.answers.query("sessions")] == ["the same program without a daemon"]


@each_case("name", ["", "  ", "a\nb", "\x1b[31m", "x" * (MAX_NAME_LENGTH + 1), 7])
def test_a_name_that_nobody_could_read_is_refused(name: object) -> None:
    with pytest.raises(td.MetadataError, match="name= must be a printable text"):
        td.connect("local", name=name)  # type: ignore[arg-type]


def test_a_name_from_outside_is_cleaned() -> None:
    assert clean("a\nb\x1b[2J" + "x" * 100) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J" + "x" * 57
    assert clean("bad\udcff") == "bad\N{REPLACEMENT CHARACTER}"
    assert clean("trainer 7 \N{GREEK SMALL LETTER ALPHA}") == "trainer 7 \N{GREEK SMALL LETTER ALPHA}"
