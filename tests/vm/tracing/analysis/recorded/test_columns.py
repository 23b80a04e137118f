"""Records as columns."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tensord as td
from tensord.vm.tracing.analysis.recorded.columns import COLUMNS
from tensord.vm.tracing.analysis.trace import Trace

from ..trace_programs import random_trace, record


def test_the_class_is_public():
    assert td.Trace is Trace
    assert "Trace" in dir(td)


def test_a_row_per_record_and_a_field_per_column():
    trace = random_trace(3)
    found = trace.to_numpy()
    assert found.dtype.names == tuple(COLUMNS)
    assert found["id"].tolist() == [one.id for one in trace.records]
    assert found["op"].tolist() == [one.op for one in trace.records]


def test_derived_columns():
    one = record(1, received=10, ready=30, started=50, finished=90, span=("a", "b"), edges=[(1, "RAW", 2)])
    (row,) = Trace([one]).to_numpy()
    assert (row["blocked"], row["queued"], row["ran"], row["span"], row["edges"]) == (20, 20, 40, "a/b", 1)


def test_live_records_have_no_times():
    (row,) = Trace([record(1, received=10)]).to_numpy()
    assert (row["blocked"], row["queued"], row["ran"]) == (0, 0, 0)


def test_no_records():
    assert len(Trace([]).to_numpy()) == 0


def test_as_a_data_frame(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    trace = random_trace(3)
    found = trace.to_pandas()
    assert list(found) == list(COLUMNS)
    assert np.array_equal(found["id"], trace.to_numpy()["id"])


def test_without_pandas_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas, which is not installed; to_numpy does not need it"):
        random_trace(3).to_pandas()
