"""The tests' own sessions, on a serial machine in place of a virtual machine: the same values, the same errors.

`pytest --serial` runs every test that starts from the session fixtures so; the modules in `ALSO` run on it in any case.
A test that looks inside the machine, or at records of its trace, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

import tensord
from tensord.client.embedded import traces
from tensord.client.session.session import Session
from tensord.vm.serial import questions

ALSO = frozenset(
    {
        "test_array_api.py",
        "test_array_api_beyond.py",
        "test_atomic.py",
        "test_copy_on_write.py",
        "test_corners.py",
        "test_effects.py",
        "test_errors.py",
        "test_exchange.py",
        "test_handlers.py",
        "test_host_arrays.py",
        "test_host_calls.py",
        "test_host_results.py",
        "test_messages.py",
        "test_nn.py",
        "test_padding.py",
        "test_random.py",
        "test_reading.py",
        "test_session.py",
        "test_sessions_share.py",
        "test_tensor.py",
    }
)
# Tests of features that the serial engine lacks: dependencies, limits of memory, transfers, faults, the trace.
ELSEWHERE = frozenset(
    {
        "test_dependencies.py",
        "test_faults.py",
        "test_memory.py",
        "test_record.py",
        "test_residency.py",
        "test_transfers.py",
    }
)
UNABLE = {
    "test_a_damaged_message_breaks_nothing": "no session of this process sends one",
    "test_a_handle_dropped_before_its_last_use_left_rides_on_it": "the last use has left by then",
    "test_a_partial_write_on_another_device_brings_the_rest_along": "it counts transfers",
    "test_a_pending_meta_delays_no_other_session": "nothing is ever pending",
    "test_a_reader_sees_the_old_value_whatever_became_of_the_writes_behind_it": "no reader still runs",
    "test_a_reader_through_a_view_sees_the_old_value": "no reader still runs",
    "test_a_snapshot_is_untouched_by_later_writes": "it counts bytes that are shared",
    "test_a_tensor_with_another_home_shares_until_somebody_writes": "it counts copies",
    "test_cancel_reports_a_long_chain_at_once_and_the_running_kernel_finishes": "nothing is left to cancel",
    "test_closing_while_kernels_run_ends_their_waits": "it runs kernels in the background",
    "test_devices": "it looks at streams",
    "test_memory_that_is_not_there_is_a_typed_error": "memory has no limit",
    "test_nothing_overtakes_a_reader_that_still_runs": "no reader still runs",
    "test_its_report_is_about_the_runs_of_its_own_session": "it compiles nothing",
    "test_operands_that_are_not_what_the_signature_says_are_refused": "no session of this process sends them",
    "test_releases_happen_despite_cancel": "it runs kernels in the background",
    "test_stale_views_on_a_device_leave_with_the_write": "it counts copies",
    "test_stats_count_exactly": "what it counts is not there",
    "test_comes_back_if_the_upload_fails": "memory has no limit",
    "test_for_people": "it looks at transfers",
    "test_for_programs": "it looks at limits of memory",
    "test_tensors": "it looks at the names of storages",
    "test_what_it_captures_counts_as_its_publishers_and_is_freed_with_its_last_holder": "it counts no bytes",
    "test_without_tracing_there_are_no_records": "there are none with it, either",
}
INSIDE = ("machine", "_replies", "_session")  # attributes that tests of the virtual machine look at


def applies(test: pytest.Item | pytest.Function) -> bool | None:
    """Is the test to run on the serial engine in any case? None: it cannot."""
    if test.name in UNABLE or test.path.name in ELSEWHERE:
        return None
    return test.path.name in ALSO


def skip(*_: object) -> NoReturn:
    """Skip: the test looks inside, or at the work of a scheduler."""
    pytest.skip("looks at what only a scheduler has")


class NoTrace:
    """The trace of a machine that keeps none: no instruction is wrong in it."""

    def verify(self) -> list[str]:
        return []

    def __getattr__(self, _name: str) -> Any:
        return skip()


class Outside:
    """A transport that hides its inner parts."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return skip() if name in INSIDE else getattr(self._transport, name)


def sessions(patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """make_session, on serial machines; they end with the test, and hold nothing then."""
    opened: list[tuple[Session, Any]] = []
    patch.setitem(questions._ANSWERS, "trace", lambda *_: None)
    patch.setattr(traces, "trace_of", lambda _: NoTrace())

    def make(address: str = "local", *, expect_empty: bool = True, **options: Any) -> Session:
        if not expect_empty:
            skip()
        options.setdefault("devices", ["cpu:0"])
        session = tensord.connect(address, engine="serial", **options)
        opened.append((session, session._core.transport.machine))
        session._core.outbox.transport = Outside(session._core.transport)
        return session

    yield make
    for session, _ in reversed(opened):
        session.close()
    for _, machine in opened:
        assert machine.closed
        assert not machine.engine.sessions
        assert not machine.later
        assert not machine.cancellations
