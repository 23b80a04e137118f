"""InferCache: the cached results, and the texts of errors."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import MetadataError, MetadataTypeError
from tensord.interpreter.schema.infer import MAX_OPERANDS, InferCache, infer_once
from tensord.interpreter.schema.opdef import OpDef, find
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.metas import decode_meta

from ...each_case import each_case

X = Meta.of((2, 3), "float32")


def counting_op(name="counted", **options):
    calls = []

    def infer(metas, attributes):
        calls.append((metas, attributes))
        return (metas[0],) * options.get("outputs", 1)

    return OpDef(name=name, inputs=options.pop("inputs", 1), infer=infer, summary="", **options), calls


def test_the_same_question_is_answered_from_memory():
    op, calls = counting_op()
    cache = InferCache()
    answers = [cache.infer(op, (X,), (("axis", 0),)) for _ in range(5)]
    assert answers == [(X,)] * 5
    assert len(calls) == cache.misses == 1


def test_other_operands_attributes_and_ops_are_other_questions():
    cache = InferCache()
    op, calls = counting_op()
    for metas, attributes in [((X,), ()), ((Meta.of((2,), "int8"),), ()), ((X,), (("axis", 1),))]:
        cache.infer(op, metas, attributes)
    cache.infer(find("exp"), (X,), ())
    assert len(calls) == 3
    assert cache.misses == len(cache) == 4


def test_scalars_of_different_types_are_different_questions():
    cache = InferCache()
    x = Meta.of((2,), "float32")
    metas = [cache.infer(find("add"), (x, kind), ())[0] for kind in (int, float, complex)]
    assert [meta and meta.dtype.name for meta in metas] == ["float32", "float32", "complex64"]
    assert cache.misses == 3


def test_an_int_and_the_float_that_equals_it_are_different_questions():
    cache, op = InferCache(), find("arange")
    metas = [cache.infer(op, (), op.freeze({"start": n}))[0] for n in (3, 3.0)]
    assert [meta and meta.dtype.name for meta in metas] == ["int64", "float64"]


def test_the_oldest_answer_is_forgotten_first():
    op, calls = counting_op()
    cache = InferCache(limit=2)
    for n in (1, 2, 3):
        cache.infer(op, (Meta.of((n,), "int8"),), ())
    assert len(cache) == 2
    cache.infer(op, (Meta.of((3,), "int8"),), ())
    assert len(calls) == 3
    cache.infer(op, (Meta.of((1,), "int8"),), ())
    assert len(calls) == 4


def test_a_pending_operand_makes_all_outputs_pending_without_asking():
    op, calls = counting_op(inputs=2, outputs=3)
    assert InferCache().infer(op, (X, None), ()) == (None, None, None)
    assert not calls


@each_case(
    ("name", "count", "expected"),
    [
        ("add", 1, "2 operands"),
        ("exp", 0, "1 operand"),
        ("zeros", 1, "0 operands"),
        ("concat", 0, "1 or more operands"),
    ],
)
def test_a_wrong_number_of_operands_is_named(name, count, expected):
    op = find(name)
    required = {"zeros": {"shape": (1,)}}.get(name, {})
    with pytest.raises(MetadataError, match=f"{name} takes {expected}, not {count}") as caught:
        InferCache().infer(op, (None,) * count, op.freeze(required))
    assert caught.value.op == name


@each_case("kind", [TypeError, ValueError, OverflowError, MetadataError])
def test_an_error_names_the_op_and_its_operands(kind):
    def infer(_metas, _attributes):
        raise kind("the reason")

    op = OpDef(name="broken", inputs=2, infer=infer, summary="")
    with pytest.raises(MetadataError) as caught:
        InferCache().infer(op, (X, int), ())
    assert str(caught.value) == "broken(float32[2, 3], int): the reason"
    assert caught.value.op == "broken"


def test_errors_are_not_remembered():
    cache, op = InferCache(), find("matmul")
    for _ in range(2):
        with pytest.raises(MetadataError):
            cache.infer(op, (X, X), ())
    assert cache.misses == 2
    assert len(cache) == 0


def test_a_result_of_more_dimensions_than_numpy_has_is_refused(infer):
    x = Meta.of((1,) * 64, "int8")
    for name in ("expand_dims", "stack"):
        with pytest.raises(MetadataError, match="more than 64 dimensions"):
            infer(name, x)
    with pytest.raises(MetadataError, match="more than 64 dimensions"):
        infer("getitem", x, index=(None, ...))


@each_case(
    ("name", "metas", "attributes", "message"),
    [
        ("add", (X, Meta.of((2,), "float32")), {}, "do not broadcast"),
        ("add", (int, float), {}, "at least one operand must be a tensor"),
        ("bitwise_and", (X, X), {}, "not defined for float32: x1 takes integer or boolean"),
        ("negative", (Meta.of((2,), "bool"),), {}, "not defined"),
        ("matmul", (X, X), {}, "3 columns against 2 rows"),
        ("matmul", (X, int), {}, "expected a tensor"),
        ("sum", (X,), {"axis": 2}, "axis 2 is out of bounds"),
        ("sum", (X,), {"axis": (0, -2)}, "twice"),
        ("max", (Meta.of((0, 3), "int8"),), {"axis": 0}, "no elements along axis"),
        ("reshape", (X,), {"shape": (4,)}, "cannot become"),
        ("reshape", (Meta.of((0,), "int8"),), {"shape": (0, -1)}, "cannot become"),
        ("where", (X, X, X), {}, "condition takes boolean"),
        ("astype", (Meta.of((), "complex64"),), {"dtype": "float32"}, "cannot become"),
        ("masked_select", (X, X), {}, "mask takes boolean"),
        ("masked_select", (X, Meta.of((3,), "bool")), {}, "does not match"),
        ("nonzero", (Meta.of((), "int8"),), {}, "0-d"),
        ("cross_entropy", (X, X), {}, "labels takes integer"),
        ("softmax_grad", (X, Meta.of((2, 3), "float64")), {}, "differ"),
        ("full", (float,), {"shape": 2, "dtype": "int8"}, "does not fill"),
        ("full", (X,), {"shape": 2}, "has to be a Python scalar"),
        ("uniform", (float,), {"shape": 2}, "seed"),
        ("arange", (), {"start": 1, "step": 0}, "cannot be zero"),
        ("arange", (), {"start": 1e308, "stop": -1e308, "step": 1e-308}, "infinity"),
        ("eye", (), {"n_rows": -1}, "negative"),
    ],
)
def test_what_does_not_fit_raises_at_the_call(infer, name, metas, attributes, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas, **attributes)
    assert caught.value.op == name
    assert str(caught.value).startswith(name)


def test_operands_without_end_are_not_looked_at():
    x = Meta.of((1,), "float64")
    assert infer_once(find("concat"), (x,) * MAX_OPERANDS, (("axis", 0),)) == (Meta.of((MAX_OPERANDS,), "float64"),)
    with pytest.raises(MetadataTypeError, match="concat takes at most 4096 operands, not 4097"):
        infer_once(find("concat"), (x,) * (MAX_OPERANDS + 1), (("axis", 0),))


def test_a_meta_from_outside_has_no_more_dimensions_than_numpy_has():
    assert decode_meta(((1,) * 64, "int8")) is Meta.of((1,) * 64, "int8")
    with pytest.raises(ValueError, match="a meta of 65 dimensions; at most 64 are possible"):
        decode_meta(((2**62,) * 65, "int8"))
