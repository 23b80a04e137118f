"""The states of a supervised daemon: the transitions, their actions, and the times of retries."""

from __future__ import annotations

import pytest

from tensord.vm.cluster.lifecycle import (
    FAILURES_OF_A_LOOP,
    FIRST_PAUSE,
    MAX_PAUSE,
    STEADY_SECONDS,
    TRANSITIONS,
    Action,
    DaemonEvent,
    DaemonProcessState,
    IllegalStep,
    Lifecycle,
    Patience,
)

from ...each_case import each_case

PATIENCE = Patience(start=60.0, end=15.0, drain=300.0)


def serving(at: float = 0.0) -> Lifecycle:
    made = Lifecycle(PATIENCE)
    made.take(DaemonEvent.STARTED, at)
    made.take(DaemonEvent.READY, at)
    return made


def states(lifecycle: Lifecycle, *events: DaemonEvent) -> list[DaemonProcessState]:
    found = []
    for event in events:
        lifecycle.take(event, 1.0)
        found.append(lifecycle.state)
    return found


def test_a_daemon_that_ends_by_itself_is_started_again_at_once():
    lifecycle = serving()
    assert lifecycle.take(DaemonEvent.EXITED, 5.0) is Action.NOTHING
    assert (lifecycle.state, lifecycle.due) == (DaemonProcessState.WAITING, 5.0)
    assert lifecycle.take(DaemonEvent.DUE, 5.0) is Action.START
    assert lifecycle.state is DaemonProcessState.STARTING


def test_pauses_double_up_to_the_longest_and_a_crash_loop_is_failing():
    lifecycle, pauses = serving(), []
    for _ in range(12):
        lifecycle.take(DaemonEvent.EXITED, 1.0)
        pauses.append((lifecycle.due or 0.0) - 1.0)
        assert lifecycle.failing == (lifecycle.failures >= FAILURES_OF_A_LOOP)
        lifecycle.take(DaemonEvent.DUE, 1.0)
    assert pauses[:4] == [0.0, FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == MAX_PAUSE
    assert lifecycle.failing


def test_who_served_long_enough_begins_a_new_count():
    lifecycle = Lifecycle(PATIENCE)
    lifecycle.take(DaemonEvent.STARTED, 0.0)
    for _ in range(5):
        lifecycle.take(DaemonEvent.EXITED, 0.0)
        lifecycle.take(DaemonEvent.DUE, 0.0)
    lifecycle.take(DaemonEvent.READY, 0.0)
    lifecycle.take(DaemonEvent.EXITED, STEADY_SECONDS)
    assert (lifecycle.failures, lifecycle.pause()) == (1, 0.0)


def test_a_start_that_takes_too_long_is_killed_and_counts_as_a_failure():
    lifecycle = Lifecycle(PATIENCE)
    lifecycle.take(DaemonEvent.STARTED, 0.0)
    assert lifecycle.due == PATIENCE.start
    assert lifecycle.take(DaemonEvent.DUE, PATIENCE.start) is Action.KILL
    assert (lifecycle.state, lifecycle.failures) == (DaemonProcessState.KILLED, 1)
    lifecycle.take(DaemonEvent.EXITED, PATIENCE.start)
    assert lifecycle.failures == 1


def test_a_restart_ends_the_daemon_and_starts_it_without_a_failure():
    lifecycle = serving()
    assert lifecycle.take(DaemonEvent.RESTART, 1.0) is Action.TERMINATE
    assert lifecycle.take(DaemonEvent.EXITED, 2.0) is Action.START
    assert lifecycle.failures == 0


def test_a_daemon_that_does_not_end_when_asked_is_killed():
    lifecycle = serving()
    assert lifecycle.take(DaemonEvent.STOP, 1.0) is Action.TERMINATE
    assert lifecycle.take(DaemonEvent.DUE, 1.0 + PATIENCE.end) is Action.KILL
    assert lifecycle.take(DaemonEvent.EXITED, 20.0) is Action.NOTHING
    assert (lifecycle.state, lifecycle.due) == (DaemonProcessState.STOPPED, None)


def test_a_drain_waits_for_the_sessions_or_its_deadline():
    lifecycle = serving()
    lifecycle.drain_for(7.0)
    assert lifecycle.take(DaemonEvent.DRAIN, 1.0) is Action.REFUSE
    assert lifecycle.due == 8.0
    assert lifecycle.take(DaemonEvent.DUE, 8.0) is Action.TERMINATE
    emptied = serving()
    assert states(emptied, DaemonEvent.DRAIN, DaemonEvent.EMPTIED, DaemonEvent.EXITED) == [
        DaemonProcessState.DRAINING,
        DaemonProcessState.STOPPING,
        DaemonProcessState.STOPPED,
    ]


def test_a_daemon_that_ends_while_it_drains_stays_ended():
    assert states(serving(), DaemonEvent.DRAIN, DaemonEvent.EXITED) == [
        DaemonProcessState.DRAINING,
        DaemonProcessState.STOPPED,
    ]


@each_case("state", list(DaemonProcessState))
def test_steps_that_the_table_lacks_raise_and_change_nothing(state):
    for event in DaemonEvent:
        if (state, event) in TRANSITIONS:
            continue
        lifecycle = serving()
        lifecycle.state, lifecycle.due = state, 3.0
        before = (lifecycle.state, lifecycle.due, lifecycle.failures, list(lifecycle.story))
        with pytest.raises(IllegalStep, match=f"{event} while {state}, after: .*ready: starting -> serving"):
            lifecycle.take(event, 9.0)
        assert (lifecycle.state, lifecycle.due, lifecycle.failures, list(lifecycle.story)) == before


def test_every_state_is_reached_and_all_but_the_last_can_be_left():
    assert set(TRANSITIONS.values()) == set(DaemonProcessState) - {DaemonProcessState.NEW}
    assert {before for before, _ in TRANSITIONS} == set(DaemonProcessState) - {DaemonProcessState.STOPPED}


def test_each_state_with_a_process_can_be_told_to_stop():
    allowed = {before for before, event in TRANSITIONS if event is DaemonEvent.STOP}
    assert allowed == set(DaemonProcessState) - {
        DaemonProcessState.NEW,
        DaemonProcessState.STOPPING,
        DaemonProcessState.STOPPED,
    }
