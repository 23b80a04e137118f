"""The cost that each rule computes, on records with round times; and the order and the words of findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.vm.tracing.analysis.advice.advice_text import RULES, plain, to_text
from tensord.vm.tracing.analysis.advice.advise import advise
from tensord.vm.tracing.analysis.advice.compiling import kernels_compiled
from tensord.vm.tracing.analysis.advice.evictions import repeated_evictions
from tensord.vm.tracing.analysis.advice.finding import Evidence, Finding, Rule
from tensord.vm.tracing.analysis.advice.moves import repeated_moves, round_trips
from tensord.vm.tracing.analysis.advice.reads import waits_amid_work
from tensord.vm.tracing.analysis.advice.sharing import sessions_that_delay
from tensord.vm.tracing.analysis.advice.small_ops import MAX_GAP, RUN, repeated_small_ops, repeats
from tensord.vm.tracing.analysis.advice.uploads import uploads_in_loops
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import MetaRecord, Record

from .....each_case import each_case
from ..trace_programs import random_trace, record

META = (MetaRecord((4,), "float32"),)


def ran(number: int, begin: int, end: int, *operands: tuple[int, str], **fields: Any) -> Record:
    """A record that ran from `begin` to `end`, ready at once, with the further fields of its opcode."""
    begin, end = begin + 1, end + 1  # 0 means no time
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    usual = {"stream": "sim:0/compute0", "device": "sim:0", "location": "train.py:9", "inputs": META, "outputs": META}
    kind: dict[str, Any] = {}
    if "->" in fields.get("op", ""):
        kind = {"opcode": "Transfer", "stream": "sim:0/h2d0", "nbytes": 16}
    elif fields.get("op") in {"upload", "fetch"}:
        kind = {"opcode": "AccessBlobByCallback", "stream": "cpu:0/control", "nbytes": 16}
    return record(number, *operands, ticks=(2 * number, 2 * number + 1), **(stamps | usual | kind | fields))


def found(rule: Rule, *records: Record) -> list[Finding]:
    return list(rule(Evidence(Trace(records, taken=10_000_000))))


def cost(rule: Rule, *records: Record) -> int:
    return sum(one.cost for one in found(rule, *records))


class TestThereAndBack:
    THERE = ran(1, 0, 100, (1, "const"), (2, "mut"), op="d2h sim:0->cpu:0")
    BACK = ran(3, 200, 300, (3, "const"), (4, "mut"), op="h2d cpu:0->sim:0")

    def used(self, ns: int) -> Record:
        return ran(2, 100, 100 + ns, (2, "const"), (3, "mut"), device="cpu:0")

    def test_both_transfers_count_but_for_what_the_device_computed_meanwhile(self) -> None:
        computed = ran(4, 220, 280, (9, "mut"))
        assert cost(round_trips, self.THERE, self.used(50), self.BACK) == 200
        assert cost(round_trips, self.THERE, self.used(50), self.BACK, computed) == 140

    def test_a_use_that_takes_longer_than_both_is_no_detour(self) -> None:
        assert found(round_trips, self.THERE, self.used(201), self.BACK) == []

    def test_another_value_is_no_way_back(self) -> None:
        assert found(round_trips, self.THERE, ran(2, 100, 110, (3, "mut"), device="cpu:0"), self.BACK) == []

    def test_what_made_room_was_not_asked_for(self) -> None:
        back = self.BACK._replace(op="return cpu:0->sim:0")
        assert found(round_trips, self.THERE, self.used(50), back) == []


class TestTheSameAgain:
    def test_the_first_move_is_free_and_so_is_a_new_version(self) -> None:
        made = ran(1, 0, 10, (1, "mut"), op="upload")
        moves = [ran(n, 100 * n, 100 * n + n, (1, "const"), (n, "mut"), op="h2d cpu:0->sim:0") for n in (2, 3, 4)]
        again = moves[2]._replace(operands=(moves[2].operands[0]._replace(version=7), moves[2].operands[1]))
        assert cost(repeated_moves, made, *moves) == 3 + 4
        assert cost(repeated_moves, made, *moves[:2], again) == 3

    def test_a_part_of_a_value_and_one_of_unknown_size_are_not_the_value(self) -> None:
        made = ran(1, 0, 10, (1, "mut"), op="upload")
        parts = [ran(n, 100 * n, 100 * n + n, (1, "const"), op="fetch", nbytes=4) for n in (2, 3)]
        whole = [one._replace(nbytes=16) for one in parts]
        assert found(repeated_moves, made, *parts) == found(repeated_moves, *whole) == []
        assert cost(repeated_moves, made, *whole) == 3


def test_uploads_all_but_the_first_count() -> None:
    uploads = [ran(n, 100 * n, 100 * n + 10, (n, "mut"), op="upload") for n in range(1, 9)]
    assert cost(uploads_in_loops, *uploads) == 70
    assert found(uploads_in_loops, *uploads[:-1]) == []
    assert found(uploads_in_loops, *uploads[:-1], uploads[-1]._replace(location="train.py:10")) == []


class TestSmallOps:
    def row(self, gap: int, *more: Record) -> Sequence[Record]:
        step = 100 + gap
        ops = [ran(n, step * n, step * n + 100, (n, "mut"), op=("add", "sub")[n % 2]) for n in range(1, 21)]
        return [*ops, *more]

    def test_gaps_count_less_what_an_op_takes_in_a_routine(self) -> None:
        (one,) = found(repeated_small_ops, *self.row(RUN + 50))
        assert (one.cost, one.count) == (19 * 50, 10)

    def test_short_and_very_long_gaps_do_not(self) -> None:
        assert cost(repeated_small_ops, *self.row(RUN)) == cost(repeated_small_ops, *self.row(MAX_GAP + 1)) == 0

    def test_a_gap_in_which_the_session_did_something_else_does_not(self) -> None:
        step = 100 + RUN + 50
        fetch = ran(30, 3 * step + 110, 3 * step + 120, op="fetch")
        assert cost(repeated_small_ops, *self.row(RUN + 50, fetch)) == 18 * 50

    @each_case(
        ("keys", "expected"),
        [
            ("", []),
            ("a" * 7, []),
            ("a" * 8, [(0, 8, 1)]),
            ("ab" * 8, [(0, 16, 2)]),
            ("x" + "aab" * 9 + "y", [(1, 28, 3)]),
            ("ab" * 8 + "cde" * 8, [(0, 16, 2), (16, 40, 3)]),
            ("abcdefgh", []),
        ],
    )
    def test_rows_that_repeat(self, keys: str, expected: list[tuple[int, int, int]]) -> None:
        rows = list(repeats(keys))
        assert [(end - begin) // length for begin, end, length in rows] == [
            (end - begin) // length for begin, end, length in expected
        ]
        assert [row[2] for row in rows] == [row[2] for row in expected]


class TestWaits:
    """Steps of 100 ns of work, 10 ns until the wait is over, and `pause` until the next step."""

    def steps(self, pause: int, count: int = 4) -> list[Record]:
        records = []
        for n in range(count):
            begin = n * (110 + pause)
            records += [ran(2 * n + 1, begin, begin + 100), ran(2 * n + 2, begin + 5, begin + 110, op="fetch")]
        return records

    def test_the_time_without_work_counts(self) -> None:
        (one,) = found(waits_amid_work, *self.steps(20))
        assert (one.cost, one.count) == (3 * 30, 3)

    def test_no_more_than_the_device_had_to_do(self) -> None:
        assert cost(waits_amid_work, *self.steps(500)) == 3 * 100

    def test_another_sessions_work_fills_the_time(self) -> None:
        other = ran(99, 100, 125, session=2)
        assert cost(waits_amid_work, *self.steps(20), other) == 3 * 30 - 25

    def test_a_few_waits_are_none_and_the_driving_thread_has_no_time_to_fill(self) -> None:
        driven = [one._replace(stream="sim:0/control") for one in self.steps(20)]
        assert found(waits_amid_work, *self.steps(20, count=3)) == found(waits_amid_work, *driven) == []


def test_evictions_count_from_the_first_return_on() -> None:
    def move(number: int, op: str, source: int, target: int) -> Record:
        begin = 100 * number
        return ran(number, begin, begin + number, (source, "const"), (target, "mut"), op=op)

    out, back = "evict sim:0->cpu:0", "return cpu:0->sim:0"
    once = [move(1, out, 1, 2), move(2, back, 2, 3)]
    assert found(repeated_evictions, *once) == []
    (one,) = found(repeated_evictions, *once, move(3, out, 3, 4), move(4, back, 4, 5))
    assert (one.cost, one.count, one.nbytes) == (3 + 4, 1, 16)


class TestHeldUp:
    LONG = ran(1, 0, 400, op="long")
    WAITS = ran(2, 400, 450, op="short", session=2, caused_by=2, received=11, ready=101, dispatched=101)

    def test_the_wait_counts_less_one_op_as_long_as_its_own(self) -> None:
        (one,) = found(sessions_that_delay, self.LONG, self.WAITS)
        assert (one.cost, one.sessions, one.ops) == (300 - 50, (1, 2), ("long",))

    def test_ops_of_like_length_share(self) -> None:
        assert found(sessions_that_delay, self.LONG._replace(started=210), self.WAITS) == []

    def test_who_waits_for_memory_is_held_up_by_nobody(self) -> None:
        assert found(sessions_that_delay, self.LONG, self.WAITS._replace(held="memory")) == []

    def test_an_op_that_takes_no_time_delays_nobody(self) -> None:
        at_once = ran(1, 0, 0, caused_by=1)
        idle = ran(2, 300, 350, ready=1, caused_by=2)
        later = ran(3, 1_000, 2_000, caused_by=1)
        assert found(sessions_that_delay, at_once, idle, later) == []

    def test_ops_that_take_no_time_are_delayed_by_long_ones(self) -> None:
        (one,) = found(sessions_that_delay, self.LONG, self.WAITS._replace(finished=self.WAITS.started))
        assert (one.cost, one.sessions) == (300, (1, 2))
        at_once = self.LONG._replace(finished=self.LONG.started)
        assert found(sessions_that_delay, at_once, self.WAITS._replace(finished=self.WAITS.started)) == []


def test_compiling_counts_less_the_usual_time_of_the_op() -> None:
    cold = ran(1, 0, 500, held="compiling")
    warm = [ran(n, 1000 * n, 1000 * n + n) for n in (10, 20, 30)]
    assert cost(kernels_compiled, cold, *warm) == 480
    assert cost(kernels_compiled, cold, *(one._replace(op="sub") for one in warm)) == 500
    assert found(kernels_compiled, *warm) == []


class TestAll:
    def test_the_costliest_comes_first_and_what_is_not_worth_it_is_counted(self) -> None:
        uploads = [ran(n, 1000 * n, 1000 * n + 1, (n, "mut"), op="upload") for n in range(1, 9)]
        compiled = [ran(n, 100_000 * n, 100_000 * n + 9_000, held="compiling", device=f"sim:{n}") for n in (1, 2)]
        longer = ran(9, 500_000, 510_000, held="compiling", device="sim:3")
        advice = advise(Trace([*uploads, *compiled, longer]))
        assert [(one.rule, one.cost) for one in advice.findings] == [("compiling", ns) for ns in (10_000, 9_000, 9_000)]
        assert (advice.minor, advice.length) == (1, 509_000)
        chosen = advise(Trace([*uploads, *compiled, longer]), {2})
        assert [one.devices for one in chosen.findings] == [("sim:2",)]

    def test_an_empty_trace(self) -> None:
        assert to_text(advise(Trace([]))) == "0 findings in 0 ns\n"

    @each_case("seed", range(5))
    def test_any_trace_can_be_looked_at(self, seed: int) -> None:
        assert to_text(advise(random_trace(seed)))

    @pytest.mark.parametrize("rule", RULES)
    def test_each_finding_has_words(self, rule: str) -> None:
        one = Finding(rule, 5, 2, 64, ("add",), ("sim:0",), (1, 2), (), (7,))
        words = plain(one)
        assert words["title"] == RULES[rule].title
        assert "2 times" in str(words["what"]).lower()
        assert "{" not in f"{words['what']}{words['todo']}"
