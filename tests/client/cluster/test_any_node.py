"""Each function of a session works on a node that is reached over tcp as on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensord as td
from tensord.collectives import all_reduce
from tensord.interpreter.schema.opdef import find

from ..pipelines.test_pipeline import Layer, data, in_numpy, squares, stages_of
from .nodes import Keyed

FAR = "node1/sim:0"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """Two daemons, which may write checkpoints for clients over tcp."""
    home: Path = tmp_path_factory.mktemp("nodes")
    (home / "checkpoints").mkdir()
    with Keyed(home, f'checkpoints = ["{home}/checkpoints"]') as found:
        found.start("node0", durable=home / "node0-names")
        found.start("node1", durable=home / "node1-names")
        found.join()
        yield found


@pytest.fixture
def session(daemons: Keyed) -> Iterator[td.ClusterSession]:
    with daemons.connect() as found:
        yield found


@pytest.fixture
def x(session: td.ClusterSession) -> td.Tensor:
    return session.asarray([[1.0, 2.0], [3.0, 4.0]], device=FAR)


class TestOnTheOtherNode:
    def test_ops_write_in_place_move_and_fail_at_their_line(self, session: td.ClusterSession, x: td.Tensor) -> None:
        y = x @ x + session.xp.ones(2, device=FAR)
        y[0] = 0.0
        y += 1
        assert y.device == FAR
        assert y.tolist() == [[1.0, 1.0], [17.0, 24.0]]
        assert y.to_device("node1/sim:1").device == "node1/sim:1"
        y.prefetch("node1/cpu:0")
        y.evict()
        assert y.T[0].tolist() == [1.0, 17.0]
        singular = session.xp.linalg.inv(x * 0)
        with pytest.raises(td.KernelError, match=r"test_any_node\.py"):
            (singular + 1).wait()
        assert x.shape == (2, 2)
        assert session.random.normal((3,), device=FAR).device == FAR

    def test_programs_run(self, session: td.ClusterSession, x: td.Tensor) -> None:
        step = session.routine(lambda a: session.xp.tanh(a @ a) * 2)
        for _ in range(3):
            np.testing.assert_allclose(step(x).numpy(), np.tanh(x.numpy() @ x.numpy()) * 2)
        assert step.captures == 1
        assert session.cond(x[0, 0] > 0, lambda a: a + 1, lambda a: a, x)[0, 0].item() == 2.0
        assert session.repeat(3, lambda a: a * 2, x)[0, 0].item() == 8.0
        linked = session.link(session.routine(lambda a: a + 1).program(x), devices={"d0": FAR})
        assert linked(x)[0][0, 0].item() == 2.0

    def test_names_routines_and_groups(self, session: td.ClusterSession, x: td.Tensor, daemons: Keyed) -> None:
        session.publish({"x": x, "y": x + 1}, durable=True)
        session.publish("step", session.routine(lambda a: a * 3).link(x))
        with daemons.connect("node1") as other:
            assert other.lookup("step")(other.lookup("x"))[0, 0].item() == 3.0
            kept = other.lookup("node1/x", snapshot=True)
            with session.atomic():
                x += 1
                x *= 2
            session.sync(durable=True)
            assert (kept[0, 0].item(), other.lookup("x")[0, 0].item()) == (1.0, 4.0)
        session.unpublish("x", "y", "step")

    def test_checkpoints_and_files(self, session: td.ClusterSession, x: td.Tensor, daemons: Keyed) -> None:
        here = session.asarray([5.0])
        session.publish("x", x)
        session.publish("here", here)
        directory = daemons.home / "checkpoints" / "run"
        assert {node: one["names"] for node, one in session.checkpoint(directory).wait().items()} == {
            "node0": 1,
            "node1": 1,
        }
        (directory / "away").symlink_to(daemons.home)
        for beyond in (daemons.home, directory / ".." / ".." / "run", directory / "away"):
            with pytest.raises(td.ProtocolError, match=r"^node1: checkpoints in any directory are for"):
                session.checkpoint(beyond, "x").wait()
        x *= 0
        session.unpublish("x", "here")
        assert set(session.restore(directory)) == {"node0", "node1"}
        assert session.lookup("node1/x").tolist() == [[1.0, 2.0], [3.0, 4.0]]
        session.unpublish("x", "here")
        path = daemons.home / "all.safetensors"
        session.save(path, {"x": session.xp.ones_like(x), "here": here}).wait()
        loaded = session.load(path, device=FAR)
        assert {name: (one.device, one.sum().item()) for name, one in loaded.items()} == {
            "x": (FAR, 4.0),
            "here": (FAR, 5.0),
        }

    def test_effects_spans_contexts_and_cancellation(
        self, session: td.ClusterSession, x: td.Tensor, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with session.span("far"), session.context():
            session.print(x[0], session.asarray([9.0]))
            session.check_chain()
        assert capsys.readouterr().out == "[1. 2.] [9.]\n"
        session.cancel()
        with pytest.raises(td.CancelledError):
            (x + 1).wait()
        session.restart()
        assert (x + 1)[0, 0].item() == 2.0

    def test_several_devices_of_the_node(self, session: td.ClusterSession, x: td.Tensor) -> None:
        pair = td.placement([FAR, "node1/sim:1"])
        g = session.global_tensor(x, pair, td.split(0))
        np.testing.assert_array_equal((g @ x.to_device(pair)).numpy(), x.numpy() @ x.numpy())
        assert len(session.explain(lambda a: a.to_global(layout=td.broadcast), g).rows) == 1
        assert all_reduce([x, x.to_device("node1/sim:1")])[1][0, 0].item() == 2.0
        session.publish("g", g)
        assert session.lookup("node1/g").numpy().tolist() == x.tolist()
        session.unpublish("g")

    def test_traces_and_questions(self, session: td.ClusterSession, x: td.Tensor) -> None:
        (x @ x).to_device("node0/cpu:0").wait()
        assert session.sync() == 0
        trace = session.trace()
        assert {"node0", "node1"} <= set(trace.nodes)
        assert any(record.op == "matmul" and record.device == FAR for record in trace.records)
        assert trace.verify() == []
        assert "sim:0" in str(session.stats()["node1"]["devices"])
        assert x.residency() == {FAR: "valid"}
        assert session.supports(find("matmul"), FAR)


class TestOverBothNodes:
    def test_a_pipeline_has_the_gradients_of_one_machine(self, session: td.ClusterSession) -> None:
        layers = [Layer(session, f"node{number}/sim:{number}", number) for number in (0, 1)]
        x, target = data(session, 8)
        losses = td.pipeline(stages_of(layers), 4)(x, target, loss=squares)
        expected, gradients = in_numpy(layers, x.numpy(), target.numpy())
        np.testing.assert_allclose(sum(loss.item() for loss in losses), expected)
        for layer, gradient in zip(layers, gradients, strict=True):
            np.testing.assert_allclose(layer.gradient.numpy(), gradient)
        with pytest.raises(td.MetadataError, match="unknown device 'node7/sim:0'"):
            td.pipeline([td.Stage("node7/sim:0", layers[0].forward, layers[0].backward)], 2)(x, target, loss=squares)


def test_what_a_node_refuses_names_the_node_and_the_way_out(keyed: Keyed, tmp_path: Path) -> None:
    with keyed.connect() as session:
        session.publish("w", session.asarray([1.0], device=FAR))
        refused = session.checkpoint(tmp_path, "w")
        for wait in (refused.wait, lambda: session.restore(tmp_path)):
            with pytest.raises(
                td.ProtocolError, match=r"^node1: checkpoints in any directory .* configuration \(checkpoints: none\)"
            ):
                wait()
        assert str(refused.error).startswith("node1: ")
        session.unpublish("w")
    shutil.copy(keyed.running["node0"].directory / "server.key", keyed.keys)
    with td.connect_cluster(keyed.members["node0"].address, keys=keyed.keys) as session:
        with pytest.raises(td.MetadataError, match=r"save: node0 cannot open .* fetch the values"):
            session.save(tmp_path / "x.npy", {"x": session.asarray([1.0], device=FAR)})
        with pytest.raises(td.ProtocolError, match="load: node1 cannot open"):
            session.load(tmp_path / "x.npy", device=FAR)
