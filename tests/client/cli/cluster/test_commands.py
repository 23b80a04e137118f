"""Commands on clusters, as far as they go without Ray."""

from __future__ import annotations

import io
import sys
import tomllib

import pytest

from tensord.client.cli.cluster import reaching
from tensord.client.cli.cluster.access import own_key, write_nodes_keys
from tensord.client.cli.cluster.progress import NodeProgress
from tensord.client.cli.cluster.reaching import check_address, check_installed
from tensord.client.cli.cluster.status import show_nodes
from tensord.client.cli.cluster.up import specification
from tensord.client.cli.main import main
from tensord.client.transport.keys import socket_options
from tensord.interpreter.errors import MetadataError, NoDaemon, TensordError

from ....pages import ROOT

GIVEN = {
    "devices": (),
    "config": None,
    "memory": None,
    "ports": "7700-7799",
    "directory": None,
    "plain": False,
    "no_durable": False,
}


def wanted(simulated=0, **given):
    return specification("tensord", GIVEN | given, simulated=simulated)


def test_a_node_has_the_devices_of_the_command_line_before_those_of_the_file(tmp_path):
    file = tmp_path / "tensord.toml"
    file.write_text('devices = ["cpu:0", "sim:0"]\ngrace = 2.0\n[cluster]\nlink = "1 GiB"\n')
    found = wanted(config=file)
    assert (found.devices, found.grace) == (("cpu:0", "sim:0"), 2.0)
    assert found.settings == {"grace": 2.0, "cluster": {"link": "1 GiB"}}
    assert wanted(config=file, devices=("cpu:0",)).devices == ("cpu:0",)


def test_a_node_has_a_cpu_whatever_else_it_has():
    assert wanted().devices == ("cpu:0",)
    assert wanted(devices=("sim:0", "sim:1")).devices == ("cpu:0", "sim:0", "sim:1")
    assert wanted(devices=("sim:0", "cpu:1")).devices == ("sim:0", "cpu:1")


def test_simulated_nodes_share_the_memory_of_the_machine():
    assert wanted(simulated=4).settings == {"memory": "15%"}
    assert wanted(simulated=4, memory="1 GiB").settings == {"memory": "1 GiB"}
    assert wanted().settings == {}


def test_settings_with_which_no_daemon_starts_are_refused_before_ray_is_asked(tmp_path):
    with pytest.raises(TensordError, match="unknown device 'simx:0'"):
        wanted(devices=("simx:0",))
    with pytest.raises(MetadataError, match="cuda:1 without cuda:0: number the GPUs of a node from cuda:0 on"):
        wanted(devices=("cuda:1",))
    with pytest.raises(MetadataError, match="is not a range of ports"):
        wanted(ports="everything")
    file = tmp_path / "tensord.toml"
    file.write_text('node = "me"\n')
    with pytest.raises(MetadataError, match="node is set for each node by its supervisor"):
        wanted(config=file)


def test_what_supervisors_get_travels_as_plain_values():
    found = wanted(devices=("cpu:0", "sim:0"))
    assert type(found).from_plain(found.to_plain()) == found


@pytest.mark.parametrize("address", ["node0", "6379", "local", "node0:http", "ray://node0:10001"])
def test_what_is_no_address_of_ray_is_refused_before_ray_is_asked(address):
    with pytest.raises(MetadataError, match=r"is not an address of a Ray cluster|Ray Client is not supported"):
        check_address(address)


def test_versions_of_ray_that_tensord_does_not_know_are_refused(monkeypatch):
    for version in ("2.51.2", "1.13.0", "3.0.0.dev0"):
        monkeypatch.setattr(reaching, "installed", lambda _extra, version=version: version)
        with pytest.raises(NoDaemon, match=f"Ray {version} is .* needs 2.52 or later, before 3"):
            check_installed()
    for version in ("2.52.0", "2.60.0rc1"):
        monkeypatch.setattr(reaching, "installed", lambda _extra, version=version: version)
        check_installed()


def test_the_versions_of_ray_are_those_of_the_extra():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cluster"]
    (oldest, newest), major = reaching.OLDEST, reaching.TOO_NEW[0]
    assert f"ray>={oldest}.{newest},<{major}" in extra


def test_a_cluster_has_a_name_that_directories_can_have(capsys):
    with pytest.raises(SystemExit):
        main(["cluster", "status", "--name", "../x"])
    assert "'../x' is not a valid cluster name" in capsys.readouterr().err


def test_a_clients_directory_has_what_it_connects_with(tmp_path):
    keys = tmp_path / "keys"
    key = own_key(keys, "alice")
    nodes = [{"node": "node0", "address": "tcp://a:1", "key": "a" * 40}, {"node": "node1", "address": "", "key": ""}]
    write_nodes_keys(keys, nodes)
    assert sorted(file.name for file in keys.iterdir()) == ["alice.key", "alice.key_secret", "node0.key", "server.key"]
    assert b"a" * 40 in socket_options("tcp://a:1", keys).values()
    assert own_key(keys, "alice") == key
    assert own_key(keys, "alice", new=True) != key


def test_progress_without_a_terminal_is_a_line_for_each_change(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with NodeProgress() as told:
        for what in ("starting", "starting", "serving"):
            told("node0", what)
        told("node1", "starting")
    assert written.getvalue() == "node0: starting\nnode0: serving\nnode1: starting\n"


def test_progress_names_nodes_and_counts_many_of_one_state():
    told = NodeProgress()
    for node in ("node0", "node1", "node2"):
        told._states[node] = "serving"
    told._states["node3"] = "starting"
    assert told.text().startswith("3 nodes serving, node3 starting, ")


def test_the_table_tells_what_is_wrong_and_when_it_is_tried_again(capsys):
    serving = {
        "node": "node0",
        "state": "serving",
        "up": True,
        "address": "tcp://h:7700",
        "devices": ["node0/cpu:0"],
        "incarnation": 3,
        "uptime": 65.0,
        "host": "h",
        "pid": 7,
        "wrong": "",
        "next": None,
    }
    show_nodes(
        [
            serving,
            serving
            | {
                "node": "node1",
                "state": "failing",
                "up": False,
                "uptime": None,
                "wrong": "SIGSEGV ended it",
                "next": 4,
            },
            {"node": "node2", "state": "lost", "wrong": "its supervisor does not answer"},
        ]
    )
    told = capsys.readouterr().out
    assert "node0  serving  tcp://h:7700  cpu:0" in told
    assert "SIGSEGV ended it; next start in 4 s" in told
    assert "3 nodes, 2 not up" in told
