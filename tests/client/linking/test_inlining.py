"""Linked routines that are called while a routine is captured: their steps become a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.interpreter.errors import MetadataError, MetadataTypeError

from ...each_case import each_case
from ..routines.compared import compared

STEP = td.Program.parse("""\
tensord program 1
number $0 rate: float
number $1: float = neg $0
parameter %0 x: float64[2] on d0
parameter %1 y: float64[2] on d0
captured %2 w: float64[2] on d0
%3: float64[2] = multiply %0, $1 on d0
%4: float64[2] = add %1, %3 into %1 on d0
%5: float64[2] = add %2, %4 into %2 on d0
%6: float64[2] = reshape %5 {shape: [2]} on d0
%7: float64[] = sum %6 on d0
return %3, %7""")

FAILS = td.Program.parse("""\
tensord program 1
parameter %0 x: float64[1, 1] on d0
%1: float64[1, 1] = cholesky %0 on d0                           # model.py:7
return %1""")

TELLS = td.Program.parse("""\
tensord program 1
number $0: int = 2
parameter %0 x: float64[] on d0
print "x", %0                                                   # model.py:1
effect %0 {callback: 0}                                         # model.py:2
%1: float64[] = repeat_loop $0, %0                              # model.py:3
block
    number $0: float = 1.0
    parameter %0: float64[] on d0
    effect %0 {callback: 1}
    %1: float64[] = add %0, $0 on d0
    return %1
end
return %1""")


DRAWN_COUNT = """\
%1: float64[] = repeat_loop $1, %0
block
    parameter %0: float64[] on d0
    %1: float64[] = negative %0 on d0
    return %1
end"""

NO_PART = """\
%1: float64[] = repeat_loop $2, %0
block $0, $1
    number $0: int
    number $1: int
    parameter %0: float64[] on d0
    %1: float64[] = uniform $0, $1 {shape: []} on d0
    return %1
end"""


@pytest.fixture
def w(session: Session) -> Any:
    return session.asarray([1.0, 1.0])


@pytest.fixture
def f(session: Session, w: Any) -> Any:
    return session.link(STEP, tensors={"w": w}, name="step")


def values(found: Any) -> Any:
    return [each.tolist() for each in found]


class TestAProgramInARoutine:
    def test_computes_and_writes_what_it_would_alone(self, session: Session, w: Any, f: Any) -> None:
        def function(x: Any, y: Any, rate: float) -> Any:
            step, total = f(x, y, rate=rate * 2)
            return step + y, total, f(y, y, rate=1.0)[1]

        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        routine = session.routine(function)
        session.call("multiply", [session.asarray([1.0, 1.0]), 1.0], out=[w])
        found = [values((*routine(x, y, rate), y, w)) for rate in (1.0, 0.5)]
        session.call("multiply", [session.asarray([1.0, 1.0]), 1.0], out=[w])
        session.call("multiply", [session.asarray([1.0, 1.0]), 0.0], out=[y])
        assert found == [values((*function(x, y, rate), y, w)) for rate in (1.0, 0.5)]
        assert routine.captures == 1

    def test_is_a_part_of_the_program_with_the_names_of_what_it_captures(self, session: Session, f: Any) -> None:
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        program = session.routine(lambda x, y: f(x, y, rate=2.0)[0]).program(x, y)
        assert [step.op for step in program.steps] == [step.op for step in STEP.steps]
        assert [source.name for source in program.captured] == ["w"]
        assert td.Program.parse(str(program)) == program

    def test_gives_tensors_of_one_name_names_of_their_own(self, session: Session) -> None:
        w = [session.asarray([n, n]) for n in (1.0, 10.0, 100.0)]
        f, g, h = [session.link(STEP, tensors={"w": each}) for each in w]
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        program = session.routine(lambda x, y: [each(x, y, rate=0.0)[1] for each in (f, g, f, h)][3]).program(x, y)
        names = [source.name for source in program.captured]
        assert names == ["w", "w.2", "w.3"]
        again = session.link(td.Program.parse(str(program)), tensors=dict(zip(names, w, strict=True)))
        assert again(x, y)[0].item() == 200.0

    def test_may_get_one_tensor_twice_and_one_that_it_captures(self, session: Session, w: Any, f: Any) -> None:
        session.routine(lambda x: f(x, x, rate=-1.0))(x := session.asarray([1.0, 2.0]))
        assert (x.tolist(), w.tolist()) == ([2.0, 4.0], [3.0, 5.0])
        session.routine(lambda: f(w, w, rate=-1.0))()
        assert w.tolist() == [12.0, 20.0]

    def test_may_be_given_tensors_that_the_routine_captures(self, session: Session, f: Any) -> None:
        y = session.asarray([0.0, 0.0])
        g = session.routine(lambda x: f(x + 1, y, rate=1.0)[0])
        assert [g(session.asarray([1.0, 2.0])).tolist() for _ in range(2)] == [[-2.0, -3.0]] * 2
        assert y.tolist() == [-4.0, -6.0]

    def test_fails_at_the_lines_of_its_steps(self, session: Session) -> None:
        fails = session.link(FAILS)
        g = session.routine(lambda x: (fails(x)[0], x + 1))
        for _ in range(3):
            root, other = g(session.asarray([[-1.0]]))
            with pytest.raises(td.KernelError) as caught:
                root.numpy()
            assert caught.value.location == "model.py:7"
            assert other.tolist() == [[0.0]]

    def test_without_lines_fails_where_it_is_called(self, session: Session) -> None:
        fails = session.link(td.Program.parse(str(FAILS).partition("#")[0] + "\nreturn %1"))
        root = session.routine(lambda x: fails(x)[0])(session.asarray([[-1.0]]))
        with pytest.raises(td.KernelError) as caught:
            root.numpy()
        assert "test_inlining.py" in (caught.value.location or "")

    def test_prints_and_calls_back_at_each_run_on_its_chains(
        self, session: Session, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seen: list[Any] = []
        tells = session.link(TELLS, callbacks=[lambda x: seen.append(x.item()), lambda x: seen.append(-x.item())])

        @session.routine
        def g(x: Any) -> Any:
            session.print("before")
            y = tells(x)[0]
            session.effect(lambda y: seen.append(f"{y}"), y)
            return y

        for n in (1.0, 5.0):
            assert g(session.asarray(n)).item() == n + 2
        session.check_chain()
        session.sync()
        assert seen == [1.0, -1.0, -2.0, "3.0", 5.0, -5.0, -6.0, "7.0"]
        assert capsys.readouterr().out == "before\nx 1.0\nbefore\nx 5.0\n"

    def test_is_part_of_the_functions_of_control_flow(self, session: Session, w: Any, f: Any) -> None:
        def function(x: Any, n: float) -> Any:
            def body(y: Any) -> Any:
                step, total = f(x, y, rate=n * 2)
                return session.cond(total > 0, lambda: f(y, y, rate=n)[0] + step, lambda: step * 2.0)

            return session.repeat(3, body, x)

        routine = session.routine(function)
        found = [routine(session.asarray([1.0, -2.0]), n).tolist() for n in (0.5, 0.25)]
        after = w.tolist()
        session.call("multiply", [session.asarray([1.0, 1.0]), 1.0], out=[w])
        wanted = []
        for n in (0.5, 0.25):
            x = y = session.asarray([1.0, -2.0])
            y = y.copy()
            for _ in range(3):
                step, total = f(x, y, rate=n * 2)
                y = f(y, y, rate=n)[0] + step if total.item() > 0 else step * 2.0
            wanted.append(y.tolist())
        assert (found, after) == (wanted, w.tolist())
        assert routine.captures == 1

    def test_takes_numbers_of_the_routine_and_computes_with_them_at_each_run(self, session: Session, f: Any) -> None:
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        g = session.routine(lambda x, y, n: f(x, y, rate=n)[0])
        assert [g(x, y, n).tolist() for n in (1, 2, 3)] == [[-1.0, -2.0], [-2.0, -4.0], [-3.0, -6.0]]
        assert g.captures == 1
        assert g(x, y, 0.5).tolist() == [-0.5, -1.0]

    def test_checks_its_integers_at_each_run(self, session: Session) -> None:
        text = """\
tensord program 1
number $0 n: int
number $1: int = add $0, $0
parameter %0 x: int8[1] on d0
%1: int8[1] = add %0, $1 on d0
return %1"""
        small = session.link(td.Program.parse(text))
        g = session.routine(lambda x, n: small(x, n=n)[0])
        x = session.asarray(np.zeros(1, np.int8))
        assert [g(x, n).tolist() for n in (1, 5, 63)] == [[2], [10], [126]]
        for n in (64, 1000):
            with pytest.raises(OverflowError):
                g(x, n)
            with pytest.raises(OverflowError):
                session.routine(lambda x, n: small(x, n=n)[0])(x, n)
        assert g(x, 2).tolist() == [4]

    def test_draws_what_it_would_draw_alone(self, session: Session) -> None:
        noise = session.routine(lambda x: (x + session.random.uniform((2,)), session.random.normal((2,))))
        linked = noise.link(session.asarray([0.0, 0.0]))

        def function(x: Any) -> Any:
            first = session.random.uniform((2,))
            return first, linked(x), session.random.uniform((2,))

        compared(session, function, (np.zeros(2),), (np.ones(2),))

    def test_draws_anew_in_each_round_of_a_loop_as_its_function_does(self, session: Session) -> None:
        noise = session.routine(lambda x: x + session.random.uniform((2,)) * session.random.normal((2,)))
        linked = noise.link(session.asarray([0.0, 0.0]))
        found = []
        for function in (noise, linked):
            session.random.seed(3)
            g = session.routine(lambda x, function=function: session.repeat(3, function, x))
            found.append([g(session.asarray([0.0, 0.0])).tolist() for _ in range(2)])
        assert found[0] == found[1]

    @each_case("around", ["repeat", "cond", "while", "nested"])
    def test_with_loops_that_draw_draws_in_control_flow_as_its_function_does(
        self, session: Session, around: str
    ) -> None:
        def walk(x: Any) -> Any:
            x = x + session.random.uniform((2,))
            x = session.repeat(2, lambda x: x + session.random.permutation(x), x)
            x = session.cond(x.sum() > 0, lambda x: session.repeat(2, noisy, x), lambda x: x, x)
            return x * session.random.uniform((2,))

        def noisy(x: Any) -> Any:
            return x + session.random.normal((2,))

        def calls(walk: Any) -> Callable[[Any], Any]:
            flows: dict[str, Callable[[Any], Any]] = {
                "repeat": lambda x: session.repeat(2, lambda x: walk(walk(x)), x),
                "cond": lambda x: session.cond(x.sum() > 0, walk, lambda x: x, x),
                "while": lambda x: session.while_loop(lambda x: walk(x).sum() < 9, lambda x: walk(x) + 1, x),
                "nested": lambda x: session.repeat(2, lambda x: session.repeat(2, walk, noisy(x)), x),
            }
            return flows[around]

        x = session.asarray([1.0, 2.0])
        linked = session.routine(walk).link(x)
        found = []
        for function in (calls(walk), calls(linked), session.routine(calls(linked))):
            session.random.seed(3)
            found.append([*[function(x).tolist() for _ in range(2)], session.random.uniform().item()])
        assert found[1:] == found[:1] * 2

    def test_with_loops_that_draw_may_be_a_part_of_another_that_is_called_in_a_loop(self, session: Session) -> None:
        def noisy(x: Any) -> Any:
            return session.repeat(2, lambda x: x + session.random.normal((2,)), x)

        x = session.asarray([1.0, 2.0])
        inner = session.routine(noisy).link(x)
        outer = session.routine(lambda x: session.repeat(2, inner, noisy(x))).link(x)
        found = []
        for function in (outer, lambda x: session.repeat(2, noisy, noisy(x))):
            session.random.seed(3)
            found.append(session.repeat(2, function, x).tolist())
        assert found[0] == found[1]

    def test_follows_the_devices_that_it_is_linked_to(self, make_session: Callable[..., Session]) -> None:
        session = make_session(devices=["cpu:0", "sim:0"])
        w = session.asarray([1.0, 1.0], device="sim:0")
        f = session.link(STEP, devices={"d0": "sim:0"}, tensors={"w": w})
        g = session.routine(lambda x, y: f(x, y, rate=1.0))
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0], device="sim:0")
        step, total = g(x, y)
        assert (step.device, total.device, step.tolist(), total.item()) == ("sim:0", "sim:0", [-1.0, -2.0], -1.0)

    def test_runs_in_sessions_that_find_periods(self, make_session: Callable[..., Session]) -> None:
        session = make_session(routines="auto")
        w = session.asarray([1.0, 1.0])
        f = session.link(STEP, tensors={"w": w})
        g = session.routine(lambda x, y: f(x, y, rate=1.0)[0])
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        for n in range(1, 30):
            z = x
            for _ in range(10):
                z = z * 1.0
            assert g(z, y).tolist() == [-1.0, -2.0]
            assert y.tolist() == [-1.0 * n, -2.0 * n]

    def test_is_called_by_a_routine_that_is_eager_and_by_its_likes(self, session: Session, w: Any, f: Any) -> None:
        eager = session.routine(lambda x, y: f(x, y, rate=1.0)[0], eager=True)
        x, y = session.asarray([1.0, 2.0]), session.asarray([0.0, 0.0])
        assert eager(x, y).tolist() == [-1.0, -2.0]
        outer = session.routine(lambda x, y: eager(x, y) * 2)
        assert outer(x, y).tolist() == [-2.0, -4.0]
        inner = outer.link(x, y)
        assert session.routine(lambda x, y: inner(x, y) * 2)(x, y).tolist() == [-4.0, -8.0]
        assert w.tolist() == [1.0 - 1 - 2 - 3, 1.0 - 2 - 4 - 6]


class TestARoutineOfAnotherSession:
    @pytest.fixture
    def pair(self, make_session: Callable[..., Session], request: pytest.FixtureRequest) -> tuple[Session, Session]:
        address = f"local:{request.node.name}"
        return make_session(address), make_session(address)

    def test_is_called_as_its_function_is_nested_and_with_what_it_captures(self, pair: tuple[Session, Session]) -> None:
        trainer, server = pair
        w = trainer.asarray([1.0, 2.0])

        @trainer.routine
        def forward(batch: Any, scale: float, kind: str) -> Any:
            w.__iadd__(1.0)
            return {"y": batch["x"] * w * scale, "scale": scale * 2, "x": batch["x"], "w": w, "kind": kind}

        trainer.publish("forward", forward.link({"x": w.copy()}, 1.0, "plain"))
        found = server.lookup("forward")

        @server.routine
        def serve(x: Any, scale: float) -> Any:
            made = found({"x": x}, scale, "plain")
            return made["y"] + made["x"], made["scale"], made["w"] * 1.0

        x = server.asarray([1.0, 1.0])
        y, scale, now = serve(x, 2.0)
        assert (y.tolist(), scale, now.tolist(), w.tolist()) == ([5.0, 7.0], 4.0, [2.0, 3.0], [2.0, 3.0])
        y, scale, _ = serve(x, 3)
        assert (y.tolist(), scale, w.tolist()) == ([10.0, 13.0], 6.0, [3.0, 4.0])

    def test_is_refused_where_it_belongs_to_the_other(self, pair: tuple[Session, Session]) -> None:
        trainer, server = pair
        f = trainer.link(FAILS, name="root")
        for given in (None, trainer.asarray([[1.0]])):
            with pytest.raises(td.CaptureError, match=r"root belongs to another session .* look it up there") as caught:
                server.routine(lambda x, given=given: f(x if given is None else given))(server.asarray([[1.0]]))
            assert "test_inlining.py" in (caught.value.location or "")


class TestWhatCannotBe:
    def test_a_tensor_that_has_gone_with_its_context(self, session: Session) -> None:
        with session.context() as c:
            c["w"] = session.asarray([1.0, 1.0])
            f = session.link(STEP, name="step")
        x = session.asarray([1.0, 2.0])
        with pytest.raises(td.CaptureError, match=r"step captures a tensor that is gone .*context.* link anew"):
            session.routine(lambda x: f(x, x, rate=1.0))(x)
        with pytest.raises(td.ProtocolError, match="context"):
            f(x, x, rate=1.0)
        assert x.tolist() == [1.0, 2.0]

    def test_control_flow_on_a_tensor_of_another_device(self, make_session: Callable[..., Session]) -> None:
        session = make_session(devices=["cpu:0", "sim:0"])
        tells = session.link(TELLS, callbacks=[print, print], name="tells")
        x = session.asarray(1.0, device="sim:0")
        with pytest.raises(
            td.CaptureError, match=r"tells takes x on cpu:0 into its repeat_loop.*move it \(to_device\)"
        ):
            session.routine(lambda x: tells(x)[0])(x)
        assert session.routine(lambda x: tells(x.to_device("cpu:0"))[0])(x).item() == 3.0

    @each_case(
        "text",
        [
            DRAWN_COUNT,
            NO_PART,
            "%1: float64[] = uniform $0, $3 {shape: []} on d0",
            "%1: float64[] = multiply %0, $1 on d0",
        ],
        ids=["count", "no part", "arithmetic", "factor"],
    )
    def test_numbers_of_random_calls_in_a_loop_that_would_be_the_same_each_time(
        self, session: Session, text: str
    ) -> None:
        numbers = "number $0: int = seed\nnumber $1: int = draw\nnumber $2: int = 2\nnumber $3: int = add $1, $2"
        numbers = numbers if "$3" in text else numbers.rpartition("\n")[0]
        program = f"tensord program 1\n{numbers}\nparameter %0 x: float64[] on d0\n{text}\nreturn %1"
        draws = session.link(td.Program.parse(program))
        x = session.asarray(1.0)
        assert draws(x)[0].shape == ()
        with pytest.raises(td.CaptureError, match=r"number of a random call .* call it outside") as caught:
            session.repeat(2, lambda x: draws(x)[0], x)
        assert "test_inlining.py" in (caught.value.location or "")

    def test_numbers_that_are_others_are_shown(self, session: Session) -> None:
        x = session.asarray([1.0, 2.0])
        rows = session.routine(lambda x, n: x[n:]).link(x, 1)
        scaled = session.routine(lambda d, n: d["x"] * n).link({"x": x}, 2.0)
        wrong: list[tuple[Any, str]] = [
            (lambda n: rows(x, n), "n was 1 at the capture, not 0"),
            (lambda n: scaled(n, 1.0), "d is a dict at the capture, not 0"),
            (lambda n: scaled({"x": n}, 1.0), "expected a tensor, got int"),
            (lambda n: scaled({"x": x}, n + 1j), "the number n is float, not complex"),
        ]
        for function, said in wrong:
            with pytest.raises(MetadataTypeError, match=said):
                session.routine(function)(0)

    @each_case(
        ("call", "error", "said"),
        [
            (lambda f, x: f(x, x, rate=10**400), OverflowError, "rate is too large for a float"),
            (lambda f, x: f(x, rate=1.0), MetadataError, "takes 2 tensors"),
            (lambda f, x: f(x, x), MetadataTypeError, "takes the numbers rate"),
            (lambda f, x: f(x, x.sum(), rate=1.0), MetadataError, "parameter y is float64"),
            (lambda f, x: f(x, x, rate="1"), MetadataTypeError, "rate is float"),
            (lambda f, x: f(x, x[x > 1], rate=1.0), td.CaptureError, "its shape depends on data"),
        ],
    )
    def test_arguments_that_do_not_fit(
        self, session: Session, f: Any, call: Any, error: type[Exception], said: str
    ) -> None:
        def function(x: Any) -> Any:
            with pytest.raises(error, match=said) as caught:
                call(f, x)
            assert "test_inlining.py" in (getattr(caught.value, "location", "") or "")
            return x + 1

        g = session.routine(function)
        assert g(session.asarray([1.0, 2.0])).tolist() == [2.0, 3.0]
        assert [step.op for step in g.program(session.asarray([1.0, 2.0])).steps][-1] == "add"

    def test_another_routine_under_the_same_name_is_captured_anew(self, session: Session) -> None:
        text = "tensord program 1\nparameter %0: float64[] on d0\n%1: float64[] = negative %0 on d0\nreturn %1"
        models = {"now": session.link(td.Program.parse(text))}
        g = session.routine(lambda x: models["now"](x)[0])
        assert g(session.asarray(4.0)).item() == -4.0
        models["now"] = session.link(td.Program.parse(text.replace("negative", "square")))
        assert g(session.asarray(4.0)).item() == 16.0
        assert g.captures == 2


def test_effects_of_a_program_need_their_functions(session: Session) -> None:
    for given in ([], [print]):
        with pytest.raises(MetadataError, match=r"calls? 2 functions, and callbacks= gives") as caught:
            session.link(TELLS, callbacks=given)
        assert "test_inlining.py" in (caught.value.location or "")
    wrong: Any
    for wrong, said in (
        ("print", "a list of functions, not str"),
        ([print, 3], "a callback must be a function, not int"),
    ):
        with pytest.raises(MetadataError, match=said):
            session.link(TELLS, callbacks=wrong)
