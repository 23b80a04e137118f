"""The checks of generated kernels, over the fake; and that they notice wrong kernels."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensord.streams.cuda.unfused import Unfused

from ..streams.cuda.loops_of_cupy import LOOPS
from ..streams.fake_cuda.generated import give_kernels
from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .bare_device import small_proof
from .fake import VARIABLE
from .op_cases import Case
from .stage_fused import Proof

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proof]:
    monkeypatch.setenv(VARIABLE, "1")  # sizes are small
    with installed(Gpu(seed=1, memory=1 << 30)) as gpu:
        give_kernels(gpu, sys.modules["cupy"], LOOPS, tmp_path)
        with small_proof(Proof, tmp_path) as proof:
            yield proof


@pytest.mark.parametrize("check", [Proof.random_fusions, Proof.bandwidth, Proof.rows], ids=lambda check: check.__name__)
def test_a_check_holds_over_the_fake(proof, check):
    check(proof)


def test_a_fusion_that_differs_from_its_steps_is_noticed(proof, monkeypatch):
    monkeypatch.setattr(Unfused, "__call__", lambda *_: None)
    with pytest.raises(AssertionError, match="fused"):
        proof.random_fusions()


def test_a_single_op_is_compared_with_cupy(proof, monkeypatch):
    case = Case("square", "plain", (np.arange(6, dtype="float32"),), {})
    assert not proof.single(case)  # a direct kernel
    case = Case("relu", "plain", (np.arange(6, dtype="float32") - 2.5,), {})
    assert proof.single(case)
    monkeypatch.setattr(proof.xp, "maximum", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="other bits than CuPy"):
        proof.single(case)
