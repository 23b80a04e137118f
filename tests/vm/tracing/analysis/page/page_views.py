"""Views of the page, written by hand: a test states the whole content of its document."""

from __future__ import annotations

from typing import Any

FIELDS = ("kind", "name", "of", "status", "location", "span", "error")


class View:
    """A document that is filled row by row."""

    def __init__(self, **about: Any) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._streams: dict[tuple[str, str], int] = {}
        self._about = {"source": "run.trace", "live": False, "taken": 0, "dropped": 0, "origin": 0, **about}
        self._records: list[list[Any]] = []
        self._edges: list[list[int]] = []
        self.rest: dict[str, Any] = {"memory": [], "tensors": [], "sessions": [], "advice": [], "why": {}}

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def record(
        self, number: int, stream: tuple[str, str], begin: int, end: int | None, *, session: int = 1, **fields: Any
    ) -> View:
        """An instruction that ran so long, with texts by name; `started=None` is one that waits."""
        usual = {"kind": "kernel", "name": "add", "status": "DONE"}
        texts = [self._text(fields.get(name, usual.get(name, ""))) for name in FIELDS]
        kind, name, of, status, location, span, error = texts
        index = self._streams.setdefault(stream, len(self._streams))
        times = [fields.get("received", begin), *[fields.get("started", begin)] * 3, end]
        caused = fields.get("caused_by", session)
        about = [location, span, fields.get("bytes", 0), error, int(fields.get("critical", 0))]
        self._records.append([number, session, caused, index, kind, name, of, status, *times, *about])
        return self

    def edge(self, target: int, source: int, reason: str = "RAW", mark: str = "waited") -> View:
        self._edges.append([target, source, self._text(reason), self._text(mark)])
        return self

    def document(self) -> dict[str, Any]:
        count = len(self._records)
        about = {"records": count, "devices": [], "sampled": {"shown": count, "of": count}} | self._about
        tables = {"streams": [list(one) for one in self._streams], "texts": list(self._texts)}
        return {"version": 1, "about": about, **tables, "records": self._records, "edges": self._edges} | self.rest


COMPUTE, COPIES, HOST = ("sim:0", "compute0"), ("sim:0", "h2d0"), ("cpu:0", "control")


def fan(width: int) -> View:
    """`width` ops, one after the other, and one that reads all of their results."""
    view = View()
    for number in range(1, width + 1):
        view.record(number, COMPUTE, 1000 * number, 1000 * number + 900, name=f"op{number}")
        view.edge(99, number)
    return view.record(99, COMPUTE, 1000 * width + 1000, 1000 * width + 3000, name="concat", critical=1)


def chain(length: int, *, streams: int = 4, gap: int = 100) -> View:
    """A chain of kernels over some streams; each needs the one before."""
    view = View()
    for number in range(1, length + 1):
        stream = (f"sim:{number % streams}", "compute0")
        view.record(number, stream, 1000 * number, 1000 * number + 1000 - gap, name=f"op{number % 7}")
        if number > 1:
            view.edge(number, number - 1)
    return view


def small() -> View:
    """Two devices, two sessions, spans, lines, a transfer, an eviction, an error, a waiting instruction."""
    view = View()
    view.record(1, HOST, 0, 2_000, kind="access", name="upload", location="train.py:5 in main")
    view.record(2, COPIES, 2_000, 6_000, kind="transfer", name="h2d cpu:0->sim:0", location="train.py:9 in step")
    view.record(
        3, COMPUTE, 6_000, 20_000, name="matmul", location="train.py:9 in step", span="epoch 1/step 0", critical=1
    )
    view.record(
        4, COMPUTE, 20_000, 30_000, name="add", location="train.py:10 in step", span="epoch 1/step 1", session=2
    )
    evicts: dict[str, Any] = {"kind": "eviction", "name": "evict sim:0->cpu:0", "session": 0, "caused_by": 2}
    view.record(5, COPIES, 20_000, 26_000, **evicts)
    view.record(
        6, COMPUTE, 30_000, 31_000, name="sum", status="FAILED", error="KernelError: no", session=2, received=25_000
    )
    view.record(7, ("sim:0", ""), 31_000, None, started=None, name="max", status="WAITING", critical=1)
    view.edge(3, 2).edge(4, 3, "WAR", "elided").edge(6, 4, "RAW", "met").edge(7, 6)
    view.rest["memory"] = [
        {"device": "sim:0", "limit": 4096, "curve": [[0, 0], [6_000, 1024], [20_000, 3072], [31_000, 512]]}
    ]
    holder = {"session": 1, "holder": "trainer", "bytes": 4096, "of": "(32, 32) float32", "where": ["sim:0", "cpu:0"]}
    view.rest["tensors"] = [{**holder, "name": "w", "location": "train.py:9 in step", "id": 7}]
    counts = {"records": 4, "running": 0, "waiting": 1, "bytes": 4096}
    view.rest["sessions"] = [{"id": 1, "name": "trainer", **counts}, {"id": 2, "name": "eval", **counts}]
    view.rest["advice"] = [
        {
            "rule": "waits",
            "title": "the program waits in the middle",
            "what": "3 times the program waited.",
            "cost": 12.3,
            "lines": ["train.py:9 in step"],
            "do": "Read after the loop.",
        }
    ]
    view.rest["why"] = {"4": "#4 add waited 14 us for #3 matmul"}
    return view
