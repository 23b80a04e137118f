"""Spans of sessions as spans of OpenTelemetry, as its SDK exports them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tensord as td
from tensord.client.cluster.spans import ClusterSpan
from tensord.interpreter.errors import MetadataTypeError


class Exported:
    """The spans that were exported, and the tracer of a program's own ones."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("program")

    def spans(self) -> dict[str, Any]:
        found = {span.name: span for span in self.exporter.get_finished_spans()}
        assert len(found) == len(self.exporter.get_finished_spans())
        return found

    def parents(self) -> dict[str, str]:
        """Name of a span -> name of the span around it."""
        names = {span.context.span_id: name for name, span in self.spans().items()}
        return {name: names[span.parent.span_id] if span.parent else "" for name, span in self.spans().items()}


@pytest.fixture
def exported() -> Iterator[Exported]:
    found = Exported()
    td.use_opentelemetry(found.provider)
    yield found
    td.use_opentelemetry(on=False)
    found.provider.shutdown()


def test_spans_lie_in_each_other_and_in_those_of_the_program(session: td.Session, exported: Exported) -> None:
    with exported.tracer.start_as_current_span("request"), session.span("epoch"):
        with session.span("step 1"):
            (session.asarray([1.0]) + 1).numpy()
        with session.span("step 2"), exported.tracer.start_as_current_span("loader"):
            pass
    assert exported.parents() == {
        "request": "",
        "epoch": "request",
        "step 1": "epoch",
        "step 2": "epoch",
        "loader": "step 2",
    }
    assert exported.spans()["step 1"].attributes == {"tensord.span": "epoch/step 1"}
    assert exported.spans()["step 1"].instrumentation_scope.version == td.__version__
    assert ("epoch", "step 1") in {record.span for record in session.trace().records}


def test_an_error_that_leaves_a_span_is_recorded_there(session: td.Session, exported: Exported) -> None:
    def program() -> None:
        with session.span("outer"):
            with session.span("well"):
                pass
            with session.span("inner"):
                session.asarray([1.0, 2.0]) + session.asarray([1.0, 2.0, 3.0])

    with pytest.raises(td.MetadataError):
        program()
    spans = exported.spans()
    assert [spans[name].status.is_ok for name in ("outer", "well", "inner")] == [False, True, False]
    assert spans["inner"].events[0].attributes["exception.type"].endswith("MetadataError")
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_tasks_have_spans_of_their_own(session: td.Session, exported: Exported) -> None:
    async def step(name: str) -> None:
        with session.span(name):
            await asyncio.sleep(0)

    async def run() -> None:
        with session.span("all"):
            await asyncio.gather(step("a"), step("b"))

    asyncio.run(run())
    assert exported.parents() == {"all": "", "a": "all", "b": "all"}


def test_a_span_of_a_cluster_session_is_one(make_session: Any, exported: Exported) -> None:
    cores = [make_session()._core for _ in range(2)]

    none: tuple[ClusterSpan, ...] = ()
    cluster: Any = SimpleNamespace(spans=ContextVar("spans of a test", default=none), cores=lambda: cores)
    with ClusterSpan(cluster, "epoch"), ClusterSpan(cluster, "step"):
        pass
    assert exported.parents() == {"epoch": "", "step": "epoch"}
    assert exported.spans()["step"].attributes == {"tensord.span": "epoch/step"}


def test_there_are_none_before_and_after(session: td.Session, exported: Exported) -> None:
    td.use_opentelemetry(on=False)
    with session.span("a"):
        assert trace.get_current_span() is trace.INVALID_SPAN
    assert exported.spans() == {}


def test_one_that_is_open_while_they_are_turned_off_is_ended(session: td.Session, exported: Exported) -> None:
    with session.span("a"):
        td.use_opentelemetry(on=False)
    assert exported.spans().keys() == {"a"}


def test_a_processor_that_raises_is_told_to_the_program_and_leaves_no_span_open(
    session: td.Session, exported: Exported
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, *_: object, **__: object) -> None:
            raise RuntimeError("broken")

    exported.provider.add_span_processor(Broken())
    with pytest.raises(RuntimeError, match="broken"), session.span("a"):
        pass
    assert session._core.outbox.locations.spans.get() is None


def test_something_else_is_no_provider() -> None:
    with pytest.raises(MetadataTypeError, match="expected a TracerProvider, got False"):
        td.use_opentelemetry(False)  # type: ignore[arg-type]


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(td.MetadataError, match=r'pip install "tensord\[otel\]"'):
        td.use_opentelemetry()


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    program = (
        "import sys, tensord as td\n"
        "with td.connect('local') as s, s.span('a'): s.asarray([1.0]).numpy()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    assert done.stdout == "[]\n"
