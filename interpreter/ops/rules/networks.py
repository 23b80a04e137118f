"""Layers of neural networks. Batches are split; gradients of weights are then partial sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from ...layouts.matching import Labels, matching
from ...layouts.rules import LayoutSignature, OpCall
from ...types.meta import Meta, normal_axes, tensor, tensors
from .axes import of_sums, on_axis, unworked

BATCH, CHANNEL, FILTER = "batch", "channel", "filter"
QUERY, ELEMENT = "query", "element"


# --- convolution and pooling


def convolved(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Images, and filters where there is one group of them; blocks of images are products of a BLAS."""
    filters = FILTER if call.attributes["groups"] == 1 else None
    given: list[Labels] = [[BATCH, None, None, None], [filters, None, None, None], [filters]]
    return matching(call, given[: len(call.metas)], [[BATCH, filters, None, None]], exact=False)


def convolved_gradient(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of each split one of the gradients is a partial sum: of images those of the filters, of filters that of x."""
    filters = FILTER if call.attributes["groups"] == 1 else None
    images, weight = [BATCH, None, None, None], [filters, None, None, None]
    given = [[BATCH, filters, None, None], images, weight]
    return matching(call, given, [images, weight, [filters]], reduction="sum", exact=False)


def pooled(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Images and channels."""
    labels = [BATCH, CHANNEL, None, None]
    return matching(call, [labels] * len(call.metas), [labels])


# --- normalisation


def normalised(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """All axes but the normalised ones, which the parameters have."""
    labels = unworked(call, on_axis)
    parameters = [[None] * meta.ndim for meta in tensors(call.metas[1:])]
    return matching(call, [labels, *parameters], [labels], exact=of_sums(call, parts))


def normalised_gradient(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The same; gradients of parameters are partial sums."""
    x = tensor(call.metas)
    labels = unworked(call, on_axis)
    parameter: Labels = [None] * len(normal_axes(call.attributes["axis"], x.ndim))
    given = [labels, labels, *[parameter] * (len(call.metas) - 2)]
    return matching(call, given, [labels, *[parameter] * (len(call.outputs) - 1)], reduction="sum", exact=False)


# --- losses


def of_whole_batch(whole: OpCall, piece: OpCall, _place: int) -> Mapping[str, Any]:
    """The mean of a share of the rows is over the rows of all shares."""
    count = whole.attributes["count"]
    return {**piece.attributes, "count": count or tensors(whole.metas)[1].size or None}


def lost(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of the cross entropy: partial sums, each over the number of rows of the whole."""
    _, labels = tensors(call.metas)
    rows = list(range(labels.ndim))
    return matching(call, [[*rows, None], rows], [[]], reduction="sum", localise=of_whole_batch, exact=False)


def lost_gradient(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of its gradient: rows, by the number of rows of the whole."""
    _, labels = tensors(call.metas)
    rows = list(range(labels.ndim))
    return matching(call, [[*rows, None], rows], [[*rows, None]], localise=of_whole_batch)


def hot(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of one-hot labels: the axes of the labels."""
    rows = list(range(tensor(call.metas).ndim))
    return matching(call, [rows], [[*rows, None]])


# --- embedding


def embedded(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Positions, or the axes of a row; a table that is a partial sum gives partial rows."""
    indices, weight = tensors(call.metas)
    positions, row = [("position", n) for n in range(indices.ndim)], list(range(1, weight.ndim))
    return matching(call, [positions, [None, *row]], [[*positions, *row]])


def embedded_gradient(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of positions a partial sum, or the axes of a row."""
    dy, indices = tensors(call.metas)
    positions, row = [("position", n) for n in range(indices.ndim)], list(range(indices.ndim, dy.ndim))
    return matching(
        call, [[*positions, *row], positions], [[None, *row]], reduction="sum", exact=lambda label: label in row
    )


# --- attention


def attended(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The axes in front (batch, heads), queries unless later keys are hidden from them, and elements of values.

    Exact along the first axis alone: how many queries a block has depends on the others.
    """
    q, _, _, *mask = tensors(call.metas)
    stack = range(2 - q.ndim, 0)
    query = None if call.attributes["is_causal"] else QUERY
    given: list[Labels] = [[*stack, query, None], [*stack, None, None], [*stack, None, ELEMENT]]
    given += [_of_mask(each, query) for each in mask]
    return matching(call, given, [[*stack, query, ELEMENT]], exact=_is_first(q))


def attended_gradient(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The axes in front, and queries, of which the gradients by keys and values are partial sums."""
    _, q, _, _, *mask = tensors(call.metas)
    stack = range(2 - q.ndim, 0)
    query = None if call.attributes["is_causal"] else QUERY
    queries, keys = [*stack, query, None], [*stack, None, None]
    given = [queries, queries, keys, keys, *[_of_mask(each, query) for each in mask]]
    return matching(call, given, [queries, keys, keys], reduction="sum", exact=_is_first(q))


def _of_mask(mask: Meta, query: str | None) -> Labels:
    """A mask broadcasts to stack, queries and keys."""
    return [*range(2 - mask.ndim, 0), *[query, None][max(2 - mask.ndim, 0) :]]


def _is_first(q: Meta) -> Any:
    def exact(label: Hashable) -> bool:
        return label == 2 - q.ndim

    return exact
