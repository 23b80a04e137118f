"""Metrics are offered on this machine, or with a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.metrics.endpoint import Endpoint, read_token

from ...each_case import each_case

TOKEN = "0123456789abcdef"  # noqa: S105 - of a test


@each_case(
    ("text", "host", "port", "local"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.9.9.9:0", "127.9.9.9", 0, True),
        ("[::1]:9464", "::1", 9464, True),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),  # noqa: S104 - not bound
        ("[::]:9464", "::", 9464, False),
        ("*:9464", "", 9464, False),
        ("192.0.2.1:9464", "192.0.2.1", 9464, False),
    ],
)
def test_a_host_and_a_port(text: str, host: str, port: int, local: bool) -> None:
    found = Endpoint.of(text)
    assert (found.host, found.port, found.local, found.path) == (host, port, local, "")


def test_a_socket_is_local() -> None:
    assert Endpoint.of("unix:/run/m.sock") == ("unix:/run/m.sock", "/run/m.sock", "", 0, True)


@each_case(
    "text",
    ["", "9464", ":9464", "host:", "127.0.0.1:99999", "unix:", "unix:a/b", "unix:/a/", "unix:/" + "a" * 200],
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(MetadataError, match=r"write (\"HOST:PORT\"|unix:)"):
        Endpoint.of(text)


def test_beyond_the_machine_a_token_is_needed(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="reachable from other machines"):
        Endpoint.of("0.0.0.0:9464").require(None)
    Endpoint.of("0.0.0.0:9464").require(tmp_path)
    Endpoint.of("127.0.0.1:9464").require(None)


def test_a_token_is_a_line_that_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o640)
    with pytest.raises(MetadataError, match="chmod 600"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN


@each_case("content", [b"", b"\n", b"short", b"with two words in it", b"x" * 5000, "ä".encode() * 20, b"\xff" * 20])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(MetadataError, match="has no token"):
        read_token(file)


def test_a_token_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="openssl rand"):
        read_token(tmp_path / "missing")
