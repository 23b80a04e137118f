"""Messages between supervisors and to their daemons: several supervisors on one event loop, daemons played by tests."""

from __future__ import annotations

import asyncio

import pytest

from tensord.vm.cluster.credentials import ClusterCredentials
from tensord.vm.cluster.home import Home
from tensord.vm.cluster.lifecycle import DaemonEvent, DaemonProcessState
from tensord.vm.cluster.ports import Locks
from tensord.vm.cluster.specification import Specification
from tensord.vm.cluster.supervisor import Supervisor

from .fakes import FakeDaemon, FakePeers, FakeStart

LIMIT = 10.0  # seconds; each of these takes milliseconds
KEYS = ClusterCredentials(token="t" * 32, clients={"alice": "a" * 40})


class Cluster:
    """Supervisors without Ray."""

    def __init__(self, directory):
        self.directory = directory
        self.peers, self.daemon = FakePeers(), FakeDaemon()
        self.starts = {}
        self.all = []
        self.observed = []

    async def start(self, node, *, serves=True, credentials=KEYS):
        made = self.another(node, credentials)
        self.peers.there[node] = made
        await made.begin()
        if serves:
            self.starts[node].last.serve()
        for one in self.peers.there.values():
            one.met()
        return made

    def another(self, node, credentials=KEYS):
        """A supervisor that has not begun."""
        self.starts[node] = start = FakeStart()
        wanted = Specification(directory=str(self.directory / "home"))
        made = Supervisor(
            node,
            "127.0.0.1",
            wanted,
            credentials,
            start=start,
            ask=self.daemon.ask,
            peers=self.peers,
            locks=Locks(self.directory / node),
            observe=lambda row, status: self.observed.append((row, status)),
        )
        self.all.append(made)
        return made

    async def until(self, condition):
        """Wait for the effects of a few turns of the loop."""
        async with asyncio.timeout(LIMIT):
            while not condition():  # noqa: ASYNC110 - no event tells what a fake daemon was asked
                await asyncio.sleep(0.002)

    def sees(self, node, **states):
        return self.daemon.seen(node) == {name: tuple(state) for name, state in states.items()}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(scenario): on an event loop of its own, with a cluster; supervisors are closed at the end."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("tensord.vm.cluster.supervisor.RETRY_PAUSE", 0.005)
    monkeypatch.setattr("tensord.vm.cluster.supervisor.LOOK_INTERVAL", 0.005)
    monkeypatch.setattr("tensord.vm.cluster.supervisor.FIGURES_INTERVAL", 0.005)

    async def main(scenario):
        cluster = Cluster(tmp_path)
        try:
            await scenario(cluster)
        finally:
            for one in cluster.all:
                one.close()
            await asyncio.sleep(0)

    return lambda scenario: asyncio.run(main(scenario))


def test_each_daemon_is_told_of_all_nodes_with_the_token(run):
    async def scenario(cluster):
        await cluster.start("node0")
        await cluster.start("node1")
        for node in ("node0", "node1"):
            await cluster.until(lambda node=node: cluster.sees(node, node0=("up", 1), node1=("up", 1)))
        assert set(cluster.daemon.tokens) == {KEYS.token}
        entry = cluster.daemon.tables["node0"][1]
        assert entry["address"].startswith("tcp://127.0.0.1:77")
        assert (entry["values"], entry["devices"]) == ("127.0.0.1:7", ["node1/cpu:0"])

    run(scenario)


def test_a_killed_daemon_is_lost_to_the_others_and_then_back_with_a_new_incarnation(run):
    async def scenario(cluster):
        await cluster.start("node0")
        await cluster.start("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 1)))
        cluster.starts["node1"].last.observer.exited(-9)
        await cluster.until(lambda: cluster.daemon.seen("node0")["node1"][0] == "lost")
        await cluster.until(lambda: len(cluster.starts["node1"].started) == 2)
        cluster.starts["node1"].last.serve()
        for node in ("node0", "node1"):
            await cluster.until(lambda node=node: cluster.sees(node, node0=("up", 1), node1=("up", 2)))

    run(scenario)


def test_a_supervisor_that_does_not_answer_makes_its_node_lost_until_it_does(run):
    async def scenario(cluster):
        await cluster.start("node0")
        await cluster.start("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 1)))
        cluster.peers.lose("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("lost", 1)))
        cluster.peers.take_back("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 1)))

    run(scenario)


def test_a_node_that_was_stopped_has_left_and_stays_so_when_its_supervisor_is_gone(run):
    async def scenario(cluster):
        await cluster.start("node0")
        leaving = await cluster.start("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 1)))
        leaving.wish(DaemonEvent.STOP)
        cluster.starts["node1"].last.observer.exited(0)
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("left", 1)))
        del cluster.peers.there["node1"]
        cluster.all[0].met()
        await cluster.until(lambda: "node1" not in cluster.all[0]._following)
        assert cluster.sees("node0", node0=("up", 1), node1=("left", 1))

    run(scenario)


def test_a_node_that_starts_on_another_machine_counts_on_and_has_the_latest_credentials(run, tmp_path):
    async def scenario(cluster):
        first = await cluster.start("node0")
        await cluster.start("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 1)))
        first.admit(KEYS.with_client("bob", "b" * 40).with_new_token())
        cluster.peers.lose("node1")
        await cluster.until(lambda: cluster.daemon.seen("node0")["node1"][0] == "lost")
        cluster.all[1].close()
        (tmp_path / "home").rename(tmp_path / "the machine that is gone")
        cluster.peers.take_back("node1")
        again = await cluster.start("node1")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1), node1=("up", 2)))
        assert again.credentials == first.credentials
        assert again.keeper.home.allow.read_text() == f"{'a' * 40} alice\n{'b' * 40} bob\n"

    run(scenario)


def test_new_credentials_reach_the_daemon_and_outlive_the_supervisor(run):
    async def scenario(cluster):
        one = await cluster.start("node0")
        await cluster.until(lambda: cluster.daemon.tokens)
        rotated = KEYS.with_new_token()
        one.admit(rotated)
        await cluster.until(lambda: cluster.daemon.tokens[-1] == rotated.token)
        one.admit(KEYS)  # older entries change nothing
        assert one.credentials == rotated == Home(one.keeper.home.directory).credentials()

    run(scenario)


def test_a_daemon_that_does_not_answer_is_told_later(run):
    async def scenario(cluster):
        cluster.daemon.deaf = True
        await cluster.start("node0")
        await cluster.until(lambda: cluster.daemon.asked.count("members") > 2)
        assert cluster.all[0].row()["state"] == "serving"
        assert not cluster.all[0].row()["up"]
        cluster.daemon.deaf = False
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1)))

    run(scenario)


def test_a_node_that_another_supervisor_has_on_this_machine_waits_and_touches_nothing(run, monkeypatch):
    monkeypatch.setattr("tensord.vm.cluster.supervisor.TAKEOVER_TIMEOUT", 0.0)

    async def scenario(cluster):
        first = await cluster.start("node0")
        allowed = first.keeper.home.allow.read_text()
        first.keeper.home.allow.write_text("# untouched\n")
        second = cluster.another("node0")
        beginning = asyncio.ensure_future(second.begin())
        await cluster.until(lambda: second.row()["wrong"].startswith("another node0 of a cluster 'tensord' is on this"))
        assert (second.row()["state"], second.keeper.starts) == ("new", 0)
        assert first.keeper.home.allow.read_text() == "# untouched\n"
        first.close()
        await beginning
        assert (second.row()["wrong"], second.keeper.starts) == ("", 1)
        assert second.keeper.home.allow.read_text() == allowed

    run(scenario)


def test_figures_are_passed_on_also_while_no_daemon_answers(run):
    async def scenario(cluster):
        await cluster.start("node0", serves=False)
        await cluster.until(lambda: [(row["up"], status) for row, status in cluster.observed[-1:]] == [(False, None)])
        cluster.starts["node0"].last.serve()
        await cluster.until(lambda: cluster.observed[-1][1] == {"sessions": 0} and cluster.observed[-1][0]["up"])
        cluster.daemon.deaf = True
        await cluster.until(lambda: cluster.observed[-1][1] is None)

    run(scenario)


def test_a_drained_daemon_ends_once_its_last_session_has(run):
    async def scenario(cluster):
        one = await cluster.start("node0")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1)))
        cluster.daemon.sessions = 1
        one.wish(DaemonEvent.DRAIN)
        await cluster.until(lambda: "drain" in cluster.daemon.asked and cluster.observed[-1:])
        assert one.keeper.state is DaemonProcessState.DRAINING
        cluster.daemon.sessions = 0
        await cluster.until(lambda: one.keeper.state is DaemonProcessState.STOPPING)
        assert cluster.starts["node0"].last.asked == ["terminate"]
        assert cluster.daemon.asked.count("drain") == 1

    run(scenario)


def test_a_supervisor_that_gives_up_says_that_its_node_is_lost(run):
    async def scenario(cluster):
        one = await cluster.start("node0")
        await cluster.until(lambda: cluster.sees("node0", node0=("up", 1)))
        version, _ = await one.follow(-1)
        following = asyncio.ensure_future(one.follow(version))
        await asyncio.sleep(0)
        one.give_up()
        assert (await following)[1]["state"] == "lost"
        assert cluster.starts["node0"].last.asked == ["kill"]

    run(scenario)


def test_who_asks_for_the_log_waits_for_its_next_line(run):
    async def scenario(cluster):
        one = await cluster.start("node0")
        waiting = asyncio.ensure_future(one.log(0, LIMIT))
        await asyncio.sleep(0)
        cluster.starts["node0"].last.observer.printed("serving")
        assert await waiting == [(1, "serving")]
        assert await one.log(1, 0.0) == []

    run(scenario)
