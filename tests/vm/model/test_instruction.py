"""An instruction's life: its states, the decision whether it runs, and its effects on copies."""

from __future__ import annotations

from itertools import product
from types import BuiltinMethodType, MethodType
from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, KernelError, TensordError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.model.instruction import Instruction
from tensord.vm.model.lifecycle import FINAL, PENDING, TRANSITIONS, UNDER_WAY, Event, IllegalTransition, Status
from tensord.vm.model.reason import Reason
from tensord.vm.model.tensor import Copy

from ...each_case import each_case
from ..parts import Parts, fail

LEGAL = [(before, event, after) for before, steps in TRANSITIONS.items() for event, after in steps.items()]
ILLEGAL = [(before, event) for before, event in product(Status, Event) if event not in TRANSITIONS[before]]


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def instruction(parts: Parts) -> Instruction:
    """An instruction that was not admitted, with a line of the user's."""
    parts.session.source.lines.keep(3, "user.py:3")
    return Instruction(7, parts.session, Opcode.CALL, "add", parts.here, 3)


@pytest.fixture
def copy(parts: Parts) -> Copy:
    return Copy(5, parts.here, 8, 1)


def write_of(instruction: Instruction, *copies: Copy) -> Instruction:
    instruction.writes = copies
    return instruction


def state_of(instruction: Instruction) -> dict[str, Any]:
    """Every attribute that is no method."""
    found = {name: getattr(instruction, name) for name in dir(instruction) if not name.startswith("__")}
    return {name: value for name, value in found.items() if not isinstance(value, MethodType | BuiltinMethodType)}


class TestTransitions:
    def test_the_table_is_the_one_in_the_documentation(self) -> None:
        ends = {Status.FAILED, Status.SKIPPED, Status.CANCELLED}
        assert {before: set(steps.values()) for before, steps in TRANSITIONS.items()} == {
            Status.WAITING: {Status.READY, Status.DOOMED},
            Status.READY: {Status.DISPATCHED, Status.DOOMED},
            Status.DOOMED: ends,
            Status.DISPATCHED: {Status.EXECUTED, Status.DONE} | ends,
            Status.EXECUTED: {Status.DONE} | ends,
            **{status: set[Status]() for status in (Status.DONE, *ends)},
        }

    @each_case(("before", "event", "after"), LEGAL)
    def test_an_event_in_the_table_leads_on(
        self, instruction: Instruction, before: Status, event: Event, after: Status
    ) -> None:
        instruction.status = before
        instruction.move(event)
        assert instruction.status is after

    @each_case(("before", "event"), ILLEGAL)
    def test_an_event_that_is_not_raises_and_changes_nothing(
        self, instruction: Instruction, before: Status, event: Event
    ) -> None:
        instruction.status = before
        before_it = state_of(instruction)
        with pytest.raises(IllegalTransition, match=f"{event.name} while {before}"):
            instruction.move(event)
        assert state_of(instruction) == before_it

    def test_every_status_is_pending_or_under_way_or_final(self) -> None:
        assert {Status.WAITING, Status.READY, Status.DOOMED} == PENDING
        assert {Status.DISPATCHED, Status.EXECUTED} == UNDER_WAY
        assert {Status.DONE, Status.FAILED, Status.SKIPPED, Status.CANCELLED} == FINAL
        assert set(Status) == PENDING | UNDER_WAY | FINAL

    def test_a_doomed_one_never_runs_and_what_is_under_way_is_never_pending_again(self) -> None:
        assert not UNDER_WAY & set(TRANSITIONS[Status.DOOMED].values())
        assert Status.DONE not in TRANSITIONS[Status.DOOMED].values()
        assert not any(PENDING & set(TRANSITIONS[status].values()) for status in UNDER_WAY)

    @pytest.mark.parametrize("status", Status)
    def test_it_is_retired_in_a_final_status_alone(self, instruction: Instruction, status: Status) -> None:
        instruction.status = status
        assert instruction.retired is (status in FINAL)


class TestStory:
    def message(self, instruction: Instruction) -> str:
        with pytest.raises(IllegalTransition) as caught:
            instruction.move(Event.SUCCEEDED)
        return str(caught.value)

    def test_it_names_instruction_line_session_and_tick(self, instruction: Instruction) -> None:
        instruction.admitted = 12
        lines = self.message(instruction).split("\n")
        assert lines[0] == "<LocalCallOpKernel 7 add WAITING>: SUCCEEDED while WAITING"
        assert lines[1] == "  issued at user.py:3 by session 1, tick 12"

    def test_a_line_that_was_never_sent_is_unknown(self, instruction: Instruction) -> None:
        instruction.location = 99
        assert "issued at an unknown line by session 1" in self.message(instruction)

    def test_it_tells_each_edge_with_its_reason_and_whether_it_was_elided(self, instruction: Instruction) -> None:
        instruction.edges = [(2, Reason.RAW, 5, True), (3, Reason.WAR, 6, False), (4, Reason.BARRIER, 0, False)]
        text = self.message(instruction)
        assert "waits for #2 (RAW on copy 5, elided)\n" in text
        assert "waits for #3 (WAR on copy 6)\n" in text
        assert "waits for #4 (barrier)\n" in text

    def test_it_tells_the_times_that_it_has(self, instruction: Instruction) -> None:
        instruction.received, instruction.dispatched, instruction.finished = 11, 22, 33
        text = self.message(instruction)
        assert all(f"{what} at {time} ns" in text for what, time in [("received", 11), ("dispatched", 22)])
        assert "finished at 33 ns" in text
        assert "ready at" not in text
        assert "started at" not in text

    def test_it_names_the_thread_once_a_stream_has_it(self, parts: Parts) -> None:
        tensor = parts.tensor()
        queued = parts.op(writes=[tensor])
        with pytest.raises(IllegalTransition, match="on the thread of cpu:0/compute0"):
            queued.move(Event.SATISFIED)
        fresh = Instruction(9, parts.session, Opcode.CALL, "add", parts.here, 0)
        with pytest.raises(IllegalTransition, match="on the driving thread"):
            fresh.move(Event.SUCCEEDED)

    def test_it_tells_the_error(self, instruction: Instruction) -> None:
        instruction.error = KernelError("the kernel broke")
        assert self.message(instruction).endswith("KernelError: the kernel broke")


class TestOutcome:
    @pytest.mark.parametrize(
        ("error", "origin", "outcome"),
        [
            (None, False, Status.DONE),
            (KernelError("x"), True, Status.FAILED),
            (KernelError("x"), False, Status.SKIPPED),
            (CancelledError("x"), False, Status.CANCELLED),
            (CancelledError("x"), True, Status.FAILED),
        ],
    )
    def test_it_follows_from_the_error_and_where_that_arose(
        self, instruction: Instruction, error: TensordError | None, origin: bool, outcome: Status
    ) -> None:
        instruction.error, instruction.origin = error, origin
        assert TRANSITIONS[Status.EXECUTED][instruction.outcome()] is outcome


class TestClaim:
    def test_a_cancellation_that_comes_first_decides_and_says_why(self, instruction: Instruction, copy: Copy) -> None:
        ran: list[int] = []
        instruction.kernel = lambda: ran.append(1)
        assert not instruction.cancelled
        write_of(instruction, copy).revoke(stop := CancelledError("stop"))
        assert instruction.cancelled
        assert instruction.execute() is None
        assert not ran
        assert instruction.error is copy.poison is stop

    def test_the_latest_of_several_cancellations_is_why(self, instruction: Instruction) -> None:
        instruction.revoke(CancelledError("first"))
        instruction.revoke(second := CancelledError("second"))
        assert not instruction.may_run()
        assert instruction.error is second

    def test_one_that_runs_returns_the_work_of_its_kernel_even_if_that_fails(self, instruction: Instruction) -> None:
        instruction.kernel = fail
        assert instruction.execute() == (0 if instruction.plan is None else instruction.plan.work)
        assert instruction.error is not None

    def test_a_kernel_that_has_begun_runs_although_it_is_revoked(self, instruction: Instruction) -> None:
        instruction.kernel = lambda: instruction.revoke(CancelledError("too late"))
        instruction.execute()
        assert instruction.error is None

    def test_a_claim_between_the_two_halves_of_a_revocation_wins(self, instruction: Instruction) -> None:
        claimed: list[bool] = []

        class Token(list[TensordError | None]):
            def insert(self, index: Any, item: Any) -> None:
                super().insert(index, item)
                claimed.append(instruction.may_run())  # the stream, between the two

        instruction.claim_token = Token([None])
        instruction.revoke(CancelledError("too late"))
        assert claimed == [True]
        assert instruction.claim_token == []

    def test_an_error_that_is_there_already_stays(self, instruction: Instruction) -> None:
        instruction.error = error = KernelError("x")
        instruction.revoke(CancelledError("stop"))
        assert not instruction.may_run()
        assert instruction.error is error

    def test_a_doomed_one_counts_as_cancelled_to_its_stream(self, instruction: Instruction) -> None:
        instruction.error = KernelError("x")
        assert instruction.cancelled


class TestPoison:
    def test_a_write_that_succeeds_heals(self, instruction: Instruction, copy: Copy) -> None:
        copy.poison = KernelError("old")
        write_of(instruction, copy).settle_poison()
        assert copy.poison is None

    def test_a_write_that_failed_poisons(self, instruction: Instruction, copy: Copy) -> None:
        instruction.error = KernelError("x")
        write_of(instruction, copy).settle_poison()
        assert copy.poison is instruction.error

    def test_one_result_of_several_may_fail_alone(self, parts: Parts, instruction: Instruction, copy: Copy) -> None:
        other = Copy(6, parts.here, 8, 1)
        write_of(instruction, copy, other).results = [object(), ValueError("no")]
        instruction.settle_poison()
        assert copy.poison is None
        assert isinstance(other.poison, KernelError)
        assert instruction.error is None
        assert instruction.failure_of(other) is other.poison
        assert instruction.failure_of(copy) is None

    def test_a_poisoned_operand_is_its_error_and_none_of_its_own(self, instruction: Instruction, copy: Copy) -> None:
        ran: list[int] = []
        copy.poison = KernelError("from before")
        instruction.reads = (copy,)
        instruction.kernel = lambda: ran.append(1)
        assert instruction.execute() is None
        assert not ran
        assert instruction.error is copy.poison
        assert not instruction.origin

    def test_what_a_kernel_raises_is_described_with_op_line_and_id(self, instruction: Instruction, copy: Copy) -> None:
        instruction.kernel = fail
        write_of(instruction, copy).execute()
        error: Any = instruction.error
        assert (error.op, error.location, error.instruction) == ("add", "user.py:3", 7)
        assert str(error.message) == "add: ValueError: boom"
        assert instruction.origin
        assert copy.poison is error

    def test_what_a_typed_error_knows_already_is_kept(self, instruction: Instruction) -> None:
        known = KernelError("x", op="inner", location="theirs.py:1", instruction=1)
        assert instruction.describe(known) is known
        assert (known.op, known.location, known.instruction) == ("inner", "theirs.py:1", 1)


class TestLateFailure:
    """The error arrives after the stream has said that the instruction was executed."""

    def test_it_leaves_the_poison_slots_alone(self, instruction: Instruction, copy: Copy) -> None:
        write_of(instruction, copy).finished = 5
        instruction.fail(RuntimeError("late"))
        assert copy.poison is None
        assert isinstance(instruction.error, KernelError)
        assert instruction.origin

    def test_it_is_its_own_error_although_an_operand_is_poisoned_by_now(
        self, instruction: Instruction, copy: Copy
    ) -> None:
        instruction.reads, instruction.finished = (copy,), 5
        copy.poison = KernelError("somebody else, later")
        instruction.fail(RuntimeError("late"))
        assert instruction.error is not copy.poison
        assert instruction.origin

    def test_before_the_end_a_poisoned_operand_comes_first(self, instruction: Instruction, copy: Copy) -> None:
        instruction.reads = (copy,)
        copy.poison = KernelError("operand")
        instruction.fail(RuntimeError("now"))
        assert instruction.error is copy.poison
        assert not instruction.origin

    def test_an_error_that_is_there_already_is_the_right_one(self, instruction: Instruction) -> None:
        instruction.error = first = KernelError("first")
        instruction.fail(RuntimeError("second"))
        assert instruction.error is first
        assert not instruction.origin
