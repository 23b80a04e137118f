"""Every metric has a conventional name, and its samples equal the daemon's figures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tensord.interpreter.metrics.bounds import MAX_LABEL_LENGTH, OTHER_LABEL, Bounds
from tensord.interpreter.metrics.family import BOUNDS_NS, Figures, Histogram, MetricKind, bucket_bounds
from tensord.interpreter.metrics.table import FAMILIES

BY_NAME = {family.name: family for family in FAMILIES}
UNITS = ("_seconds", "_bytes")


def session(id_: int, nbytes: int, client: str = "train.py") -> dict[str, Any]:
    counts = dict.fromkeys(("exported", "tensors", "live", "pending", "errors"), 1)
    moved = {"count": 1, "bytes": 10 * id_}
    return {"id": id_, "client": client, "bytes": nbytes, "moved": moved, "evicted": moved, **counts}


def tally(done: list[Any], ended: list[Any] | None = None) -> dict[str, Any]:
    return {"tally": {"done": done, "ended": ended or [], "delays": [[], 0]}}


def samples(name: str, figures: Figures) -> dict[tuple[str, ...], Any]:
    return BY_NAME[name].samples(figures)


def test_names_follow_the_conventions() -> None:
    assert len(BY_NAME) == len(FAMILIES)
    for name, family in BY_NAME.items():
        assert re.fullmatch(r"tensord_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (family.kind is MetricKind.COUNTER), name
        assert (family.kind is MetricKind.HISTOGRAM) <= name.endswith("_seconds")
        assert family.help.endswith(".")
        words = name.removesuffix("_total").split("_")
        assert not {"ms", "us", "kb", "mb", "byte", "second"} & set(words), name
        assert all(f"_{word}" != unit or words[-1] == word for unit in UNITS for word in words), name
        assert all(re.fullmatch("[a-z]+", label) for label in family.labels)


def test_a_daemon_that_does_not_answer_has_nothing_but_that_it_is_not_up() -> None:
    found = {name: family.samples(Figures()) for name, family in BY_NAME.items()}
    assert {name: values for name, values in found.items() if values} == {"tensord_up": {(): 0.0}}


def test_ops_beyond_the_bound_are_one_that_never_falls() -> None:
    """The sum never falls when ops in the middle run for the first time, either."""
    before = tally([["Transfer", 3, [], 0], ["add", 0, [], 0], ["mul", 5, [], 0], ["sub", 7, [], 0]])
    after = tally([["Transfer", 3, [], 0], ["add", 1, [], 0], ["mul", 5, [], 0], ["sub", 7, [], 0], ["exp", 2, [], 0]])
    name, bounds = "tensord_instructions_total", Bounds(ops=2)
    assert samples(name, Figures(before, bounds=bounds)) == {("Transfer", "done"): 3, (OTHER_LABEL, "done"): 12}
    assert samples(name, Figures(after, bounds=bounds)) == {
        ("Transfer", "done"): 3,
        ("add", "done"): 1,
        (OTHER_LABEL, "done"): 14,
    }


def test_other_ends_are_told_apart_by_status() -> None:
    figures = Figures(
        tally([["add", 4, [], 0]], [["add", "FAILED", 1], ["add", "SKIPPED", 2], ["gone", "CANCELLED", 3]])
    )
    assert samples("tensord_instructions_total", figures) == {
        ("add", "done"): 4,
        ("add", "failed"): 1,
        ("add", "skipped"): 2,
        (OTHER_LABEL, "cancelled"): 3,
    }


def test_the_largest_sessions_have_labels_and_the_rest_is_summed_up() -> None:
    rows = [session(1, 5), session(2, 50), session(3, 500, "a\nb" + "x" * 200), session(4, 7)]
    found = samples("tensord_session_bytes", Figures({"up": 1}, rows, bounds=Bounds(sessions=2)))
    (long,) = [client for number, client in found if number == "3"]
    assert found == {("2", "train.py"): 50, ("3", long): 500, (OTHER_LABEL, OTHER_LABEL): 12}
    assert long.startswith("a b")
    assert len(long) == MAX_LABEL_LENGTH


def test_bytes_by_device_are_those_of_the_sessions_that_have_labels() -> None:
    held = [(1, "cpu:0", 5), (2, "cpu:0", 40), (2, "sim:0", 10), (0, "cpu:0", 3)]
    figures = Figures({"up": 1}, [session(1, 5), session(2, 50)], held=held, bounds=Bounds(sessions=1))
    assert samples("tensord_session_device_bytes", figures) == {
        (OTHER_LABEL, OTHER_LABEL, "cpu:0"): 8,
        ("2", "train.py", "cpu:0"): 40,
        ("2", "train.py", "sim:0"): 10,
    }


@pytest.mark.parametrize("ns", [0, 1, 1023, 1024, 1025, 4095, 4096, 10**6, 2**36 - 1, 2**36, 10**12])
def test_a_time_is_in_each_bucket_whose_bound_it_does_not_exceed(ns: int) -> None:
    counts = [0] * 64
    counts[ns.bit_length()] += 1
    found = Histogram.of(counts, ns)
    assert found.buckets == (*(int(ns < bound) for bound in BOUNDS_NS), 1)
    assert found.seconds == ns / 1e9
    assert len(found.buckets) == len(bucket_bounds())


def test_histograms_of_folded_ops_are_added() -> None:
    counts = [0] * 12 + [2]
    figures = Figures(tally([["add", 2, counts, 6000], ["mul", 2, counts, 4000]]), bounds=Bounds(ops=0))
    (found,) = samples("tensord_instruction_run_seconds", figures).values()
    assert found.buckets[-1] == 4
    assert found.seconds == pytest.approx(10_000 / 1e9)
