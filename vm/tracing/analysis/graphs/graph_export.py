"""Writes the graph as text: Graphviz DOT, Mermaid and JSON.

A picture has one node per instruction or folded part, a cluster per device, a shape per kind of opcode, and one
arrow per pair of nodes, labelled with the reasons. The arrow is solid if the target waited, dashed if dispatch
elided the edge, dotted if the source was already done, red if an edge is missing; a legend says so. Labels come from
users' ops and files, so every character that could have a meaning in the format is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from .....interpreter.opcodes import traits_of
from ...record import Record
from ..inside.steps import inner_dict
from ..recorded.derived import as_dict
from ..recorded.text import name, printable
from .fold import FoldedGraph, Node, run_time_text, unfolded
from .graph import Dependence, Graph, Mark

# Light colours, on which black text can be read; each device has the next one.
FILLS = ("#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd", "#d0e0e3", "#ead1dc")

CRITICAL = "#c2410c"  # the colour of the critical path

# Shapes by category of opcode. Graphviz draws `cds`, an arrow, smaller than the text in it.
_DOT_SHAPES: dict[str, str] = {
    "kernel": "shape=box",
    "transfer": 'shape=box style="filled,rounded"',
    "copy": "shape=parallelogram",
    "access": "shape=note",
    "release": "shape=ellipse",
    "barrier": "shape=hexagon",
    "wait": "shape=hexagon",
}
_DOT_CRITICAL = f' penwidth=3 color="{CRITICAL}"'
_DOT_STYLES = {
    Mark.WAITED: "style=solid",
    Mark.ELIDED: "style=dashed",
    Mark.MET: 'style=dotted color="#888888"',
    Mark.MISSING: 'style=bold color="#cc0000"',
}
_MERMAID_SHAPES: dict[str, tuple[str, str]] = {
    "kernel": ("[", "]"),
    "transfer": ("[/", "/]"),
    "copy": ("[[", "]]"),
    "access": (">", "]"),
    "release": ("([", "])"),
    "barrier": ("{{", "}}"),
    "wait": ("{{", "}}"),
}
_MERMAID_STYLES = {
    Mark.ELIDED: "stroke-dasharray:8 4",
    Mark.MET: "stroke-dasharray:2 4,stroke:#888888",
    Mark.MISSING: "stroke:#cc0000,stroke-width:3px",
}
LEGEND = (
    "solid: waited until the source was done",
    "dashed: elided, the stream keeps the order",
    "dotted: met, the source was done before the admission",
    "red: missing, see tensord trace verify",
    "orange: the critical path of the instruction that ended last",
)
FUSION_TITLE = ("one fusion, piece by piece",)
# An arrow for several dependences has the style of the most important one, which comes last here.
_WEIGHT = (Mark.MET, Mark.ELIDED, Mark.WAITED, Mark.MISSING)
_MERMAID_PLAIN = frozenset(" _.,:/()+-=")


def to_dot(graph: Graph | FoldedGraph, *, legend: bool = True) -> str:
    """The graph for Graphviz (`dot -Tsvg`)."""
    return "\n".join(_dot(_picture(graph), legend=legend)) + "\n"


def to_mermaid(graph: Graph | FoldedGraph, *, legend: bool = True) -> str:
    """The graph as a Mermaid flowchart, for Markdown. By default, Mermaid refuses more than 500 arrows."""
    return "\n".join(_mermaid(_picture(graph), legend=legend)) + "\n"


def _picture(graph: Graph | FoldedGraph) -> FoldedGraph:
    return unfolded(graph) if isinstance(graph, Graph) else graph


def to_json(graph: Graph) -> str:
    """Nodes and edges with all fields, for programs. Parallel edges are separate. Times are in nanoseconds."""
    nodes = [_node(record, graph) for record in graph.nodes]
    edges = [
        {"source": edge.source, "target": edge.target, "reason": edge.reason, "copy": edge.copy, "mark": edge.mark}
        for edge in graph.edges
    ]
    return json.dumps({"nodes": nodes, "edges": edges, "critical": graph.critical}, indent=1) + "\n"


def _node(record: Record, graph: Graph) -> dict[str, object]:
    fields = as_dict(record)
    del fields["edges"]  # the graph's edges say more
    return fields | {"run": graph.runs.get(record.id, ""), "inside": inner_dict(graph.inner.get(record.id))}


def _dot(picture: FoldedGraph, *, legend: bool) -> Iterator[str]:
    yield "digraph trace {"
    yield "  rankdir=TB;"
    yield '  node [style=filled fontname="Helvetica,Arial,sans-serif" fontsize=10 margin="0.2,0.08"];'
    yield '  edge [fontname="Helvetica,Arial,sans-serif" fontsize=8];'
    for number, (device, nodes) in enumerate(_by_device(picture)):
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_dot_quoted([device])};"
        for run, title, inside in boxes(nodes):
            if run:
                yield f"    subgraph cluster_run{run} {{ bgcolor=white; label={_dot_quoted([title])};"
            for fusion, several in inside:
                if fusion:
                    label = _dot_quoted(FUSION_TITLE)
                    yield f"      subgraph cluster_run{run}_{fusion} {{ style=dashed; label={label};"
                for node in several:
                    shape = _DOT_SHAPES.get(traits_of(node.first.opcode).category, "shape=box")
                    look = f'{shape} fillcolor="{_fill(number)}" tooltip={_dot_quoted([node.tooltip()])}'
                    look += _DOT_CRITICAL * (node.id in picture.critical)
                    yield f"    n{node.id} [label={_dot_quoted(node.label(picture.until))} {look}];"
                if fusion:
                    yield "      }"
            if run:
                yield "    }"
        yield "  }"
    for source, target, reasons, mark in arrows(picture.edges):
        style = _DOT_STYLES[mark] + _DOT_CRITICAL * ((source, target) in picture.steps)
        yield f"  n{source} -> n{target} [label={_dot_quoted([reasons])} {style}];"
    if legend:
        # The legend comes last, since clusters inherit the settings before them.
        yield f"  labelloc=b; labeljust=l; fontsize=9; label={_dot_quoted(LEGEND)};"
    yield "}"


def _mermaid(picture: FoldedGraph, *, legend: bool) -> Iterator[str]:
    yield "flowchart TD"
    for number, (device, nodes) in enumerate(_by_device(picture)):
        yield f"  classDef device{number} fill:{_fill(number)},stroke:#666666,color:#000000"
        yield f"  subgraph d{number}[{_mermaid_quoted([device])}]"
        for run, title, inside in boxes(nodes):
            if run:
                yield f"    subgraph r{run}[{_mermaid_quoted([title])}]"
            for fusion, several in inside:
                if fusion:
                    yield f"      subgraph r{run}b{fusion}[{_mermaid_quoted(FUSION_TITLE)}]"
                for node in several:
                    left, right = _MERMAID_SHAPES.get(traits_of(node.first.opcode).category, ("[", "]"))
                    yield f"    n{node.id}{left}{_mermaid_quoted(node.label(picture.until))}{right}:::device{number}"
                if fusion:
                    yield "      end"
            if run:
                yield "    end"
        yield "  end"
    styled: dict[Mark, list[int]] = {}
    critical = []
    for number, (source, target, reasons, mark) in enumerate(arrows(picture.edges)):
        yield f"  n{source} -->|{_mermaid_quoted([reasons])}| n{target}"
        styled.setdefault(mark, []).append(number)
        critical += [str(number)] if (source, target) in picture.steps else []
    for mark, style in _MERMAID_STYLES.items():
        if mark in styled:
            yield f"  linkStyle {','.join(map(str, styled[mark]))} {style}"
    if picture.critical:
        yield f"  classDef critical stroke:{CRITICAL},stroke-width:3px"
        yield f"  class {','.join(f'n{id_}' for id_ in sorted(picture.critical))} critical"
    if critical:
        yield f"  linkStyle {','.join(critical)} stroke:{CRITICAL},stroke-width:3px"
    if legend:
        yield "  classDef legend fill:#ffffff,stroke:#cccccc,color:#000000"
        yield f"  legend[{_mermaid_quoted(LEGEND)}]:::legend"


def _by_device(picture: FoldedGraph) -> Iterable[tuple[str, list[Node]]]:
    devices: dict[str, list[Node]] = {}
    for node in picture.nodes:
        devices.setdefault(node.first.device, []).append(node)
    return sorted(devices.items())


def boxes(nodes: Iterable[Node]) -> list[tuple[int, str, list[tuple[int, list[Node]]]]]:
    """Nodes grouped by the run that contains them (its id and title), then by fusion. 0: no run, or no fusion."""
    runs: dict[int, dict[int, list[Node]]] = {}
    titles = {0: ""}
    for node in nodes:
        inner = None if node.part else node.inner
        run = 0 if inner is None else inner.run.id
        if inner is not None:
            titles[run] = "  ".join(filter(None, (name(inner.run), inner.run.attributes, run_time_text(inner.run))))
        runs.setdefault(run, {}).setdefault(0 if inner is None else inner.fusion, []).append(node)
    return [(run, titles[run], list(fusions.items())) for run, fusions in runs.items()]


def arrows(edges: Iterable[Dependence]) -> Iterator[tuple[int, int, str, Mark]]:
    """One arrow per pair of instructions, with all reasons and the most important mark."""
    pairs: dict[tuple[int, int], list[Dependence]] = {}
    for edge in edges:
        pairs.setdefault((edge.source, edge.target), []).append(edge)
    for (source, target), joined in pairs.items():
        reasons = ", ".join(dict.fromkeys(edge.reason for edge in joined))
        yield source, target, reasons, max((edge.mark for edge in joined), key=_WEIGHT.index)


def _fill(number: int) -> str:
    return FILLS[number % len(FILLS)]


def _dot_quoted(lines: Iterable[str]) -> str:
    r"""A quoted label. Backslashes would start escapes such as \N (the node's name), and ampersands entities."""
    escaped = (printable(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def _mermaid_quoted(lines: Iterable[str]) -> str:
    """A quoted label. Mermaid has no escape character but entities such as #35; every unusual character becomes one."""
    return '"' + "<br/>".join("".join(map(_mermaid_char, printable(line))) for line in lines) + '"'


def _mermaid_char(char: str) -> str:
    return char if char.isalnum() or char in _MERMAID_PLAIN else f"#{ord(char)};"
