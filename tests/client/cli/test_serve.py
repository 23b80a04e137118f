"""`tensord serve` and `tensord keygen`, without a running daemon."""

from __future__ import annotations

import json
import shlex
import stat
import sys
import types
from pathlib import Path
from typing import Any

import click
import pytest

from tensord.client.cli.application import application
from tensord.client.cli.main import main
from tensord.client.transport.keys import curve_options
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.wire.keys import read_public
from tensord.vm.service.access.zap import AllowList
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import Config, load

from ...each_case import each_case
from ...full_disk import longest_file


@pytest.fixture
def command(capsys):
    """command("serve --check-config") -> its output."""

    def run(line: str) -> str:
        application(shlex.split(line), standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_check_config_prints_what_holds_as_a_file_that_can_be_used(command, tmp_path):
    text = command(
        "serve --address tcp://127.0.0.9:7799 --device cpu:0 --device sim:0 --grace 0 --no-tracing --check-config"
    )
    (tmp_path / "tensord.toml").write_text(text)
    config = load(tmp_path / "tensord.toml")
    assert config.listen == ("tcp://127.0.0.9:7799",)
    assert config.devices == ("cpu:0", "sim:0")
    assert (config.grace, config.trace.on) == (0, False)


def test_check_config_warns_of_more_memory_than_there_is(tmp_path, capsys):
    file = tmp_path / "c.toml"
    file.write_text('devices = [{name = "cpu:0", memory = "4096 TiB"}]\n')
    application(["serve", "--config", str(file), "--check-config"], standalone_mode=False)
    out, err = capsys.readouterr()
    assert err.startswith("tensord: warning: cpu:0 (its option memory) may take 4,096 TiB, and this machine")
    assert "4096 TiB" in out


def test_check_config_refuses_durable_names_without_a_cpu_device(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('devices = ["sim:0", {name = "store:0", durable = "there", interval = 1}]\n')
    with pytest.raises(StartError, match="durable names are written from a cpu device"):
        application(["serve", "--config", str(file), "--check-config"], standalone_mode=False)


def test_options_go_before_the_file(command, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('grace = 7\nlease = 8\n[log]\nlevel = "error"\nfile = "log"\n')
    found = json.loads(command(f"serve --config {file} --grace 9 --log-format json --check-config --json"))
    assert (found["grace"], found["lease"]) == (9, 8)
    assert found["log"] == {"level": "error", "format": "json", "file": str(tmp_path / "log")}


@each_case(
    ("options", "told"),
    [
        ("--log-level loud", "log.level: must be"),
        ("--grace -1", "grace: must be"),
        ("--device gpu", "unknown device 'gpu'"),
        ("--address x", "'x' is not an address"),
        ("--node no/name", "node: "),
    ],
)
def test_wrong_options_are_one_line_and_a_status_of_their_own(options, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["serve", *options.split()])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tensord: the command line: ")
    assert told in line


def test_a_missing_file_is_no_wrong_option(command):
    with pytest.raises(StartError, match="/does/not/exist: No such file"):
        command("serve --config /does/not/exist")


def test_json_goes_with_the_check(command):
    with pytest.raises(click.BadParameter, match="--json is for --check-config"):
        command("serve --json")


def test_serve_runs_the_daemon_and_leaves_with_its_status(command, monkeypatch):
    seen: list[Config] = []
    daemon: Any = types.ModuleType("tensord.vm.service.daemon")

    def run(config: Config) -> int:
        seen.append(config)
        return len(seen) - 1

    daemon.run = run
    monkeypatch.setitem(sys.modules, daemon.__name__, daemon)
    command("serve")
    assert seen == [Config()]
    assert application(["serve", "--grace", "1"], standalone_mode=False) == 1


def test_keygen_says_what_belongs_where_and_it_fits(command, tmp_path):
    directory = tmp_path / "keys"
    text = command(f"keygen {directory}")
    (directory / "allowed_clients").touch(0o600)
    settings = text[text.index("[security]") : text.index("Clients need")]
    (tmp_path / "tensord.toml").write_text("\n".join(line.strip() for line in settings.splitlines()))
    security = load(tmp_path / "tensord.toml").security
    assert (security.server_secret, security.allow) == (directory / "server.key_secret", directory / "allowed_clients")
    assert security.server_secret
    assert stat.S_IMODE(security.server_secret.stat().st_mode) == 0o600
    text = command(f"keygen {directory} --name alice")
    assert f"export TENSORD_KEYS={directory / 'alice.key_secret'}" in text
    (line,) = [line.strip() for line in text.splitlines() if line.endswith(" alice")]
    assert line.split()[0].encode() in curve_options(directory).values()


def test_keygen_for_programs(command, tmp_path):
    found = json.loads(command(f"keygen {tmp_path} --name bob --json"))
    assert found["key"] in Path(found["public"]).read_text()
    assert found["key"] in Path(found["secret"]).read_text()
    with pytest.raises(MetadataError, match="never overwritten"):
        command(f"keygen {tmp_path} --name bob --json")


def test_keygen_appends_to_the_allow_list_and_to_no_list_twice(command, tmp_path):
    file = tmp_path / "allowed"
    for name in ("alice", "bob", "alice"):
        text = command(f"keygen {tmp_path / 'keys'} --name {name} --allow {file}")
    assert "had the key already" in text
    assert "needs this line" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    allowed = AllowList(file)
    assert list(allowed.names.values()) == ["alice", "bob"]
    assert allowed.name_of(read_public(tmp_path / "keys" / "bob.key")) == "bob"


def test_keygen_appends_behind_a_line_without_an_end(command, tmp_path):
    file = tmp_path / "allowed"
    file.write_text("# clients")
    file.chmod(0o600)
    found = json.loads(command(f"keygen {tmp_path} --name alice --allow {file} --json"))
    assert (found["allow"], found["added"]) == (str(file), True)
    assert file.read_text() == f"# clients\n{found['key']} alice\n"


def test_on_a_full_disk_the_allow_list_stays_as_it_was(command, tmp_path):
    file = tmp_path / "allowed"
    command(f"keygen {tmp_path / 'keys'} --name alice")
    command(f"keygen {tmp_path / 'keys'} --name bob --allow {file}")
    before = file.read_bytes()
    with longest_file(len(before) + 10), pytest.raises(OSError, match="allowed"):
        command(f"keygen {tmp_path / 'keys'} --name alice --allow {file}")
    assert file.read_bytes() == before


@pytest.mark.parametrize(("name", "mode", "told"), [("server", 0o600, "client's key"), ("alice", 0o666, "chmod 600")])
def test_keygen_makes_no_key_that_it_may_not_allow(command, tmp_path, name, mode, told):
    file = tmp_path / "allowed"
    file.touch()
    file.chmod(mode)
    with pytest.raises(MetadataError, match=told):
        command(f"keygen {tmp_path / 'keys'} --name {name} --allow {file}")
    assert not (tmp_path / "keys").exists()
