"""The driver's functions are those of NVIDIA's bindings, which can be inspected without a GPU."""

from __future__ import annotations

import ast
import importlib.util
import re
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

from tensord.streams.cuda import driver as ours

from ...each_case import each_case
from ..fake_cuda.gpu import Gpu
from ..fake_cuda.graphs import Driver

SOURCE = Path(ours.__file__).read_text()


def names_used() -> list[str]:
    """The names of the bindings in use: functions, enumerations with their members, structures."""
    chains = re.findall(r"(?:self\.api|driver|modes)\.(C?[Cc][uU]\w+(?:\.\w+)?)", SOURCE)
    members = [f"CUstreamCaptureMode.{name}" for name in re.findall(r"modes\.(CU_\w+)", SOURCE)]
    return sorted({name for name in chains if not name.startswith("CU_")} | set(members))


def calls() -> dict[str, int]:
    """How many arguments each function is called with."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("cu"):
            found[node.func.attr] = max(len(node.args), found.get(node.func.attr, 0))
    return found


@pytest.fixture(scope="module")
def bindings() -> Any:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip("cuda-bindings is not installed; `make cupy` has it for this test")
    from cuda.bindings import driver

    return driver


def test_what_is_taken_of_the_bindings_is_found_in_the_source():
    assert {"cuGraphLaunch", "CUDA_MEMCPY3D", "CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE"} <= {
        *names_used()
    }
    assert calls()["cuGraphExecMemcpyNodeSetParams"] == 4


@pytest.mark.cupy
def test_the_bindings_have_what_is_taken_of_them(bindings):
    for name in names_used():
        found = bindings
        for part in name.split("."):
            found = getattr(found, part)


@pytest.mark.cupy
def test_the_bindings_functions_take_what_they_are_given(bindings):
    for name, count in calls().items():
        taken = re.match(r"\w+\((.*?)\)", getattr(bindings, name).__doc__)
        assert taken, name
        parameters = re.sub(r"\[[^]]*(\[[^]]*\])*[^]]*\]", "", taken[1]).split(",")
        assert count <= len(parameters), (name, parameters)
        assert count >= sum("=" not in each for each in parameters if each), (name, parameters)


@pytest.mark.cupy
def test_the_bindings_structures_take_what_they_are_given(bindings):
    device = bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy = bindings.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = device
    copy.srcDevice, copy.dstDevice = 1 << 40, 512
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 4096
    copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1
    assert (int(copy.srcDevice), int(copy.dstDevice), copy.dstMemoryType) == (1 << 40, 512, device)
    kernel = bindings.CUDA_KERNEL_NODE_PARAMS()
    kernel.func, kernel.kernelParams, kernel.gridDimX = 4096, 8192, 7
    assert (int(kernel.func), int(kernel.kernelParams), kernel.gridDimX) == (4096, 8192, 7)


@each_case("name", sorted(calls()))
def test_the_fake_has_the_functions_that_are_called(name):
    parameters = signature(getattr(Driver(Gpu(0)), name)).parameters.values()
    assert (
        len(parameters)
        >= calls()[name]
        >= sum(each.default is Parameter.empty for each in parameters) - (name == "cuGraphGetNodes")
    )
