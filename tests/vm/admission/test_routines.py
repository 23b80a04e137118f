"""Programs, links and runs on an engine: accepted and refused messages, and the state afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, MetadataError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.programs.builder import MAX_STEPS, Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import wire_records
from tensord.interpreter.wire.messages import Atomic, Chain, Effect, Fetch, Release, Restart, Wait, encode_message
from tensord.interpreter.wire.program_messages import Link, ProgramPart, Run
from tensord.vm import engine as engine_module
from tensord.vm.model.session import PRIVATE, rest_of_run
from tensord.vm.reporting.invariants import violations

from ...each_case import each_case
from ..bare_engine import Bare, Client
from ..parts import Parts
from ..programs import LINE, ONE, accumulate, chain_of, increment, link, parts_of, run, run_message

HERE = "user.py:1"


@pytest.fixture(params=[True, False], ids=["inline", "streams"])
def bare(request: pytest.FixtureRequest) -> Bare:
    return Bare(inline=request.param)


def error_of(client: Client, id_: int) -> TensordError:
    """The error that a tensor has in the place of a value."""
    with pytest.raises(TensordError) as caught:
        client.fetch(id_)
    return caught.value


def refused_by(client: Client, program: Program, routine: int, inputs: Any, match: str) -> TensordError:
    """The error of the result of a run that is refused."""
    (result,) = run(client, routine, program, inputs, (1.0,) * len(program.number_parameters))
    error = error_of(client, result)
    assert match in str(error)
    assert error.op in {"run", match}
    assert error.location == HERE
    return error


# -- effects of a run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 64])
def test_a_program_may_come_in_any_number_of_parts(bare: Bare, size: int) -> None:
    client, program = bare.client(), accumulate()
    x, y, w, chain = client.upload([1.0]), client.upload([2.0]), client.upload([100.0]), client.new()
    program_id, routine = client.new(), client.new()
    client.send(Chain(chain), *parts_of(program_id, program, size))
    client.send(Link(routine, program_id, ("cpu:0",), (w,), LINE), Release((program_id,)))
    seen: list[float] = []
    effect = (chain, lambda array: seen.append(float(array[0])), 0)
    results = [run(client, routine, program, (x, y), (n,), (effect,))[0] for n in (1.0, 10.0)]
    assert [client.fetch(id_) for id_ in (*results, x)] == [[103.0], [123.0], [23.0]]
    assert seen == [3.0, 23.0]


def test_one_program_is_linked_as_often_as_one_likes(bare: Bare) -> None:
    client, program = bare.client(), accumulate()
    routines = []
    x, y, chain = client.upload([1.0]), client.upload([2.0]), client.new()
    client.send(Chain(chain), *parts_of(program_id := client.new(), program))
    for value in (10.0, 20.0):
        w = client.upload([value])
        routines.append(routine := client.new())
        client.send(Link(routine, program_id, ("cpu:0",), (w,), LINE))
    found = [run(client, routine, program, (x, y), (1.0,), ((chain, print, 0),))[0] for routine in routines]
    assert [client.fetch(id_) for id_ in found] == [[13.0], [25.0]]


def test_one_tensor_may_be_two_parameters(bare: Bare) -> None:
    client, program = bare.client(), accumulate()
    x, w, chain = client.upload([1.0]), client.upload([0.0]), client.new()
    client.send(Chain(chain))
    (total,) = run(client, link(client, program, (w,)), program, (x, x), (2.0,), ((chain, print, 0),))
    assert client.fetch(x) == client.fetch(total) == [3.0]


def test_a_run_in_place_keeps_the_views_and_snapshots_that_were_taken_before(bare: Bare) -> None:
    writer, reader = bare.client(), bare.client()
    x = writer.upload([0.0])
    writer.publish("x", ids=[x])
    live, snapshot = reader.lookup("x"), reader.lookup("x", snapshot=True)
    run(writer, link(writer, increment()), increment(), (x,))
    assert (reader.fetch(live), reader.fetch(snapshot)) == ([1.0], [0.0])


def test_inner_values_are_gone_when_the_run_has_ended(bare: Bare) -> None:
    client, program = bare.client(), chain_of(20)
    x = client.upload([1.0])
    (result,) = run(client, link(client, program), program, (x,))
    bare.drain()
    assert set(client.session.tensors) == {x, result}
    assert client.fetch(result) == [1.0]


def test_an_error_inside_has_the_line_of_its_step_and_the_rest_of_the_run_goes_on(bare: Bare) -> None:
    client, builder = bare.client(), Builder()
    x = builder.parameter(ONE)
    (other,) = builder.op("negative", [x], location=LINE)
    (bad,) = builder.op("cholesky", [builder.op("reshape", [x], {"shape": (1, 1)})[0]], location=LINE)
    program = builder.finish([other, bad])
    results = run(client, link(client, program), program, (client.upload([-1.0]),))
    assert client.fetch(results[0]) == [1.0]
    assert (error_of(client, results[1]).op, error_of(client, results[1]).location) == ("cholesky", HERE)


@pytest.mark.parametrize(("program", "batches", "batch"), [(increment(), 40, 50), (accumulate(), 10, 20)])
def test_thousands_of_runs_leave_nothing_behind(program: Program, batches: int, batch: int) -> None:
    bare = Bare()
    client = bare.client()
    inputs, w, chain = [client.upload([0.0]) for _ in program.parameters], client.upload([0.0]), client.new()
    client.send(Chain(chain))
    routine = link(client, program, (w,)[: len(program.captured)])
    numbers, effects = (1.0,) * len(program.number_parameters), ((chain, None, 0),) * program.callbacks
    session, engine = client.session, bare.engine
    tables: list[Any] = [session.tensors, session.plans, session.immediate, session.live, engine.live, engine.pending]

    def left() -> list[int]:
        return [*map(len, tables), session.signed, session.operands, session.steps, bare.device.allocated]

    def some_runs() -> None:
        messages = [run_message(client, routine, program, inputs, numbers, effects) for _ in range(batch)]
        client.send(*messages, Release(tuple(id_ for message in messages for id_ in message.outputs)))
        bare.drain()

    some_runs()
    before = left()
    for _ in range(batches - 1):
        some_runs()
    assert left() == before
    assert not violations(engine)
    if program.callbacks == 0:
        assert client.fetch(inputs[0]) == [batches * batch]


# -- refusals ------------------------------------------------------------------------------------------------------


def records_of(program: Program) -> list[Any]:
    return list(wire_records(program))


MANY = records_of(chain_of(63))  # with its parameter and its return 65 records


@each_case(
    ("parts", "match"),
    [
        ([MANY], "65 records in one message; 64 are allowed"),
        ([[*records_of(chain_of(1)), *records_of(chain_of(1))]], "records after the last record"),
        ([records_of(chain_of(1)), records_of(chain_of(1))], "is complete"),
        ([[("negative", (7,), (), 0, None, 1)]], "no value %7"),
        ([[("no_such_op", (), (), 0, None, 1)]], "no_such_op"),
        ([["negative"]], "not a record of a program"),
        ([[("negative", "x", (), 0, None, 1)]], "'x' is not a list"),
        ([[("number", "int", "constant", (), 1 << 64, "")]], "64 bits"),
        ([[("parameter", ((1,), "float64"), 64, "")]], "not a device of a program"),
        ([[("return", (0,))]], "no value %0"),
    ],
)
def test_what_is_wrong_with_a_program_is_told_to_each_run(bare: Bare, parts: list[list[Any]], match: str) -> None:
    client, program = bare.client(), chain_of(1)
    program_id, routine, x = client.new(), client.new(), client.upload([1.0])
    program_id, routine = client.new(), client.new()
    for records in parts:
        client.send(ProgramPart(program_id, tuple(records)))
    client.send(Link(routine, program_id, ("cpu:0",), (), LINE))
    for _ in range(2):
        refused_by(client, program, routine, (x,), match)
    assert bare.engine.fault is None
    assert client.session.steps == 0


@pytest.mark.parametrize(
    ("devices", "captured", "match"),
    [
        (("gpu:7",), (1,), "unknown device 'gpu:7'; devices: cpu:0"),
        (("cpu:0", "cpu:0"), (1,), "2 devices and 1 captured tensors, but the program has 1 and 1"),
        (("cpu:0",), (), "1 devices and 0 captured tensors, but the program has 1 and 1"),
    ],
)
def test_what_is_wrong_with_a_link_is_told_to_each_run(bare: Bare, devices: Any, captured: Any, match: str) -> None:
    client, program = bare.client(), accumulate()
    x = client.upload([1.0])
    program_id, routine = client.new(), client.new()
    client.send(*parts_of(program_id, program), Link(routine, program_id, devices, captured, LINE))
    for _ in range(2):
        refused_by(client, program, routine, (x, x), match)


@pytest.mark.parametrize("complete", [True, False])
def test_a_link_of_no_program_or_half_a_one_is_told_to_each_run(bare: Bare, complete: bool) -> None:
    client, program = bare.client(), chain_of(3)
    x, program_id, routine = client.upload([1.0]), client.new(), client.new()
    if not complete:
        client.send(*parts_of(program_id, program, 2)[:-1])
    client.send(Link(routine, program_id, ("cpu:0",), (), LINE))
    refused_by(client, program, routine, (x,), "was never defined" if complete else "is not complete")


def test_ids_of_programs_and_routines_rise(bare: Bare) -> None:
    client, program = bare.client(), chain_of(1)
    x, routine = client.upload([1.0]), link(client, program)
    client.send(*parts_of(x, program), Link(x, x, ("cpu:0",), (), LINE))
    assert ["is not new" in str(error) for error in bare.errors] == [True, True]
    assert client.fetch(run(client, routine, program, (x,))[0]) == [-1.0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"inputs": ()}, "inputs, numbers, outputs and effects"),
        ({"numbers": ()}, "inputs, numbers, outputs and effects"),
        ({"effects": ()}, "inputs, numbers, outputs and effects"),
        ({"numbers": (1,)}, "int, but"),
        ({"numbers": (True,)}, "bool, but"),
        ({"inputs": (1, 99)}, "tensor 99 was never defined"),
        ({"inputs": (1, 2)}, "an input is"),
        ({"routine": 99}, "routine 99 was never linked"),
        ({"routine": 1}, "routine 1 was released, or never was a routine"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_as_a_whole(bare: Bare, change: dict[str, Any], match: str) -> None:
    """The run's results, the tensors that it writes, its side effects and their chains get the error, at its line."""
    client, program = bare.client(), accumulate()
    x, _ = client.upload([1.0]), client.upload([1.0, 2.0])
    w, chain = client.upload([1.0]), client.new()
    client.send(Chain(chain))
    routine = link(client, program, (w,))
    message = run_message(client, routine, program, (x, x), (1.0,), ((chain, print, 77),))
    client.send(message._replace(**change))
    found = [error_of(client, *message.outputs)]
    if "effects" not in change:
        found.append(client.answers[77][1] or AssertionError())  # type: ignore[arg-type]
        with pytest.raises(ProtocolError) as caught:
            client.ask(Effect((), chain, print, 0, 0))
        found.append(caught.value)
    if "routine" not in change and change.get("inputs") != ():
        found.append(error_of(client, x))
    else:
        assert client.fetch(x) == [1.0]
    assert all(match in str(error) and (error.op, error.location) == ("run", HERE) for error in found)
    assert len(set(map(str, bare.errors))) == 1
    assert bare.engine.fault is None


@pytest.mark.parametrize("cancels", [True, False])
def test_a_refused_run_leaves_alone_what_it_would_only_have_read(bare: Bare, cancels: bool) -> None:
    client, program = bare.client(), accumulate()
    x, y, w, chain = client.upload([1.0]), client.upload([2.0]), client.upload([3.0]), client.new()
    client.send(Chain(chain))
    routine = link(client, program, (w,))
    if cancels:
        bare.engine.cancel(client.session)
    run(client, routine, program, (x, y), (1.0,), () if not cancels else ((chain, print, 0),))
    client.send(Restart(1))
    assert (client.fetch(y), client.fetch(w)) == ([2.0], [3.0])
    assert error_of(client, x).op == "run"


def test_each_op_of_a_run_is_on_the_device_of_its_slot() -> None:
    parts = Parts("cpu:0", "sim:0")
    client, builder = parts.client(), Builder()
    x = builder.parameter(ONE)
    results = [builder.op("negative", [x], device=slot)[0] for slot in (0, 1, 2)]
    results.append(builder.move(results[0], 1))
    program = builder.finish(results)
    x = client.upload([1.0])
    for devices in (("cpu:0", "sim:0", "cpu:0"), ("sim:0", "cpu:0", "sim:0")):
        routine = link(client, program, devices=devices)
        for _ in range(2):
            found = run(client, routine, program, (x,))
            homes = [client.session.tensors[id_].home.name for id_ in found]
            assert homes == [*devices, devices[1]]
            assert [client.fetch(id_) for id_ in found] == [[-1.0]] * 4


@pytest.mark.parametrize("shift", [-1, -2, -100])
def test_results_leave_room_for_the_values_inside(bare: Bare, shift: int) -> None:
    client, program = bare.client(), chain_of(2)
    x, routine = client.upload([1.0]), link(client, program)
    message = run_message(client, routine, program, (x,))
    (result,) = (max(id_ + shift, 1) for id_ in message.outputs)
    client.send(message._replace(outputs=(result,)))
    assert "leaves no room" in str(bare.errors[-1])
    assert bare.engine.fault is None


def test_a_refused_run_defines_its_results_with_the_metas_and_homes_of_its_program() -> None:
    """A write in place may give such a result a value."""
    parts = Parts("cpu:0", "sim:0")
    client, builder = parts.client(), Builder()
    x = builder.parameter(ONE)
    results = [builder.op("negative", [x], device=slot)[0] for slot in (1, 0)]
    program = builder.finish(results)
    routine = link(client, program, devices=("cpu:0", "sim:0"))
    found = run(client, routine, program, (99,))
    tensors = [client.session.tensors[id_] for id_ in found]
    assert [(tensor.meta, tensor.home.name) for tensor in tensors] == [(ONE, "sim:0"), (ONE, "cpu:0")]
    for id_ in found:
        client.call("add", client.upload([1.0]), client.upload([1.0]), out=id_)
    assert client.ask(Wait(found, 0, 1)) == [(ONE.plain, "sim:0"), (ONE.plain, "cpu:0")]


# -- quotas --------------------------------------------------------------------------------------------------------


def test_programs_and_routines_are_bounded_and_a_release_makes_room(bare: Bare) -> None:
    client, program = bare.client(programs=2), chain_of(1)
    x = client.upload([1.0])
    routines = [link(client, program) for _ in range(2)]
    refused = link(client, program)
    assert isinstance(refused_by(client, program, refused, (x,), "the session has 2 routines of 2"), QuotaError)
    client.send(Release((refused, routines[0])))
    routine = link(client, program)
    assert client.fetch(run(client, routine, program, (x,))[0]) == [-1.0]


def test_programs_that_are_kept_are_bounded(bare: Bare) -> None:
    client, program = bare.client(programs=1), chain_of(1)
    x = client.upload([1.0])
    client.send(*parts_of(client.new(), program))
    client.send(*parts_of(program_id := client.new(), program, 1))
    routine = client.new()
    client.send(Link(routine, program_id, ("cpu:0",), (), LINE))
    assert isinstance(refused_by(client, program, routine, (x,), "the session has 1 programs of 1"), QuotaError)


def test_refused_programs_and_routines_are_bounded_too(bare: Bare) -> None:
    client, program = bare.client(programs=2), chain_of(1)
    for _ in range(20):
        link(client, program, keeps=True)
    assert (len(client.session.programs), len(client.session.routines)) == (4, 4)
    assert all(isinstance(error, QuotaError | ProtocolError) for error in bare.errors)
    client.send(Release(tuple(range(1, client.ids + 1))))
    assert not client.session.programs
    assert not client.session.routines
    assert client.session.steps == 0


def test_steps_are_counted_as_long_as_a_program_or_a_routine_has_them(bare: Bare) -> None:
    """A routine whose program was released holds the program still."""
    client, program = bare.client(steps=25), chain_of(10)
    x = client.upload([1.0])
    first, second = link(client, program), link(client, program)
    assert client.session.steps == 20 - 10  # the program of the second had no room for a routine beside itself
    assert isinstance(refused_by(client, program, second, (x,), "more than 25 steps"), QuotaError)
    client.send(Release((first, second)))
    assert client.session.steps == 0
    third = link(client, program)
    assert client.fetch(run(client, third, program, (x,))[0]) == [1.0]


def test_a_program_with_too_many_steps_is_refused_and_gives_them_back(bare: Bare) -> None:
    client, program = bare.client(steps=5), chain_of(6)
    routine = link(client, program)
    assert client.session.steps == 0
    refused_by(client, program, routine, (client.upload([1.0]),), "more than 5 steps")


def test_signatures_of_a_routine_count_as_operands_until_it_is_released(bare: Bare) -> None:
    client, program = bare.client(), chain_of(3)
    routine = link(client, program)
    run(client, routine, program, (client.upload([1.0]),))
    bare.drain()
    assert client.session.operands == 3
    assert sum(number > PRIVATE for number in client.session.plans) == 3
    client.send(Release((routine,)))
    assert client.session.operands == 0
    assert not client.session.plans
    assert not client.session.immediate


# -- in the middle of a run ----------------------------------------------------------------------------------------


def begin(bare: Bare, client: Client, messages: list[Any], ops: int) -> None:
    """Admit messages up to a run, and `ops` ops of the run."""
    bare.engine.take(client.session, [encode_message(message) for message in messages])
    assert client.session.unfolding is not None
    bare.engine.take(client.session, rest_of_run(client.session, ops))
    bare.engine.scheduler.dispatcher.flush()


def finish(bare: Bare, client: Client) -> None:
    bare.engine.take(client.session, rest_of_run(client.session, 1000))
    bare.engine.scheduler.dispatcher.flush()
    bare.drain()


def test_a_cancellation_in_the_middle_of_a_run_cancels_the_rest(bare: Bare) -> None:
    client, program = bare.client(), chain_of(10)
    x, routine = client.upload([1.0]), link(client, program)
    message = run_message(client, routine, program, (x,))
    begin(bare, client, [message], 4)
    bare.engine.cancel(client.session)
    finish(bare, client)
    with pytest.raises(CancelledError):
        client.fetch(*message.outputs)
    client.send(Restart(1))
    assert isinstance(error_of(client, *message.outputs), CancelledError)
    bare.drain()
    assert set(client.session.tensors) == {x, *message.outputs}
    assert client.fetch(run(client, routine, program, (x,))[0]) == [1.0]
    assert not violations(bare.engine)


def test_a_session_that_is_closed_in_the_middle_of_a_run_leaves_nothing(bare: Bare) -> None:
    client, program = bare.client(), accumulate()
    x, w, chain = client.upload([1.0]), client.upload([1.0]), client.new()
    client.send(Chain(chain))
    message = run_message(client, link(client, program, (w,)), program, (x, x), (1.0,), ((chain, None, 50),))
    begin(bare, client, [message], 2)
    bare.engine.close(client.session)
    bare.drain()
    assert client.session.unfolding is None
    assert bare.device.allocated == 0
    assert not bare.engine.live
    assert not violations(bare.engine)


@pytest.mark.parametrize("window", [1, 5, 256])
def test_a_routine_released_right_behind_a_run_still_runs_to_its_end(
    bare: Bare, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "WINDOW", window)
    client, program = bare.client(), chain_of(10)
    x, routine = client.upload([1.0]), link(client, program)
    message = run_message(client, routine, program, (x,))
    client.send(message, Release((routine,)))
    assert client.fetch(*message.outputs) == [1.0]
    assert not client.session.plans
    refused_by(client, program, routine, (x,), "was released")


def test_a_captured_tensor_that_was_released_fails_the_ops_that_read_it_and_no_others(bare: Bare) -> None:
    client, program = bare.client(), accumulate()
    x, w, chain = client.upload([1.0]), client.upload([1.0]), client.new()
    client.send(Chain(chain))
    routine = link(client, program, (w,))
    client.send(Release((w,)))
    (total,) = run(client, routine, program, (x, x), (1.0,), ((chain, print, 0),))
    assert client.fetch(x) == [2.0]
    assert (error_of(client, total).op, error_of(client, total).location) == ("add", HERE)


def test_what_a_run_is_given_may_be_released_right_behind_it(bare: Bare) -> None:
    client, program = bare.client(), chain_of(2)
    x, routine = client.upload([1.0]), link(client, program)
    message = run_message(client, routine, program, (x,))
    client.send(message, Release((x,)))
    assert client.fetch(*message.outputs) == [1.0]


def test_a_cancelled_session_s_runs_are_refused_and_spare_what_others_hold(bare: Bare) -> None:
    client, other = bare.client(), bare.client()
    x, y = client.upload([1.0]), client.upload([1.0])
    client.publish("x", ids=[x])
    theirs = other.lookup("x")
    routine = link(client, increment())
    bare.engine.cancel(client.session)
    for id_ in (x, y):
        run(client, routine, increment(), (id_,))
    client.send(Restart(1))
    assert (other.fetch(theirs), client.fetch(x)) == ([1.0], [1.0])
    assert isinstance(error_of(client, y), CancelledError)
    run(client, routine, increment(), (x,))
    assert other.fetch(theirs) == [2.0]
    assert not bare.errors


def test_batches_of_others_wait_for_a_run_as_they_wait_for_a_batch(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with few messages a pass, the run's own session goes on behind the run, with the right values."""
    monkeypatch.setattr(engine_module, "WINDOW", 3)
    client, other, program = bare.client(), bare.client(), chain_of(10)
    x, routine, theirs = client.upload([1.0]), link(client, program), other.upload([5.0])
    first = run_message(client, routine, program, (x,))
    second = run_message(client, routine, program, first.outputs)
    bare.engine.receive(
        client.session, [encode_message(m) for m in (first, second, Fetch(second.outputs[0], 50, 1, 0))]
    )
    bare.engine.receive(other.session, [encode_message(Fetch(theirs, 60, 1, 0))])
    bare.drain()
    assert (client.answers[50][0].tolist(), other.answers[60][0].tolist()) == ([1.0], [5.0])


# -- groups --------------------------------------------------------------------------------------------------------


def test_runs_of_a_group_have_nothing_in_between(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WINDOW", 1)
    writer, reader = bare.client(), bare.client()
    x, y = writer.upload([0.0]), writer.upload([0.0])
    writer.publish("x", "y", ids=[x, y])
    seen = [reader.lookup("x"), reader.lookup("y")]
    routine = link(writer, increment())
    for n in range(1, 4):
        group = Atomic([encode_message(run_message(writer, routine, increment(), (id_,))) for id_ in (x, y)])
        bare.engine.receive(writer.session, [encode_message(group)])
        bare.engine.receive(reader.session, [encode_message(Fetch(id_, n * 10 + id_, 1, 0)) for id_ in seen])
        bare.drain()
    found = [[reader.answers[n * 10 + id_][0].tolist() for id_ in seen] for n in range(1, 4)]
    assert found == [[[n], [n]] for n in (1.0, 2.0, 3.0)]


def test_a_group_may_link_what_it_runs_and_release_it(bare: Bare) -> None:
    client, program = bare.client(), chain_of(3)
    x = client.upload([1.0])
    program_id, routine = client.new(), client.new()
    before = [*parts_of(program_id, program), Link(routine, program_id, ("cpu:0",), (), LINE)]
    message = run_message(client, routine, program, (x,))
    group: list[Any] = [*before, message, Release((routine, program_id, x))]
    client.send(Atomic([encode_message(one) for one in group]))
    assert client.fetch(*message.outputs) == [-1.0]
    assert client.session.steps == 0
    assert not client.session.plans


@pytest.mark.parametrize("inside", [True, False], ids=["linked inside", "linked before"])
def test_the_runs_of_a_group_have_a_bounded_number_of_steps(bare: Bare, inside: bool) -> None:
    """No other session is served during a group."""
    client, program = bare.client(), chain_of(1000)
    x = client.upload([1.0])
    group: list[Any] = []
    if inside:
        program_id, routine = client.new(), client.new()
        group = [*parts_of(program_id, program), Link(routine, program_id, ("cpu:0",), (), LINE)]
    else:
        routine = link(client, program)
    outputs = [run_message(client, routine, program, (x,)) for _ in range(MAX_STEPS // 1000 + 1)]
    client.send(Atomic([encode_message(one) for one in (*group, *outputs)]))
    error = error_of(client, outputs[0].outputs[0])
    assert isinstance(error, QuotaError)
    assert "make smaller groups" in str(error)
    assert (client.session.routines == {}) == inside


# -- hostile -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("location", [-5, 1 << 17, 1 << 62, (1 << 64) - 1, "here", None])
def test_a_step_s_location_that_is_no_number_of_a_line_stands_for_none(bare: Bare, location: Any) -> None:
    client, program = bare.client(), accumulate()
    x, w, chain = client.upload([1.0]), client.upload([1.0]), client.new()
    client.send(Chain(chain))
    found = records_of(program)
    records = [(*one[:-1], location) if len(one) == 6 and one[0] != "number" else one for one in found]
    program_id, routine = client.new(), client.new()
    client.send(ProgramPart(program_id, tuple(records)), Link(routine, program_id, ("cpu:0",), (w,), LINE))
    (total,) = run(client, routine, program, (x, x), (1.0,), ((chain, print, 50),))
    assert client.fetch(total) == [3.0]
    assert not bare.errors


def test_captured_ids_that_are_not_defined_yet_never_stand_for_values_inside(bare: Bare) -> None:
    client, program = bare.client(), accumulate()
    x, chain = client.upload([1.0]), client.new()
    client.send(Chain(chain))
    routine = link(client, program, (client.ids + 3,))
    (total,) = run(client, routine, program, (x, x), (1.0,), ((chain, print, 0),))
    assert isinstance(error_of(client, total), ProtocolError)
    assert not violations(bare.engine)


def test_what_an_op_does_not_take_is_a_metadata_error_as_at_a_call(bare: Bare) -> None:
    client = bare.client()
    x, program_id, routine = client.upload([1.0]), client.new(), client.new()
    records = (("parameter", ((1,), "float64"), 0, ""), ("cholesky", (0,), (), 0, None, 1), ("return", (1,)))
    client.send(ProgramPart(program_id, records), Link(routine, program_id, ("cpu:0",), (), LINE))
    client.send(Run(routine, (x,), (), (50,), (), LINE))
    assert isinstance(error_of(client, 50), MetadataError)
