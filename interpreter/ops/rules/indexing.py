"""Layout rules of indices that contain tensors: the axes that are not indexed may be split, and those of the index
tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from ...layouts.matching import Labels, matching
from ...layouts.rules import LayoutSignature, OpCall
from ...schema.indexing import Index, whole_axes
from ...types.meta import Meta, tensor_meta
from .combining import linear_in
from .views import from_the_back


class IndexSelection(NamedTuple):
    """Labels of the selection and of each tensor in the index.

    The label of an axis of x that is selected whole is its number.
    """

    selected: Labels
    selectors: list[Labels]


def selection(index: Index, x: Meta, selectors: Sequence[Meta]) -> IndexSelection:
    """The labels, by NumPy's rule: the axes of the index tensors replace the first tensor or int, or come first if
    the tensors and ints are not adjacent."""
    parts: list[list[Hashable]] = []
    first, axis, rest = 0, 0, iter(selectors)
    hidden = x.ndim - sum(_width(entry, None) for entry in index if entry != "tensor") - sum(map(_named, selectors))
    chooses = [position for position, entry in enumerate(index) if entry == "tensor" or isinstance(entry, int)]
    for position, entry in enumerate(index if "..." in index else (*index, "...")):
        width = hidden if entry == "..." else _width(entry, next(rest) if entry == "tensor" else None)
        first = len(parts) if position == chooses[0] else first
        if position not in chooses:
            within = ("...",) if entry == "..." else (entry,)
            labels = whole_axes(within, x.shape[axis : axis + width])
            parts.append([None if n is None else n + axis for n in labels])
        axis += width
    common = max((1 if meta.dtype.kind == "b" else meta.ndim) for meta in selectors)
    chosen = [("chosen", n) for n in range(-common, 0)]
    together = chooses[-1] - chooses[0] == len(chooses) - 1
    parts.insert(first if together else 0, list(chosen))
    return IndexSelection(
        [label for part in parts for label in part],
        [chosen[common - meta.ndim :] if meta.dtype.kind != "b" else [None] * meta.ndim for meta in selectors],
    )


def _width(entry: object, selector: Meta | None) -> int:
    """The number of axes of x that an entry of the index takes."""
    if selector is not None:
        return _named(selector)
    return 0 if entry is None or entry == "..." else 1


def _named(selector: Meta) -> int:
    return selector.ndim if selector.dtype.kind == "b" else 1


def gather_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of x[index] with index tensors: the axes of x that are selected whole may be split, or the axes of
    the index tensors."""
    x, *selectors = [meta for meta in call.metas if isinstance(meta, Meta)]
    found = selection(call.attributes["index"], x, selectors)
    yield from matching(call, [_labels_of(x, found), *found.selectors], [found.selected])
    yield from linear_in(0)(call, _parts)


def _labels_of(x: Meta, found: IndexSelection) -> Labels:
    """A label for each axis of x: its number if it is selected whole, else None."""
    return [axis if axis in found.selected else None for axis in range(x.ndim)]


def scatter_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of x[index] = value: the axes of x that are selected whole may be split.

    If the index is one mask and the value is a scalar, the op is elementwise, so the axes of the mask may be split
    too.
    """
    x, value = tensor_meta(call.metas), call.metas[1]
    selectors = [meta for meta in call.metas[2:] if isinstance(meta, Meta)]
    one_value = not isinstance(value, Meta) or value.ndim == 0
    if call.attributes["index"] == ("tensor",) and selectors[0].dtype.kind == "b" and one_value:
        mask = selectors[0]
        axes = [n if n >= mask.ndim or mask.shape[n] == x.shape[n] else None for n in range(x.ndim)]
        return matching(call, [axes, [], axes[: mask.ndim]], [axes])
    found = selection(call.attributes["index"], x, selectors)
    labels = _labels_of(x, found)
    given = from_the_back([n if isinstance(n, int) else None for n in found.selected], getattr(value, "ndim", 0))
    return matching(call, [labels, given, *[[None] * meta.ndim for meta in selectors]], [labels])
