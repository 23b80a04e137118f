"""Two simulated nodes of Ray: operators' commands, and recovery after a daemon, a supervisor or a raylet died.

One test, since starting the cluster takes longest by far; its parts follow each other on one cluster.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal

import pytest

import tensord as td
from tensord.client.cli.doctor.findings import installed
from tensord.vm.cluster.errors import ClusterError
from tensord.vm.cluster.tokens import asks_for_token, settle_token

from .two_nodes import TOKEN, TwoNodes, parent_of

RAY = installed("ray") or ""
NOTICE = 5.0  # seconds in which a killed daemon has to be noticed
OF_A_RAYLET = 10.0


@pytest.fixture
def nodes():
    if not RAY:
        pytest.skip('Ray is not installed: pip install "tensord[cluster]"')
    made = TwoNodes()
    yield made
    made.close()


@pytest.mark.timeout(240)
def test_a_cluster_of_two_nodes(nodes):
    every_node_serves_and_clients_get_in(nodes)
    ray_refuses_callers_without_its_token_and_that_is_told_at_once(nodes)
    a_killed_daemon_is_noticed_and_back_with_its_durable_names(nodes)
    a_killed_supervisor_takes_its_daemon_along_and_both_are_back(nodes)
    the_doctor_finds_nothing_wrong(nodes)
    gpus_are_in_the_bundle_and_seen_by_the_daemon(nodes)
    figures_are_among_rays_metrics(nodes)
    a_second_up_says_that_there_is_one(nodes)
    rotated_keys_shut_the_old_ones_out(nodes)
    a_drained_node_leaves_and_another_takes_its_name(nodes)
    a_dead_raylet_takes_supervisor_and_daemon_along(nodes)
    nothing_is_left_when_it_ends(nodes)


def every_node_serves_and_clients_get_in(nodes):
    assert list(nodes.rows) == ["node0", "node1"]
    for row in nodes.rows.values():
        assert (row["state"], row["incarnation"], row["wrong"]) == ("serving", 1, "")
        assert row["devices"] == [f"{row['node']}/cpu:0", f"{row['node']}/sim:0"]
    nodes.await_seen("node0", "node1", ("up", 1))  # the others hear of it a moment after `up` does
    nodes.await_seen("node1", "node0", ("up", 1))
    with td.connect_cluster(nodes.rows["node0"]["address"], keys=nodes.keys) as session:
        x = session.asarray([1.0, 2.0], device="node1/sim:0")
        assert (x + x).tolist() == [2.0, 4.0]
        session.publish("node1/kept", x, durable=True)


def a_killed_daemon_is_noticed_and_back_with_its_durable_names(nodes):
    os.kill(nodes.rows["node1"]["pid"], signal.SIGKILL)
    assert nodes.await_seen("node0", "node1", ("lost", 1), ("lost", 2), ("up", 2)) < NOTICE
    nodes.await_seen("node0", "node1", ("up", 2))
    row = nodes.renew()["node1"]
    assert row["address"] == nodes.rows["node1"]["address"]
    with td.connect(row["ipc"]) as session:
        assert session.lookup("kept").tolist() == [1.0, 2.0]


def a_killed_supervisor_takes_its_daemon_along_and_both_are_back(nodes):
    row = nodes.rows["node1"]
    daemon = os.pidfd_open(row["pid"])
    os.kill(row["supervisor"], signal.SIGKILL)
    assert select.select([daemon], [], [], NOTICE)[0]
    os.close(daemon)
    nodes.await_seen("node0", "node1", ("up", 3))


def the_doctor_finds_nothing_wrong(nodes):
    ended = nodes.run("doctor")
    assert ended.returncode == 0, ended.stdout
    assert "the tables of members are correct on every node" in ended.stdout
    assert "node1  " in nodes.run("logs", "--node", "node1", "--lines", "3").stdout


def ray_refuses_callers_without_its_token_and_that_is_told_at_once(nodes):
    address = nodes.environment["RAY_ADDRESS"]
    for given, told in ({"RAY_AUTH_TOKEN": "wrong"}, "not accept the token of"), ({}, "there is none here"):
        with pytest.raises(ClusterError, match=told):
            settle_token(address, {"RAY_AUTH_TOKEN_PATH": str(nodes.home / "no file"), **given}, RAY)
    settle_token(address, {"RAY_AUTH_TOKEN": TOKEN}, RAY)
    with pytest.raises(ClusterError, match=r"ray [\d.]+ there and 2.1 here; install"):
        settle_token(address, {"RAY_AUTH_TOKEN": TOKEN}, "2.1")
    assert asks_for_token(address, {})


def gpus_are_in_the_bundle_and_seen_by_the_daemon(nodes):
    three = [word for number in range(3) for word in ("--device", f"cuda:{number}")]
    assert "3 GPU each: " in (ended := nodes.run("up", "--name", "gpus", "--nodes", "1", *three)).stderr, ended
    assert " has 2 GPU" in ended.stderr
    ended = nodes.run("up", "--name", "gpus", "--nodes", "1", "--device", "cuda:0", "--json")
    told = json.loads(ended.stdout)
    if ended.returncode:  # for example without a GPU, or without CuPy
        assert ", GPUs 0) does not start: " in told["error"]
        assert "cuda:0" in told["error"] or "CuPy" in told["error"]
    else:
        assert [row["gpus"] for row in told["nodes"]] == ["0"]
        nodes.told("down", "--name", "gpus")


def figures_are_among_rays_metrics(nodes):
    (found,) = [one for one in json.loads(nodes.run("doctor", "--json").stdout) if one["check"] == "metrics"]
    addresses = re.findall(r"http://\S+/metrics", found["message"])
    if not addresses:
        assert found["level"] == "note"  # this Ray is without [default], and has no agents
        return
    if RAY.startswith("2.52."):
        return  # with a token, its agents take no figures of workers
    wanted = {f'ray_tensord_up{{node="{node}"}} 1.0' for node in nodes.rows}
    nodes.await_metrics(addresses, wanted | {'ray_tensord_device_lost{node="node1",device="node1/sim:0"} 0.0'})


def a_second_up_says_that_there_is_one(nodes):
    ended = nodes.run("up")
    assert ended.stderr.startswith("tensord: the cluster 'tensord' is already up, with node0, node1")
    ended = nodes.run("restart", "--node", "node7")
    assert ended.stderr == "tensord: unknown node 'node7'; nodes: node0, node1\n"


def rotated_keys_shut_the_old_ones_out(nodes):
    before = nodes.rows["node0"]["key"]
    told = nodes.told("rotate")
    assert [row["incarnation"] for row in told["nodes"]] == [2, 4]
    assert told["nodes"][0]["key"] != before
    nodes.await_seen("node0", "node1", ("up", 4))
    with td.connect_cluster(told["nodes"][0]["address"], keys=nodes.keys) as session:
        assert len(session.devices) == 4


def a_drained_node_leaves_and_another_takes_its_name(nodes):
    assert nodes.told("drain", "node1")["ended"] == ["node1"]
    nodes.await_seen("node0", "node1", ("left", 4))
    (row,) = nodes.told("add")["nodes"]
    assert (row["node"], row["incarnation"], row["state"]) == ("node1", 5, "serving")
    nodes.await_seen("node0", "node1", ("up", 5))


def a_dead_raylet_takes_supervisor_and_daemon_along(nodes):
    row = nodes.renew()["node1"]
    both = [os.pidfd_open(row[which]) for which in ("pid", "supervisor")]
    os.kill(parent_of(row["supervisor"]), signal.SIGKILL)
    assert nodes.await_seen("node0", "node1", ("lost", 5)) < OF_A_RAYLET
    for one in both:
        assert select.select([one], [], [], OF_A_RAYLET)[0]
        os.close(one)
    ended = nodes.run("status")
    assert ended.returncode == 1
    assert "2 nodes, 1 not up" in ended.stdout


def nothing_is_left_when_it_ends(nodes):
    nodes.operator.communicate()
    nodes.process.send_signal(signal.SIGTERM)
    assert nodes.process.wait(30) in (0, 130), nodes.log.read_text()
    assert nodes.await_none(10.0) == {}
