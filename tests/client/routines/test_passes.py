"""Runs are those of a program after its passes: effects of the passes that callers can see, and those they cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.interpreter.errors import MetadataError, MetadataTypeError, TensordError
from tensord.interpreter.programs.passes.table import PASS_NAMES
from tensord.interpreter.programs.program import Program

from ...each_case import each_case

DEVICES = ["cpu:0", "sim:0"]
RUNS = 3  # op by op, compiled, and once more
HEAD = """\
tensord program 1
parameter %0 p: float64[2] on d0
parameter %1 q: float64[2] on d0
"""


def program(text: str) -> Program:
    return td.Program.parse(HEAD + text)


SHARED = program("""\
%2: float64[2] = multiply %1, %1 on d0
%3: float64[2] = add %0, %1 into %0 on d0
%4: float64[2] = multiply %1, %1 on d0
%5: float64[2] = subtract %4, %2 on d0
return %5
""")
FOLDED = program("""\
%2: float64[2] = to_device %1 on d0
%3: float64[2] = add %0, %1 into %0 on d0
%4: float64[2] = add %2, %2 on d0
return %4
""")
EARLY = program("""\
%2: float64[2] = add %0, %1 into %0 on d0
%3: float64[2] = to_device %1 on d1
%4: float64[2] = add %3, %3 on d1
return %4
""")
IN_PIECES = program("""\
%2: float64[2] = multiply %1, %1 on d0
%3: float64[2] = add %0, %1 into %0 on d0
print "between"
%4: float64[2] = multiply %1, %1 on d0
%5: float64[2] = subtract %4, %2 on d0
return %5
""")
BOTH_IN_A_BLOCK = program("""\
%2: float64[] = sum %1 on d0
%3: bool[] = isfinite %2 on d0
%4: float64[2], %5: float64[2] = cond %3, %0, %1 into %0
block
    parameter %0: float64[2] on d0
    parameter %1: float64[2] on d0
    %2: float64[2] = multiply %1, %1 on d0
    %3: float64[2] = add %0, %1 into %0 on d0
    %4: float64[2] = multiply %1, %1 on d0
    %5: float64[2] = subtract %4, %2 on d0
    return %5
block
    parameter %0: float64[2] on d0
    parameter %1: float64[2] on d0
    %2: float64[2] = add %1, %1 on d0
    return %2
end
return %4
""")
ONE_TENSOR_TWICE = td.Program.parse("""\
tensord program 1
parameter %0 p: float64[2] on d0
parameter %1 q: float64[2] on d0
%2: float64[] = sum %1 on d0
%3: bool[] = isfinite %2 on d0
%4: float64[2], %5: float64[2] = cond %3, %0 into %0
block %0
    parameter %0: float64[2] on d0
    captured %1: float64[2] on d0
    %2: float64[2] = multiply %1, %1 on d0
    %3: float64[2] = add %0, %1 into %0 on d0
    %4: float64[2] = multiply %1, %1 on d0
    %5: float64[2] = subtract %4, %2 on d0
    return %5
block
    parameter %0: float64[2] on d0
    %1: float64[2] = add %0, %0 on d0
    return %1
end
return %4
""")
WRITERS = {
    "shared": SHARED,
    "folded": FOLDED,
    "early": EARLY,
    "in pieces": IN_PIECES,
    "in a block": BOTH_IN_A_BLOCK,
    "twice in a block": ONE_TENSOR_TWICE,
}


@pytest.fixture(params=["vm", "serial"])
def either(request: pytest.FixtureRequest) -> Iterator[Session]:
    with td.connect("local", devices=DEVICES, engine=request.param) as session:
        yield session


@pytest.fixture
def session() -> Iterator[Session]:
    with td.connect("local", devices=DEVICES) as found:
        yield found


def apart(session: Session) -> tuple[Any, Any]:
    return session.asarray([1.0, 2.0]), session.asarray([3.0, 4.0])


def one_tensor(session: Session) -> tuple[Any, Any]:
    x = session.asarray([1.0, 2.0])
    return x, x


def looked_up_twice(session: Session) -> tuple[Any, Any]:
    session.publish("shared", session.asarray([1.0, 2.0]))
    return session.lookup("shared"), session.lookup("shared")


def of_one_memory(session: Session) -> tuple[Any, Any]:
    whole = session.asarray([1.0, 2.0, 3.0])
    return whole[:2], whole[1:]


def with_its_snapshot(session: Session) -> tuple[Any, Any]:
    x = session.asarray([1.0, 2.0])
    session.publish("x", x)
    return x, session.lookup("x", snapshot=True)


class TestTwoNamesOfOneTensor:
    """A written parameter that is the same tensor as another: passes would take them for two tensors."""

    @each_case("given", [apart, one_tensor, looked_up_twice, of_one_memory, with_its_snapshot])
    @each_case("name", WRITERS)
    def test_is_written_under_both(self, name: str, given: Callable[[Session], tuple[Any, Any]]) -> None:
        found = []
        for engine in ("vm", "serial"):
            with td.connect("local", devices=DEVICES, engine=engine) as session:
                f, (p, q) = session.link(WRITERS[name], devices={"d0": "cpu:0"}), given(session)
                results = [f(p, q)[0].tolist() for _ in range(RUNS)]
                found.append((results, p.tolist(), q.tolist()))
        assert found[0] == found[1]

    def test_may_be_a_captured_one(self, either: Session) -> None:
        either_text = str(SHARED).replace("parameter %1 q", "captured %1 q")
        p = either.asarray([1.0, 2.0])
        f = either.link(td.Program.parse(either_text), tensors={"q": p})
        assert [f(p)[0].tolist() for _ in range(RUNS)] == [[3.0, 12.0], [12.0, 48.0], [48.0, 192.0]]

    def test_counts_in_the_report(self, session: Session) -> None:
        f, (p, q) = session.link(IN_PIECES), apart(session)
        for _ in range(RUNS):
            f(p, q)
        assert f.report()["without_passes"] == 0
        for _ in range(2):
            f(p, p)
        assert f.report()["without_passes"] == 2
        assert "2 runs without passes" in str(f.report())

    def test_does_not_matter_where_nothing_is_written(self, session: Session) -> None:
        text = "%2: float64[2] = add %0, %1 on d0\n%3: float64[2] = add %0, %1 on d0\nprint %2, %3\nreturn\n"
        f, x = session.link(program(text)), session.asarray([1.0, 2.0])
        for _ in range(RUNS):
            f(x, x)
        assert f.report()["without_passes"] == 0


class TestWhatACallerHas:
    def test_results_and_parameters_keep_their_order_and_number(self, either: Session) -> None:
        text = (
            "%2: float64[2] = negative %1 on d0\n%3: float64[2] = add %1, %1 on d0\n"
            "%4: float64[2] = negative %1 on d0\n%5: float64[2] = add %1, %1 on d0\nreturn %5, %2, %3, %4\n"
        )
        f, (p, q) = either.link(program(text)), apart(either)
        for _ in range(RUNS):
            assert [y.tolist() for y in f(p, q)] == [[6, 8], [-3, -4], [6, 8], [-3, -4]]
        first, *others = f(p, q)
        first += 1
        assert [y.tolist() for y in others] == [[-3, -4], [6, 8], [-3, -4]]

    def test_a_published_routine_has_all_of_its_parameters(self, session: Session) -> None:
        @session.routine
        def f(x: Any, unused: Any, n: float) -> Any:
            return (x + unused) * 0 + x, x * 2 + x * 2 * n - (x * 2)

        x, y = apart(session)
        expected = [each.tolist() for each in f(x, y, 2.0)]
        session.publish("f", f.link(x, y, 2.0))
        found = session.lookup("f")
        for _ in range(RUNS):
            assert [each.tolist() for each in found(x, y, 2.0)] == expected
        assert found.program.digest == f.program(x, y, 2.0).digest == found.report()["program"]
        assert [row["pass"] for row in found.report()["passes"] if row["changed"]][:1] == ["common_subexpressions"]

    def test_an_int_is_checked_though_nobody_needs_its_op(self, either: Session) -> None:
        text = "tensord program 1\nnumber $0 n: int\nparameter %0: uint8[2] on d0\n"
        f = either.link(td.Program.parse(f"{text}%1: uint8[2] = add %0, $0 on d0\nreturn\n"))
        x = either.asarray(np.array([1, 2], np.uint8))
        for _ in range(RUNS):
            with pytest.raises(MetadataError, match="300"):
                f(x, n=300)

    def test_errors_are_of_the_lines_that_they_arise_at(self, either: Session) -> None:
        def twice(x: Any) -> Any:
            first = either.xp.linalg.inv(x)
            second = either.xp.linalg.inv(x)
            return first + 1, first + 1, second + 1

        f, x = either.routine(twice), either.asarray(np.zeros((2, 2)))
        for _ in range(RUNS):
            lines = []
            for y in f(x):
                with pytest.raises(TensordError) as caught:
                    y.wait()
                lines.append(str(caught.value.location).partition(" ")[0])
            assert lines[0] == lines[1] != lines[2]

    def test_what_depends_on_a_failed_argument_has_its_error(self, either: Session) -> None:
        failed = either.xp.linalg.inv(either.asarray(np.zeros((2, 2))))
        f = either.routine(lambda x, y: (x + y, x + y - 1, y * 2, y * 2 + 1))
        good = either.asarray(np.ones((2, 2)))
        for _ in range(RUNS):
            f(good, good)
        for _ in range(2):
            *bad, fine, more = f(failed, good)
            for each in bad:
                with pytest.raises(TensordError, match=r"[Ss]ingular"):
                    each.wait()
            assert (fine.tolist(), more.tolist()) == ([[2, 2], [2, 2]], [[3, 3], [3, 3]])
        assert either.sync() == 1  # the op that failed by itself

    def test_a_strict_session_runs_programs_as_they_are(self) -> None:
        with td.connect("local", devices=DEVICES, strict=True) as session:

            def f(x: Any) -> Any:
                first = x + 1
                second = x + 1
                return first * 2, second * 2, session.call("add", (x, x))[0]

            run, x = session.routine(f), session.asarray(1.0)
            for _ in range(RUNS):
                assert [y.item() for y in run(x)] == [4.0, 4.0, 2.0]
            (piece,) = run.report()["pieces"]
            assert piece["calls"] == 5
            assert not [row for row in run.report()["passes"] if row["of"] == "ops"]


class TestMoves:
    @pytest.mark.parametrize(("memory", "first"), [(1 << 20, 3), (3 << 10, 1)])
    def test_come_first_if_the_device_has_room_for_them(self, memory: int, first: int) -> None:
        devices = ["cpu:0", {"name": "sim:0", "memory": memory}]
        with td.connect("local", devices=devices) as session:  # type: ignore[arg-type]
            xs = [session.asarray(np.full(128, float(n))) for n in range(3)]
            f = session.routine(lambda xs: [x.to_device("sim:0").sum() for x in xs])
            for _ in range(RUNS):
                assert [y.item() for y in f(xs)] == [0.0, 128.0, 256.0]
            ops = [piece["op"] for piece in f.report()["pieces"]]
            assert len(list(takewhile("to_device".__eq__, ops))) == first


class TestLoops:
    def test_a_body_is_run_after_its_passes(self, either: Session) -> None:
        def body(x: Any, n: Any) -> Any:
            waste = x * 3
            del waste
            return (x + 1) * (x + 1) / (x + 2), n + 1

        def f(x: Any) -> Any:
            return either.while_loop(lambda _x, n: n < 4, body, x, either.asarray(0))[0]

        def by_hand(x: float) -> float:
            for _ in range(4):
                x = (x + 1) * (x + 1) / (x + 2)
            return x

        run, x = either.routine(f), either.asarray(1.0)
        for _ in range(RUNS):
            assert run(x).item() == by_hand(1.0)
        rows = {row["pass"]: (row["before"], row["after"]) for row in run.report()["passes"]}
        assert not rows or (rows["dead_results"], rows["common_subexpressions"]) == ((10, 9), (8, 7))


class TestTheirNames:
    def test_are_checked_where_they_are_given(self, session: Session) -> None:
        with pytest.raises(MetadataError, match=r"unknown pass 'fusoin'; passes: dead_results, .*memory_plan"):
            session.routine(lambda x: x, passes=["fusion", "fusoin"])
        with pytest.raises(MetadataError, match="unknown pass 'nothing'"):
            session.link(SHARED, passes="nothing")
        with pytest.raises(MetadataTypeError, match="names of passes, not int"):
            td.routine(passes=3)(lambda x: x)  # type: ignore[call-overload]

    @each_case("passes", [[], "none", *PASS_NAMES, ["fusion", "numbers"], "all"])
    def test_switch_them_one_by_one_and_no_bit_changes(self, session: Session, passes: Any) -> None:
        def f(x: Any, w: Any) -> Any:
            y = ((x * 2 + 1) * x).T @ (x * 2 + 1)
            unused = y + 1
            del unused
            w -= y.sum() / (3 * 2.0)
            return session.xp.exp(y - y.max()) + y.max(), x.to_device("cpu:0") + 1

        values = np.random.default_rng(3).standard_normal((300, 300)).astype("float32")
        captured, found = session.routine(f, passes=passes), []
        for called in (captured, f):
            x, w = session.asarray(values), session.asarray(values[0])
            for _ in range(RUNS):
                results = [each.numpy().tobytes() for each in called(x, w)]
            found.append([*results, w.numpy().tobytes()])
        assert found[0] == found[1]
        chosen = {"all": PASS_NAMES, "none": ()}.get(passes, (passes,)) if isinstance(passes, str) else passes
        assert {row["pass"] for row in captured.report()["passes"]} == set(chosen)

    def test_belong_to_the_routine_and_not_to_the_program(self, session: Session) -> None:
        """Two routines of one program with different passes: code that is compiled for one is not run for the other."""
        (p, q), found = apart(session), []
        for passes in ("none", "all", "common_subexpressions"):
            f = session.link(SHARED, passes=passes)
            for _ in range(RUNS):
                f(p, q)
            (piece,) = f.report()["pieces"]
            found.append(piece["calls"])
        assert found == [4, 3, 3]


def test_the_report_says_what_each_pass_has_done(session: Session) -> None:
    def f(x: Any) -> Any:
        unused = x / 3
        del unused
        return ((x * 2 + 1) * x + (x * 2 + 1)).sum()

    routine, x = session.routine(f), session.asarray(np.ones((512, 512)))
    for _ in range(RUNS):
        routine(x)
    report = routine.report()
    rows = {row["pass"]: (row["before"], row["after"], row["of"]) for row in report["passes"]}
    assert list(rows) == list(PASS_NAMES)
    assert report["ops"] == 8
    assert rows["dead_results"] == (8, 7, "ops")
    assert rows["common_subexpressions"] == (7, 5, "ops")
    assert rows["fusion"] == (5, 2, "calls")
    assert "  dead_results: 8 to 7 ops\n  common_subexpressions: 7 to 5 ops\n  fusion: 5 to 2 calls\n" in str(report)
    assert len(report["values"]) == len(report["metas"]) == 6
    without = session.routine(f, passes=[name for name in PASS_NAMES if name != "fusion"])
    for _ in range(RUNS):
        without(x)
    assert [piece["calls"] for piece in without.report()["pieces"]] == [5]
