"""Kinds of devices: defined once each, in their own modules; also in packages from outside."""

import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pytest

import tensord as td
from tensord.devices import MEMORY, Device, HostDevice, Sink, define_device
from tensord.streams import kinds
from tensord.streams.catalogue import KINDS, check_devices, close_devices, open_devices
from tensord.streams.cuda import cuda

from ..each_case import each_case


@dataclass(frozen=True, slots=True)
class Options:
    memory: Annotated[int, MEMORY] = 1 << 20


class Made(HostDevice):
    def __init__(self, name: str, sink: Sink, options: Options) -> None:
        super().__init__(name, options.memory, (), 0, late_errors=False)
        self.options = options
        self.open_streams(sink)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


def test_the_kinds_of_this_tree_are_found_by_module_without_what_a_gpu_needs():
    program = "import sys, tensord.streams.catalogue as c; print(sorted(c.KINDS)); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout  # noqa: S603
    names, modules = told.splitlines()
    assert {"cpu", "cuda", "sim", "store"} <= set(literal_eval(names))
    assert len(literal_eval(names)) == len(list(Path(kinds.__file__).parent.glob("*/kind.py")))
    assert not {"cupy", "tensord.streams.cuda.cuda"}.intersection(modules.split())
    assert KINDS["cpu"].module == "tensord.streams.host.kind"


def test_a_gpu_is_opened_by_its_own_module_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda, "CudaDevice", lambda name, sink, options: Made(name, sink, Options(options.memory)))
    KINDS["cuda"] = replace(KINDS["cuda"], available=lambda _: None)
    devices = open_devices([{"name": "cuda:1", "memory": "1 MiB"}], print)
    assert (list(devices), devices["cuda:1"].limit) == (["cuda:1"], 1 << 20)
    assert close_devices(devices, 5.0)


def test_a_kind_of_ones_own_opens_computes_and_moves_values_as_any_other():
    define_device("made", Made, Options)
    with td.connect("local", devices=["cpu:0", {"name": "made:3", "memory": "64 KiB"}]) as session:
        x = session.asarray([1.0, 2.0], device="made:3")
        y = x @ x + session.asarray(1.0)
        assert (y.device, y.item(), y.to_device("cpu:0").item()) == ("made:3", 6.0, 6.0)
        (row,) = [one for one in session._core.answers.query("devices") if one["name"] == "made:3"]
        assert row["options"] == {"memory": 1 << 16}


def test_what_does_not_fit_leaves_for_the_host():
    class Evicting(Made):
        def __init__(self, name: str, sink: Sink, options: Options) -> None:
            super().__init__(name, sink, options)
            self.eviction = td.devices.Eviction.COST

    define_device("made", Evicting, Options)
    with td.connect("local", devices=["cpu:0", {"name": "made:0", "memory": "20 KiB"}]) as session:
        every = [session.xp.full(1024, float(n), device="made:0") for n in range(5)]
        assert [one.numpy()[-1] for one in every] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert session.stats()["devices"]["made:0"]["eviction"]["evicted"]["count"] > 0


def test_a_kind_in_the_hosts_memory_needs_no_transfers_between_it_and_the_host():
    class Near(Made):
        def __init__(self, name: str, sink: Sink, options: Options) -> None:
            super().__init__(name, sink, options)
            self.host = True

        def reaches(self, other: Device) -> bool:
            return other.host

    define_device("near", Near, Options, host=True, main_memory=True)
    with td.connect("local", devices=["near:0", "cpu:0", "sim:0"]) as session:
        x = session.asarray([1.0, 2.0])
        there = (x + x).to_device("cpu:0") * session.asarray([3.0, 4.0], device="cpu:0")
        again = (there.to_device("near:0") @ x).to_device("sim:0")
        assert (x.device, there.device, there.tolist(), again.item()) == ("near:0", "cpu:0", [6.0, 16.0], 38.0)
        session.publish("x", x)
        assert session.lookup("x").tolist() == [1.0, 2.0]


def test_a_name_that_is_taken_is_an_error_that_names_both_places():
    define_device("made", Made, Options)
    with pytest.raises(td.MetadataError, match=rf"'made' is defined twice: at .*:\d+ and at {__name__}:\d+"):
        define_device("made", Made, Options)
    with pytest.raises(td.MetadataError, match=r"'cpu' is defined twice: at tensord\.streams\.host\.kind:"):
        define_device("cpu", Made, Options)


@dataclass
class Undeclared:
    lanes: int = 4


@dataclass
class Unknown:
    lanes: "Annotated[Nothing, 3]" = field(default=4)  # type: ignore[name-defined]  # noqa: F821


@each_case(
    ("name", "options", "told"),
    [
        ("Made", Options, "lower-case letters"),
        ("", Options, "lower-case letters"),
        ("a" * 33, Options, "lower-case letters"),
        (3, Options, "lower-case letters"),
        ("made", dict, "are a dataclass"),
        ("made", Options(), "are a dataclass"),
        ("made", Undeclared, "lanes is not declared as an option"),
        ("made", Unknown, "name 'Nothing' is not defined"),
    ],
)
def test_what_is_no_definition_is_refused(name: Any, options: Any, told: str):
    with pytest.raises(td.MetadataError, match=told):
        define_device(name, Made, options)
    assert "made" not in KINDS


def raises(*_: object) -> Any:
    raise RuntimeError("no more lanes")


def opens_nothing(*_: object) -> Any:
    return "a device"


@each_case(
    ("opened", "told"), [(raises, "does not open: RuntimeError: no more lanes"), (opens_nothing, "a str, not a Device")]
)
def test_a_device_that_does_not_open_is_named_and_the_others_are_closed(opened: Any, told: str):
    KINDS.pop("made", None)
    define_device("made", opened, Options)
    with pytest.raises(td.MetadataError, match=f"device 'made:0' .*{told}"):
        open_devices(["cpu:0", "made:0"], print)


@each_case(
    ("available", "told"),
    [
        (raises, "not available: RuntimeError: no more"),
        (lambda number: f"there are {number}", "not available: there are 7"),
    ],
)
def test_a_device_that_is_not_there_says_why(available: Any, told: str):
    KINDS.pop("made", None)
    define_device("made", Made, Options, available=available)
    with pytest.raises(td.MetadataError, match=f"device 'made:7' is {told}"):
        check_devices(["made:7"])
    assert check_devices(["made:7"], present=False)


def test_options_that_do_not_go_together_are_refused_with_the_devices_name():
    @dataclass(frozen=True)
    class Judging(Options):
        def __post_init__(self) -> None:
            raise ValueError("an odd number of lanes")

    define_device("made", Made, Judging)
    with pytest.raises(td.MetadataError, match="device 'made:0': an odd number of lanes"):
        check_devices(["made:0"])


def test_there_may_be_only_one_and_one_that_does_not_compute_is_not_enough():
    define_device("made", Made, Options, only=2, computes=False)
    with pytest.raises(td.MetadataError, match="there is one made, made:2, and no made:0"):
        check_devices(["cpu:0", "made:0"])
    with pytest.raises(td.MetadataError, match="made:2 computes nothing"):
        check_devices(["made:2"])


def test_a_kind_that_an_installed_package_offers_is_told_of(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinds, "offering", lambda kind: iter(["mypackage"] if kind == "made" else []))
    with pytest.raises(
        td.MetadataError, match=r"'made' comes with the package mypackage: .*plugins = \[\"mypackage\"\]"
    ):
        check_devices(["made:0"])


def test_a_kernel_that_raises_on_a_device_from_outside_costs_its_result_alone():
    class Failing(Made):
        def bind_kernel(self, call: Any) -> Any:
            return (raises if call.op.name == "multiply" else super().bind_kernel(call)[0]), 0

    define_device("made", Failing, Options)
    with td.connect("local", devices=["made:0", "cpu:0"]) as session:
        x = session.asarray([1.0, 2.0])
        y = x * x
        with pytest.raises(td.KernelError, match="no more lanes"):
            y.numpy()
        assert (x + x).tolist() == [2.0, 4.0]


def test_what_a_device_from_outside_raises_on_the_driving_thread_fails_the_op_alone(caplog: pytest.LogCaptureFixture):
    class Failing(Made):
        def bind_kernel(self, call: Any) -> Any:
            return raises() if call.op.name == "multiply" else super().bind_kernel(call)

        def new_memory(self, nbytes: int) -> Any:
            return raises() if nbytes > 1000 else super().new_memory(nbytes)

    define_device("made", Failing, Options)
    with td.connect("local", devices=["made:0", "cpu:0"]) as session:
        x = session.asarray([1.0, 2.0])
        with pytest.raises(td.MetadataError, match="multiply: made:0 cannot bind a kernel: RuntimeError: no"):
            (x * x).numpy()
        with pytest.raises(td.DeviceMemoryError):
            session.xp.ones(1000).numpy()
        assert "made:0 makes no memory" in caplog.text
        assert (x + x).tolist() == [2.0, 4.0]


def test_devices_that_were_opened_are_closed():
    define_device("made", Made, Options)
    assert close_devices(open_devices(["made:0", "made:1"], print), 5.0)
