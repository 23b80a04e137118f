"""Names belong to a node: `node1/w` from every node, and `w` where only one node has it."""

from __future__ import annotations

import threading

import pytest

import tensord as td


@pytest.fixture
def w(cluster):
    tensor = cluster.asarray([1.0, 2.0], device="node1/sim:0")
    cluster.publish("w", tensor)
    return tensor


@pytest.mark.usefixtures("w")
def test_a_name_is_on_the_node_of_its_tensor(cluster, machines_of_nodes):
    cluster.publish({"node0/a": cluster.asarray([1.0]), "b": cluster.asarray([2.0])})
    assert cluster.names() == ["node0/a", "node0/b", "node1/w"]
    assert cluster.names("tensor") == cluster.names()
    assert cluster.names("routine") == []
    assert machines_of_nodes["node1"].names() == ["w"]
    for name in ("w", "node1/w"):
        assert cluster.lookup(name).device == "node1/sim:0"
    found = cluster.lookup(["w", "a", "node0/b"])
    assert {name: tensor.device for name, tensor in found.items()} == {
        "w": "node1/sim:0",
        "a": "node0/cpu:0",
        "node0/b": "node0/cpu:0",
    }


@pytest.mark.usefixtures("w")
def test_a_name_of_several_nodes_is_ambiguous(cluster):
    cluster.publish("w", cluster.asarray([3.0]))
    for use in (lambda: cluster.lookup("w"), lambda: cluster.unpublish("w")):
        with pytest.raises(td.MetadataError, match="node0/w, node1/w"):
            use()
    cluster.unpublish("node0/w")
    assert cluster.lookup("w").device == "node1/sim:0"


@pytest.mark.usefixtures("w")
def test_a_name_that_nobody_has_is_a_key_error(cluster):
    for use in (lambda: cluster.lookup("v"), lambda: cluster.lookup("node0/w"), lambda: cluster.unpublish("v")):
        with pytest.raises(KeyError, match="nothing is published"):
            use()
    with pytest.raises(KeyError, match="nothing is published"):
        cluster.lookup(["w", "v"], wait=0.01)


def test_lookup_waits_for_somebody_on_any_node(cluster, machines_of_nodes):
    found = []
    thread = threading.Thread(target=lambda: found.append(cluster.lookup("late", wait=10)))
    thread.start()
    machines_of_nodes["node1"].publish("late", machines_of_nodes["node1"].asarray([5.0]))
    thread.join()
    assert found[0].item() == 5.0


def test_a_snapshot_does_not_see_later_writes(cluster, w):
    taken = cluster.lookup("w", snapshot=True)
    w += 1
    assert cluster.lookup("w").tolist() == [2.0, 3.0]
    assert taken.tolist() == [1.0, 2.0]


def test_names_that_are_published_at_once_are_of_one_node(cluster, w):
    with pytest.raises(td.MetadataError, match="of one node"):
        cluster.publish({"a": cluster.asarray([1.0]), "b": w})
    with pytest.raises(td.MetadataError, match="its name is node1/a"):
        cluster.publish("node0/a", w)
    with pytest.raises(td.MetadataError, match="expected a tensor"):
        cluster.publish("a", 5)
    with td.connect("local") as other, pytest.raises(td.MetadataError, match="another session"):
        cluster.publish("a", other.asarray([1.0]))
    assert cluster.names() == ["node1/w"]


def test_names_are_published_inside_an_atomic_block(cluster, w):
    with cluster.atomic():
        w += 1
        cluster.publish("v", w)
    assert cluster.lookup("v").tolist() == [2.0, 3.0]


def test_routines_and_global_tensors_have_names_too(cluster, w):
    cluster.publish("step", cluster.routine(lambda x: x + 1).link(w))
    assert cluster.names("routine") == ["node1/step"]
    assert cluster.lookup("step")(w).tolist() == [2.0, 3.0]
    g = cluster.global_tensor([1.0, 2.0], td.placement(["node1/sim:0", "node1/sim:1"]), td.split(0))
    cluster.publish("g", g)
    assert cluster.names() == ["node1/g", "node1/step", "node1/w"]
    assert cluster.lookup("node1/g").numpy().tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("w")
def test_a_checkpoint_has_a_directory_for_each_node(cluster, tmp_path):
    cluster.publish("v", cluster.asarray([3.0]))
    report = cluster.checkpoint(tmp_path).wait()
    assert {node: each["names"] for node, each in report.items()} == {"node0": 1, "node1": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node0", "node1"]
    cluster.unpublish("v", "w")
    assert {node: each["names"] for node, each in cluster.restore(tmp_path).items()} == {"node0": 1, "node1": 1}
    assert cluster.lookup("node1/w").tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("w")
def test_a_checkpoint_of_some_names_is_of_their_nodes(cluster, tmp_path):
    cluster.publish("v", cluster.asarray([3.0]))
    taken = cluster.checkpoint(tmp_path, "w", keep=1)
    assert set(taken.wait()) == {"node1"}
    assert taken.done
    assert taken.error is None
    cluster.unpublish("w")
    assert set(cluster.restore(tmp_path, "node1/w")) == {"node1"}
    with pytest.raises(td.FileError):
        cluster.restore(tmp_path / "elsewhere")


def test_files_are_loaded_on_any_node_and_saved_from_it(cluster, tmp_path):
    path = tmp_path / "x.safetensors"
    cluster.save(path, {"x": cluster.asarray([1.0, 2.0])}).wait()
    assert cluster.load(path, device="node1/sim:0")["x"].device == "node1/sim:0"
    assert cluster.load(path)["x"].tolist() == [1.0, 2.0]
