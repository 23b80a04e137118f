"""Routines under names: one session publishes them, others look them up and run them on tensors of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.interpreter.errors import CancelledError, MetadataError, MetadataKeyError, MetadataTypeError, ProtocolError

from ...each_case import each_case
from ...puppet import Puppet, eventually

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)
Pair = tuple[Session, Session]


@pytest.fixture
def pair(make_session: Callable[..., Session], request: pytest.FixtureRequest) -> Pair:
    """A session that publishes, and one that looks up."""
    address = f"local:{request.node.name}"
    devices = ["cpu:0", "sim:0"]
    return make_session(address, devices=devices), make_session(address, devices=devices)


def values(found: Any) -> Any:
    """Nested results with lists for tensors."""
    if isinstance(found, td.Tensor):
        return found.tolist()
    if isinstance(found, dict):
        return {key: values(each) for key, each in found.items()}
    return type(found)(map(values, found)) if type(found) in (list, tuple) else found


class Sums(NamedTuple):
    total: Any
    rows: Any


@dataclass
class Layer:
    weight: Any
    scale: float = 1.0


@anywhere
class TestARoutineOfAnotherSession:
    def test_returns_what_its_function_returned_nested_as_it_was(self, pair):
        trainer, server = pair
        w = trainer.asarray([[1.0, 2.0], [3.0, 4.0]])

        @trainer.routine
        def forward(batch, rate, *, label):
            y = batch["x"] @ w
            return {"y": y, "parts": [y.sum(), (rate * 2, label, None)], "x": batch["x"]}

        batch = {"x": trainer.asarray([[1.0, 1.0]])}
        expected = values(forward(batch, 0.5, label="a"))
        trainer.publish("forward", forward)
        found = server.lookup("forward")
        mine = {"x": server.asarray([[1.0, 1.0]])}
        for _ in range(3):  # op by op at first
            result = found(mine, 0.5, label="a")
            assert values(result) == expected
            assert result["x"] is mine["x"]
        assert values(found(mine, rate=4.0, label="a"))["parts"] == [10.0, (8.0, "a", None)]

    def test_reads_the_publishers_tensors_as_they_are_and_writes_them(self, pair):
        trainer, server = pair
        count, w = trainer.asarray([0.0]), trainer.asarray([1.0, 2.0])

        @trainer.routine
        def score(x):
            nonlocal count
            count += 1
            return (x * w).sum()

        trainer.publish("score", score.link(trainer.asarray([0.0, 0.0])))
        found, x = server.lookup("score"), server.asarray([1.0, 1.0])
        assert count.tolist() == [0.0]  # `link` runs nothing
        assert found(x).item() == 3.0
        w += 10
        trainer.sync()
        assert [found(x).item() for _ in range(2)] == [23.0, 23.0]
        assert count.tolist() == [3.0]

    def test_goes_on_when_its_publisher_and_its_name_are_gone(self, pair):
        trainer, server = pair
        w = trainer.asarray([2.0])
        trainer.publish("double", trainer.routine(lambda x: x * w).link(trainer.asarray([0.0])))
        trainer.close()
        found, x = server.lookup("double"), server.asarray([5.0])
        assert found(x).tolist() == [10.0]
        server.unpublish("double")
        assert found(x).tolist() == [10.0]
        assert server.names() == []

    def test_may_be_a_linked_program_whose_numbers_have_names(self, pair):
        trainer, server = pair
        program = trainer.routine(lambda x, rate: (x * rate, x + 1)).program(trainer.asarray([0.0]), 0.5)
        trainer.publish("f", trainer.link(program))
        found = server.lookup("f")
        assert [each.tolist() for each in found(server.asarray([2.0]), rate=3.0)] == [[6.0], [3.0]]

    def test_may_be_published_by_those_who_looked_it_up_and_runs_in_their_own_session(self, pair):
        trainer, server = pair
        w = trainer.asarray([2.0])
        trainer.publish("f", trainer.routine(lambda x: x * w).link(trainer.asarray([0.0])))
        server.publish({"g": server.lookup("f")})
        assert trainer.lookup("g")(trainer.asarray([3.0])).tolist() == [6.0]

    def test_is_a_snapshot_with_the_tensors_of_the_same_moment(self, pair):
        trainer, server = pair
        w = trainer.asarray([1.0])

        @trainer.routine
        def bump(by):
            nonlocal w
            w += by
            return w * 1

        trainer.publish({"bump": bump.link(0.0), "read": trainer.routine(lambda: w * 1).link(), "w": w})
        found = server.lookup(["bump", "read", "w"], snapshot=True)
        w += 100
        trainer.sync()
        assert found["bump"](1.0).tolist() == [2.0]
        assert found["read"]().tolist() == [2.0]  # of one tensor, one present value
        assert found["w"].tolist() == [2.0]
        assert w.tolist() == [101.0]

    def test_is_replaced_with_tensors_at_once_and_earlier_look_ups_keep_theirs(self, pair):
        trainer, server = pair
        x = trainer.asarray([1.0])
        trainer.publish({"f": trainer.routine(lambda x: x + 1).link(x), "w": x})
        before = server.lookup("f")
        trainer.publish({"f": trainer.asarray([7.0]), "w": trainer.routine(lambda x: x + 2).link(x)})
        found = server.lookup(["f", "w"])
        assert found["f"].tolist() == [7.0]
        assert [f(server.asarray([0.0])).tolist() for f in (before, found["w"])] == [[1.0], [2.0]]
        assert (server.names(), server.names("routine"), server.names("tensor")) == (["f", "w"], ["w"], ["f"])

    def test_draws_the_random_numbers_of_its_runner(self, pair):
        trainer, server = pair
        trainer.publish("noise", trainer.routine(lambda: trainer.random.uniform((2,))).link())
        found = server.lookup("noise")
        server.random.seed(7)
        expected = server.random.uniform((2,)).tolist()
        server.random.seed(7)
        assert found().tolist() == expected

    def test_fails_at_the_publishers_line(self, pair):
        trainer, server = pair
        trainer.publish(
            "root", trainer.routine(lambda x: trainer.xp.linalg.cholesky(x) * 1).link(trainer.asarray([[1.0]]))
        )
        with pytest.raises(td.KernelError) as caught:
            server.lookup("root")(server.asarray([[-1.0]])).numpy()
        assert caught.value.location is not None
        assert "test_publishing.py" in caught.value.location
        assert "lambda" in caught.value.location

    def test_belongs_to_no_context_and_survives_a_restart(self, pair):
        trainer, server = pair
        w = trainer.asarray([2.0])
        trainer.publish("f", trainer.routine(lambda x: x * w).link(trainer.asarray([0.0])))
        with server.context():
            found = server.lookup("f")
        server.cancel()
        server.restart()
        assert found(server.asarray([3.0])).tolist() == [6.0]

    def test_runs_as_a_part_of_a_group(self, pair):
        trainer, server = pair
        w, v = trainer.asarray([1.0]), trainer.asarray([1.0])
        trainer.publish("both", trainer.routine(lambda: (w * 1, v * 1)).link())
        found = server.lookup("both")
        with server.atomic():
            a, b = found()
            c, _ = found()
        assert [a.tolist(), b.tolist(), c.tolist()] == [[1.0], [1.0], [1.0]]

    def test_takes_named_tuples_and_dataclasses_by_their_members(self, pair):
        trainer, server = pair

        @trainer.routine
        def sums(layer, where):
            y = layer.weight * layer.scale
            return Sums(y.sum(), [y[where]]), layer

        expected, _ = sums(Layer(trainer.asarray([1.0, 2.0, 3.0]), 2.0), slice(0, 2))
        trainer.publish("sums", sums)
        layer = SimpleNamespace(weight=server.asarray([1.0, 2.0, 3.0]), scale=2.0)
        (total, rows), same = server.lookup("sums")(layer, slice(0, 2))
        assert (total.item(), rows[0].tolist()) == (expected.total.item(), expected.rows[0].tolist())
        found, _ = server.lookup("sums")(Layer(layer.weight, 2.0), slice(0, 2))
        assert (found._fields, type(found).__name__) == (("total", "rows"), "Sums")
        assert same.weight is layer.weight

    def test_returns_a_captured_tensor_as_a_handle_to_it(self, pair):
        trainer, server = pair
        w = trainer.asarray([1.0])

        @trainer.routine
        def bump():
            nonlocal w
            w += 1
            return w

        trainer.publish("bump", bump.link())
        assert server.lookup("bump")().tolist() == [2.0]
        assert w.tolist() == [2.0]


TRAINER = """
w = s.asarray(np.array([2.0, 3.0]))
@s.routine
def scaled(x, by):
    global w
    w += 1
    return {"y": x * w * by}
s.publish("scaled", scaled.link(s.asarray(np.zeros(2)), 1.0))
"""

COUNTER = """
count = s.asarray(np.array(0.0))
s.publish("count", count)
def body(x):
    global count
    count += 1
    return x + 1
y = s.while_loop(lambda x: x >= 0, body, s.asarray(0.0))
s.flush()
"""


def test_processes_share_a_routine_and_a_dead_one_leaves_it_to_the_others(daemon):
    """The process that runs it has none of the publisher's code."""
    with Puppet.start(daemon.address) as runner, daemon.connect() as session:
        with Puppet.start(daemon.address) as trainer:
            trainer.do(TRAINER)
            found, x = session.lookup("scaled"), session.asarray([1.0, 1.0])
            assert found(x, 1.0)["y"].tolist() == [3.0, 4.0]
            trainer.do(COUNTER)
            count: Any = session.lookup("count")
            eventually(lambda: count.item() > 2)
            trainer.kill()
        with pytest.raises(CancelledError, match="the session was closed in the middle of a while_loop") as caught:
            eventually(lambda: count.numpy() is None)
        assert "in <module>" in (caught.value.location or "")
        session.unpublish("count")
        assert found(x, 2.0)["y"].tolist() == [8.0, 10.0]
        run = "s.lookup('scaled')(s.asarray([1.0, 1.0]), 1.0)['y'].tolist()"
        assert runner.do(run) == [5.0, 6.0]
        runner.kill()
        assert found(x, 1.0)["y"].tolist() == [6.0, 7.0]
        session.unpublish("scaled")
        count = None
        del found, x
        session.sync()
        eventually(lambda: session._core.answers.query("status")["devices"]["cpu:0"]["used"] == 0)


HALVE = """\
tensord program 1
parameter %0 x: float64[] on d0
captured %1 least: float64[] on d0
%2: float64[] = while_loop %0 {max_iterations: 100}    # halve.py:1
block %1
    parameter %0: float64[] on d0
    captured %1: float64[] on d0
    %2: bool[] = greater %0, %1 on d0                  # halve.py:2
    return %2
block
    number $0: float = 0.5
    parameter %0: float64[] on d0
    %1: float64[] = multiply %0, $0 on d0              # halve.py:3
    print "it was", %0
    return %1
end
return %2"""


@anywhere
def test_control_flow_travels_with_its_blocks(pair, capsys):
    trainer, server = pair
    program = td.Program.parse(HALVE)
    trainer.publish("halve", trainer.link(program, tensors={"least": trainer.asarray(1.0)}))
    found = server.lookup("halve")
    assert found.program == program
    (result,) = found(server.asarray(4.0))
    assert result.item() == 1.0
    server.check_chain()
    assert capsys.readouterr().out == "it was 4.0\nit was 2.0\n"
    assert [step.location for block in found.program.steps[0].blocks for step in block.steps][:2] == [
        "halve.py:2",
        "halve.py:3",
    ]


@anywhere
def test_runs_of_a_routine_that_was_looked_up_have_the_name_that_was_published(pair):
    trainer, server = pair
    theirs, x = trainer.asarray([1.0]), server.asarray([1.0])
    trainer.publish("forward", trainer.routine(lambda x: x + 1 - x).link(theirs))
    trainer.publish("backward", trainer.link(trainer.routine(lambda x: x * 2 + x).program(theirs)))
    for name in ("forward", "backward"):
        found = server.lookup(name)
        for _ in range(3):
            found(x)
    server.sync()
    trace = server.trace()
    runs = [record for record in trace.records if record.part is not None]
    assert {record.op for record in runs} == {"run forward", "run backward"}
    assert {routine.name for routine in trace.routines.values()} == {"forward", "backward"}
    assert trace.why(runs[0]).startswith(f"#{runs[0].id} run forward")


def test_a_look_up_waits_for_names_that_somebody_will_publish(pair):
    trainer, server = pair
    found = []
    waiting = threading.Thread(target=lambda: found.append(server.lookup(["f", "x"], wait=60)))
    waiting.start()
    x = trainer.asarray([1.0])
    trainer.publish("x", x)
    trainer.publish("f", trainer.routine(lambda x: x + 1).link(x))
    waiting.join()
    assert found[0]["f"](found[0]["x"]).tolist() == [2.0]
    with pytest.raises(MetadataKeyError, match="nothing is published as 'g'"):
        server.lookup(["f", "g"], wait=0.01)


def test_a_look_up_that_waits_ends_with_its_session(pair):
    _, server = pair
    failed = []

    def wait() -> None:
        with pytest.raises(td.ConnectionLost) as caught:
            server.lookup("f", wait=60)
        failed.append(caught.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.close()
    waiting.join()
    assert failed


@anywhere
def test_what_others_may_write_is_never_remembered(pair):
    """A small tensor that is read piece by piece is fetched once, unless others write to it."""
    trainer, server = pair
    w = trainer.asarray([1.0, 2.0])

    @trainer.routine
    def bump():
        nonlocal w
        w += 1
        return w

    trainer.publish("bump", bump.link())
    found = server.lookup("bump")
    theirs = found()
    server.sync()
    assert [[each[n].item() for n in (0, 1, 0)] for each in (w, theirs)] == [[2.0, 3.0, 2.0]] * 2
    found()
    server.sync()
    assert [w[n].item() for n in (0, 1)] == [3.0, 4.0]
    w += 1
    trainer.sync()
    assert [theirs[n].item() for n in (0, 1)] == [4.0, 5.0]


def test_values_of_the_function_are_constants_of_the_routine(pair):
    trainer, server = pair

    @trainer.routine
    def add(x):
        return x + trainer.asarray(np.arange(3.0))

    trainer.publish("add", add.link(trainer.asarray([0.0, 0.0, 0.0])))
    trainer.close()
    assert server.lookup("add")(server.asarray([1.0, 1.0, 1.0])).tolist() == [1.0, 2.0, 3.0]


def test_a_method_is_published_without_its_object(pair):
    trainer, server = pair

    class Model:
        def __init__(self) -> None:
            self.w = trainer.asarray([3.0])

        @trainer.routine
        def forward(self, x):
            return x * self.w

    model, other = Model(), Model()
    other.forward(trainer.asarray([1.0]))
    model.forward(trainer.asarray([1.0]))
    trainer.publish("forward", model.forward)
    assert server.lookup("forward")(server.asarray([2.0])).tolist() == [6.0]


@pytest.mark.parametrize("machines", ["serial"], indirect=True)
def test_a_serial_machine_reports_that_it_compiles_nothing(session):
    f = session.routine(lambda x: (x + 1) * 2).link(session.asarray([0.0]))
    assert (f.report()["compiled"], f.report()["ops"], f.report()["pieces"]) == (False, 2, [])
    assert "not compiled" in str(f.report())


def test_its_report_is_about_the_runs_of_its_own_session(pair):
    trainer, server = pair
    f = trainer.routine(lambda x: (x + 1) * 2).link(trainer.asarray([0.0]))
    trainer.publish("f", f)
    found, x = server.lookup("f"), server.asarray([1.0])
    for _ in range(2):
        found(x)
    assert (found.report()["compiled"], found.report()["ops"]) == (True, 2)
    assert [record.op for record in server.trace().records if record.opcode == "RunRoutine"] == ["run f"]
    assert not f.report()["compiled"]
    assert "1 segments" in str(found.report())


def test_what_it_captures_counts_as_its_publishers_and_is_freed_with_its_last_holder(pair, machine_of):
    trainer, server = pair
    w = trainer.asarray(np.ones(1000))
    trainer.publish("f", trainer.routine(lambda x: x * w).link(trainer.asarray(0.0)))
    found = server.lookup("f")
    w.release()
    trainer.unpublish("f")
    trainer.sync()
    held = {one["id"]: one["bytes"] for one in server._core.answers.query("sessions")}
    assert max(held.values()) == held[1] >= 8000
    del found
    trainer.close()
    server.sync()
    assert machine_of(server).engine.devices["cpu:0"].backend.allocated == 0


def test_a_write_of_its_run_is_done_although_its_runner_cancels(pair):
    trainer, server = pair
    w = trainer.asarray([1.0], device="sim:0")

    @trainer.routine
    def bump(x):
        nonlocal w
        w += x
        return x * 2

    trainer.publish({"bump": bump.link(trainer.asarray([0.0], device="sim:0"))})
    found, x = server.lookup("bump"), server.asarray([1.0], device="sim:0")
    for _ in range(2):
        found(x)
    server.sync()
    found(x)
    server.flush()
    server.cancel()
    trainer.sync()
    assert w.tolist() == [4.0]


class TestArgumentsThatDoNotFit:
    """The routine raises at its call, and nothing is sent."""

    @pytest.fixture
    def found(self, pair):
        trainer, server = pair

        @trainer.routine
        def f(p, n, mode="sum"):
            y = p["x"] * p["y"] if n > 2 else p["x"]
            return y.sum() if mode == "sum" else y * n

        p = {"x": trainer.asarray([1.0, 2.0]), "y": trainer.asarray([1.0, 2.0])}
        trainer.publish("f", f.link(p, 3))
        return server.lookup("f")

    @each_case(
        ("call", "said"),
        [
            (lambda f, _p: f(), r"f takes \(p, n\), as it was captured"),
            (lambda f, p: f(p, 3, "sum"), r"f takes \(p, n\)"),
            (lambda f, p: f(p, 3, p=p), r"f takes \(p, n\)"),
            (lambda f, p: f(p, 4), "n was 3 at the capture, not 4"),
            (lambda f, p: f(p, "3"), "n is int at the capture, not '3'"),
            (lambda f, p: f(p, 3.0), "the number n is int, not float"),
            (lambda f, p: f([p["x"], p["y"]], 3), "p is a dict at the capture, not list"),
            (lambda f, p: f({"x": p["x"]}, 3), "p had x, y at the capture, and has x now"),
            (lambda f, p: f({**p, "x": 1.0}, 3), "expected a tensor, got float"),
            (lambda f, p: f({**p, "x": p["x"][:1]}, 3), r"p.x is float64\[2\], not float64\[1\]"),
            (lambda f, p: f({**p, "x": p["x"][p["x"] > 0]}, 3), "p.x has a shape that depends on data"),
        ],
    )
    def test_are_named(self, pair, found, call, said):
        server = pair[1]
        p = {"x": server.asarray([1.0, 2.0]), "y": server.asarray([3.0, 4.0])}
        with pytest.raises(MetadataError, match=said) as caught:
            call(found, p)
        assert "test_publishing.py" in str(caught.value.location)
        assert server.sync() == 0
        assert found(p, 3).item() == 11.0

    def test_are_refused_if_they_are_of_another_session(self, pair, found):
        x = pair[0].asarray([1.0, 2.0])
        with pytest.raises(MetadataError, match="belongs to another session"):
            found({"x": x, "y": x}, 3)

    def test_are_refused_if_they_were_one_tensor(self, pair):
        trainer, server = pair
        x = trainer.asarray([1.0])
        trainer.publish("f", trainer.routine(lambda a, b: a + b).link(x, x))
        found, y = server.lookup("f"), server.asarray([2.0])
        assert found(y, y).tolist() == [4.0]
        with pytest.raises(MetadataError, match="b and a were the same tensor at the capture"):
            found(y, server.asarray([1.0]))

    def test_are_refused_if_python_cannot_compute_with_them(self, pair):
        trainer, server = pair
        x = trainer.asarray([1.0])
        trainer.publish("f", trainer.routine(lambda x, n: x * (1 / n)).link(x, 2))
        found = server.lookup("f")
        x = server.asarray([2.0])
        for f in (found, server.routine(found.__call__)):
            with pytest.raises(MetadataError, match="cannot be computed: division by zero"):
                f(x, 0)
            assert f(x, 4).tolist() == [0.5]


class TestWhatCannotBePublished:
    @each_case(
        ("make", "error", "said"),
        [
            (lambda s: s.routine(lambda x: x), ProtocolError, r"was not called yet: publish .*link\(\*arguments\)"),
            (lambda s: called(s, [1.0], [1.0, 2.0]), ProtocolError, "was captured for 2 kinds of arguments"),
            (lambda s: s.routine(lambda: s.effect(print)).link(), MetadataError, r"session.effect at .*print them"),
            (lambda s: s.routine(lambda: [object()]).link(), MetadataTypeError, "the result.0 is a object"),
            (lambda s: s.routine(lambda o: [o.f()]).link(Opaque()), MetadataTypeError, "argument o is a Opaque, which"),
            (lambda s: s.routine(lambda: [nested(20)]).link(), MetadataTypeError, "more than 16 levels deep"),
            (lambda s: s.routine(lambda: {(1, 2): 3}).link(), MetadataTypeError, "has the key tuple"),
            (lambda s: s.routine(lambda x: x, eager=True), ProtocolError, "was not called yet"),
            (lambda _: print, MetadataTypeError, "expected a tensor .* or a routine .*, got builtin"),
            (lambda s: s.routine(lambda: s.xp.ones(2)).program(), MetadataTypeError, "got Program"),
        ],
    )
    def test_is_refused_with_what_to_do(self, session, make, error, said):
        with pytest.raises(error, match=said) as caught:
            session.publish("f", make(session))
        assert "test_publishing.py" in str(caught.value.location)
        assert session.names() == []

    def test_is_a_routine_of_another_session(self, pair):
        trainer, server = pair
        with pytest.raises(MetadataError, match="belongs to another session"):
            server.publish("f", trainer.routine(lambda: trainer.xp.ones(2)).link())

    def test_is_one_whose_captured_tensor_was_released(self, session):
        w = session.asarray([1.0])
        f = session.routine(lambda x: x * w).link(session.asarray([1.0]))
        w.release()
        with pytest.raises(ProtocolError, match="released"):
            session.publish("f", f)


class Opaque:
    """Objects without a meaning in another process."""

    def f(self) -> int:
        return 1


def called(session: Session, *arguments: Any) -> Any:
    """A routine that was called with each of these."""
    routine = session.routine(lambda x: x + 1)
    for each in arguments:
        routine(session.asarray(each))
    return routine


def nested(depth: int) -> Any:
    """Lists in lists."""
    return [nested(depth - 1)] if depth else 1


def test_a_linked_routine_is_for_arguments_of_one_kind_in_its_own_session_too(session):
    scale = 2.0

    @session.routine
    def f(x):
        return x * scale

    linked = f.link(session.asarray([0.0]))
    assert f.captures == 1
    scale = 3.0
    assert linked(session.asarray([1.0])).tolist() == [2.0]  # its guarded state is as it was
    assert f(session.asarray([1.0])).tolist() == [3.0]
    assert repr(linked) == "<tensord.LinkedRoutine f(x) on cpu:0>"


def test_linking_a_routine_inside_of_a_capture_is_refused(session):
    f = session.routine(lambda x: x + 1)
    with pytest.raises(td.CaptureError, match="link"):
        session.routine(lambda x: [f.link(x)])(session.asarray([1.0]))
