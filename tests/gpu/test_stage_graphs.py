"""The checks of graphs, over the fake; and that they notice wrong graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tensord.interpreter.schema.opdef import find
from tensord.streams.cuda.graphs import CudaGraph
from tensord.streams.cuda.nodes import FixedNodes
from tensord.streams.cuda.recording import GraphMemory

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed
from .bare_device import small_proof
from .fake import VARIABLE
from .stage_graphs import CHECKS, Proof, ordinary_cases

FEW = [check for check in CHECKS if check is not Proof.every_op]


@pytest.fixture
def proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proof]:
    monkeypatch.setenv(VARIABLE, "1")  # sizes are small
    with installed(Gpu(seed=1, memory=1 << 30)), small_proof(Proof, tmp_path) as proof:
        yield proof


@pytest.mark.parametrize("check", FEW, ids=lambda check: check.__name__)
def test_a_check_holds_over_the_fake(proof, check):
    check(proof)


@pytest.mark.parametrize(
    ("op", "captured"),
    [
        ("add", True), ("sum", True), ("softmax", True), ("cumulative_sum", True), ("conv2d", True),
        ("cross_entropy", True), ("cross_entropy_grad", True), ("take", True), ("einsum", True),
        ("scaled_dot_product_attention", True), ("fft", False), ("inv", False), ("nonzero", False),
        ("histogram", False), ("sort", False),
    ],
)  # fmt: skip
def test_which_ops_are_captured(proof, op, captured):
    found = [proof.one(case) for case in ordinary_cases(find(op))]
    assert found
    assert {why is None for why in found} == {captured}


def test_a_graph_that_launches_nothing_is_noticed(proof, monkeypatch):
    monkeypatch.setattr(CudaGraph, "launch", lambda _: None)
    with pytest.raises(AssertionError, match="other bits"):
        proof.one(ordinary_cases(find("cumulative_sum"))[0])
    with pytest.raises(AssertionError, match="other bits"):
        proof.products()


def test_arguments_that_are_not_patched_are_noticed(proof, monkeypatch):
    monkeypatch.setattr(FixedNodes, "patch", lambda *_: True)
    with pytest.raises(AssertionError):
        proof.arguments_that_move()


def test_temporaries_that_are_anybodys_are_noticed(proof, monkeypatch):
    monkeypatch.setattr(GraphMemory, "nbytes", property(lambda _: 0))
    with pytest.raises(AssertionError):
        proof.a_graph_dropped_in_flight()
