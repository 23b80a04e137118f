"""`--cluster` of commands that ask a daemon: they ask all nodes, over tcp with the keys that the first node gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.cluster.nodes import Keyed

from ....each_case import each_case

LOST = "node node1 is lost: its state is 'lost', so it was not asked"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with Keyed(tmp_path_factory.mktemp("cluster")) as found:
        found.start("node0")
        found.start("node1")
        found.join()
        with found.connect() as session:
            w = session.asarray([1.0], device="node1/sim:0")
            session.publish("w", w)
            yield found


@pytest.fixture
def asked(daemons: Keyed, run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command on the daemon of node0."""
    monkeypatch.setenv("TENSORD_KEYS", str(daemons.keys))
    return lambda *words: run(*words, "--cluster", "--address", daemons.running["node0"].address)


@each_case("command", ["status", "sessions", "tensors", "names", "devices", "plugins"])
def test_the_answers_of_all_nodes_are_one_object_or_one_text_after_the_other(asked: Any, command: str) -> None:
    code, out, _ = asked(command, "--json")
    found = json.loads(out)
    assert (code, [*found]) == (0, ["node0", "node1"])
    if command == "names":
        assert [[one["name"] for one in found[node]] for node in found] == [[], ["w"]]
    if command in {"status", "devices"}:
        assert "node1/sim:0" in json.dumps(found["node1"])
        assert "node1/sim:0" not in json.dumps(found["node0"])
    code, out, _ = asked(command)
    assert code == 0
    assert out.index("node0, up:\n") < out.index("node1, up:\n")


def test_the_health_of_all_nodes_is_the_worst(asked: Any, daemons: Keyed) -> None:
    code, out, _ = asked("status", "--check", "--json")
    assert (code, {node: one["state"] for node, one in json.loads(out).items()}) == (
        0,
        {"node0": "healthy", "node1": "healthy"},
    )
    member = daemons.members["node1"]
    try:
        daemons.members["node1"] = member._replace(state="lost")
        daemons.join("node0", node1="lost")
        code, out, _ = asked("names", "--json")
        assert (code, json.loads(out)["node1"]) == (1, {"error": LOST})
        code, out, _ = asked("status", "--check")
        assert code == 1
        assert out.endswith(f"node1, lost:\n{LOST}\n")
    finally:
        daemons.join()


def test_a_machine_on_its_own_says_so(run: Any, tmp_path: Path) -> None:
    from ....daemon import Daemon

    with Daemon.start(tmp_path) as alone:
        code, _, error = run("names", "--cluster", "--address", alone.address)
    assert code == 1
    assert "no node name" in error
