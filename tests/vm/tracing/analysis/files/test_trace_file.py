from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.vm.tracing.analysis.files.trace_file import load_newest
from tensord.vm.tracing.analysis.recorded.records import Memory
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import (
    ArgumentRecord,
    BufferSliceRecord,
    CallRecord,
    Holding,
    MetaRecord,
    PartRecord,
    Record,
    RoutineRecord,
    RunRecord,
    SegmentRecord,
)

from .....each_case import each_case
from ..trace_programs import random_trace, record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.trace"


@pytest.fixture
def small(path):
    """A small trace and its bytes, saved at `path`."""
    source = record(
        1, (7, "mut2"), op="ones", ticks=(1, 3), location='a "b".py:3 in f', received=5, finished=9,
        inputs=(MetaRecord((2, 3), "float32"), MetaRecord(None, "int")), outputs=(MetaRecord(None, ""),),
        attributes="axis=0", work=6, used=64, held="memory",
    )  # fmt: skip
    target = record(2, (7, "const"), (8, "mut"), edges=[(1, "RAW", 7, True)], ticks=(2, 0), error="KernelError: ü")
    holding = Holding(7, "cpu:0", 64, "ones", 1, "a.py:3 in f", ("w",))
    memory = Memory({"cpu:0": 64, "sim:0": 0}, (holding,))
    part = record(3, (8, "mut"), ticks=(4, 0), part=PartRecord(5, 0, 1), stamps=(5, 6))
    trace = Trace(
        [source, target, part], devices=["cpu:0", "sim:0"], memory=memory, dropped=3, before=2, base_tick=1, taken=77,
        routines=[ROUTINE], runs=[RUN],
    )  # fmt: skip
    trace.save(path)
    return trace, path.read_bytes()


BUFFER_SLICE = BufferSliceRecord(-1, 0, (8, 4), (1, 2), "float32", False)
CALL = CallRecord(
    "add",
    (0,),
    (ArgumentRecord(0, BUFFER_SLICE), ArgumentRecord(-1, None)),
    (ArgumentRecord(2, BUFFER_SLICE),),
    ((0,),),
)
ROUTINE = RoutineRecord(
    5, 1, "step", "ab12", ("cpu:0",), "a\nb", (SegmentRecord(0, 1, (0,), (), (2,), 64, (CALL,)),), "cd34"
)
RUN = RunRecord(1, 5, 2, 3, "a.py:4 in f")


def plain(value: Any) -> Any:
    """Arrays, as a file has them."""
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def paths_in(value: list[Any], before: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The indices of all that is in it, at any depth."""
    for index, each in enumerate(value):
        yield (*before, index)
        if isinstance(each, list):
            yield from paths_in(each, (*before, index))


def same(one: Trace, other: Trace) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("records", "devices", "dropped", "before", "base_tick", "taken", "memory", "routines")
    ) and list(one.runs) == list(other.runs)


def signed(lines: list[Any]) -> bytes:
    """A file with a valid checksum for any lines."""
    body = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    footer = {"records": max(0, len(lines) - 1), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(footer).encode() + b"\n"


def header(**fields):
    full = {"format": "tensord-trace", "version": 4, "devices": ["cpu:0"], "records": 1, "dropped": 0, "base_tick": 0}
    return full | {"fields": list(Record._fields), "before": 0, "taken": 0} | fields


def old_header(version: int):
    """The header of a version that did not name its fields."""
    return {name: value for name, value in header(version=version).items() if name not in {"fields", "before"}}


OLD = 19  # fields of a record up to version 3
MEMORY: dict[str, Any] = {"used": {}, "holdings": []}


class TestRoundTrip:
    @pytest.mark.parametrize("seed", range(5))
    def test_what_was_saved_is_loaded(self, path, seed):
        trace = random_trace(seed)
        trace.save(path)
        assert same(Trace.load(path), trace)

    def test_every_field_survives(self, path, small):
        loaded = Trace.load(path)
        assert same(loaded, small[0])
        assert loaded.records[1].edges[0].elided is True
        assert loaded.records[0].operands[0].kind == "mut2"

    def test_records_are_sorted_by_admission(self):
        trace = Trace([record(1, ticks=(9, 0)), record(2, ticks=(3, 0))])
        assert [one.id for one in trace.records] == [2, 1]

    def test_a_location_that_is_not_text_is_saved_as_something_readable(self, path):
        Trace([record(1, location="caf\udce9.py:1 in f")]).save(path)
        assert "caf\\udce9.py" in Trace.load(path).records[0].location

    def test_an_empty_trace(self, path):
        Trace([]).save(path)
        assert len(Trace.load(path)) == 0

    def test_a_file_of_version_1_lacks_the_time_of_recording(self, path):
        old = old_header(1)
        del old["taken"]
        path.write_bytes(signed([old, list(record(1, started=5))[:OLD]]))
        loaded = Trace.load(path)
        assert (loaded.taken, loaded.until, len(loaded)) == (0, 5, 1)

    def test_a_file_of_version_3_says_nothing_of_metas_and_memory(self, path):
        path.write_bytes(signed([old_header(3), list(record(1, started=5))[:OLD]]))
        loaded = Trace.load(path)
        assert (loaded.records, loaded.memory, loaded.before) == ((record(1, started=5),), Memory(), 0)

    @pytest.mark.parametrize("version", [2, 3])
    def test_files_up_to_version_3_lack_spans(self, path, version):
        path.write_bytes(signed([old_header(version), list(record(1, location="a.py:1 in f"))[:OLD]]))
        (loaded,) = Trace.load(path).records
        assert (loaded.location, loaded.span) == ("a.py:1 in f", ())

    def test_a_span_that_is_not_text_is_saved_as_something_readable(self, path):
        Trace([record(1, span=("a", "caf\udce9"))]).save(path)
        assert Trace.load(path).records[0].span == ("a", "caf\\udce9")

    def test_fields_may_be_left_out_or_come_in_another_order(self, path):
        names = ["work", *Record._fields[:OLD]]
        fields = [5, *list(record(1, started=5))[:OLD]]
        path.write_bytes(
            signed([header(fields=names), fields, MEMORY]).replace(b'"records": 2, "sha', b'"records": 1, "sha')
        )
        assert Trace.load(path).records == (record(1, started=5, work=5),)

    def test_a_missing_file_is_an_oserror(self, path):
        with pytest.raises(FileNotFoundError):
            Trace.load(path)


def some_of(content: bytes) -> list[int]:
    """A third of the positions, and the borders of lines."""
    borders = {n + by for n, byte in enumerate(content) if byte == ord("\n") for by in (-1, 0, 1)}
    return sorted({*range(0, len(content), 3), *borders} - {-1, len(content)})


class TestDamage:
    def test_cut_anywhere(self, path, small):
        content = small[1]
        for length in some_of(content):
            path.write_bytes(content[:length])
            with pytest.raises(ProtocolError, match=r"a\.trace, line \d+: "):
                Trace.load(path)

    def test_a_byte_replaced_anywhere(self, path, small):
        trace, content = small
        rng = random.Random(1)
        for index in some_of(content):
            damaged = bytearray(content)
            damaged[index] = rng.choice([damaged[index] ^ 1 << rng.randrange(8), rng.randrange(256), 0x20, 0x0A])
            path.write_bytes(damaged)
            with contextlib.suppress(ProtocolError):
                assert same(Trace.load(path), trace)

    def test_a_line_removed_or_doubled(self, path, small):
        lines = small[1].splitlines(keepends=True)
        for number in range(len(lines)):
            for damaged in (lines[:number] + lines[number + 1 :], lines[: number + 1] + lines[number:]):
                path.write_bytes(b"".join(damaged))
                with pytest.raises(ProtocolError):
                    Trace.load(path)

    def test_a_changed_record_fails_the_checksum(self, path, small):
        path.write_bytes(small[1].replace(b'"ones"', b'"twos"'))
        with pytest.raises(ProtocolError, match=r"line 8: the checksum .* changed or damaged.* record the trace again"):
            Trace.load(path)


class TestHostileFiles:
    """The checksum fits, but the content is invalid."""

    def fails(self, path, content: bytes, match: str) -> None:
        path.write_bytes(content)
        with pytest.raises(ProtocolError, match=match) as caught:
            Trace.load(path)
        assert str(caught.value).isprintable()

    @each_case(
        ("line", "match"),
        [
            (b"", "line 1: not a line of JSON"),
            (b"[" * 100_000, "line 1: not a line of JSON"),
            (b"9" * 10_000, "line 1: not a line of JSON"),
            (b"\xff\xfe", "line 1: not a line of JSON"),
            ([], "line 1: not a trace"),
            ({}, "line 1: not a trace"),
            (header(format="else"), "line 1: not a trace"),
            (header(version=7), "line 1: trace version 7, but this tensord reads versions 1 to 6"),
            (header(fields=None), "line 1: fields is None, not an array"),
            (header(fields=["id", "secret"]), "line 1: fields is 'secret', not one of "),
            (header(fields=["id"]), "line 1: its records do not have the fields of a trace"),
            (header(fields=[*Record._fields, "id"]), "line 1: its records do not have the fields of a trace"),
            (header(before="1"), "line 1: before is '1', not an integer"),
            (header(taken=-1), "line 1: taken is -1"),
            (header(taken=None), "line 1: taken is None"),
            (header(devices="cpu:0"), "line 1: devices is 'cpu:0', not an array"),
            (header(devices=[1]), "line 1: device is 1, not a string"),
            (header(records=-1), "line 1: records is -1"),
            (header(records=True), "line 1: records is True"),
            (header(dropped=None), "line 1: dropped is None"),
            (header(base_tick=10**30), "line 1: base_tick is a larger number"),
            (header(records=2**60), "line 2: "),
        ],
    )
    def test_headers(self, path, line, match):
        self.fails(path, signed([line]), match)

    @each_case("name", Record._fields)
    @each_case("value", [None, 1.5, True, -1, 2**63, {}, [[]], [[1, 2]], float("nan"), "\ud800"])
    def test_every_field_is_checked(self, path, name, value):
        fields = list(record(1, (7, "mut"), edges=[(1, "RAW", 7)]))
        fields[Record._fields.index(name)] = value
        if (name, value) != ("part", None):
            self.fails(path, signed([header(), fields]), "line 2: ")

    @each_case(
        ("name", "value", "match"),
        [
            ("operands", [[7, "both", 0]], "kind is 'both', not one of const, freed, mut, mut2"),
            ("operands", [[7, ["mut"], 0]], "kind is an array, not a string"),
            ("operands", [["7", "mut", 0]], "copy is '7', not an integer"),
            ("edges", [[1, "RAW", 7, 0]], "elided is 0, not true or false"),
            ("edges", [[1, "\x1b[31m", 7, False]], "reason is .* not one of RAW"),
            ("edges", [[1, "RAW", 7]], "edge has 3 fields, not 4"),
            ("inputs", [[[2, -1], "float32"]], "shape is -1, not an integer"),
            ("inputs", [[[2]]], "meta has 1 fields, not 2"),
            ("outputs", [["2", "float32"]], "shape is '2', not an array"),
            ("held", "money", "held is 'money', not one of"),
            ("op", 12, "op is 12, not a string"),
            ("id", "x" * 1000, "id is 'x{40}', not an integer"),
            ("span", "step", "span is 'step', not an array"),
            ("span", ["step", 7], "span is 7, not a string"),
        ],
    )
    def test_parts_of_fields_are_checked(self, path, name, value, match):
        fields = list(record(1))
        fields[Record._fields.index(name)] = value
        self.fails(path, signed([header(), fields]), f"line 2: {match}")

    def test_records_of_another_length(self, path):
        count = len(Record._fields)
        self.fails(path, signed([header(), list(record(1))[:-1]]), f"record has {count - 1} fields, not {count}")

    @pytest.mark.parametrize(
        ("line", "match"),
        [
            ([], "expected the memory in use, an object"),
            ({"used": []}, "expected the memory in use, an object"),
            ({"used": {"cpu:0": -1}}, "used is -1"),
            ({"used": {}}, "holdings is None, not an array"),
            ({"used": {}, "holdings": [[1, "cpu:0", 4]]}, "holding has 3 fields, not 7"),
            ({"used": {}, "holdings": [[1, "cpu:0", 4, "add", 1, "", [3]]]}, "names is 3, not a string"),
        ],
    )
    def test_the_memory_is_checked(self, path, line, match):
        self.fails(path, signed([header(records=0), line]), f"line 2: {match}")

    @pytest.mark.parametrize(
        ("line", "match"),
        [
            ([], "expected the runs of routines, an object"),
            ({"runs": None, "routines": 0}, "runs is None, not an array"),
            ({"runs": [[1, 2]], "routines": 0}, "run has 2 fields, not 5"),
            ({"runs": [[1, 2, 3, "4", ""]], "routines": 0}, "last is '4', not an integer"),
            ({"runs": [[1, 2, 3, -4, ""]], "routines": 0}, "last is -4, not an integer from 0"),
            ({"runs": [], "routines": -1}, "routines is -1"),
            ({"runs": [], "routines": 1}, "line 4: routine is an object, not an array"),
        ],
    )
    def test_runs_are_checked(self, path, line, match):
        self.fails(path, signed([header(records=0, version=5), MEMORY, line]), match)

    @each_case("value", [None, 1.5, True, "x", -1, [-1], [[1]], {}])
    def test_every_part_of_a_routine_is_checked(self, path, value):
        for where in paths_in(plain(ROUTINE)):
            given = plain(ROUTINE)
            inner = given
            for index in where[:-1]:
                inner = inner[index]
            if type(value) is type(inner[where[-1]]) or (value is None and where[-2:] in {(0, 1), (1, 2)}):
                continue  # of a buffer slice: a number has none, a packed value no strides
            inner[where[-1]] = value
            lines = [header(records=0, version=5), MEMORY, {"runs": [], "routines": 1}, given]
            self.fails(path, signed(lines), "line 4: .*, not ")

    def test_something_behind_the_end(self, path, small):
        self.fails(path, small[1] + b"\n", "something follows the last line")

    def test_the_same_id_twice_is_for_verify_to_report(self, path):
        Trace([record(1, ticks=(1, 0)), record(1, ticks=(2, 0))]).save(path)
        assert len(Trace.load(path)) == 2


def test_an_unknown_id_says_which_there_are():
    with pytest.raises(ProtocolError, match="no instruction #9: it holds 2 between #1 and #2, and lost 5 before them"):
        Trace([record(1), record(2)], dropped=5).require(9)
    assert Trace([]).find(9) is None
    with pytest.raises(ProtocolError, match="it is empty"):
        Trace([]).require(9)


class TestFromPython:
    def test_a_trace_and_its_graph_say_what_they_hold(self):
        trace = Trace([record(1, (7, "mut")), record(2, (7, "const"), edges=[(1, "RAW", 7)])], dropped=3)
        assert repr(trace) == "<trace: 2 records, 3 dropped>"
        assert repr(trace.graph()) == "<graph: 2 nodes, 1 edge>"

    def test_why_takes_a_record_or_its_id(self):
        trace = random_trace(3)
        assert trace.why(trace.records[4]) == trace.why(trace.records[4].id)
        assert trace.why(5).startswith("#5 ")

    def test_dag_writes_a_selection_in_every_format(self):
        trace = random_trace(3)
        assert trace.dag().startswith("digraph")
        assert trace.dag("mermaid", around=5).startswith("flowchart")
        assert [node["id"] for node in json.loads(trace.dag(format="json", ids=[5, 7]))["nodes"]] == [5, 7]
        with pytest.raises(ValueError, match="'png' is not one of dot, mermaid, html, json"):
            trace.dag("png")

    def test_timeline_writes_a_file(self, path):
        random_trace(3).timeline(path)
        assert json.loads(path.read_text())["traceEvents"]


# -- a part of a file --------------------------------------------------------------------------------------------------


@pytest.fixture
def long(path):
    """A trace of 90 records or so, and where in its file the last 30 begin."""
    trace = random_trace(3, steps=300)
    found = Trace(trace.records, routines=[ROUTINE], runs=[RUN], memory=Memory({"cpu:0": 64}), before=2)
    found.save(path)
    lines = path.read_bytes().splitlines(keepends=True)
    return found, len(b"".join(lines[len(found) - 29 :]))


def test_of_a_large_file_the_last_records_are_read(path, long):
    whole, last = long
    part, total = load_newest(path, Trace, last + 1)
    assert (part.records, total) == (whole.records[-30:], len(whole))
    assert (part.memory, part.before) == (whole.memory, 2 + total - 30)
    assert all(edge.mark != "missing" for edge in part.graph().edges)


def test_a_line_that_is_cut_is_left_out(path, long):
    whole, last = long
    assert load_newest(path, Trace, last - 1)[0].records == whole.records[-29:]


def test_a_small_file_is_read_whole(path, long):
    whole, _ = long
    found, total = load_newest(path, Trace, path.stat().st_size)
    assert (found.records, found.routines, total) == (whole.records, whole.routines, len(whole))


@each_case(
    ("damage", "complaint"),
    [
        (lambda body: body[:-60], "it was cut short"),
        (lambda body: body + b"more", "it does not end as"),
        (lambda body: body.replace(b'{"used"', b'{"uses"'), "expected the memory"),
        (lambda body: body.replace(b'"DONE"', b"17"), "status is 17"),
        (lambda body: body.replace(b'"version":6', b'"version":7', 1), "trace version 7"),
        (lambda body: body.replace(b'"version":6', b'"version":3', 1), "from version 4 on"),
        (lambda body: b"\0" * len(body), "it was cut short"),
    ],
)
def test_a_damaged_part_says_what_is_wrong(path, long, damage: Any, complaint: str):
    long[0].save(path)
    body = damage(path.read_bytes())
    path.write_bytes(body)
    with pytest.raises(ProtocolError, match=complaint):
        load_newest(path, Trace, 8000)


def test_a_part_without_a_whole_record_is_refused(path, long):
    behind = path.read_bytes().splitlines(keepends=True)[1 + len(long[0]) :]
    with pytest.raises(ProtocolError, match="do not contain a whole record"):
        load_newest(path, Trace, len(b"".join(behind)) + 10)
