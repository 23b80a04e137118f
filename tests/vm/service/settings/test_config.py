"""The configuration: every key is checked, and the example states the defaults."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.wire.limits import Limits
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings import checks
from tensord.vm.service.settings.config import TABLES, Config, load, settings, to_plain, to_toml

from ....each_case import each_case

EXAMPLE = Path(__file__).parents[4] / "deploy" / "tensord.toml"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "tensord.toml"
        path.write_text(text)
        return path

    return write


def test_the_example_holds_the_defaults():
    assert load(EXAMPLE) == Config() == load()


def test_the_example_names_every_key_and_explains_it():
    text = EXAMPLE.read_text()
    table = tomllib.loads(text)
    assert set(table) == {field.name for field in fields(Config)}
    for name, kind in TABLES.items():
        assert set(table[name]) == {field.name for field in fields(kind)}
    for line, above in zip(text.splitlines()[1:], text.splitlines(), strict=False):
        if re.match(r"\w+ = ", line):
            assert "#" in line or above.startswith("#"), line


def test_every_setting_is_checked():
    kinds: list[type[Any]] = [Config, *TABLES.values()]
    for kind in kinds:
        checked = {name for name, _ in settings(kind)}
        assert checked == {field.name for field in fields(kind)} - (set(TABLES) if kind is Config else set())


def test_a_file_is_read_and_the_command_line_goes_before_it(write):
    path = write(
        'addresses = ["tcp://127.0.0.1:7700"]\ngrace = 1\nmemory = "2 GiB"\n'
        'devices = ["cpu:0", {name = "sim:0", memory = "1MiB"}]\n'
        '[limits]\nframe = "64 MiB"\ntensors = 10\n[trace]\non = false\n[log]\nlevel = "debug"\n'
    )
    config = load(path, {"grace": 2.5, "log": {"format": "json"}})
    assert config.listen == ("tcp://127.0.0.1:7700",)
    assert (config.grace, config.memory, config.trace.on) == (2.5, 2 << 30, False)
    assert config.limits == Limits(frame=64 << 20, tensors=10)
    assert (config.log.level, config.log.format) == ("debug", "json")
    assert config.devices == ("cpu:0", {"name": "sim:0", "memory": "1MiB"})


def test_paths_are_relative_to_the_file_and_may_begin_with_a_tilde(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    path = write('[security]\nserver_secret = "keys/s.key_secret"\nallow = "~/allowed"\n[log]\nfile = "/var/log/t"\n')
    config = load(path)
    assert config.security.server_secret == path.parent / "keys/s.key_secret"
    assert config.security.allow == Path("/home/somebody/allowed")
    assert config.log.file == Path("/var/log/t")


@each_case(
    ("text", "told"),
    [
        ("adresses = []", "adresses: unknown key; did you mean addresses?"),
        ("frame = 1", "frame belongs in the table [limits]"),
        (
            "quite_unknown = 1",
            "known are plugins, addresses, devices, memory, grace, hang_after, heartbeat, lease, files, checkpoints",
        ),
        ("[limits]\nframs = 1", "limits.frams: unknown key; did you mean frame"),
        ("limits = 3", "limits: must be a table, [limits], not 3"),
        ("[limits]\nframe = 'big'", "limits.frame: must be a size from 4096"),
        ("[limits]\nframe = 1.5", "limits.frame: must be a size"),
        ("[limits]\nframe = 0", "limits.frame: must be a size"),
        (f"[limits]\nframe = '{'9' * 400} TiB'", "limits.frame: must be a size"),
        ("[limits]\nbatch = '4096'", "limits.batch: must be a whole number from 1"),
        ("[limits]\nbatch = true", "limits.batch: must be a whole number"),
        ("grace = -1", "grace: must be a number of seconds from 0 to 3600, not -1"),
        ("grace = nan", "grace: must be a number of seconds"),
        ("heartbeat = 0", "heartbeat: must be a number of seconds from 0.1"),
        ("lease = '1 h'", "lease: must be a number of seconds"),
        ("memory = '101%'", 'memory: must be a size of at least 128 MiB, such as "8 GiB", or a share'),
        ("memory = '0%'", "memory: must be a size of at least 128 MiB"),
        ("memory = 1000", "memory: must be a size of at least 128 MiB"),
        ("addresses = 'ipc:///x'", "addresses: must be a list of addresses"),
        ("addresses = ['x']", "addresses: 'x' is not an address of a daemon: write"),
        ("devices = []", "devices: must be a list of devices"),
        ("devices = ['gpu:0']", "devices: unknown device 'gpu:0'"),
        ("devices = [{name = 'sim:0', memry = 1}]", "device 'sim:0' has no option 'memry'"),
        ("devices = ['cpu:0', 'cpu:0']", "devices: device 'cpu:0' is given twice"),
        ("[trace]\non = 1", "trace.on: must be true or false, not 1"),
        ("[trace]\ncapacity = 1", "trace.capacity: must be a whole number from 16"),
        ("[log]\nlevel = 'loud'", 'log.level: must be "debug" or "info" or "warning" or "error", not \'loud\''),
        ("[log]\nformat = []", 'log.format: must be "console" or "json"'),
        ("[log]\nfile = 3", 'log.file: must be a path, or "" for none, not 3'),
        ("grace = ", "not valid TOML"),
        ("a = '" + "x" * 5 + "'\n" * 2, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file_the_key_and_what_is_allowed(text, told, write):
    path = write(text)
    with pytest.raises(StartError) as raised:
        load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert told in message
    assert "\n" not in message
    assert len(message) < 600


def test_the_command_line_is_named_where_it_is_wrong():
    with pytest.raises(StartError, match=r"^the command line: log\.level: must be"):
        load(None, {"log": {"level": "loud"}})


def test_a_missing_file_or_one_that_is_no_text(tmp_path):
    with pytest.raises(StartError, match=r"missing.toml: No such file.*deploy/tensord.toml"):
        load(tmp_path / "missing.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="not valid TOML"):
        load(tmp_path / "binary")


def test_memory_is_a_share_of_what_the_control_group_has(monkeypatch):
    monkeypatch.setattr(checks, "_group_limits", lambda: [1 << 40, 1 << 30])
    assert checks.memory("50%") == 1 << 29
    assert checks.memory("1%") == checks.MIN_MEMORY
    assert checks.available_memory() == 1 << 30


def test_the_default_address_is_used_where_none_is_given(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert Config().listen == ("ipc:///run/user/7/tensord/socket",)


def test_cpu_devices_share_memory_and_leave_room_for_what_is_received():
    config = load(None, {"memory": 1 << 30, "devices": ["cpu:0", {"name": "cpu:1", "memory": "1MiB"}, "sim:0"]})
    first, second, third = config.opened
    assert first == {"name": "cpu:0", "memory": int((1 << 30) * 0.6 / 2), "shared": True}
    assert second == {"name": "cpu:1", "memory": "1MiB", "shared": True}
    assert third == {"name": "sim:0"}


def test_what_is_written_down_can_be_read_back(write):
    given = {
        "addresses": ["ipc:///a/b", "tcp://[::1]:7700"],
        "devices": ["cpu:0", {"name": "sim:0", "missing": ["matmul"], "latency": 1e-5, "peer": False}],
        "log": {"file": '/var/"quoted" é\x7f'},
        "limits": {"names": 5},
    }
    config = load(None, given)
    assert load(write(to_toml(config))) == config
    assert to_plain(config)["limits"]["names"] == 5
    assert to_plain(Config())["addresses"] == list(Config().listen)
