"""The DAG as one page of HTML that stands alone: zooms, searches, folds, and shows a record where the pointer is.

The page holds the records and the pictures as JSON, from which its script draws the picture that is asked for. It loads
nothing from anywhere. `<` cannot appear in the JSON, so no text of a user can end its script; the script shows texts as
texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape

from ..recorded.plain import as_dict
from ..recorded.text import printable
from .fold import Picture
from .graph_export import FILLS, LEGEND, arrows
from .layers import places
from .page_template import PAGE


def to_html(pictures: Mapping[str, Picture], shown: str, *, legend: bool = True) -> str:
    """The page with these pictures of one graph, by what a node of them is; it opens with the one that is `shown`."""
    records = {record.id: record for picture in pictures.values() for node in picture.nodes for record in node.records}
    data = {
        "shown": shown,
        "records": {id_: _filled(as_dict(record)) for id_, record in records.items()},
        "pictures": {name: _drawn(picture) for name, picture in pictures.items()},
    }
    parts = {
        "LEGEND": escape("; ".join(LEGEND)) if legend else "",
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], PAGE)


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value or value is False}


def _drawn(picture: Picture) -> dict[str, object]:
    return {"nodes": list(_nodes(picture)), "edges": list(arrows(picture.edges))}


def _nodes(picture: Picture) -> Iterator[tuple[object, ...]]:
    """Of each node: its id, layer, place in the layer, colour, the lines of its text, and the ids of its records."""
    at = places(picture)
    devices = {device: number for number, device in enumerate(sorted({n.first.device for n in picture.nodes}))}
    for node in picture.nodes:
        fill = FILLS[devices[node.first.device] % len(FILLS)]
        lines = list(map(printable, node.label(picture.until)[:3]))
        yield node.id, *at[node.id], fill, lines, [record.id for record in node.records]
