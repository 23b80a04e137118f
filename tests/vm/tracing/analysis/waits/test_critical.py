"""The critical path in pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensord as td
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.analysis.waits.critical import with_critical_path
from tensord.vm.tracing.record import Record

from .....each_case import each_case
from ..trace_programs import random_trace, record


def ran(number: int, begin: int, end: int, *operands: tuple[int, str], **fields: Any) -> Record:
    """A record that ran on a stream of its own, and was received when it began."""
    stamps = {"received": begin, "ready": begin, "dispatched": begin, "started": begin, "finished": end}
    stream = {"stream": f"cpu:0/compute{number}"}
    return record(number, *operands, ticks=(2 * number, 2 * number + 1), **(stamps | stream | fields))


def path(*records: Record) -> tuple[int, ...]:
    trace = Trace(records, taken=10_000)
    return with_critical_path(trace, trace.graph()).critical


def test_it_goes_back_through_what_ended_last() -> None:
    fast, slow = ran(1, 10, 20, (1, "mut")), ran(2, 10, 90, (2, "mut"))
    joined = ran(3, 90, 95, (1, "const"), (2, "const"), edges=[(1, "RAW", 1), (2, "RAW", 2)], received=15)
    assert path(fast, slow, joined) == (3, 2)


def test_a_pause_of_the_program_does_not_end_it() -> None:
    """#2 was issued long after #1, which it depends on, had been erased."""
    assert path(ran(1, 10, 20, (1, "mut")), ran(2, 500, 510, (1, "const"))) == (2, 1)


def test_it_leads_to_what_ended_last_and_is_no_barrier() -> None:
    last = ran(3, 600, 700, opcode="Barrier")
    assert path(ran(1, 10, 20, (1, "mut")), ran(2, 500, 510, (1, "const")), last) == (2, 1)
    assert path(last) == (3,)


def test_what_is_not_shown_ends_no_path() -> None:
    """A release kept the stream busy when the last op was ready, and has no dependence."""
    on = {"stream": "cpu:0/control"}
    release = ran(2, 60, 500, opcode="ReleaseTensor", **on)
    last = ran(3, 500, 600, (3, "mut"), received=70, ready=70, **on)
    trace = Trace([ran(1, 10, 20, (1, "mut"), **on), release, last])
    assert with_critical_path(trace, trace.graph().select()).critical == (3, 2, 1)
    assert with_critical_path(trace, trace.graph()).critical == (3, 2)


def test_what_still_runs_comes_before_what_has_ended() -> None:
    hangs = ran(1, 10, 0, (1, "mut"))._replace(status="DISPATCHED", erased=0)
    assert path(hangs, ran(2, 500, 510, (2, "mut"))) == (1,)


def test_a_graph_of_which_nothing_ran_has_none() -> None:
    assert path(record(1, (1, "mut"))) == path() == ()


@each_case("seed", range(5))
def test_any_trace_has_a_path_without_a_cycle(seed: int) -> None:
    trace = random_trace(seed)
    found = with_critical_path(trace, trace.graph()).critical
    assert len(found) == len(set(found)) > 0


def test_pictures_of_a_trace_have_it() -> None:
    with td.connect("local", devices=["cpu:0"]) as session:
        (session.asarray(np.ones(4)) + 1).numpy()
        trace = session.trace()
    assert trace.dag("dot").count("penwidth") == 5  # three nodes, and the arrows between them
    assert '"critical":[1,2,3]' in trace.dag("html")
