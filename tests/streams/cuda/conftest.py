"""Fixtures shared by the tests of graphs."""

import pytest

from ..fake_cuda.gpu import Gpu
from ..fake_cuda.module import installed
from .graph_bench import Bench


@pytest.fixture(params=range(3))
def gpu(request):
    with installed(Gpu(seed=request.param, memory=1 << 30)) as fake:
        yield fake


@pytest.fixture
def bench(gpu, open_device, reports):
    return Bench(gpu, open_device("cuda:0", memory="256MiB", reserve="64MiB"), reports)
