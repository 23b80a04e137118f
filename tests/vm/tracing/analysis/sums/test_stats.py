"""Sums over a trace, the waits of streams, two traces compared; and the records that a filter selects."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.vm.tracing.analysis.recorded.derived import operands_text, operations, rate, touched
from tensord.vm.tracing.analysis.recorded.filter import Filter
from tensord.vm.tracing.analysis.recorded.text import duration
from tensord.vm.tracing.analysis.sums import memory_picture
from tensord.vm.tracing.analysis.sums.stats import stats
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.link_labels import RECV, SEND, LinkLabel
from tensord.vm.tracing.record import MetaRecord

from .....each_case import each_case
from ..trace_programs import random_trace, record


def meta(*shape, dtype="float32"):
    return MetaRecord(shape, dtype)


def ran(number, begin, end, **fields):
    """A record that ran from `begin` to `end`, ready at once."""
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    return record(number, ticks=(2 * number, 2 * number + 1), **(stamps | fields))


MATMUL: dict[str, Any] = {"op": "matmul", "inputs": (meta(128, 64), meta(64, 256)), "outputs": (meta(128, 256),)}


def test_what_moves_while_its_device_computes_is_hidden():
    """Pieces of a transfer's time, on the same device alone, each counted once."""
    kernels = [ran(1, 1, 30), ran(2, 20, 40), ran(3, 60, 70), ran(4, 1, 99, device="sim:0", stream="sim:0/compute0")]
    moved = ran(5, 10, 66, opcode="Transfer", op="h2d", stream="cpu:0/h2d0")
    records = [*kernels, moved]
    rows = {one.key: one for one in stats(Trace(records), records).ops}
    assert (rows["h2d"].moving, rows["h2d"].hidden) == (56, 36)
    assert (rows["add"].moving, rows["add"].hidden) == (0, 0)


class TestVolume:
    @each_case(
        ("fields", "text"),
        [
            (MATMUL, "(128, 64) x (64, 256) float32"),
            ({"inputs": (meta(3), MetaRecord(None, "int"))}, "(3,) float32 x int"),
            ({"inputs": (meta(3), meta(3, dtype="int8"))}, "(3,) float32 x (3,) int8"),
            ({"inputs": (meta(3),), "attributes": "axis=0"}, "(3,) float32  axis=0"),
            ({"inputs": (MetaRecord(None, ""),)}, "?"),
            ({"outputs": (meta(),)}, "() float32"),
            ({"inputs": (meta(3),) * 6}, "(3,) x (3,) x (3,) x (3,) and 2 more float32"),
            ({}, ""),
        ],
    )
    def test_what_of(self, fields, text):
        assert operands_text(record(1, **fields)) == text

    @each_case(
        ("fields", "count"),
        [
            (MATMUL, 2 * 128 * 64 * 256),
            ({"op": "matmul", "inputs": (meta(64), meta(64)), "outputs": (meta(),)}, 128),
            ({"op": "add", "inputs": (meta(3), meta(3)), "outputs": (meta(3),)}, 3),
            ({"op": "sum", "inputs": (meta(3, 4),), "outputs": (meta(),)}, 12),
            ({"op": "tensordot", "inputs": (meta(3, 4), meta(4, 5)), "outputs": (meta(3, 5),)}, 2 * 3 * 4 * 5),
            ({"op": "add", "inputs": (meta(3, dtype="int8"),) * 2, "outputs": (meta(3, dtype="int8"),)}, 0),
            ({"op": "exp", "inputs": (meta(3),), "outputs": (meta(3),)}, 0),
            ({"op": "matmul", "inputs": (), "outputs": ()}, 0),
        ],
    )
    def test_operations_are_counted_where_they_follow_from_the_metas(self, fields, count):
        assert operations(record(1, **fields)) == count

    def test_a_kernel_touches_its_operands_and_results_and_a_transfer_what_it_moves(self):
        assert touched(record(1, **MATMUL)) == 4 * (128 * 64 + 64 * 256 + 128 * 256)
        assert touched(record(1, nbytes=64, inputs=(meta(16),), outputs=(meta(16),))) == 64
        assert touched(record(1, inputs=(meta(3, dtype="bool"), meta(2, dtype="complex128")))) == 3 + 32

    def test_rates(self):
        assert (rate(12_000, 1_000), rate(0, 5), rate(5, 0)) == ("12", "", "")


class TestFilter:
    records = (
        ran(1, 10, 30, op="add", location="a.py:9 in f", span=("epoch 1", "step 2")),
        ran(2, 30, 90, op="matmul", location="a.py:90 in f", span=("epoch 1",), session=2),
        ran(3, 90, 95, op="matrix_power", location="b.py:9 in g"),
        record(4, op="add"),
        record(5, op="evict sim:0->cpu:0", opcode="Transfer", session=0, caused_by=2),
    )

    @each_case(
        ("chosen", "ids"),
        [
            (Filter(), [1, 2, 3, 4, 5]),
            (Filter(op="add"), [1, 4]),
            (Filter(op="mat*"), [2, 3]),
            (Filter(op="LocalCallOpKernel"), [1, 2, 3, 4]),
            (Filter(location="a.py:9"), [1]),
            (Filter(location="a.py"), [1, 2]),
            (Filter(span="epoch 1"), [1, 2]),
            (Filter(span="step 2"), [1]),
            (Filter(span="epoch 1/step 2"), [1]),
            (Filter(span="step"), []),
            (Filter(span="*/step *"), [1]),
            (Filter(session=2), [2, 5]),
            (Filter(session=0), [5]),
            (Filter(slowest=2), [1, 2]),
            (Filter(op="mat*", slowest=1), [2]),
        ],
    )
    def test_all_conditions_hold(self, chosen, ids):
        assert [one.id for one in chosen.select(self.records)] == ids

    def test_an_unknown_session_says_which_there_are(self):
        with pytest.raises(ProtocolError, match="no session 7: it has 0, 1, 2"):
            Filter(session=7).select(self.records)


class TestStats:
    def test_counts_times_and_volumes_per_op_line_and_span(self):
        records = [ran(n, 100 * n, 100 * n + n, location="a.py:1", span=("s", "t"), **MATMUL) for n in range(1, 101)]
        found = stats(Trace(records), records)
        (row,) = found.ops
        assert (row.key, row.count, row.total, row.mean, row.p99, row.longest) == ("matmul", 100, 5050, 50.5, 99, 100)
        assert row.operations == 100 * 2 * 128 * 64 * 256
        assert row.touched == 100 * touched(records[0])
        assert [one.key for one in found.locations] == ["a.py:1"]
        assert sorted((one.key, one.paths) for one in found.spans) == [("s", 1), ("s/t", 1)]

    def test_the_spans_of_a_loop_are_one_row_and_each_a_row_of_the_paths(self):
        spans = [("epoch 1", f"step {n}", part) for n in range(1, 4) for part in ("forward", "update")]
        records = [ran(n, 10 * n, 10 * n + n, span=span) for n, span in enumerate(spans, 1)]
        found = stats(Trace(records), records)
        assert [(one.key, one.paths, one.count, one.total) for one in found.spans] == [
            ("epoch 1", 1, 6, 21),
            ("epoch 1/step *", 3, 6, 21),
            ("epoch 1/step */update", 3, 3, 12),
            ("epoch 1/step */forward", 3, 3, 9),
        ]
        assert len(found.paths) == 1 + 3 + 6
        assert found.paths[1].key == "epoch 1/step 3"

    def test_a_name_that_is_twice_in_a_path_counts_once(self):
        records = [ran(1, 10, 20, span=("try 1", "try 2")), ran(2, 20, 30, span=("try 1", "try 1"))]
        assert [(one.key, one.count) for one in stats(Trace(records), records).spans] == [
            ("try 1", 2),
            ("try 1/try *", 2),
        ]

    def test_what_the_machine_planned_counts_for_the_session_that_caused_it(self):
        records = [
            ran(1, 10, 20),
            ran(2, 20, 50, session=0, caused_by=2, opcode="Transfer", nbytes=64),
            ran(3, 50, 55, session=0, caused_by=0, opcode="Transfer"),
        ]
        found = stats(Trace(records), records).sessions
        assert [(one.key, one.total, one.moved) for one in found] == [("2", 30, 64), ("1", 10, 0), ("none", 5, 0)]

    def test_the_longest_total_comes_first_and_live_ones_count_without_time(self):
        records = [ran(1, 10, 20, op="a"), ran(2, 20, 50, op="b"), record(3, op="c")]
        assert [(row.key, row.total) for row in stats(Trace(records), records).ops] == [("b", 30), ("a", 10), ("c", 0)]

    def lost(self, *records, taken=0):
        trace = Trace(records, taken=taken)
        found = {row.stream: row for row in stats(trace, trace.records).streams}
        return {cause: ns for cause, ns in found["cpu:0/compute"].lost.items() if ns}

    def test_all_values_for_a_node_are_one_row(self):
        records = [
            ran(n, 10 * n, 10 * n + 5, opcode=opcode, op=str(LinkLabel.of(doing, node, bytes([n] * 16))))
            for n, (opcode, doing, node) in enumerate(
                [("Send", SEND, "b"), ("Send", SEND, "c"), ("Send", SEND, "b"), ("Recv", RECV, "b")], start=1
            )
        ]
        rows = {one.key: one.count for one in stats(Trace(records), records).ops}
        assert rows == {"send to b": 2, "send to c": 1, "recv from b": 1}

    def test_a_stream_waits_for_what_has_not_come(self):
        assert self.lost(ran(1, 10, 20), ran(2, 70, 80)) == {"wire": 50}

    def test_a_stream_waits_for_the_edge_whose_source_ended_last(self):
        source = ran(2, 10, 60, device="sim:0")
        early = ran(3, 10, 30, device="sim:0", stream="other")
        waits = ran(4, 65, 80, edges=[(3, "WAR", 8), (2, "RAW", 7)], received=15, ready=60, dispatched=62)
        assert self.lost(ran(1, 10, 20), source, early, waits) == {"RAW": 40, "scheduler": 5}

    @pytest.mark.parametrize("cause", ["memory", "fairness"])
    def test_a_stream_waits_for_memory_or_a_share(self, cause):
        held = ran(2, 50, 60, received=15, ready=25, dispatched=50, held=cause)
        assert self.lost(ran(1, 10, 20), held) == {"scheduler": 5, cause: 25}

    def test_a_stream_is_idle_after_its_last_instruction(self):
        assert self.lost(ran(1, 10, 20), taken=50) == {"idle": 30}

    @each_case("seed", range(5))
    def test_work_and_losses_of_a_stream_add_up_to_the_time_from_its_first_instruction(self, seed):
        trace = random_trace(seed)
        for row in stats(trace, trace.records).streams:
            began = min(
                one.started for one in trace.records if one.started and f"{one.device}/{one.stream}" == row.stream
            )
            assert row.busy + sum(row.lost.values()) == trace.until - began


@each_case(
    ("amount", "ns", "text"),
    [
        (0, 5, ""),
        (5, 0, ""),
        (5, 100_000, "<0.001"),
        (1, 1000, "0.001"),
        (123, 10, "12.3"),
        (9_996, 10, "1,000"),
        (10**7, 5, "2,000,000"),
    ],
)
def test_rates_have_no_exponents(amount, ns, text):
    assert rate(amount, ns) == text


@each_case(
    ("ns", "text"),
    [
        (999, "999 ns"),
        (1000, "1 us"),
        (999_400, "999 us"),
        (999_900, "1 ms"),
        (999_999_999, "1 s"),
        (999_900_000_000, "1000 s"),
    ],
)
def test_durations_have_no_exponents(ns, text):
    assert duration(ns) == text


@each_case(("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (1023 * 1024, "0.999 MiB")])
def test_sizes_in_pictures_have_no_exponents(nbytes, text):
    assert memory_picture._size(nbytes) == text
