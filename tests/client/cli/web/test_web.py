"""`tensord web` as a command of the user."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import tensord as td
from tensord.client.cli.web import web as command
from tensord.client.cli.web.opened import OpenedTrace
from tensord.client.cli.web.source import UnknownError
from tensord.interpreter.errors import MetadataError
from tensord.vm.tracing.analysis.trace import Trace

from ....daemon import Daemon
from ....each_case import each_case

aiohttp: Any = pytest.importorskip("aiohttp")

GIB = 1 << 30
PATIENCE = 60.0


@pytest.fixture(scope="module")
def trace() -> Trace:
    """The trace of a small program."""
    with td.connect("local", devices=["cpu:0"]) as session:
        x = session.asarray([1.0, 2.0])
        for _ in range(20):
            x = x + 1
        session.sync()
        return session.trace()


@pytest.fixture
def file(trace: Trace, tmp_path: Path) -> Path:
    path = tmp_path / "run.trace"
    trace.save(path)
    return path


def test_without_the_extra_it_says_how_to_install_it(run: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert run("web", file) == (1, "", f"tensord: {command.EXTRA}\n")


def test_without_a_daemon_it_says_so(run: Any, tmp_path: Path) -> None:
    code, out, err = run("web", "--address", f"ipc://{tmp_path}/socket")
    assert (code, out) == (1, "")
    assert "no daemon listens" in err


def test_a_port_that_is_taken_is_named(run: Any, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = run("web", file, "--port", port)
    assert (code, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}: " in err
    assert "--port 0 takes a free port" in err


def test_a_host_that_does_not_exist_is_named(run: Any, file: Path) -> None:
    code, _, err = run("web", file, "--host", "no.such.host.invalid")
    assert code == 1
    assert "cannot listen on no.such.host.invalid:9465" in err


def test_others_must_not_read_the_file_with_the_token(run: Any, file: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o644)
    code, _, err = run("web", file, "--token-file", token)
    assert code == 1
    assert "chmod 600" in err


@each_case(
    ("damage", "complaint"),
    [
        (lambda body: body[:-40], "it was cut short"),
        (lambda body: body.replace(b'"version":6', b'"version":99'), "trace version 99"),
        (lambda _body: b"# a program\n", "not a line of JSON"),
        (lambda _body: b"", "it was cut short"),
    ],
)
def test_a_damaged_file_or_one_of_another_version_is_told(
    run: Any, file: Path, trace: Trace, damage: Any, complaint: str
) -> None:
    trace.save(file)
    file.write_bytes(damage(file.read_bytes()))
    code, out, err = run("web", file)
    assert (code, out) == (1, "")
    assert complaint in err


def test_a_file_that_is_not_there_is_told(run: Any, tmp_path: Path) -> None:
    code, _, err = run("web", tmp_path / "none.trace")
    assert code == 1
    assert "No such file" in err


def test_the_page_is_opened_with_its_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command.announce("http://127.0.0.1:1/", "secret", opens=True)
    assert opened == ["http://127.0.0.1:1/?token=secret"]
    assert "open http://127.0.0.1:1/?token=secret\n" in capsys.readouterr().out


def test_an_address_of_all_devices_is_shown_as_one_that_can_be_opened() -> None:
    assert command.shown("127.0.0.1") == "127.0.0.1"
    assert command.shown("::1") == "[::1]"
    assert command.shown("0.0.0.0") == socket.gethostname()  # noqa: S104 - not listened on
    with command.listen("localhost", 0) as listening, pytest.raises(MetadataError, match="--port 0"):
        command.listen("localhost", listening.getsockname()[1])


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_trace_is_shown_and_asked_about(file: Path, trace: Trace) -> None:
    opened = OpenedTrace(file)
    view = json.loads(opened.history())
    assert [row[0] for row in view["records"]] == [record.id for record in trace.records]
    assert opened.why(trace.records[-1].id) == trace.why(trace.records[-1])
    with pytest.raises(UnknownError, match="no record of #987"):
        opened.why(987)
    assert opened.advice()["records"] == len(trace)
    row = view["tensors"][0]
    assert opened.tensor(row["id"], row["session"])["tensor"]["residency"] == {"cpu:0": "valid"}
    with pytest.raises(UnknownError, match="no copy 987"):
        opened.tensor(987, row["session"])


def test_of_a_file_of_ten_gibibytes_the_end_is_shown(file: Path, trace: Trace) -> None:
    """The file's middle is a hole, so the file takes no room here."""
    head, *lines = file.read_bytes().splitlines(keepends=True)
    records, rest = len(trace), lines[len(trace) :]
    with file.open("wb") as large:
        large.write(head.replace(b'"records":%d' % records, b'"records":40000000'))
        large.seek(10 * GIB)
        large.write(b"\n" + b"".join(lines[:records] + rest[:-1]) + b'{"records":40000000,"sha256":""}\n')
    opened = OpenedTrace(file)
    assert opened.note.startswith("39,999,97")
    assert "older records are left out, since the file has more than 64 MiB" in opened.note
    view = json.loads(opened.history())
    assert view["about"]["sampled"] == {"shown": records, "of": 40_000_000}
    assert view["about"]["note"] == opened.note
    assert all(view["texts"][mark] != "missing" for *_, mark in view["edges"])


# -- the process -------------------------------------------------------------------------------------------------------


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """`tensord web` with these arguments, and its output."""
    line = [sys.executable, "-m", "tensord.client.cli", "web", "--port", "0", "--json", *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()
        assert process.wait(20) == 0


def test_a_file_is_served_until_sigterm(file: Path) -> None:
    with serving(str(file)) as (_, told):
        with urlopen(told["url"]) as page:  # noqa: S310 - ours
            assert b"<!DOCTYPE html>" in page.read()
        with pytest.raises(HTTPError, match="401"):
            urlopen(told["address"])  # noqa: S310


async def views_of(told: Any, daemon: Daemon, again: Any) -> tuple[int, int]:
    """Watch while a daemon works, ends, and another one works; the numbers of the two."""

    async def until(page: Any, wanted: Any) -> Any:
        while not wanted(found := json.loads(await page.receive_str())):
            pass
        return found

    def has_ops(found: Any) -> bool:
        view = found.get("view")
        return view is not None and any(view["texts"][row[5]] == "add" for row in view["records"])

    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {told['token']}"}) as client,
        client.ws_connect(told["address"] + "api/views") as page,
    ):
        assert json.loads(await page.receive_str())["state"] == "connected"
        work(daemon)
        first = (await until(page, has_ops))["view"]
        id_ = first["records"][-1][0]
        async with client.get(f"{told['address']}api/why/{id_}") as answer:
            assert f"#{id_} " in (await answer.json())["text"]
        daemon.kill()
        assert "does not answer" in (await until(page, lambda found: found.get("state") == "waiting"))["message"]
        work(again())
        second = (await until(page, has_ops))["view"]
    return first["about"]["run"], second["about"]["run"]


def work(daemon: Daemon) -> None:
    with daemon.connect() as session:
        x = session.asarray([1.0]) + 1
        session.sync()
        assert x.is_ready()


def test_a_daemon_is_watched_through_its_end_and_its_return(tmp_path: Path) -> None:
    daemons = [Daemon.start(tmp_path)]

    def again() -> Daemon:
        daemons.append(Daemon.start(tmp_path, address=daemons[0].address))
        return daemons[-1]

    try:
        with serving("--address", daemons[0].address) as (_, told):
            runs = asyncio.run(asyncio.wait_for(views_of(told, daemons[0], again), PATIENCE))
        assert runs == (1, 2)
    finally:
        for daemon in daemons:
            daemon.__exit__(None, None, None)
