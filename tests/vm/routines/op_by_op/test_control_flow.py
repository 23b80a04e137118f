"""Control flow in runs: the blocks that run, their effects, their errors, and other sessions' progress meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, KernelError, KernelIndexError, MetadataError
from tensord.interpreter.wire.messages import Atomic, Call, Fetch, Release, Restart, encode_message
from tensord.streams.faults import Fault
from tensord.vm import engine as engine_module
from tensord.vm.reporting.invariants import violations

from ...bare_engine import Bare
from ...linked import Linked, scalar, upload
from ...parts import Parts

STEP, INSIDE = "user.py:2", "user.py:3"  # the lines of a step with blocks, and of the failing op in one


@pytest.fixture(params=[True, False], ids=["inline", "streams"])
def bare(request: pytest.FixtureRequest) -> Bare:
    return Bare(inline=request.param)


X = np.array([-9.0])

UNTIL = """\
parameter %0 x: float64[1] on d0
%1: float64[1] = while_loop %0                                  # 2
block
    number $0: float = -1.0
    parameter %0: float64[1] on d0
    %1: bool[1] = less %0, $0 on d0
    %2: bool[] = any %1 on d0
    return %2
block
    number $0: float = 2.0
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, $0 on d0
    effect %1 {callback: 0}
    return %1
end
return %1"""

CASE = """\
parameter %0 index: int64[] on d0
parameter %1 x: float64[1] on d0
%2: float64[1] = case %0, %1                                    # 2
block
    number $0: float = 1.0
    parameter %0: float64[1] on d0
    %1: float64[1] = add %0, $0 on d0
    effect %1 {callback: 0}
    return %1
block
    number $0: float = 2.0
    parameter %0: float64[1] on d0
    %1: float64[1] = multiply %0, $0 on d0
    effect %1 {callback: 1}
    return %1
end
%3: float64[1] = negative %1 on d0
return %2, %3"""

COND = """\
parameter %0 test: bool[] on d0
parameter %1 x: float64[1] on d0
captured %2 w: float64[1] on d0
%3: float64[1], %4: float64[1] = cond %0, %1 into %2             # 2
block %2
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    %2: float64[1] = add %1, %0 into %1 on d0
    %3: float64[1] = negative %0 on d0
    effect %0 {callback: 0}
    return %3
block %2
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    %2: float64[1] = subtract %1, %0 into %1 on d0
    %3: float64[1] = square %0 on d0
    effect %0 {callback: 1}
    return %3
end
%5: float64[1] = add %1, %1 on d0
return %3, %5"""

TIMES = """\
number $0 n: int
parameter %0 x: float64[1] on d0
captured %1 total: float64[1] on d0
%2: float64[1], %3: float64[1] = repeat_loop $0, %0 into %1      # 2
block %1
    number $0: float = 2.0
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    %2: float64[1] = multiply %0, $0 into %0 on d0
    %3: float64[1] = add %1, %2 into %1 on d0
    %4: float64[1] = negative %2 on d0
    return %4
end
return %2"""


# -- blocks that run ---------------------------------------------------------------------------------------------------


def test_a_loop_runs_as_long_as_its_test_is_true(bare: Bare) -> None:
    it = Linked(bare, UNTIL)
    (result,) = it.run(X)
    assert it.client.fetch(result) == [-1.0]
    assert it.seen == [[-7.0], [-5.0], [-3.0], [-1.0]]
    it.is_left(result)
    it.close()


@pytest.mark.parametrize(("index", "value"), [(0, 6.0), (1, 10.0)])
def test_a_case_runs_the_block_of_its_index(bare: Bare, index: int, value: float) -> None:
    it = Linked(bare, CASE)
    chosen, behind = it.run(scalar(index), np.array([5.0]))
    assert (it.client.fetch(chosen), it.client.fetch(behind)) == ([value], [-5.0])
    assert (it.seen, it.indices) == ([[value]], [index])


@pytest.mark.parametrize(("test", "values"), [(True, [-3.0, 6.0, 13.0]), (False, [9.0, 6.0, 7.0])])
def test_a_cond_runs_one_of_its_blocks_and_its_writes_are_seen_by_all(
    bare: Bare, test: bool, values: list[float]
) -> None:
    it = Linked(bare, COND, [[10.0]])
    for n in range(3):  # op by op, and compiled
        chosen, behind = it.run(scalar(test), np.array([3.0]))
        step = values[2] - 10.0
        found = [it.client.fetch(id_) for id_ in (chosen, behind, *it.captured)]
        assert found == [[values[0]], [values[1]], [10.0 + step * (n + 1)]]


@pytest.mark.parametrize("rounds", [0, 1, 3, 10])
def test_what_a_body_writes_to_its_state_nobody_else_sees(bare: Bare, rounds: int) -> None:
    it = Linked(bare, TIMES, [[100.0]])
    x = upload(it.client, np.array([1.0]))
    (result,) = it.run(x, n=(rounds,))
    total = 100.0 + sum((-1.0) ** n * 2.0 ** (n + 1) for n in range(rounds))
    assert [it.client.fetch(id_) for id_ in (result, x, *it.captured)] == [[(-2.0) ** rounds], [1.0], [total]]
    it.is_left(result)


@pytest.mark.parametrize("rounds", [0, -5])
def test_a_loop_without_rounds_gives_a_copy(bare: Bare, rounds: int) -> None:
    it = Linked(bare, TIMES, [[0.0]])
    x = upload(it.client, np.array([7.0]))
    (result,) = it.run(x, n=(rounds,))
    it.client.call("negative", result, out=result)
    assert (it.client.fetch(result), it.client.fetch(x)) == ([-7.0], [7.0])


def test_what_a_block_writes_of_others_the_others_see(bare: Bare) -> None:
    it, other = Linked(bare, COND, [[10.0]]), bare.client()
    it.client.publish("w", ids=it.captured)
    live, snapshot = other.lookup("w"), other.lookup("w", snapshot=True)
    it.run(scalar(True), np.array([3.0]))
    bare.drain()
    assert (other.fetch(live), other.fetch(snapshot)) == ([13.0], [10.0])


NESTED = """\
number $0 n: int
parameter %0 x: float64[1] on d0
%1: float64[1] = repeat_loop $0, %0                              # 2
block $0
    number $0: int
    parameter %0: float64[1] on d0
    %1: float64[1] = repeat_loop $0, %0                          # 3
    block
        number $0: float = 1.0
        parameter %0: float64[1] on d0
        %1: float64[1] = add %0, $0 on d0
        effect %1 {callback: 0}
        return %1
    end
    return %1
end
return %1"""


def test_loops_nest(bare: Bare) -> None:
    it = Linked(bare, NESTED)
    (result,) = it.run(np.array([0.0]), n=(4,))
    assert it.client.fetch(result) == [16.0]
    assert it.seen == [[float(n)] for n in range(1, 17)]
    it.is_left(result)


def test_ids_behind_a_run_are_usable(bare: Bare) -> None:
    it = Linked(bare, NESTED)
    for _ in range(2):
        (result,) = it.run(np.array([0.0]), n=(4,))
        behind = it.client.call("negative", result)
        assert it.client.fetch(behind) == [-16.0]
        it.client.release(result, behind)


DRAWS = """\
number $0: int = 7
number $1 n: int
parameter %0 x: float64[2] on d0
%1: float64[2] = repeat_loop $1, %0                              # 2
block $0
    number $0: int
    number $1: int = draw
    number $2: int = draw
    parameter %0: float64[2] on d0
    %1: float64[2] = uniform $0, $1 {shape: [2]} on d0
    %2: float64[2] = uniform $0, $2 {shape: [2]} on d0
    effect %1 {callback: 0}
    effect %2 {callback: 0}
    %3: float64[2] = negative %0 on d0
    return %3
end
return %1"""


def test_each_outermost_step_numbers_its_draws_anew() -> None:
    """The draws are parts of the step's random call."""
    start, stop = DRAWS.index("%1: float64[2] = repeat"), DRAWS.index("return %1", DRAWS.index("end"))
    again = DRAWS[start:stop].replace("%1: float64[2] = repeat", "%2: float64[2] = repeat", 1)
    it = Linked(Bare(), f"{DRAWS[:stop]}{again}return %1, %2")
    it.run(np.zeros(2), n=(3,))
    it.bare.drain()
    assert len(it.seen) == 12
    assert it.seen[:6] == it.seen[6:]


def test_draws_differ_from_round_to_round_and_are_the_same_in_each_run() -> None:
    found = []
    for inline in (True, False):
        it = Linked(Bare(inline=inline), DRAWS)
        for _ in range(2):
            it.run(np.zeros(2), n=(5,))
            it.bare.drain()
            found.append(it.seen)
            it.seen = []
    assert len({tuple(values) for values in found[0]}) == 10
    assert found == found[:1] * 4


# -- failures ----------------------------------------------------------------------------------------------------------

# Each condition is a value that fails: the factor of a matrix that is not positive.
FAILING = """\
%2: float64[1, 1] = reshape %0 {shape: [1, 1]} on d0
%3: float64[1, 1] = cholesky %2 on d0                            # 3
%4: float64[] = sum %3 on d0
"""
DECIDE = {
    "cond": ("cond %4, %0", 2),
    "case": ("case %5, %0", 2),
    "repeat_loop": ("repeat_loop %5, %0", 1),
}
BODY = """\
block %1
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    effect %0 {callback: 0}
    %2: float64[1] = add %1, %0 into %1 on d0
    %3: float64[1] = negative %0 on d0
    return %3
"""


def failing(op: str) -> str:
    head, blocks = DECIDE[op]
    return (
        "parameter %0 x: float64[1] on d0\ncaptured %1 w: float64[1] on d0\n"
        + FAILING
        + '%5: int64[] = astype %4 {dtype: "int64"} on d0\n'
        + f"%6: float64[1], %7: float64[1] = {head} into %1          # 2\n"
        + BODY * blocks
        + "end\n%8: float64[1] = square %0 on d0\n%9: float64[1] = negative %6 on d0\nreturn %6, %8, %9"
    )


@pytest.mark.parametrize("op", DECIDE)
def test_an_error_in_what_decides_runs_no_block_and_reaches_what_the_step_makes_and_writes_and_nothing_else(
    bare: Bare, op: str
) -> None:
    it = Linked(bare, failing(op), [[10.0]])
    result, other, behind = it.run(X)
    assert it.client.fetch(other) == [81.0]
    for id_ in (result, behind, *it.captured):
        error = it.error(id_)
        assert (error.op, error.location) == ("cholesky", INSIDE)
    assert it.seen == []
    assert len(bare.errors) == 1
    it.is_left(result, other, behind)
    it.close()


TEST_FAILS = """\
parameter %0 x: float64[1] on d0
captured %1 w: float64[1] on d0
%2: float64[1], %3: float64[1] = while_loop %0 into %1           # 2
block
    parameter %0: float64[1] on d0
    %1: float64[1, 1] = reshape %0 {shape: [1, 1]} on d0
    %2: float64[1, 1] = cholesky %1 on d0                        # 3
    %3: float64[] = sum %2 on d0
    return %3
block %1
    number $0: float = 1.0
    parameter %0: float64[1] on d0
    captured %1: float64[1] on d0
    effect %0 {callback: 0}
    %2: float64[1] = add %1, %0 into %1 on d0
    %3: float64[1] = subtract %0, $0 on d0
    return %3
end
return %2"""


@pytest.mark.parametrize(("start", "seen"), [(-1.0, []), (2.5, [[2.5], [1.5], [0.5]])])
def test_an_error_in_a_test_ends_its_loop(bare: Bare, start: float, seen: list[Any]) -> None:
    it = Linked(bare, TEST_FAILS, [[10.0]])
    (result,) = it.run(np.array([start]))
    for id_ in (result, *it.captured):
        error = it.error(id_)
        assert (error.op, error.location) == ("cholesky", INSIDE)
    assert it.seen == seen
    it.is_left(result)


@pytest.mark.parametrize("index", [-1, 2, 1 << 40])
def test_an_index_without_a_block_is_an_error_of_the_step(bare: Bare, index: int) -> None:
    it = Linked(bare, CASE)
    chosen, behind = it.run(scalar(index), np.array([5.0]))
    error = it.error(chosen)
    assert isinstance(error, KernelIndexError)
    assert (error.op, error.location) == ("case", STEP)
    assert f"the index {index} is out of range for 2 blocks" in str(error)
    assert it.client.fetch(behind) == [-5.0]
    assert it.seen == []
    it.is_left(chosen, behind)


@pytest.mark.parametrize(("most", "rounds"), [(0, 0), (2, 2), (4, 4)])
def test_a_loop_whose_test_is_still_true_at_its_bound_fails(bare: Bare, most: int, rounds: int) -> None:
    it = Linked(bare, UNTIL.replace("while_loop %0 ", f"while_loop %0 {{max_iterations: {most}}} "))
    (result,) = it.run(X)
    if most == 4:  # its test becomes false just in time
        assert it.client.fetch(result) == [-1.0]
    else:
        error = it.error(result)
        assert (type(error), error.op, error.location) == (KernelError, "while_loop", STEP)
        assert f"after max_iterations={most} rounds" in str(error)
    assert len(it.seen) == rounds
    it.is_left(result)


@pytest.mark.parametrize(("quota", "rounds"), [(20, 16), (19, 12), (5, 4), (3, 0)])
def test_a_quota_bounds_the_rounds_of_all_loops_of_a_run(bare: Bare, quota: int, rounds: int) -> None:
    """Rounds of the outer loop and of the inner one, four each. A loop whose count is too large does not begin."""
    it = Linked(bare, NESTED, iterations=quota)
    for _ in range(2):  # each run has the whole quota
        it.seen = []
        (result,) = it.run(np.array([0.0]), n=(4,))
        if quota == 20:
            assert it.client.fetch(result) == [16.0]
        else:
            assert f"at most {quota} rounds of loops (quota iterations)" in str(it.error(result))
        assert len(it.seen) == rounds
        it.client.release(result)
    it.is_left()


def test_an_error_in_an_inner_loop_is_the_state_of_the_outer_one(bare: Bare) -> None:
    it = Linked(bare, NESTED, iterations=6)
    (result,) = it.run(np.array([0.0]), n=(2,))
    assert it.client.fetch(result) == [4.0]
    it.seen = []
    (result,) = it.run(np.array([0.0]), n=(3,))
    assert "quota iterations" in str(it.error(result))
    assert it.seen == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("count", [101, (1 << 63) - 1])
def test_a_count_beyond_the_quota_is_refused_before_the_first_round(bare: Bare, count: int) -> None:
    it = Linked(bare, NESTED, iterations=100)
    (result,) = it.run(np.array([0.0]), n=(count,))
    assert "at most 100 rounds of loops (quota iterations)" in str(it.error(result))
    assert it.seen == []
    it.is_left(result)


POISONED = """\
parameter %0 x: float64[1, 1] on d0
captured %1 w: float64[1] on d0
%2: float64[1, 1] = while_loop %0                                # 2
block
    number $0: float = 100.0
    parameter %0: float64[1, 1] on d0
    %1: bool[1, 1] = less %0, $0 on d0
    %2: bool[] = any %1 on d0
    return %2
block
    number $0: float = 2.0
    parameter %0: float64[1, 1] on d0
    effect %0 {callback: 0}
    %1: float64[1, 1] = subtract %0, $0 on d0
    %2: float64[1, 1] = cholesky %1 on d0                        # 3
    %3: float64[1, 1] = subtract %1, %2 on d0
    return %3
end
%3: float64[1] = negative %1 on d0
return %2, %3"""


def test_a_state_that_is_poisoned_in_the_middle_ends_the_loop(bare: Bare) -> None:
    it = Linked(bare, POISONED, [[10.0]])
    result, other = it.run(np.array([[6.0]]))
    assert (it.error(result).op, it.error(result).location) == ("cholesky", INSIDE)
    assert it.client.fetch(other) == [-10.0]
    assert it.seen == [[[6.0]], [[2.0]]]
    assert len(bare.errors) == 1
    it.is_left(result, other)


def test_an_effect_that_raises_stops_its_chain_and_not_the_loop(bare: Bare) -> None:
    it = Linked(bare, UNTIL)

    def note(array: Any) -> None:
        it.seen.append(array.tolist())
        if array[0] > -6:
            raise ValueError("no more")

    it.note = note  # type: ignore[method-assign]
    (result,) = it.run(X)
    assert it.client.fetch(result) == [-1.0]
    assert it.seen == [[-7.0], [-5.0]]
    assert [type(error).__name__ for error in bare.errors] == ["KernelValueError"]


def test_a_routine_of_which_an_op_is_refused_runs_again_when_it_is_not() -> None:
    it = Linked(Bare(), UNTIL, operands=3)
    assert "quota (operands)" in str(it.error(it.run(X)[0]))
    it.client.session.limits = Bare().client().session.limits
    (result,) = it.run(X)
    assert it.client.fetch(result) == [-1.0]


@pytest.mark.parametrize("text", [CASE, COND])
def test_a_value_of_another_shape_than_the_program_s_decides_nothing(text: str) -> None:
    """The shape of a data-dependent input is not known when the run is admitted, so the mismatch shows later."""
    bare = Bare(inline=False)
    it = Linked(bare, text, [[0.0]] * text.count("\ncaptured"))
    dtype = "int64" if text is CASE else "bool"
    pending = upload(it.client, np.array([1, 0, 1], dtype)), it.client.new()
    number = it.client.signature("unique_values", [((3,), dtype)])
    it.client.send(Call(number, pending[:1], pending[1:], 0, 1))
    chosen, behind = it.run(pending[1], np.array([5.0]))
    error = it.error(chosen)
    assert isinstance(error, MetadataError)
    assert f"decides by {dtype}[]; this value is {dtype}[2]" in str(error)
    assert (error.location, bare.engine.fault) == (STEP, None)
    assert it.client.fetch(behind) in ([-5.0], [10.0])


# -- waits -------------------------------------------------------------------------------------------------------------


def begun(it: Linked, *inputs: Any, n: Sequence[Any] = ()) -> int:
    """A run whose kernels wait for the stream, with messages of its session behind it, in batches of their own."""
    (result,) = it.run(*inputs, n=n)
    for _ in range(2):
        it.client.call("add", it.uploads[-1], it.uploads[-1], out=it.uploads[-1])
    return result


def test_a_session_that_waits_for_a_test_holds_up_nobody_else() -> None:
    bare = Bare(inline=False)
    it, other = Linked(bare, UNTIL), bare.client()
    x, y = upload(it.client, X), other.upload([2.0])
    it.uploads.append(x)
    result = begun(it, x)
    before = set(it.client.session.live)
    assert it.client.session.waits()
    assert not it.seen
    for _ in range(3):
        y = other.call("add", y, y)
        live = list(other.session.live.values())
        assert [instruction.label for instruction in live] == ["add"], "it is admitted"
        stream = next(s for s in bare.device.streams if s.waiting and s.waiting[-1].author is other.session)
        stream.waiting.rotate(1)  # the other's kernel is first there
        stream.execute()
        stream.report(1)
        bare.schedule()
        assert not other.session.live
    assert set(it.client.session.live) == before
    assert other.fetch(y) == [16.0]
    assert it.client.fetch(x) == [-36.0]
    assert it.client.fetch(result) == [-1.0]
    assert it.seen == [[-7.0], [-5.0], [-3.0], [-1.0]]
    it.is_left(result)


def test_sessions_in_long_loops_take_turns_with_others() -> None:
    bare = Bare()
    loops, other = [Linked(bare, NESTED) for _ in range(2)], bare.client()
    y = other.upload([2.0])
    runs = [it.message(np.array([0.0]), n=(20,)) for it in loops]
    for it, message in zip(loops, runs, strict=True):
        bare.engine.receive(it.client.session, [encode_message(message)])
    passes = 0
    while all(it.client.session.in_run() for it in loops) or not passes:
        bare.engine.receive(other.session, [encode_message(Fetch(y, passes, 1, 0))])
        bare.engine.schedule()
        assert passes in other.answers or not passes, "the other is served in each pass"
        progress = [len(it.seen) for it in loops]
        assert max(progress) - min(progress) < engine_module.WINDOW
        passes += 1
    assert passes > 10
    bare.drain()
    assert [it.client.fetch(message.outputs[0]) for it, message in zip(loops, runs, strict=True)] == [[400.0]] * 2


def test_a_loop_that_asks_for_nothing_does_not_pile_up_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LIVE", 40)
    bare = Bare(inline=False)
    it = Linked(bare, TIMES, [[0.0]])
    result = begun(it, np.array([1.0]), n=(200,))
    session = it.client.session
    assert session.in_run()
    assert not session.waits()
    assert 40 < len(session.live) <= 40 + engine_module.WINDOW
    assert not bare.engine.schedule(), "there is nothing to do until a kernel ends"
    for _ in range(80):
        bare.step(next(stream for stream in bare.device.streams if stream.can_execute()))
    assert 40 < len(session.live) <= 40 + engine_module.WINDOW
    assert it.client.fetch(result) == [2.0**200]
    assert not session.in_run()
    it.close()


# -- ends in the middle ------------------------------------------------------------------------------------------------


def in_the_middle(how: str) -> Linked:
    """A run that waits for a test, or one that goes on for long."""
    bare = Bare(inline=how != "waits")
    if how == "waits":
        it = Linked(bare, COND, [[10.0]])
        x = upload(it.client, scalar(1.0))
        test = it.client.call("less", x, x, meta=((), "float64"))
        message = it.message(test, np.array([1.0]))
    else:
        it = Linked(bare, TIMES, [[10.0]])
        message = it.message(np.array([0.0]), n=(1 << 19,))
    bare.engine.receive(it.client.session, [encode_message(message)])
    for _ in range(5):
        bare.engine.schedule()
    it.outputs = tuple(message.outputs)  # type: ignore[attr-defined]
    assert it.client.session.in_run()
    assert it.client.session.waits() == (how == "waits")
    return it


@pytest.mark.parametrize("how", ["waits", "issues"])
def test_a_cancelled_run_ends_soon_and_the_next_one_runs(how: str) -> None:
    it = in_the_middle(how)
    engine, session = it.bare.engine, it.client.session
    engine.cancel(session)
    passes = 0
    while engine.schedule():
        passes += 1
    assert passes < 10
    assert not session.in_run()
    errors = [it.error(id_) for id_ in it.outputs]  # type: ignore[attr-defined]
    assert {type(error) for error in errors} == {CancelledError}
    assert it.seen == []
    it.client.send(Restart(session.generation))
    w = upload(it.client, np.array([10.0]))
    assert it.client.fetch(it.client.call("negative", w)) == [-10.0]
    assert not violations(engine)
    assert not it.bare.errors
    it.close()


@pytest.mark.parametrize("how", ["waits", "issues"])
def test_a_session_that_ends_in_the_middle_of_a_run_leaves_nothing(how: str) -> None:
    it = in_the_middle(how)
    it.close()


def test_a_new_run_after_a_cancelled_one_computes_what_it_should() -> None:
    bare = Bare(inline=False)
    it = Linked(bare, UNTIL)
    for _ in range(3):
        (result,) = it.run(X)
        bare.step(next(stream for stream in bare.device.streams if stream.can_execute()))
        bare.engine.cancel(it.client.session)
        bare.drain()
        it.client.send(Restart(it.client.session.generation))
        it.is_left(result)
        it.client.release(result)
    it.seen = []
    (result,) = it.run(X)
    assert it.client.fetch(result) == [-1.0]
    assert it.seen == [[-7.0], [-5.0], [-3.0], [-1.0]]
    it.close()


def test_a_routine_that_is_released_while_its_run_waits_runs_to_its_end() -> None:
    bare = Bare(inline=False)
    it = Linked(bare, UNTIL)
    plans = len(it.client.session.plans)
    (result,) = it.run(X)
    it.client.send(Release((it.routine,)))
    assert it.client.session.waits()
    assert it.client.fetch(result) == [-1.0]
    assert it.routine not in it.client.session.routines
    assert len(it.client.session.plans) == plans
    it.is_left(result)


def test_a_group_takes_no_control_flow(bare: Bare) -> None:
    it = Linked(bare, UNTIL)
    message = it.message(X)
    it.client.send(Atomic([encode_message(message)]))
    (result,) = message.outputs
    error = it.error(result)
    assert isinstance(error, MetadataError)
    assert "run the routine outside of the group" in str(error)
    assert it.seen == []
    it.is_left(result)


# -- devices -----------------------------------------------------------------------------------------------------------

MOVING = """\
parameter %0 x: float64[1] on d1
captured %1 w: float64[1] on d1
%2: float64[1], %3: float64[1] = while_loop %0 into %1           # 2
block
    number $0: float = 8.0
    parameter %0: float64[1] on d1
    %1: bool[1] = less %0, $0 on d1
    %2: bool[] = any %1 on d1
    return %2
block %1
    parameter %0: float64[1] on d1
    captured %1: float64[1] on d1
    %2: float64[1] = to_device %0 on d0
    effect %2 {callback: 0}
    %3: float64[1] = add %2, %2 on d0
    %4: float64[1] = to_device %3 on d1
    %5: float64[1] = add %1, %4 into %1 on d1
    return %4
end
%4: float64[1] = to_device %3 on d0
return %2, %4"""


def on_two_devices() -> Linked:
    return Linked(Parts("cpu:0", "sim:0"), MOVING, [[0.0]])


def test_a_loop_may_go_from_device_to_device() -> None:
    it = on_two_devices()
    for n in range(1, 4):
        state, total = it.run(np.array([1.0]))
        assert (it.client.fetch(state), it.client.fetch(total)) == ([8.0], [14.0 * n])
        it.is_left(state, total)
        it.client.release(state, total)
    it.close()


def test_a_device_that_is_lost_in_the_middle_ends_the_loop() -> None:
    it = on_two_devices()
    parts: Any = it.bare
    parts.backends["sim:0"].inject(Fault.of({"kind": "lost", "nth": 6}))
    state, total = it.run(np.array([1.0]))
    for id_ in (state, total, *it.captured):
        assert "lost" in str(it.error(id_))
    assert it.seen[:1] in ([], [[1.0]])
    assert len(it.seen) < 3
    x = upload(it.client, np.array([1.0]))
    assert it.client.fetch(it.client.call("negative", x)) == [-1.0]
    it.close()


def test_a_loop_for_which_there_is_no_memory_fails(bare: Bare) -> None:
    memory = bare.device.limit
    large = memory // 8 + 1
    it = Linked(
        bare,
        f"""\
parameter %0 x: float64[1] on d0
%1: float64[1] = repeat_loop $0, %0                              # 2
block
    parameter %0: float64[1] on d0
    %1: float64[{large}] = zeros {{shape: [{large}], dtype: "float64"}} on d0 # 3
    effect %1 {{callback: 0}}
    %2: float64[{large}] = add %1, %0 on d0
    %3: float64[] = sum %2 on d0
    %4: float64[1] = add %0, %3 on d0
    return %4
end
return %1""".replace("parameter %0 x", "number $0: int = 3\nparameter %0 x"),
    )
    (result,) = it.run(np.array([1.0]))
    error = it.error(result)
    assert (type(error).__name__, error.location) == ("DeviceMemoryError", INSIDE)
    assert it.seen == []
    it.is_left(result)
    it.close()


def test_a_value_that_was_cancelled_before_the_run_poisons_what_the_step_writes_although_others_hold_it() -> None:
    """In the same way a cancelled value poisons the result of an op that reads it."""
    bare = Bare(inline=False)
    it, other = Linked(bare, COND, [[10.0]]), bare.client()
    it.client.publish("w", ids=it.captured)
    live = other.lookup("w")
    x = upload(it.client, scalar(1.0))
    test = it.client.call("less", x, x, meta=((), "float64"))
    bare.engine.cancel(it.client.session)
    bare.drain()
    it.client.send(Restart(it.client.session.generation))
    assert isinstance(it.error(test), CancelledError)
    chosen, _ = it.run(test, np.array([1.0]))
    assert isinstance(it.error(chosen), CancelledError)
    with pytest.raises(CancelledError):
        other.fetch(live)


def test_a_run_that_is_cancelled_leaves_what_others_hold() -> None:
    bare = Bare(inline=False)
    it, other = Linked(bare, COND, [[10.0]]), bare.client()
    it.client.publish("w", ids=it.captured)
    live = other.lookup("w")
    x = upload(it.client, scalar(1.0))
    (chosen, _) = it.run(it.client.call("less", x, x, meta=((), "float64")), np.array([1.0]))
    assert it.client.session.waits()
    bare.engine.cancel(it.client.session)
    assert other.fetch(live) == [10.0]
    assert isinstance(it.error(chosen), CancelledError)
