"""The check before a start reports the errors of `serve`, and changes nothing."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.wire import keys
from tensord.streams import catalogue
from tensord.streams.cuda import kernel_cache
from tensord.vm.service import daemon, preflight
from tensord.vm.service.access.listen_address import ListenAddress
from tensord.vm.service.daemon import run
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.process.instance import Instance
from tensord.vm.service.settings.config import load

from ...daemon import Daemon

PRIVATE = 0o700


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of our own."""
    tmp_path.chmod(PRIVATE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv(kernel_cache.VARIABLE, "")
    return tmp_path


def given(home: Path, **settings: Any) -> Any:
    """A configuration that is fine but for these settings."""
    return load(None, {"addresses": [f"ipc://{home}/own/socket"], **settings})


def key_files(home: Path) -> dict[str, str]:
    """The security settings for a fresh pair of keys and an empty allow list."""
    _, secret = keys.create(home / "keys", "server")
    allow = home / "keys" / "allowed"
    allow.touch(0o600)
    return {"server_secret": str(secret), "allow": str(allow)}


def beyond_loopback(home: Path) -> Any:
    return given(home, addresses=["tcp://*:0"])


def one_key(home: Path) -> Any:
    return given(home, security={"server_secret": key_files(home)["server_secret"]})


def no_key_file(home: Path) -> Any:
    return given(home, security=key_files(home) | {"server_secret": str(home / "nowhere")})


def readable_key(home: Path) -> Any:
    security = key_files(home)
    Path(security["server_secret"]).chmod(0o644)
    return given(home, security=security)


def no_allow_list(home: Path) -> Any:
    return given(home, security=key_files(home) | {"allow": str(home / "nowhere")})


def shared_directory(home: Path) -> Any:
    (home / "own").mkdir(mode=0o755)
    return given(home)


def no_directory(home: Path) -> Any:
    return given(home, addresses=[f"ipc://{home}/not/there/socket"])


def file_in_the_way(home: Path) -> Any:
    (home / "own").mkdir(mode=PRIVATE)
    (home / "own" / "socket").touch()
    return given(home)


def log_in_no_directory(home: Path) -> Any:
    return given(home, log={"file": str(home / "not" / "there.log")})


def foreign_host(home: Path) -> Any:
    return given(home, addresses=["tcp://192.0.2.1:7700"], security=key_files(home))


def shared_kernels(home: Path) -> Any:
    (home / "kernels").mkdir()
    (home / "kernels").chmod(0o777)
    return given(home, devices=["cpu:0", "cuda:0"], kernel_cache=str(home / "kernels"))


REASONS = {
    beyond_loopback: "reachable from other machines",
    one_key: "go together",
    no_key_file: "No such file",
    readable_key: "may be read by others",
    no_allow_list: "No such file",
    shared_directory: "may be entered by others",
    no_directory: "cannot make the directory",
    file_in_the_way: "is not a socket",
    log_in_no_directory: "No such file",
    foreign_host: "cannot listen on",
    shared_kernels: "others may write there",
}


@pytest.mark.parametrize("case", REASONS, ids=lambda case: case.__name__)
@pytest.mark.parametrize("ask", [preflight.check, run], ids=["check", "serve"])
def test_what_cannot_start_is_found_by_the_check_and_by_serve(case: Any, ask: Any, home: Path) -> None:
    with pytest.raises((StartError, OSError), match=REASONS[case]):
        ask(case(home))


def test_a_device_that_does_not_open_is_found_by_both(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("no more threads")

    monkeypatch.setitem(catalogue.KINDS, "sim", replace(catalogue.KINDS["sim"], open=fail))
    for ask in (preflight.check, run):
        with pytest.raises(StartError, match="'sim:0' does not open: RuntimeError: no more threads"):
            ask(given(home, devices=["cpu:0", "sim:0"]))


@pytest.mark.parametrize("devices", [["cpu:0"], ["cpu:0", "cuda:0"]])
def test_the_directory_of_kernels_is_chosen_before_a_device_imports_cupy(
    home: Path, monkeypatch: pytest.MonkeyPatch, devices: list[str]
) -> None:
    seen = []

    def open_runtime(*_: object) -> Any:
        seen.append(os.environ[kernel_cache.VARIABLE])
        raise StartError("so far and no further")

    monkeypatch.setattr(daemon, "open_runtime", open_runtime)
    with pytest.raises(StartError, match="so far"):
        run(given(home, devices=devices, kernel_cache=str(home / "kernels")))
    assert seen == [str(home / "kernels") if "cuda:0" in devices else ""]
    assert (home / "kernels").exists() == ("cuda:0" in devices)


def left_in(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def test_the_check_leaves_nothing_behind(home: Path) -> None:
    log = home / "daemon.log"
    preflight.check(given(home, log={"file": str(log)}, devices=["cpu:0", "sim:0"]))
    assert left_in(home) == []
    log.write_text("kept\n")
    preflight.check(given(home, log={"file": str(log)}))
    assert log.read_text() == "kept\n"


@pytest.fixture
def taken() -> Iterator[int]:
    """A tcp port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_an_address_that_our_daemon_has_is_fine_and_one_of_another_program_is_not(home: Path, taken: int) -> None:
    config = given(home, addresses=[f"ipc://{home}/own/socket", f"tcp://127.0.0.1:{taken}"])
    with pytest.raises(StartError, match=r"cannot listen on .*: Address already in use"):
        preflight.check(config)
    with Instance(config.listen[0]), Instance(config.listen[1]):
        before = left_in(home)
        preflight.check(config)
        assert left_in(home) == before


@pytest.fixture
def without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose kernel knows no IPv6."""
    real = socket.socket

    def only_ipv4(family: Any = socket.AF_INET, *rest: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family, *rest)

    monkeypatch.setattr(socket, "socket", only_ipv4)


@pytest.mark.usefixtures("without_ipv6")
def test_without_ipv6_any_address_is_any_of_ipv4() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))  # noqa: S104 - the address in question
        port = other.getsockname()[1]
        taken = ListenAddress(f"tcp://*:{port}", f"tcp://*:{port}")
        with pytest.raises(StartError, match="Address already in use"):
            preflight.check_port(taken)
    preflight.check_port(taken)


@pytest.mark.usefixtures("without_ipv6")
def test_without_ipv6_one_of_its_addresses_cannot_be_had() -> None:
    with pytest.raises(StartError, match="cannot listen on tcp://localhost6:0: Address family not supported"):
        preflight.check_port(ListenAddress("tcp://localhost6:0", "tcp://[::1]:0"))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": "8 GiB", "devices": ["cpu:0", "sim:0"]}, []),
        ({"devices": [{"name": "cpu:0", "memory": "9 GiB"}]}, ["cpu:0 (its option memory) may take 9 GiB"]),
        (
            {"devices": [{"name": "sim:0", "memory": "8 GiB"}, {"name": "sim:1", "memory": "12 GiB"}]},
            ["sim:1 (its option memory) may take 12 GiB"],
        ),
        ({"memory": "64 GiB"}, ["the daemon (memory) may take 64 GiB"]),
    ],
)
def test_more_memory_than_there_is_makes_doubts(
    home: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], told: list[str]
) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: 8 << 30)
    found = preflight.start_warnings(given(home, **({"memory": "1 GiB"} | settings)))
    assert found == [f"{each}, and this machine or its control group has 8 GiB: set it lower" for each in told]


def test_what_only_clients_over_tcp_need_makes_doubts_without_tcp(home: Path) -> None:
    (home / "models").mkdir()
    settings: dict[str, Any] = {"files": [str(home / "models")], "memory": "1 GiB"}
    assert preflight.start_warnings(given(home, **settings)) == ["files is for clients over tcp, but no address is tcp"]
    assert preflight.start_warnings(given(home, addresses=["tcp://127.0.0.1:7700"], **settings)) == []


def test_a_daemon_with_doubts_says_so_at_its_start(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('devices = ["cpu:0", {name = "sim:0", memory = "4096 TiB"}]\n')
    with Daemon.start(tmp_path, "--config", str(config)) as daemon:
        assert "sim:0 (its option memory) may take 4,096 TiB" in daemon.log
