"""From names and tables to devices; every mistake is named, and the page about options agrees with the code."""

import runpy
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.streams.catalogue import KINDS, check_devices, close_devices, open_devices
from tensord.streams.cuda.options import available
from tensord.streams.host.blas import BlasLimit
from tensord.streams.options import MEMORY, count, defaults_of, options_of, parse_size, read_options, rows

from ..each_case import each_case

DOCS = Path(__file__).parents[2] / "docs"


def test_devices_open_by_name_and_table_in_order():
    devices = open_devices(["cpu:0", {"name": "sim:1", "memory": "64MiB", "missing": ["matmul"]}, "sim:0"], print)
    assert list(devices) == ["cpu:0", "sim:1", "sim:0"]
    assert devices["sim:1"].limit == 64 << 20
    assert devices["sim:1"].missing == {"matmul"}
    assert devices["sim:0"].limit == 1 << 30
    assert close_devices(devices, 1)


def test_without_any_there_is_the_cpu():
    devices = open_devices([], print)
    assert list(devices) == ["cpu:0"]
    assert close_devices(devices, 1)


@each_case(
    ("value", "nbytes"),
    [
        (0, 0),
        (1000, 1000),
        ("12", 12),
        ("12B", 12),
        ("1KiB", 1024),
        ("1.5 MiB", 3 << 19),
        ("2GiB", 2 << 30),
        (1e9, 10**9),
    ],
)
def test_sizes(value, nbytes):
    assert parse_size(value) == nbytes


@each_case("value", ["1GB", "-1", "", "MiB", -1, True, None, float("inf"), float("nan"), [1]])
def test_what_is_no_size(value):
    with pytest.raises(ValueError, match="size"):
        parse_size(value)


@each_case(
    ("specs", "message"),
    [
        (["gpu:0"], f"known: {', '.join(sorted(KINDS))}.*other kinds come with plugins"),
        ("cpu:0", r'must be given as a list, such as \["cpu:0"\]'),
        ({"name": "cpu:0"}, "must be given as a list, such as .{'name': 'cpu:0'}"),
        (["cpu"], "unknown device 'cpu'"),
        (["cpu:01"], "unknown device 'cpu:01'"),
        (["sim:0\n"], "unknown device"),
        ([{}], "unknown device None"),
        ([{"name": 3}], "unknown device 3"),
        (["sim:0", {"name": "sim:0"}], "'sim:0' is given twice"),
        ([{"name": "sim:0", "mem": 1}], "no option 'mem' .known: memory, "),
        ([{"name": "cpu:0", "bandwidth": 1}], "no option 'bandwidth'"),
        ([{"name": "sim:0", "memory": "much"}], "'memory': a size is"),
        ([{"name": "cpu:0", "workers": 0}], "'workers': must be a whole number"),
        ([{"name": "cpu:0", "workers": True}], "'workers': must be a whole number"),
        ([{"name": "sim:0", "latency": -1}], "'latency': must be a number of seconds"),
        ([{"name": "sim:0", "peer": 1}], "'peer': must be true or false"),
        ([{"name": "sim:0", "missing": "add"}], "'missing': must be a list"),
        (
            [{"name": "sim:0", "missing": ["add", "matmull"]}],
            "'missing': unknown op 'matmull'; did you mean",
        ),
        ([{"name": "sim:0", "memory": 0}], "'memory': must be at least one byte"),
        ([{"name": "cpu:0", "memory": "0.5B"}], "'memory': must be at least one byte"),
        ([{"name": "sim:0", "bandwidth": "fast"}], "'bandwidth': a bandwidth is a number of bytes per second"),
        ([{"name": "sim:0", "bandwidth": -1}], "'bandwidth': a bandwidth is a number of bytes per second"),
        ([{"name": "sim:0", "faults": "fail"}], "'faults': must be a list"),
        ([{"name": "sim:0", "faults": [{"kind": "boom"}]}], "unknown fault 'boom'"),
    ],
)
def test_mistakes_are_named(specs, message):
    with pytest.raises(MetadataError, match=message):
        open_devices(specs, print)


@pytest.mark.skipif(available() is None, reason="there is a CUDA device here")
def test_a_missing_gpu_is_an_error_that_says_why():
    with pytest.raises(MetadataError, match="'cuda:0' is not available: "):
        open_devices(["cpu:0", "cuda:0"], print)


def test_the_blas_limit_is_the_smallest_asked_for_and_goes_with_the_last():
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    before, limit = threads(), BlasLimit()
    limit.ask(2)
    limit.ask(1)
    assert set(threads()) <= {1}
    limit.drop(1)
    limit.drop(2)
    assert threads() == before


@pytest.mark.parametrize("without", ["the package", "a library that it knows"])
def test_blas_threads_are_refused_where_nothing_can_limit_them(monkeypatch, without):
    if without == "the package":
        monkeypatch.setitem(sys.modules, "threadpoolctl", None)
        told = "needs the package threadpoolctl: pip install threadpoolctl; or leave the option out"
    else:
        threadpoolctl = pytest.importorskip("threadpoolctl")
        monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [{"user_api": "openmp"}])
        told = "knows no BLAS library of NumPy's here; or leave the option out, and set OMP_NUM_THREADS=2"
    with pytest.raises(MetadataError, match=f"device 'cpu:0', option 'blas_threads': .*{told}"):
        check_devices([{"name": "cpu:0", "blas_threads": 2}])
    assert check_devices([{"name": "cpu:0", "blas_threads": 0}])


@each_case(
    ("option", "told"),
    [
        ({"interval": 5}, "has an interval and no directory of durable names"),
        ({"ceiling": 1}, "has a ceiling and no quota"),
        ({"directory": "/there"}, "needs both a directory and a quota"),
    ],
)
def test_an_option_of_the_store_that_would_mean_nothing_is_refused(option, told):
    with pytest.raises(MetadataError, match=told):
        open_devices(["cpu:0", {"name": "store:0", **option}], print)


@each_case(("given", "expected"), [("50%", 1 << 19), ("12.5 %", 1 << 17), ("1 KiB", 1024), (7, 7), (0, 0)])
def test_a_ceiling_is_a_size_or_a_share_of_the_device(given, expected):
    devices = open_devices(["cpu:0", {"name": "sim:0", "memory": "1 MiB", "ceiling": given}], print)
    try:
        assert devices["sim:0"].ceiling == expected
    finally:
        close_devices(devices, 1.0)


@each_case("given", ["0%", "101%", "%", "half", -1, None, True])
def test_a_ceiling_is_nothing_else(given):
    with pytest.raises(MetadataError, match="option 'ceiling': must be a size such as"):
        check_devices([{"name": "sim:0", "ceiling": given}])


def test_the_table_in_the_documentation_is_that_of_the_declarations():
    """If not: .venv/bin/python docs/make_devices.py."""
    page = (DOCS / "devices.md").read_text()
    assert runpy.run_path(str(DOCS / "make_devices.py"))["renewed"](page) == page


@each_case("kind", KINDS)
def test_every_option_of_every_kind_is_declared_and_reads_its_own_default(kind):
    options = KINDS[kind].options
    made = read_options(f"{kind}:0", options, {})
    for field in fields(options):
        value = getattr(made, field.name)
        if (kind, field.name) == ("cuda", "memory"):  # 0 stands for a share of the free memory then
            continue
        assert options_of(options)[field.name].read(value) == value
        assert options_of(options)[field.name].meaning
        assert defaults_of(options)[field.name]


def test_one_declaration_is_enough_for_reading_errors_and_the_table():
    @dataclass(frozen=True, slots=True)
    class Made:
        lanes: Annotated[int, count(2, "lanes of it")] = 4
        memory: Annotated[int, MEMORY] = 3 << 19

    assert read_options("made:0", Made, {"lanes": 8, "memory": "1KiB"}) == Made(8, 1024)
    with pytest.raises(MetadataError, match="'lanes': must be a whole number from 2 to 1024, not 1"):
        read_options("made:0", Made, {"lanes": 1})
    with pytest.raises(MetadataError, match=r"no option 'lane' .known: lanes, memory"):
        read_options("made:0", Made, {"lane": 1})
    assert rows({"made": Made})[0] == ("`lanes`", "2 to 1024", "4", "lanes of it")
    assert rows({"made": Made})[1][2] == "1.5 MiB"


def test_a_field_that_is_no_option_and_an_option_of_two_meanings_are_refused():
    @dataclass
    class Undeclared:
        lanes: int = 4

    @dataclass
    class Other:
        memory: Annotated[int, count(1, "something else")] = 1

    with pytest.raises(TypeError, match=r"Undeclared.lanes is not declared"):
        options_of(Undeclared)
    with pytest.raises(TypeError, match="'memory' is declared in two ways"):
        rows({"cpu": KINDS["cpu"].options, "other": Other})
