"""Two traces compared."""

from __future__ import annotations

from typing import Any

from tensord.vm.tracing.analysis.sums.diff import diff, same_lines
from tensord.vm.tracing.record import Record

from ..trace_programs import record


def ran(number: int, begin: int, end: int, **fields: Any) -> Record:
    """A record that ran from `begin` to `end`."""
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    return record(number, ticks=(2 * number, 2 * number + 1), **(stamps | fields))


class TestDiff:
    def test_what_got_slower_comes_first(self) -> None:
        before = [ran(1, 5, 15, op="a", location="x"), ran(2, 15, 35, op="b", location="x"), ran(3, 35, 36, op="gone")]
        after = [ran(1, 1, 91, op="a", location="x"), ran(2, 100, 110, op="b", location="x", nbytes=64)]
        changes = diff(before, after)
        assert [(one.op, one.was, one.slower, one.more, one.moved) for one in changes] == [
            ("a", "x", 80, 0, 0),
            ("gone", "", 0, -1, 0),
            ("b", "x", -10, 0, 64),
        ]
        assert (changes[1].before.count, changes[1].after.count) == (1, 0)

    def test_speed_and_counts_are_told_apart(self) -> None:
        """Each call is twice as fast, and there are ten times as many, so that all of them take longer."""
        before = [ran(1, 100, 200, op="a")]
        after = [ran(n, 200 * n, 200 * n + 50, op="a") for n in range(1, 11)]
        (change,) = diff(before, after)
        assert (change.slower, change.more) == (-500, 900)
        assert change.slower + change.more == change.after.total - change.before.total

    def test_an_instruction_that_had_not_finished_is_not_a_fast_one(self) -> None:
        ended = [ran(1, 100, 200, op="a"), ran(2, 200, 300, op="b")]
        live = [*ended[:1], ran(3, 200, 0, op="a"), ran(4, 200, 0, op="b", started=0)]
        assert [(one.op, one.kind, one.slower, one.more) for one in diff(live, ended)] == [
            ("b", "new", 0, 100),
            ("a", "both", 0, 0),
        ]

    def test_a_line_is_the_same_after_an_edit_above(self) -> None:
        before = [ran(1, 10, 20, op="a", location="t.py:3 in f"), ran(2, 20, 30, op="b", location="t.py:4 in f")]
        after = [ran(1, 10, 30, op="a", location="t.py:8 in f"), ran(2, 40, 41, op="b", location="t.py:9 in f")]
        found = diff(before, after)
        assert [(one.op, one.was, one.location, one.kind) for one in found] == [
            ("a", "t.py:3 in f", "t.py:8 in f", "both"),
            ("b", "t.py:4 in f", "t.py:9 in f", "both"),
        ]

    def test_an_op_that_a_line_has_no_more_is_gone_and_another_one_is_new(self) -> None:
        at = {"location": "t.py:3 in f"}
        found = diff([ran(1, 1, 2, op="a", **at)], [ran(1, 1, 3, op="b", **at), ran(2, 3, 4, op="a")])
        assert sorted((one.op, one.was, one.location, one.kind) for one in found) == [
            ("a", "", "", "new"),
            ("a", "t.py:3 in f", "", "gone"),
            ("b", "", "t.py:3 in f", "new"),
        ]

    def test_what_a_session_found_to_repeat_is_the_same_wherever_it_begins(self) -> None:
        (one,) = diff([ran(1, 1, 2, op="run auto:t.py:31")], [ran(1, 1, 2, op="run auto:t.py:32")])
        assert (one.op, one.kind) == ("run auto:t.py:*", "both")

    def test_lines_may_be_known_from_more_records(self) -> None:
        """With the adds alone, the first line of one trace would match the first of the other."""
        before = [ran(1, 1, 2, op="add", location="t.py:5 in f")]
        put_in = [ran(1, 1, 2, op=op, location=f"t.py:{line} in f") for line, op in ((3, "add"), (4, "mul"))]
        after = [*put_in, *before]
        known = same_lines([ran(2, 1, 2, op="mul", location="t.py:4 in f"), *before], after)
        adds = [one for one in after if one.op == "add"]
        assert {one.location: one.kind for one in diff(before, adds, known)} == {
            "t.py:3 in f": "new",
            "t.py:5 in f": "both",
        }
