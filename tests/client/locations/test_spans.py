"""Spans: ops issued inside one have its name in the trace, at no cost for the instruction."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import Counter

import numpy as np
import pytest

import tensord as td
from tensord.client.locations import spans
from tensord.interpreter.wire.message_kinds import CALL, LOCATION, SPAN
from tensord.vm.tracing.analysis.trace import Trace

from ...each_case import each_case


def spans_of(session, *ops):
    """The span of each record of these ops, in program order."""
    session.sync()
    return [record.span for record in session.trace().records if record.op in ops]


@pytest.fixture
def sent(session, monkeypatch):
    """Every message that the session sends."""
    messages, send = [], session._core.transport.send

    def both(batch):
        messages.extend(batch)
        send(batch)

    monkeypatch.setattr(session._core.transport, "send", both)
    return messages


class TestPaths:
    def test_records_have_the_names_of_the_open_spans_outermost_first(self, session):
        x = session.asarray([1.0])
        for step in range(2):
            with session.span("epoch 0"):
                y = x + 1
                with session.span(f"step {step}"):
                    y = y * 2
                y = -y
        y - 1
        outer = ("epoch 0",)
        assert spans_of(session, "add", "negative") == [outer] * 4
        assert spans_of(session, "multiply") == [(*outer, "step 0"), (*outer, "step 1")]
        assert spans_of(session, "subtract") == spans_of(session, "upload") == [()]

    def test_every_kind_of_instruction_has_its_span(self, sim_session):
        x = sim_session.asarray(np.ones((2, 2)))
        with sim_session.span("here"):
            y = sim_session.asarray(np.ones((2, 2)), "sim:0") @ x.to_device("sim:0")
            y[0] = 2.0
            sim_session.xp.sum(y).numpy()
            sim_session.fetch([x, y])
            y.wait()
            sim_session.effect(lambda _: None, y)
            sim_session.check_chain()
            sim_session.sync()
        records = [r for r in sim_session.trace().records[1:] if r.op != "release"]
        assert {"upload", "matmul", "setitem", "sum", "fetch", "wait", "sync", "effect"} <= {r.op for r in records}
        assert any(r.opcode == "Transfer" for r in records)
        assert {r.span for r in records[:-1]} == {("here",)}  # the last one is the question for the trace

    def test_a_span_ends_with_its_block_also_if_that_raises(self, session):
        x = session.asarray([1.0])
        with session.span("outer"):
            with contextlib.suppress(ZeroDivisionError), session.span("inner"):
                1 / 0  # noqa: B018 - for its error
            x + 1
        x * 1
        assert spans_of(session, "add", "multiply") == [("outer",), ()]

    def test_each_thread_has_its_own(self, session):
        x = session.asarray([1.0])
        both_open = threading.Barrier(2)

        def work(name, op):
            with session.span(name):
                both_open.wait(10)
                session.call(op, [x, 1.0])
                both_open.wait(10)

        threads = [threading.Thread(target=work, args=each) for each in (("a", "add"), ("b", "multiply"))]
        with session.span("main"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (spans_of(session, "add"), spans_of(session, "multiply")) == ([("a",)], [("b",)])

    def test_each_task_has_its_own_within_that_of_its_maker(self, session):
        x = session.asarray([1.0])

        async def work(name, op, turns):
            with session.span(name):
                for _ in range(turns):
                    session.call(op, [x, 1.0])
                    await asyncio.sleep(0)

        async def main():
            with session.span("main"):
                await asyncio.gather(work("a", "add", 3), work("b", "multiply", 2))

        asyncio.run(main())
        assert spans_of(session, "add") == [("main", "a")] * 3
        assert spans_of(session, "multiply") == [("main", "b")] * 2

    def test_a_span_that_is_closed_in_another_context_stays_open_in_its_own(self, session):
        x = session.asarray([1.0])
        opened = session.span("abandoned")
        context = contextvars.copy_context()
        context.run(opened.__enter__)
        opened.__exit__(None, None, None)
        context.run(lambda: x + 1)
        x * 1
        assert spans_of(session, "add", "multiply") == [("abandoned",), ()]

    def test_sessions_have_spans_of_their_own(self, make_session):
        first, second = make_session("local:both"), make_session("local:both")
        x, y = first.asarray([1.0]), second.asarray([1.0])
        with first.span("of the first"):
            x + 1
            y * 1
            second.sync()
        assert (spans_of(first, "add"), spans_of(first, "multiply")) == ([("of the first",)], [()])

    def test_one_may_be_opened_again_but_not_twice_at_once(self, session):
        x = session.asarray([1.0])
        step = session.span("step")
        for _ in range(2):
            with step:
                x + 1
        with session.span("outer"), step:
            x + 1
            with pytest.raises(td.ProtocolError, match="'step' is open already"):
                step.__enter__()
        assert spans_of(session, "add") == [("step",), ("step",), ("outer", "step")]

    def test_saved_traces_keep_them(self, session, tmp_path):
        with session.span("ünder"):
            session.asarray([1.0])
        session.sync()
        session.trace().save(tmp_path / "a.trace")
        assert Trace.load(tmp_path / "a.trace").records[0].span == ("ünder",)

    def test_they_outlive_the_session(self, make_session):
        first, last = make_session("local:ended"), make_session("local:ended")
        with first.span("early"):
            first.asarray([1.0])
        first.sync()
        first.close()
        assert spans_of(last, "upload") == [("early",)]

    def test_errors_inside_name_the_line_as_ever(self, session):
        x = session.asarray(np.zeros((2, 2)))
        with session.span("a"):
            bad = session.xp.linalg.inv(x)
        with pytest.raises(td.KernelError, match=r"test_spans\.py:\d+ in TestPaths\.test_errors"):
            bad.numpy()


class TestNames:
    @each_case("name", [None, 7, b"step", ""])
    def test_a_name_is_text(self, session, name):
        with pytest.raises(td.MetadataError, match=r"span: expected a name.*test_spans\.py"):
            session.span(name)

    def test_a_name_is_cut_and_of_one_line(self, session):
        with session.span("a\nb\x1b[31m" + 200 * "c"), session.span("caf\udce9"):
            session.asarray([1.0])
        ((first, second),) = spans_of(session, "upload")
        assert (len(first), first[:6], second) == (128, "a b [3", "caf ")

    def test_of_a_deep_path_the_outer_names_count(self, session):
        def go_down(levels):
            if not levels:
                session.asarray([1.0])
                return
            with session.span(str(levels)):
                go_down(levels - 1)

        go_down(40)
        assert spans_of(session, "upload") == [tuple(map(str, range(40, 8, -1)))]

    def test_a_closed_session_may_be_traced_all_the_same(self, make_session):
        session = make_session()
        session.close()
        with session.span("after the end"):
            pass


class TestCost:
    def test_a_span_is_one_message_and_lines_are_sent_once(self, session, sent):
        x = session.asarray([1.0])
        for step in range(5):
            with session.span(f"step {step}"):
                y = x + 1
                y = y * 2
        session.flush()
        kinds = Counter(message[0] for message in sent)
        assert (kinds[SPAN], kinds[CALL], kinds[LOCATION]) == (5, 10, 3)

    def test_a_span_without_instructions_costs_nothing(self, session, sent):
        for _ in range(1000):
            with session.span("idle"):
                pass
        session.flush()
        assert all(message[0] != SPAN for message in sent)
        assert session._core.outbox.locations.unsent == []

    def test_a_location_of_the_first_spans_fits_32_bits(self, session, sent):
        session._core.outbox.locations.newest = 65_000
        session._core.outbox.locations.spans._newest = 32_700
        with session.span("late"):
            session.asarray([1.0]) + 1
        session.flush()
        (call,) = [message for message in sent if message[0] == CALL]
        assert 1 << 31 < call[-1] < 1 << 32

    def test_records_keep_their_names_when_there_are_more_spans_than_fit_32_bits(self, session):
        x = session.asarray([1.0])
        with session.span("early"):
            x + 1
        session._core.outbox.locations.spans._newest = (1 << 15) - 1
        with session.span("late"):
            x + 1
        assert spans_of(session, "add") == [("early",), ("late",)]

    def test_numbers_are_used_again_and_an_open_span_keeps_its_name(self, session, monkeypatch):
        monkeypatch.setattr(spans, "SPAN_LIMIT", 8)
        x = session.asarray([1.0])
        with session.span("outer"):
            for step in range(5):
                x + 1
                for inner in range(3):
                    with session.span(f"{step}.{inner}"):
                        x * 1
                session.sync()
        assert spans_of(session, "add")[-1:] == [("outer",)]
        assert spans_of(session, "multiply")[-3:] == [("outer", f"4.{inner}") for inner in range(3)]
        assert len(session._core.transport._session.source.spans) <= 7
