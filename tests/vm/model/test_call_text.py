"""Calls in errors and tables look as they do in programs."""

from __future__ import annotations

from typing import Any

import pytest

import tensord as td
from tensord.interpreter.schema.opdef import find
from tensord.vm.model.signature import call_text

from ...each_case import each_case


@each_case(
    ("op", "attributes", "text"),
    [
        ("advanced_getitem", {"index": ("tensor", slice(0, 0))}, "advanced_getitem(x[tensor, 0:0])"),
        (
            "advanced_getitem",
            {"index": (None, ..., slice(None, 3, 2), "tensor")},
            "advanced_getitem(x[None, ..., :3:2, tensor])",
        ),
        ("sum", {"axis": 0, "keepdims": True}, "sum(axis=0, keepdims=True)"),
        ("cholesky", {"upper": True}, "cholesky(upper=True)"),
        ("cholesky", {}, "cholesky"),
    ],
)
def test_a_call_is_named_as_it_is_written(op: str, attributes: dict[str, Any], text: str) -> None:
    definition = find(op)
    assert call_text(definition, definition.freeze(attributes)) == text


def test_an_error_of_a_kernel_names_the_index_as_it_was_written(session: td.Session) -> None:
    x = session.asarray([[1.0, 2.0]])
    with pytest.raises(td.TensordError) as caught:
        x[session.asarray([5]), 0:1].numpy()
    assert "('tensor'" not in str(caught.value)
    assert "x[tensor, 0:1]" in str(caught.value)
