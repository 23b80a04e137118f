"""The tally counts each ended instruction once, for a bounded number of ops."""

from __future__ import annotations

from tensord.vm.model.tally import MAX_OPS, OTHER, Tally


def test_ops_without_end_are_counted_together() -> None:
    tally = Tally()
    for n in range(2 * MAX_OPS):
        tally.of(f"op{n}").done += 1
        tally.add(f"op{n}", "DONE", 10, 20, 30)
        tally.add(f"op{n}", "FAILED", 10, 0, 0)
    assert len(tally.counts) == MAX_OPS + 1
    assert len(tally.ended) <= MAX_OPS + 1
    assert sum(one.done for one in tally.counts.values()) == 4 * MAX_OPS
    assert sum(tally.ended.values()) == 2 * MAX_OPS
    assert tally.counts[OTHER].done > MAX_OPS


def test_delays_are_of_what_has_started() -> None:
    tally = Tally()
    tally.add("add", "SKIPPED", 10, 0, 0)
    tally.add("add", "DONE", 10, 12, 1012)
    assert (sum(tally.delays.counts), tally.delays.total) == (1, 2)
    assert tally.of("add").times.total == 1000
    assert tally.of("add").times.counts[(1000).bit_length()] == 1
