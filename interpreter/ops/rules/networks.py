"""Layout rules of neural network ops. Batches may be split; gradients of weights are then partial sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from ...layouts.matching import Labels, matching
from ...layouts.rules import LayoutSignature, OpCall
from ...types.axes import normal_axes
from ...types.meta import Meta, tensor_meta, tensor_metas
from .axes import exact_sums, on_axis, other_axes

BATCH, CHANNEL, FILTER = "batch", "channel", "filter"
QUERY, ELEMENT = "query", "element"


# --- convolution and pooling


def convolution_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of a convolution: images may be split, and filters if there is only one group.

    No split is exact, since the BLAS multiplies blocks of images, whose sizes change.
    """
    filters = FILTER if call.attributes["groups"] == 1 else None
    given: list[Labels] = [[BATCH, None, None, None], [filters, None, None, None], [filters]]
    return matching(call, given[: len(call.metas)], [[BATCH, filters, None, None]], exact=False)


def convolution_gradient_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of its gradients.

    If images are split, the gradients of the filters and the bias are partial sums; if filters are split, the
    gradient of x is one.
    """
    filters = FILTER if call.attributes["groups"] == 1 else None
    images, weight = [BATCH, None, None, None], [filters, None, None, None]
    given = [[BATCH, filters, None, None], images, weight]
    return matching(call, given, [images, weight, [filters]], reduction="sum", exact=False)


def pooling_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of pooling: images or channels may be split."""
    labels = [BATCH, CHANNEL, None, None]
    return matching(call, [labels] * len(call.metas), [labels])


# --- normalisation


def normalisation_rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """The rule of a norm: every axis may be split but the normalised ones, which are the axes of the parameters."""
    labels = other_axes(call, on_axis)
    parameters = [[None] * meta.ndim for meta in tensor_metas(call.metas[1:])]
    return matching(call, [labels, *parameters], [labels], exact=exact_sums(call, parts))


def normalisation_gradient_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of its gradients: as `normalisation_rule`; the gradients of the parameters are partial sums."""
    x = tensor_meta(call.metas)
    labels = other_axes(call, on_axis)
    parameter: Labels = [None] * len(normal_axes(call.attributes["axis"], x.ndim))
    given = [labels, labels, *[parameter] * (len(call.metas) - 2)]
    return matching(call, given, [labels, *[parameter] * (len(call.outputs) - 1)], reduction="sum", exact=False)


# --- losses


def with_whole_batch(whole: OpCall, piece: OpCall, _part: int) -> Mapping[str, Any]:
    """The attributes on one device: `count` is the number of rows of the whole, by which each device divides."""
    count = whole.attributes["count"]
    return {**piece.attributes, "count": count or tensor_metas(whole.metas)[1].size or None}


def cross_entropy_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of the cross entropy: rows may be split; the result is a partial sum, each part divided by the number
    of rows of the whole."""
    _, labels = tensor_metas(call.metas)
    rows = list(range(labels.ndim))
    return matching(call, [[*rows, None], rows], [[]], reduction="sum", localise=with_whole_batch, exact=False)


def cross_entropy_gradient_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of its gradient: rows may be split; each part is divided by the number of rows of the whole."""
    _, labels = tensor_metas(call.metas)
    rows = list(range(labels.ndim))
    return matching(call, [[*rows, None], rows], [[*rows, None]], localise=with_whole_batch)


def one_hot_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of one-hot labels: the axes of the labels may be split."""
    rows = list(range(tensor_meta(call.metas).ndim))
    return matching(call, [rows], [[*rows, None]])


# --- embedding


def embedding_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `embedding`: the axes of the indices may be split, or those of a row of the table."""
    indices, weight = tensor_metas(call.metas)
    positions, row = [("position", n) for n in range(indices.ndim)], list(range(1, weight.ndim))
    return matching(call, [positions, [None, *row]], [[*positions, *row]])


def embedding_gradient_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of its gradient.

    If an axis of the indices is split, the gradient is a partial sum; the axes of a row may be split, too.
    """
    dy, indices = tensor_metas(call.metas)
    positions, row = [("position", n) for n in range(indices.ndim)], list(range(indices.ndim, dy.ndim))
    return matching(
        call, [[*positions, *row], positions], [[None, *row]], reduction="sum", exact=lambda label: label in row
    )


# --- attention


def attention_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of attention.

    The axes before the last two (batch, heads) may be split, the elements of the values, and the queries unless
    `is_causal`. Only splits of the first axis are exact: the number of queries in a block depends on the other axes.
    """
    q, _, _, *mask = tensor_metas(call.metas)
    stack = range(2 - q.ndim, 0)
    query = None if call.attributes["is_causal"] else QUERY
    given: list[Labels] = [[*stack, query, None], [*stack, None, None], [*stack, None, ELEMENT]]
    given += [_of_mask(each, query) for each in mask]
    return matching(call, given, [[*stack, query, ELEMENT]], exact=_is_first(q))


def attention_gradient_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of its gradients: the axes before the last two may be split, and the queries unless `is_causal`; the
    gradients of keys and values are then partial sums."""
    _, q, _, _, *mask = tensor_metas(call.metas)
    stack = range(2 - q.ndim, 0)
    query = None if call.attributes["is_causal"] else QUERY
    queries, keys = [*stack, query, None], [*stack, None, None]
    given = [queries, queries, keys, keys, *[_of_mask(each, query) for each in mask]]
    return matching(call, given, [queries, keys, keys], reduction="sum", exact=_is_first(q))


def _of_mask(mask: Meta, query: str | None) -> Labels:
    """The labels of a mask, which broadcasts to the stack, queries and keys."""
    return [*range(2 - mask.ndim, 0), *[query, None][max(2 - mask.ndim, 0) :]]


def _is_first(q: Meta) -> Any:
    def exact(label: Hashable) -> bool:
        return label == 2 - q.ndim

    return exact
