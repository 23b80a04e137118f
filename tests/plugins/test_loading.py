"""Plugins are loaded once, only the named ones, completely or not at all; an error names its fix."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import tensord as td
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.streams.catalogue import KINDS
from tensord.vm.plugins.installed import installed as could_be_loaded
from tensord.vm.plugins.loading import LOADED, load, loaded, plugin_of, plugin_of_op
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import load as load_config

from ..each_case import each_case

DEVICE = """
from dataclasses import dataclass
from typing import Annotated
from tensord.devices import MEMORY, HostDevice, define_device

@dataclass(frozen=True)
class Options:
    memory: Annotated[int, MEMORY] = 1 << 20

class Made(HostDevice):
    def __init__(self, name, sink, options):
        super().__init__(name, options.memory, (), 0, late_errors=False)
        self.options = options
        self.open_streams(sink)

define_device("{kind}", Made, Options)
"""
OP = """
from tensord.interpreter.schema.opdef import define

define("{op}", 1, lambda metas, _: (metas[0],), "Made up.", ufunc="negative")
"""
POINT = "[tensord.devices]\nmade = {module}\n"


def test_a_plugin_is_a_record_of_what_it_defines_and_loaded_once(write_plugin: Callable[..., str]):
    name = write_plugin(
        "import builtins; builtins.made_up_runs = getattr(builtins, 'made_up_runs', 0) + 1\n"
        + DEVICE.format(kind="made")
        + OP.format(op="made_op"),
        points=POINT.format(module="made_up"),
    )
    (plugin,) = load([name])
    assert load(["Made_Up", name]) == [plugin]
    assert (plugin.name, plugin.version) == ("made-up", "3.4")
    assert (plugin.devices, plugin.ops) == (("made",), ("made_op",))
    assert plugin.location == sys.modules["made_up"].__file__
    assert plugin_of("made") == plugin_of_op("made_op") == plugin
    assert plugin_of("cpu") is plugin_of_op("add") is None
    assert str(plugin).endswith("made_up.py: device made, op made_op")
    import builtins

    assert builtins.made_up_runs == 1  # type: ignore[attr-defined]
    del builtins.made_up_runs  # type: ignore[attr-defined]


def test_the_order_of_the_names_does_not_matter(write_plugin: Callable[..., str]):
    first = write_plugin(DEVICE.format(kind="made"), name="made-up", points=POINT.format(module="made_up"))
    second = write_plugin(OP.format(op="made_op"), name="another")
    told = load([first, second])
    LOADED.clear()
    assert load([second, first]) == told == loaded()
    assert [plugin.name for plugin in told] == ["another", "made-up"]


def test_what_was_imported_before_counts_for_its_plugin(write_plugin: Callable[..., str]):
    name = write_plugin(DEVICE.format(kind="made"), points=POINT.format(module="made_up"))
    __import__("made_up")
    assert load([name])[0].devices == ("made",)


def test_those_that_are_installed_are_listed_without_being_imported(write_plugin: Callable[..., str]):
    write_plugin("raise SystemExit('imported')", points=POINT.format(module="made_up"))
    rows = [row for row in could_be_loaded() if row["name"] == "made-up"]
    assert rows == [{"name": "made-up", "version": "3.4", "ops": [], "devices": ["made"]}]


BAD = [
    ("raise RuntimeError('no licence')", None, r"RuntimeError: no licence \[made_up.py:5: raise RuntimeError"),
    ("import nowhere_at_all", None, r"ModuleNotFoundError: No module named 'nowhere_at_all' \[made_up.py:5"),
    ("def f(:", None, r"SyntaxError: "),
    ("import sys; sys.exit(3)", None, r"SystemExit: 3"),
    (OP.format(op="add"), None, r"op 'add' is defined twice: in tensord\S+ and in made_up"),
    (
        DEVICE.format(kind="cpu"),
        POINT.format(module="made_up"),
        r"'cpu' is defined twice: at tensord.streams.host.* \[made_up.py:\d+: define_device",
    ),
    (DEVICE.format(kind="other"), POINT.format(module="made_up"), r"does not define the kind of device 'made'"),
    ("", POINT.format(module="made_up:missing"), r"AttributeError: .*'missing'"),
    ("", "", r"has no entry points in the groups tensord.ops or tensord.devices"),
]


@each_case(("code", "points", "told"), BAD)
def test_a_bad_plugin_is_refused_with_what_to_do_and_leaves_nothing_behind(
    write_plugin: Callable[..., str], code: str, points: str | None, told: str
):
    before = set(KINDS), set(REGISTRY), set(LOADED)
    name = write_plugin(OP.format(op="made_op") + code, points=points)
    with pytest.raises(td.MetadataError, match=rf"plugin 'made-up' \(3.4\).*{told}.*(leave it out|define_device)"):
        load([name])
    assert (set(KINDS), set(REGISTRY), set(LOADED)) == before
    assert "made_up" not in sys.modules


def test_a_plugin_that_was_refused_can_be_mended_and_loaded(write_plugin: Callable[..., str]):
    name = write_plugin(OP.format(op="made_op") + "\nraise RuntimeError\n")
    with pytest.raises(td.MetadataError):
        load([name])
    write_plugin(OP.format(op="made_op"))
    assert load([name])[0].ops == ("made_op",)


def test_one_that_is_not_installed_is_named_with_the_place_and_a_module_with_its_package():
    with pytest.raises(td.MetadataError, match=r"plugin 'no-such-package' is not installed in /.*: install it there"):
        load(["no-such-package"])
    with pytest.raises(td.MetadataError, match="the module zmq is in the package pyzmq: name that"):
        load(["zmq"])


@each_case("given", ["mypackage", [3], [""], ["../mypackage"], ["a b"], 3, {"mypackage": 1}])
def test_what_is_no_list_of_packages_is_refused(given: Any):
    with pytest.raises(td.MetadataError, match="plugins= is a list of installed packages"):
        td.connect("local", plugins=given)
    with pytest.raises(StartError, match="plugins: must be a list of installed packages"):
        load_config(None, {"plugins": given})


def test_a_machine_in_this_process_has_the_plugins_that_are_named(write_plugin: Callable[..., str]):
    name = write_plugin(DEVICE.format(kind="made") + OP.format(op="made_op"), points=POINT.format(module="made_up"))
    for engine in ("vm", "serial"):
        with td.connect("local", devices=["made:0", "cpu:0"], plugins=[name], engine=engine) as session:
            (y,) = session.call("made_op", [session.asarray([1.0, 2.0])])
            assert (y.device, y.tolist()) == ("made:0", [-1.0, -2.0])
            assert [row["name"] for row in session._core.answers.query("plugins")] == ["made-up"]


def test_plugins_are_not_for_a_daemon_that_is_connected_to():
    with pytest.raises(td.MetadataError, match="plugins= is for machines of this process"):
        td.connect("ipc:///nowhere/socket", plugins=["mypackage"])


def test_the_configuration_loads_plugins_before_it_looks_at_devices_and_ops(
    write_plugin: Callable[..., str], tmp_path: Any
):
    name = write_plugin(DEVICE.format(kind="made") + OP.format(op="made_op"), points=POINT.format(module="made_up"))
    file = tmp_path / "tensord.toml"
    file.write_text(f'devices = ["cpu:0", "made:0"]\nwarm = ["made_op"]\nplugins = ["{name}"]\n')
    assert load_config(file).plugins == (name,)
    file.write_text('devices = ["cpu:0", "made:0"]\n')
    LOADED.clear()
    KINDS.pop("made")
    with pytest.raises(
        StartError, match=r"unknown device 'made:0'.*comes with the package made-up: name it, plugins ="
    ):
        load_config(file)


def test_a_kind_in_the_hosts_memory_has_its_part_of_the_daemons(write_plugin: Callable[..., str]):
    code = DEVICE.format(kind="made").replace("Options)", "Options, host=True)")
    name = write_plugin(code, points=POINT.format(module="made_up"))
    config = load_config(None, {"plugins": [name], "devices": ["cpu:0", "made:0"], "memory": "1 GiB"})
    cpu, made = config.opened
    assert made == {"name": "made:0", "memory": cpu["memory"]}
    assert made["memory"] == int(0.3 * (1 << 30))


def test_a_configuration_with_a_bad_plugin_is_refused(write_plugin: Callable[..., str]):
    with pytest.raises(StartError, match=r"plugin 'made-up' \(3.4\) cannot be imported"):
        load_config(None, {"plugins": [write_plugin("raise RuntimeError")]})
