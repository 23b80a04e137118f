"""`session.nn`: every function is one instruction, with the values of its op, on every device."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tensord.client.array_api.nn import Nn
from tensord.client.tensor.hints import present
from tensord.interpreter.errors import KernelError, MetadataError, MetadataTypeError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.schema.opdef import find

from ...each_case import each_case
from ...equality import assert_equal
from ...interpreter.conftest import evaluate_all
from ...stand_in import is_cuda

ROWS, IMAGES, FILTERS, LABELS = (3, 4), (2, 2, 4, 4), (2, 2, 3, 3), np.array([0, 3, 1])
HEADS = (2, 3, 4)  # [heads, tokens, size]
MASK = np.tri(3, dtype=bool)


def floats(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


# By function: operands, keyword arguments, shapes of the results.
CALLS: dict[str, tuple[list[Any], dict[str, Any], list[Any]]] = {
    "relu": ([ROWS], {}, [ROWS]),
    "relu_grad": ([ROWS, ROWS], {}, [ROWS]),
    "sigmoid": ([ROWS], {}, [ROWS]),
    "sigmoid_grad": ([ROWS, ROWS], {}, [ROWS]),
    "tanh_grad": ([ROWS, ROWS], {}, [ROWS]),
    "silu": ([ROWS], {}, [ROWS]),
    "silu_grad": ([ROWS, ROWS], {}, [ROWS]),
    "gelu": ([ROWS], {"approximate": "none"}, [ROWS]),
    "gelu_grad": ([ROWS, ROWS], {"approximate": "none"}, [ROWS]),
    "softmax": ([ROWS], {"axis": 0}, [ROWS]),
    "softmax_grad": ([ROWS, ROWS], {"axis": 0}, [ROWS]),
    "log_softmax": ([ROWS], {"axis": 0}, [ROWS]),
    "log_softmax_grad": ([ROWS, ROWS], {"axis": 0}, [ROWS]),
    "one_hot": ([LABELS, 4], {"dtype": "int8"}, [(3, 4)]),
    "cross_entropy": ([ROWS, LABELS], {}, [()]),
    "cross_entropy_grad": ([ROWS, LABELS], {"scale": 2.0}, [ROWS]),
    "layer_norm": ([ROWS, (4,), (4,)], {"eps": 0.1}, [ROWS]),
    "layer_norm_grad": ([ROWS, ROWS, (4,)], {"eps": 0.1}, [ROWS, (4,), (4,)]),
    "rms_norm": ([ROWS, (3,)], {"axis": 0}, [ROWS]),
    "rms_norm_grad": ([ROWS, ROWS, (3,)], {"axis": 0}, [ROWS, (3,)]),
    "dropout": ([ROWS, 5], {"rate": 0.5}, [ROWS]),
    "dropout_grad": ([ROWS, 5], {"rate": 0.5}, [ROWS]),
    "conv2d": ([IMAGES, FILTERS, (2,)], {"padding": 1, "stride": (1, 2)}, [(2, 2, 4, 2)]),
    "conv2d_grad": ([(2, 2, 4, 2), IMAGES, FILTERS], {"padding": 1, "stride": (1, 2)}, [IMAGES, FILTERS, (2,)]),
    "max_pool2d": ([IMAGES, 2], {"stride": 1}, [(2, 2, 3, 3)]),
    "max_pool2d_grad": ([(2, 2, 3, 3), IMAGES, 2], {"stride": 1}, [IMAGES]),
    "avg_pool2d": ([IMAGES, (2, 3)], {"padding": (1, 0), "count_include_pad": False}, [(2, 2, 3, 1)]),
    "avg_pool2d_grad": (
        [(2, 2, 3, 1), IMAGES, (2, 3)],
        {"padding": (1, 0), "count_include_pad": False},
        [IMAGES],
    ),
    "embedding": ([LABELS, (5, 2)], {}, [(3, 2)]),
    "embedding_grad": ([(3, 2), LABELS, 5], {}, [(5, 2)]),
    "scaled_dot_product_attention": ([HEADS, HEADS, HEADS, MASK], {"scale": 0.5}, [HEADS]),
    "scaled_dot_product_attention_grad": (
        [HEADS, HEADS, HEADS, HEADS, MASK],
        {"is_causal": True},
        [HEADS, HEADS, HEADS],
    ),
}
# Attributes that the functions take as positional arguments.
POSITIONAL = {"one_hot": "num_classes", "embedding_grad": "num_embeddings"}
POSITIONAL |= dict.fromkeys(["max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad"], "kernel_size")


def values(operands):
    """Arrays of the shapes among them."""
    return [floats(item, seed) if type(item) is tuple else item for seed, item in enumerate(operands)]


def arguments(session, name, device):
    """A call's arguments: tensors for shapes, except for one that stands for height and width."""
    operands, keywords, _ = CALLS[name]
    *front, last = operands
    rest = [last] if name in POSITIONAL else []
    arrays = values(front if rest else operands)
    tensors = [session.asarray(a, device) if isinstance(a, np.ndarray) else a for a in arrays]
    return [*tensors, *rest], keywords


def test_every_function_is_listed_here():
    assert set(CALLS) == {name for name in present(Nn, vars(Nn)) if not name.startswith("_")}


@each_case("name", CALLS)
def test_every_function_says_what_it_does_and_takes(name):
    function = getattr(Nn, name)
    assert inspect.getdoc(function)
    annotated = inspect.signature(function).parameters.values()
    assert all(p.annotation is not p.empty for p in annotated if p.name != "self")


@each_case("device", ["cpu:0", "sim:0"])
@each_case("name", CALLS)
def test_every_function_is_one_instruction_and_its_op(name, device, sim_session):
    args, keywords = arguments(sim_session, name, device)
    sim_session.sync()
    before = {record.id for record in sim_session.trace().records}
    found = getattr(sim_session.nn, name)(*args, **keywords)
    results = list(found) if isinstance(found, tuple) else [found]
    arrays = [result.numpy() for result in results]
    issued = [r for r in sim_session.trace().records if r.id not in before and r.opcode == Opcode.CALL.value]
    op = "dropout" if name == "dropout_grad" else name
    assert [record.op for record in issued] == [op]
    assert [array.shape for array in arrays] == CALLS[name][2]
    assert all(result.device == device for result in results)
    attributes = {POSITIONAL[name]: args.pop()} if name in POSITIONAL else {}
    plain = [argument if isinstance(argument, int) else argument.numpy() for argument in args]
    for array, expected in zip(arrays, evaluate_all(op, *plain, **attributes, **keywords), strict=True):
        assert_equal(device, op, array, expected)


def test_results_with_several_tensors_have_names(session):
    nn, x, w = session.nn, session.asarray(floats(IMAGES)), session.asarray(floats(FILTERS))
    assert nn.conv2d_grad(nn.conv2d(x, w), x, w)._fields == ("dx", "dweight", "dbias")
    assert nn.layer_norm_grad(x, x)._fields == ("dx", "dweight", "dbias")
    assert nn.rms_norm_grad(x, x)._fields == ("dx", "dweight")
    assert nn.scaled_dot_product_attention_grad(x, x, x, x)._fields == ("dq", "dk", "dv")


def test_what_is_optional_may_be_left_out(session):
    nn, x, w = session.nn, session.asarray(floats(IMAGES)), session.asarray(floats(FILTERS))
    assert nn.layer_norm(x).shape == IMAGES
    assert nn.layer_norm(x, session.asarray(floats((4,)))).shape == IMAGES
    assert nn.rms_norm(x).shape == IMAGES
    assert nn.conv2d(x, w).shape == (2, 2, 2, 2)
    assert nn.scaled_dot_product_attention(x, x, x).shape == IMAGES


def test_a_bias_needs_a_weight(session):
    x = session.asarray(floats(ROWS))
    with pytest.raises(MetadataTypeError, match=r"layer_norm: a bias needs a weight.*test_nn\.py"):
        session.nn.layer_norm(x, bias=session.asarray(floats((4,))))


def test_a_wrong_shape_is_refused_at_the_users_line(session):
    x = session.asarray(floats(ROWS))
    with pytest.raises(MetadataError, match=r"expected x \[n, c, h, w\].*test_nn\.py:\d+ in test_a_wrong"):
        session.nn.conv2d(x, x)


@each_case("device", ["cpu:0", "sim:0"])
def test_a_label_outside_the_classes_poisons_the_result(device, sim_session):
    nn = sim_session.nn
    logits, labels = sim_session.asarray(floats(ROWS), device), sim_session.asarray(np.array([0, 4, 1]), device)
    for poisoned in (nn.cross_entropy(logits, labels), nn.cross_entropy_grad(logits, labels)):
        if is_cuda() and device == "sim:0":  # no check, since it would wait for the GPU: `nn.labels`
            assert np.isnan(poisoned.numpy()).any()
            continue
        with pytest.raises(KernelError, match=r"labels must be in \[0, 4\), got 0 to 4") as caught:
            poisoned.numpy()
        assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(KernelError, match=r"indices must be in \[0, 3\)"):
        nn.embedding(labels, logits).numpy()


def test_shapes_decided_by_data_are_no_reason_to_wait(session):
    nn, x = session.nn, session.asarray(floats(ROWS))
    (kept,) = session.call("masked_select", [x, x > 0])
    assert nn.gelu(nn.layer_norm(kept)).numpy().shape == ((x.numpy() > 0).sum(),)


def test_a_seed_is_an_operand_and_each_has_a_mask_of_its_own(session):
    nn, x = session.nn, session.asarray(np.ones((20, 20)))
    masks = [nn.dropout(x, seed, rate=0.5).numpy() != 0 for seed in (1, 1, 2**63, 2**64 - 1)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])
    assert not np.array_equal(masks[2], masks[3])
    with pytest.raises(MetadataError, match="seed"):
        nn.dropout(x, -1, rate=0.5)


@each_case("name", ["softmax", "log_softmax", "cross_entropy", "relu", "sigmoid", "silu"])
def test_a_device_without_the_kernel_composes_the_same(name, make_session):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "missing": [name]}])
    nn, x = session.nn, np.array([[0, -np.inf, 2, 3], [-np.inf] * 4, [1, 2, 3, 4]], "float32")
    x = x if "softmax" in name else floats(ROWS)
    operands = [x] if name != "cross_entropy" else [x, LABELS]
    assert not session.supports(find(name), "sim:0")
    results = [getattr(nn, name)(*(session.asarray(o, home) for o in operands)) for home in session.devices]
    assert results[1].device == "sim:0"
    expected, found = (result.numpy() for result in results)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
