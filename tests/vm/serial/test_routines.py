"""Programs, links and runs on the serial engine: its answers are those of the other engine.

`tests/model` compares random programs of valid runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import (
    Chain,
    Effect,
    Fetch,
    Location,
    Lookup,
    Publish,
    Release,
    Restart,
    ToDevice,
    Upload,
    Wait,
    encode_message,
)
from tensord.interpreter.wire.program_messages import Convention, Link, ProgramPart, Run
from tensord.vm.serial.engine import SerialEngine

from ...each_case import each_case
from ..parts import Parts
from ..programs import LINE, ONE, accumulate, chain_of, parts_of

DEVICES = ("cpu:0", "sim:0")
X, Y, W, CHAIN, PROGRAM, ROUTINE = 3, 4, 5, 6, 11, 12


class Serially:
    """Sessions of a serial engine."""

    def __init__(self) -> None:
        self.engine = SerialEngine(dict.fromkeys(DEVICES, ()))

    def drain(self) -> None:
        """The serial engine has no work left after a message."""


class Asked:
    """A session of either engine, and its answers: values, or the identity of an error."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.answers: dict[int, Any] = {}
        self.session = machine.engine.open_session(self.keep)
        self.send(Location(LINE, "user.py:1"), Location(2, "user.py:2"), Chain(CHAIN))
        self.send(*(upload(id_, value) for id_, value in ((X, 1.0), (Y, 2.0), (W, 100.0))))

    def keep(self, request: int, value: Any, error: TensordError | None) -> None:
        if request:
            value = [each for part in value for each in part] if hasattr(value, "__next__") else value
            shown = value.tolist() if isinstance(value, np.ndarray) else value or None  # an effect gives () or None
            self.answers[request] = shown if error is None else (type(error).__name__, error.op, error.location)

    def send(self, *messages: Any) -> None:
        self.machine.engine.receive(self.session, [encode_message(message) for message in messages])
        while self.machine.engine.schedule():
            pass
        self.machine.drain()


def upload(id_: int, value: float) -> Upload:
    return Upload(id_, (1,), "float64", "cpu:0", np.array([value]), LINE)


def linking(program: Program, captured: Sequence[int] = (W,), devices: Sequence[str] = ("cpu:0",)) -> list[Any]:
    """Ids of programs are new, so they follow the uploads' ids."""
    link = Link(ROUTINE, PROGRAM, tuple(devices), tuple(captured), LINE)
    return [*parts_of(PROGRAM, program, 2), link, Release((PROGRAM,))]


def run(inputs: Sequence[int], numbers: Sequence[Any], outputs: Sequence[int], effects: Sequence[Any] = ()) -> Run:
    return Run(ROUTINE, tuple(inputs), tuple(numbers), tuple(outputs), tuple(effects), 2)


def fetches(*ids: int) -> list[Fetch]:
    return [Fetch(id_, 1000 + id_, 0, 0) for id_ in ids]


def two_homes() -> Program:
    builder = Builder()
    x = builder.parameter(ONE)
    return builder.finish([builder.op("negative", [x], device=1, location=LINE)[0], builder.move(x, 0)])


def printing(seen: list[Any]) -> Callable[..., None]:
    return lambda *arrays: seen.append([array.tolist() for array in arrays])


Conversation = Callable[[Asked, list[Any]], None]


def released_behind_the_run(asked: Asked, seen: list[Any]) -> None:
    effects = ((CHAIN, printing(seen), 31),)
    asked.send(*linking(accumulate()), run((X, Y), (1.0,), (30,), effects), Release((ROUTINE, X, W)), *fetches(30))
    asked.send(run((Y, Y), (1.0,), (40,), effects[:0]), *fetches(40, Y))


def refused(asked: Asked, seen: list[Any]) -> None:
    """Too few numbers: the results, the written tensors, the side effects and their chain get the error."""
    asked.send(*linking(accumulate()), run((X, Y), (), (30,), ((CHAIN, printing(seen), 31),)), *fetches(X, Y, 30))
    asked.send(Effect((), CHAIN, printing(seen), 50, 0))


def refused_inputs(asked: Asked, seen: list[Any]) -> None:
    asked.send(*linking(accumulate()), run((X, 99), (1.0,), (30,), ((CHAIN, printing(seen), 31),)), *fetches(X, 30))


def refused_outputs(asked: Asked, seen: list[Any]) -> None:
    asked.send(*linking(accumulate()), run((X, Y), (1.0,), (13,), ((CHAIN, printing(seen), 31),)), *fetches(X, 13))


def refused_homes(asked: Asked, seen: list[Any]) -> None:  # noqa: ARG001 - as the others
    """Results of a run that is refused have their homes and metas all the same."""
    asked.send(*linking(two_homes(), (), DEVICES), run((99,), (), (30, 31)), *fetches(30, 31))
    asked.send(ToDevice(30, 40, "cpu:0", LINE), Wait((30,), 50, LINE), *fetches(40))


def damaged(asked: Asked, seen: list[Any]) -> None:  # noqa: ARG001 - as the others
    asked.send(
        ProgramPart(PROGRAM, (("negative", (0,), (), 0, None, 1),)), Link(ROUTINE, PROGRAM, ("cpu:0",), (), LINE)
    )
    asked.send(run((), (), (30,)), run((), (), (40,)), *fetches(30, 40))


def unknown_device(asked: Asked, seen: list[Any]) -> None:  # noqa: ARG001 - as the others
    asked.send(*linking(chain_of(2), (), ("gpu:0",)), run((X,), (), (30,)), *fetches(30, X))


def cancelled(asked: Asked, seen: list[Any]) -> None:
    """Tensors that other sessions hold are spared."""
    asked.send(*linking(accumulate()), Publish(("y",), (Y,), 20))
    asked.machine.engine.cancel(asked.session)
    asked.send(run((X, Y), (1.0,), (30,), ((CHAIN, printing(seen), 31),)))
    asked.send(run((Y, X), (1.0,), (40,), ((CHAIN, printing(seen), 41),)))
    asked.send(Restart(1), *fetches(X, Y, 30, 40))
    asked.send(run((Y, Y), (1.0,), (50,), ((CHAIN, printing(seen), 51),)), *fetches(Y, 50))


def scaled() -> Program:
    """(x; captured w): w += x; returns x + w."""
    builder = Builder()
    x, w = builder.parameter(ONE), builder.captured(ONE)
    (w,) = builder.op("add", [w, x], into=[w], location=LINE)
    return builder.finish(list(builder.op("add", [x, w], location=2)))


def published(asked: Asked, seen: list[Any]) -> None:
    """The answer to a lookup suffices to make the same routine; captured tensors are shared."""
    other = Asked(asked.machine)
    how = ("f", ("x",), (("parameter", 0, None),), (), (), ("result", 0, None))
    asked.send(*linking(scaled()), Convention(ROUTINE, how), Publish(("f", "w"), (ROUTINE, W), 20))
    asked.send(Release((ROUTINE, W)))
    other.send(Lookup(("f",), (), 20, False), Lookup(("w", "f"), (30,), 21, False))  # the answers: 1 and 2
    other.send(Lookup(("w", "f"), (30, 31), 22, False), Lookup(("f", "w"), (32, 33), 23, True))
    records = other.answers[22][2:]
    other.send(ProgramPart(40, [(*each[:-1], 1) if each[0] == "add" else each for each in records]))
    other.send(Link(41, 40, ("cpu:0",), (31,), LINE), Link(42, 40, ("cpu:0",), (32,), LINE))
    other.send(
        Run(41, (X,), (), (50,), (), LINE), Run(41, (X,), (), (60,), (), LINE), Run(42, (Y,), (), (70,), (), LINE)
    )
    other.send(*fetches(30, 31, 32, 33, 50, 60, 70))
    seen.append(other.answers)


def published_wrongly(asked: Asked, seen: list[Any]) -> None:
    other = Asked(asked.machine)
    asked.send(*linking(accumulate()), Publish(("f",), (ROUTINE,), 20))  # it calls back
    asked.send(Publish(("f", "x"), (PROGRAM, X), 21), Publish(("f",), (99,), 22), Publish(("f",), (CHAIN,), 23))
    asked.send(*parts_of(40, scaled()), Link(41, 40, ("cpu:0",), (), LINE), Publish(("f",), (41,), 24))
    asked.send(Link(42, 40, ("cpu:0",), (X,), LINE), Release((X,)), Publish(("f",), (42,), 25))
    asked.send(upload(50, 1.0), ToDevice(50, 51, "cpu:0", LINE), Run(50, (51,), (), (60,), (), LINE), *fetches(60))
    asked.send(Convention(41, ()), Convention(99, ()), Convention(50, ()))
    other.send(Lookup(("f",), (30,), 20, False), Lookup(("f", "x"), (), 21, True))
    seen.append(other.answers)


def published_of_other_metas(asked: Asked, seen: list[Any]) -> None:
    """A hostile client links a program to a tensor that it was not made for."""
    two = Upload(20, (2,), "float64", "cpu:0", np.ones(2), LINE)
    asked.send(two, *parts_of(40, scaled()), Link(41, 40, ("cpu:0",), (20,), LINE), Publish(("f",), (41,), 24))
    seen.append(asked.answers[24])


def fails_inside(asked: Asked, seen: list[Any]) -> None:
    builder = Builder()
    x = builder.parameter(ONE)
    (root,) = builder.op("cholesky", [builder.op("reshape", [x], {"shape": (1, 1)})[0]], location=LINE)
    builder.print(["the root is", None], [root], location=2)
    builder.effect(0, [root], location=2)
    (y,) = builder.op("negative", [x], location=LINE)
    asked.send(*linking(builder.finish([root, y]), ()), upload(20, -1.0))
    shown: list[str] = []
    effects = ((CHAIN, lambda one: shown.append(type(one).__name__), 21), (CHAIN, printing(seen), 22))
    asked.send(run((20,), (), (30, 31), effects), *fetches(30, 31))
    seen.append(shown)


CONVERSATIONS: list[Conversation] = [
    released_behind_the_run,
    refused,
    refused_inputs,
    refused_outputs,
    refused_homes,
    damaged,
    unknown_device,
    cancelled,
    published,
    published_wrongly,
    published_of_other_metas,
    fails_inside,
]


@each_case("conversation", CONVERSATIONS, ids=lambda one: one.__name__)
def test_both_engines_answer_the_same(conversation: Conversation) -> None:
    found = []
    for machine in (Serially(), Parts(*DEVICES), Parts(*DEVICES, inline=True)):
        seen: list[Any] = []
        asked = Asked(machine)
        conversation(asked, seen)
        found.append((asked.answers, seen, sorted(asked.session.tensors)))
    assert found[0][0]
    assert found[0] == found[1] == found[2]


def test_a_released_routine_leaves_no_signature() -> None:
    asked = Asked(Serially())
    asked.send(*linking(chain_of(3), ()), run((X,), (), (30,)))
    assert len(asked.session.signatures) == 3
    asked.send(Release((ROUTINE,)))
    assert not asked.session.signatures
    assert (asked.session.programs, asked.session.routines, asked.session.steps) == ({}, {}, 0)
