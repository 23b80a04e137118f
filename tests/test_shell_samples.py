"""The commands that documents show are run, against a daemon with clients, and print the output shown."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from doctest import ELLIPSIS, OutputChecker
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

import tensord as td
from tensord.client.cli.application import application
from tensord.client.cli.main import main
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.types.meta import Meta

from .daemon import Daemon
from .each_case import each_case
from .pages import ROOT
from .shell_samples import DOCUMENTS, NOT_RUN, samples_of

SAMPLES = [sample for page in DOCUMENTS for sample in samples_of(page)]
TRAIN = """
x = session.asarray(np.ones((2, 2), np.float32))
w = session.asarray(np.ones((2, 2), np.float32), device="sim:0")
session.publish("weights", w)
for _ in range(200):
    x = x + w
    x = x * w
session.sync()
"""
STEP = """
w, x = s.asarray(np.ones((256, 256))), s.asarray(np.ones((256, 256)))

@s.routine
def step(w, x):
    y = x @ w
    w -= 0.1 * y
    return (y * y).sum()

for _ in range(3):
    step(w, x)
s.sync()
"""
TOOLS = {
    "tensord": f'exec {sys.executable} -m tensord.client.cli "$@"',
    "python": f'exec {sys.executable} "$@"',
    "dot": "cat",  # Graphviz, which is not everywhere
}
USUAL_RUNTIME = "/run/user/1000"  # as the pages show it
PROGRAM = "import tensord as td\nwith td.connect() as s:\n    (s.asarray(1.0) + 1).numpy()\n"
# Columns that are left out where all their cells are empty, as they may be with our clients.
MAY_BE_EMPTY = {
    "pending",
    "names",
    "held",
    "moved",
    "remark",
    "blocked",
    "waits for",
    "what to do",
    "moving",
    "GFLOP/s",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon with two clients, one of which trains and publishes its weights."""
    with (
        Daemon.start(tmp_path_factory.mktemp("daemon"), "--device", "cpu:0", "--device", "sim:0") as daemon,
        daemon.connect(name="train.py") as session,
        daemon.connect(name="watch.py"),
    ):
        kept = {"session": session, "np": np}  # with the tensors that the program makes
        exec(compile(TRAIN, "train.py", "exec"), kept)  # noqa: S102 - our own program
        yield daemon.address


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace in a file; and one of a routine, whose third run is #11."""
    path = tmp_path_factory.mktemp("saved") / "run.trace"
    with td.connect("local", devices=["cpu:0"], detail=1) as session:
        kept = {"s": session, "np": np}
        exec(compile(STEP, "train.py", "exec"), kept)  # noqa: S102 - our own program
        session.trace().save(path.with_name("step.trace"))
        with session.record(path.with_name("bug.rec")):
            exec(compile(STEP, "train.py", "exec"), kept)  # noqa: S102 - our own program
    with td.connect("local", devices=["cpu:0", "sim:0"]) as session:
        x = session.asarray(np.ones((256, 256), np.float32), device="sim:0")
        session.publish("weights", x)
        ((session.xp.sum(x) + x) * 2).numpy()
        session.trace().save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory and home of a sample, with the files that samples name. No daemon runs there."""
    for name in ("run.trace", "before.trace", "after.trace", "hang.trace"):
        shutil.copy(saved, tmp_path / name)
    shutil.copy(saved.with_name("step.trace"), tmp_path)
    shutil.copy(saved.with_name("bug.rec"), tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples/power.txt", tmp_path / "examples")
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0, 3.0]))
    save_file({"l.0.w": np.ones((4, 4), np.float32), "l.0.b": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    damaged_checkpoints(tmp_path / "checkpoints")
    tools = tmp_path / "tools"
    for directory in (tools, tmp_path / "runtime", tmp_path / ".config/fish/completions", tmp_path / ".config/tensord"):
        directory.mkdir(mode=0o700, parents=True)
    for configuration in (tmp_path / "tensord.toml", tmp_path / ".config/tensord/tensord.toml"):
        shutil.copy(ROOT / "deploy/tensord.toml", configuration)
    for name, script in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o700)
    monkeypatch.chdir(tmp_path)
    for name, value in {"HOME": tmp_path, "XDG_RUNTIME_DIR": tmp_path / "runtime"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)


def damaged_checkpoints(path: Path) -> None:
    """Two generations, the last of which has lost the values that are new in it."""
    meta = Meta.of((3,), "float64")
    with CheckpointDirectory.open(path, create=True) as directory:
        writer = directory.begin()
        kept = writer.write("a", meta, np.ones(3))
        writer.commit()
        writer = directory.begin()
        writer.keep("a", kept)
        lost = writer.write("b", meta, np.ones(3))
        writer.commit()
    os.truncate(path / f"values-{lost.file:016x}", 0)


def as_run(command: str) -> str:
    """The command in a form that ends soon: a daemon only checks its settings, and recordings are short."""
    command = command.removeprefix(".venv/bin/").removesuffix("&").strip().replace("--for 10s", "--for 50ms")
    command = re.sub(r"why \d{4,}", "why 111", command)
    if command.startswith("tensord serve") and "--check-config" not in command:
        return f"{command} --check-config"
    return command


def outcome(command: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run it, in this process unless it needs a shell: its exit code, and its output."""
    if re.search(r"[|>$]|^(?!tensord )", command):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603, S607 - our own documents
        return done.returncode, done.stdout + done.stderr
    with pytest.raises(SystemExit) as left:
        main([os.path.expanduser(word) for word in shlex.split(command)[1:]])  # noqa: PTH111 - as a shell would
    printed = capfd.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, printed.out + printed.err


def heads(lines: Sequence[str]) -> list[set[str]]:
    """The names of the columns of each table."""
    below = pairwise(lines)
    return [set(re.split(r"  +", head.strip())) for head, rule in below if rule.strip() and not rule.strip(" \u2500")]


def words_of(lines: Sequence[str]) -> list[str]:
    """The lines that have words, without the space around them."""
    return [line.strip() for line in lines if line.strip()]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if not sample.reason], ids=str)
def test_a_sample_prints_what_is_shown(sample, address, monkeypatch, capfd):
    fails = bool(sample.output) and sample.output[0].startswith(("tensord: ", '{"error"'))
    alone = re.search("serve|serial", sample.command) or (fails and "no daemon" in sample.output[0])
    if not alone:
        monkeypatch.setenv("TENSORD_ADDRESS", address)
    code, printed = outcome(as_run(sample.command), capfd)
    lines = printed.replace(os.environ["XDG_RUNTIME_DIR"], USUAL_RUNTIME).splitlines()
    if fails:
        assert (code, lines) == (2 if "ops" in sample.command else 1, list(sample.output))
        return
    assert code == 0 or "doctor" in sample.command, printed
    if sample.command.startswith("tensord ops"):
        assert OutputChecker().check_output("\n".join(sample.output), "\n".join(words_of(lines)), ELLIPSIS)
    for shown in heads(sample.output):
        found = [head for head in heads(lines) if shown & head]
        assert any(shown <= head | MAY_BE_EMPTY for head in found), f"{shown} are not the columns of {found}"
    for line in sample.output:
        words = re.match(r"\s*([a-z]+)  +\S", line)  # a label before a value
        if not heads(sample.output) and words:
            assert re.search(rf"^\s*{words[1]}\b", printed, re.MULTILINE), f"{sample.command} has no line {words[1]!r}"


def test_samples_are_found_in_all_kinds_of_pages():
    pages = {sample.page.relative_to(ROOT).as_posix() for sample in SAMPLES}
    assert {"README.md", "CONTRIBUTING.md", "docs/cli.md", "docs/tracing.md", "docs/service.md"} <= pages
    assert {"deploy/README.md", "examples/README.md", "bench/README.md"} <= pages
    assert sum(not sample.reason for sample in SAMPLES) > 40


@each_case("pattern", NOT_RUN)
def test_what_is_not_run_is_in_some_page(pattern):
    assert any(re.match(pattern, sample.command) for sample in SAMPLES)


COMMANDS = re.compile(r"`tensord ([a-z]+(?: [a-z]+)?)([^`]*)`")


@each_case("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_sentences_exist_with_their_options(page):
    for words, rest in COMMANDS.findall(page.read_text()):
        command: click.Command = application
        for word in words.split():
            if isinstance(command, click.Group):
                found = command.get_command(click.Context(command), word)
                assert found is not None, f"there is no `tensord {words}`"
                command = found
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest.partition("|")[0])) <= known, f"tensord {words}{rest}"
