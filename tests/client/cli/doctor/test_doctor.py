"""`tensord doctor`: each trouble is found, with a remedy."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tensord.client.cli.doctor import daemon as of_daemon
from tensord.client.cli.doctor import doctor as cli_doctor
from tensord.client.cli.doctor import gpu as doctor_gpu
from tensord.client.cli.doctor import system
from tensord.client.cli.doctor.findings import CheckResult, Level, installed
from tensord.client.cli.doctor.gpu import check_kernels
from tensord.interpreter.wire.addresses import PATH_LIMIT, lock_path
from tensord.vm.reporting.rows.eviction import NO_EVICTION

from ....each_case import each_case


@pytest.fixture
def home(monkeypatch):
    """An empty runtime directory; its path is short, as a socket's has to be."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    with tempfile.TemporaryDirectory(prefix="td-") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        made = Path(directory) / "tensord"
        made.mkdir(mode=0o700)
        yield made


def findings(address: str | None = None) -> dict[str, CheckResult]:
    """The findings about the daemon, by check."""
    return {one.check: one for one in of_daemon.check_daemon(address)}


def make_stale(path: Path) -> None:
    """A socket file without a listener."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


@contextmanager
def held(address: str, pid: str = ""):
    """Hold that address, as a daemon does."""
    with lock_path(address).open("w") as lock:
        lock.write(pid)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


STATUS: dict[str, Any] = {
    "pid": 1,
    "uptime": 5.0,
    "sessions": 1,
    "version": installed("tensord"),
    "devices": {"cpu:0": {"used": 1, "limit": 100, "cached": 0, "eviction": NO_EVICTION, "lost": ""}},
    "descriptors": {"open": 30, "limit": 4096},
    "files": {"loaded": 0, "changed": []},
    "checkpoints": [],
    "hung": [],
    "trace": {"enabled": True},
}


@pytest.mark.usefixtures("home")
class TestCommand:
    def test_it_works_with_no_daemon(self, run, home):
        code, out, err = run("doctor")
        assert (code, err) == (0, "")
        assert f"none at ipc://{home}/socket" in out
        assert "tensord serve" in out
        for check in ("numpy", "pyzmq", "libzmq", "msgpack", "curve", "memory files", "open files", "gpu"):
            assert check in out

    def test_for_programs(self, run):
        found = json.loads(run("doctor", "--json")[1])
        assert all(set(one) == {"check", "level", "message", "advice"} for one in found)
        assert all(one["advice"] for one in found if one["level"] in {"warn", "fail"})

    def test_what_is_wrong_makes_it_exit_with_1(self, run, home):
        home.chmod(0o755)
        code, out, _ = run("doctor")
        assert code == 1
        assert f"chmod 700 {home}" in out
        assert "1 problem" in out

    def test_a_check_that_fails_is_a_finding(self, run, monkeypatch):
        monkeypatch.setattr(cli_doctor, "SYSTEM", (lambda: 1 / 0,))
        code, out, _ = run("doctor")
        assert code == 0
        assert "could not be checked (ZeroDivisionError" in out


@pytest.mark.usefixtures("home")
class TestDirectoryAndSocket:
    @pytest.mark.parametrize(("value", "what"), [(None, "is unset"), ("relative", "is a relative path")])
    def test_no_runtime_directory(self, monkeypatch, value, what):
        if value is None:
            monkeypatch.delenv("XDG_RUNTIME_DIR")
        else:
            monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        found = findings()["XDG_RUNTIME_DIR"]
        assert found.level is Level.NOTE
        assert what in found.message

    @each_case("mode", [0o750, 0o701, 0o600, 0o500])
    def test_a_wrong_mode(self, home, mode):
        home.chmod(mode)
        found = findings()["directory"]
        assert (found.level, found.advice) == (Level.FAIL, f"chmod 700 {home}")

    def test_elsewhere_a_wrong_mode_is_a_warning(self, home):
        home.chmod(0o750)
        assert findings(f"ipc://{home}/other")["directory"].level is Level.WARN

    def test_a_wrong_owner(self, home, monkeypatch):
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        (found,) = of_daemon.check_directory(home, default=True)
        assert found.level is Level.FAIL
        assert "not to this user (12345)" in found.message

    def test_a_file_in_the_place_of_the_directory_or_the_socket(self, home):
        (home / "socket").write_text("")
        assert findings()["socket"] == CheckResult(
            "socket", Level.FAIL, f"{home / 'socket'} is not a socket", f"rm {home / 'socket'}"
        )
        assert findings(f"ipc://{home}/socket/x")["directory"].level is Level.FAIL

    def test_a_path_that_is_too_long(self, monkeypatch):
        monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/" + "x" * PATH_LIMIT)  # noqa: S108 - never made
        found = findings()["address"]
        assert found.level is Level.FAIL
        assert str(PATH_LIMIT) in found.message + found.advice

    def test_what_is_no_address(self):
        assert findings("nonsense")["address"].level is Level.FAIL
        assert findings("tcp://*:7700")["address"].level is Level.FAIL

    def test_a_host_that_is_not_known(self, monkeypatch):
        def unknown(*_arguments, **_options):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        found = findings("tcp://nowhere:7700")["address"]
        assert found.level is Level.FAIL
        assert "'nowhere' is neither an IP address, an interface nor a known host" in found.message

    def test_a_stale_socket(self, home):
        make_stale(home / "socket")
        found = findings()["daemon"]
        assert found.level is Level.WARN
        assert "is stale" in found.message
        assert f"rm {home / 'socket'}" in found.advice

    def test_a_daemon_that_gives_no_answer(self, home, monkeypatch):
        def silent(_address: str) -> None:
            raise ConnectionRefusedError(111, "refused")

        monkeypatch.setattr(of_daemon, "_status", silent)
        make_stale(home / "socket")
        with held(f"ipc://{home}/socket", "4711"):
            found = findings()["daemon"]
        assert found.level is Level.FAIL
        assert "process 4711" in found.message
        assert "kill 4711" in found.advice

    def test_a_daemon_that_is_well(self, home, monkeypatch):
        monkeypatch.setattr(of_daemon, "_status", lambda _: STATUS)
        monkeypatch.setattr(of_daemon, "check_memory", lambda _: ())
        monkeypatch.setattr(of_daemon, "check_plugins", lambda _: ())
        make_stale(home / "socket")
        with held(f"ipc://{home}/socket"):
            found = findings()
        assert {one.level for one in found.values()} == {Level.OK}
        assert found["versions"].message.startswith("daemon and client are both ")


class TestWhatADaemonSays:
    @each_case(
        ("change", "check", "level", "message"),
        [
            ({"version": "9.9"}, "versions", Level.WARN, "the daemon is 9.9"),
            (
                {"devices": {"cuda:0": {"used": 1, "limit": 9, "lost": "sticky"}}},
                "cuda:0",
                Level.FAIL,
                "is lost: sticky",
            ),
            ({"devices": {"cpu:0": {"used": 99, "limit": 100, "lost": ""}}}, "cpu:0", Level.WARN, "95 %"),
            (
                {"hung": [{"instruction": 7, "op": "add", "stream": "cpu:0/compute0", "seconds": 9.0}]},
                "hanging kernel",
                Level.FAIL,
                "#7 add has been running for 9 s",
            ),
            (
                {"devices": {"store:0": {"used": 96 << 20, "limit": 100 << 20, "eviction": NO_EVICTION, "lost": ""}}},
                "store:0",
                Level.WARN,
                "its quota is nearly used up by what left the host: 96 MiB of 100 MiB",
            ),
            (
                {"files": {"loaded": 1, "changed": ["/data/model.safetensors"]}},
                "files",
                Level.WARN,
                "/data/model.safetensors has changed since tensors were loaded from it",
            ),
            (
                {"durable": {"directory": "/d", "failure": "/d: No space left on device"}},
                "durable names",
                Level.FAIL,
                "the latest values are not on the disk: /d: No space left on device",
            ),
            ({"trace": {"enabled": False}}, "trace", Level.NOTE, "off"),
            ({"descriptors": {"open": 3900, "limit": 4096}}, "open files", Level.WARN, "has 3,900 of 4,096 open"),
        ],
    )
    def test_trouble(self, change, check, level, message):
        found = {one.check: one for one in of_daemon.check_status(STATUS | change)}
        assert found[check].level is level
        assert message in found[check].message
        assert found[check].advice


def test_tensors_that_go_round_are_named_with_what_to_do() -> None:
    row = {"names": ["w"], "session": 3, "op": "upload", "location": "train.py:5 in <module>", "bytes": 1 << 20}
    (found,) = of_daemon.check_eviction([row | {"returns": 1200, "device": "cuda:0"}])
    assert found.level is Level.WARN
    assert found.message == (
        "1 MiB by upload at train.py:5 in <module> (session 3, named 'w') left cuda:0 for lack of memory and came back "
        "1,200 times"
    )
    assert "more memory" in found.advice
    assert "pin" in found.advice


class TestGpu:
    @pytest.fixture
    def machine(self, monkeypatch):
        """machine(cards, nodes, driver, cupy): the hardware and software that the doctor sees."""

        def make(
            cards: int, nodes: list[str], driver: object = (12_080, ""), cupy: dict[str, str] | None = None
        ) -> None:
            there = cupy or {}
            monkeypatch.setattr(doctor_gpu, "nvidia_cards", lambda: cards)
            monkeypatch.setattr(Path, "glob", lambda _self, _pattern: map(Path, nodes))
            monkeypatch.setattr(doctor_gpu, "driver_version", lambda: driver)
            monkeypatch.setattr(doctor_gpu, "installed", there.get)
            monkeypatch.setattr(os, "access", lambda path, _mode: "closed" not in str(path))
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

        return make

    def found(self) -> list[tuple[str, str]]:
        return [(one.check, one.message) for one in doctor_gpu.check_gpu() if one.level is not Level.OK]

    def test_none(self, machine):
        machine(0, [])
        assert self.found() == [("gpu", "no NVIDIA GPU in this machine; cpu and sim devices work")]

    def test_a_card_without_device_files(self, machine):
        machine(1, [], (None, "libcuda.so.1 cannot be loaded (no such file)"))
        assert [check for check, _ in self.found()] == ["gpu", "nvidia driver"]

    def test_device_files_that_are_closed_to_us(self, machine, monkeypatch):
        machine(1, ["/dev/nvidia0"], cupy={"cupy-cuda12x": "13"})
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert self.found()[0] == ("gpu", "no permission to use /dev/nvidiactl, /dev/nvidia0")

    def test_no_cupy(self, machine):
        machine(1, ["/dev/nvidia0"])
        (found,) = [one for one in doctor_gpu.check_gpu() if one.check == "cupy"]
        assert found.advice == 'pip install "tensord[cuda12]"'

    def test_cupy_for_another_cuda(self, machine):
        machine(1, ["/dev/nvidia0"], cupy={"cupy-cuda13x": "13.6"})
        assert self.found() == [("cupy", "cupy-cuda13x 13.6 is for a newer CUDA than the driver's 12")]

    def test_several_cupys(self, machine):
        machine(1, ["/dev/nvidia0"], cupy={"cupy-cuda12x": "13", "cupy-cuda13x": "13"})
        assert self.found() == [("cupy", "several are installed: cupy-cuda12x 13, cupy-cuda13x 13")]

    def test_hidden(self, machine, monkeypatch):
        machine(1, ["/dev/nvidia0"])
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert ("gpu", "CUDA_VISIBLE_DEVICES hides every GPU") in self.found()

    def test_cards_on_the_bus(self, tmp_path):
        for number, (vendor, kind) in enumerate(
            [("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x1002", "0x030000")]
        ):
            device = tmp_path / str(number)
            device.mkdir()
            (device / "vendor").write_text(vendor)
            (device / "class").write_text(kind)
        assert doctor_gpu.nvidia_cards(tmp_path) == 1
        assert doctor_gpu.nvidia_cards(tmp_path / "none") == 0


class TestSystem:
    @pytest.mark.parametrize(
        ("limits", "level", "told"),
        [
            ((256, 8192), Level.OK, "at most 8,192 for a daemon, 256 for a client"),
            (
                (256, 1024),
                Level.WARN,
                "at most 1,024 for a daemon, 256 for a client; shared memory takes one per block",
            ),
            ((-1, -1), Level.OK, "no limit for a daemon"),
        ],
    )
    def test_open_files_are_judged_by_the_limit_that_a_daemon_will_have(self, monkeypatch, limits, level, told):
        limited = {resource.RLIMIT_NOFILE: limits}
        monkeypatch.setattr(resource, "getrlimit", lambda which: limited.get(which, (-1, -1)))
        found = next(one for one in system.check_limits() if one.check == "open files")
        assert (found.level, found.message) == (level, told)
        assert ("LimitNOFILE=" in found.advice) == (level is Level.WARN)

    def test_no_memory_files(self, monkeypatch):
        def refuse(*_: object) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "memfd_create", refuse)
        (found,) = system.check_memory_files()
        assert found.level is Level.WARN
        assert "not implemented" in found.message

    @pytest.mark.parametrize(
        ("setting", "level"), [("always [madvise] never", "ok"), ("always madvise [never]", "warn")]
    )
    def test_huge_pages(self, tmp_path, monkeypatch, setting, level):
        path = tmp_path / "enabled"
        path.write_text(setting)
        chosen = system.chosen
        monkeypatch.setattr(system, "chosen", lambda _: chosen(str(path)))
        assert [str(one.level) for one in system.check_huge_pages()] == [level]

    def test_memory_and_swap_in_use(self, monkeypatch):
        text = "MemTotal: 1000 kB\nMemAvailable: 10 kB\nSwapTotal: 1000 kB\nSwapFree: 100 kB\n"
        monkeypatch.setattr(Path, "read_text", lambda _: text)
        assert [(one.check, str(one.level)) for one in system.check_memory()] == [
            ("memory", "warn"),
            ("swap", "warn"),
        ]

    def test_blas_threads(self, monkeypatch):
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        (found,) = system.check_blas()
        assert found.level is Level.NOTE
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        (found,) = system.check_blas()
        assert found == CheckResult("blas threads", Level.OK, "OMP_NUM_THREADS=1")

    def test_a_missing_package(self, monkeypatch):
        monkeypatch.setattr(system, "installed", lambda name: None if name == "msgpack" else "1.0")
        (found,) = [one for one in system.check_packages() if one.level is Level.FAIL]
        assert (found.check, found.advice) == ("msgpack", "pip install msgpack")


class TestKernels:
    def test_the_daemons_directory_is_named_with_what_it_has(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPY_CACHE_DIR", "")
        (tmp_path / "a.cubin").write_bytes(bytes(2048))
        found = {one.check: one for one in of_daemon.check_status({**STATUS, "kernels": str(tmp_path)})}["kernel cache"]
        assert (found.level, found.message) == (Level.OK, f"{tmp_path}: 1 kernel, 2 KiB")

    def test_a_directory_of_another_machine_is_not_looked_for(self, tmp_path):
        assert "kernel cache" not in {
            one.check for one in of_daemon.check_status({**STATUS, "kernels": str(tmp_path / "there")})
        }

    def test_without_a_daemon_it_is_the_one_that_a_daemon_would_have(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPY_CACHE_DIR", "")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (found,) = check_kernels()
        assert (found.level, found.message) == (Level.NOTE, f"{tmp_path}/tensord/kernels has no kernel yet")
        assert "tensord warm" in found.advice

    def test_one_that_others_may_write_to_is_a_warning(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPY_CACHE_DIR", "")
        tmp_path.chmod(0o777)
        (found,) = check_kernels(tmp_path)
        assert found.level is Level.WARN
        assert f"chmod 700 {tmp_path}" in found.advice
