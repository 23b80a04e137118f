"""Runs a program on the serial engine and on the engine, and says in what they differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensord.interpreter.errors import CancelledError, TensordError
from tensord.vm.serial import SerialEngine
from tensord.vm.serial_values import Value

from .ops import failing_ops
from .programs import execute, random_program
from .scheduler import Machine, Stuck
from .steps import Encoder, Program

Root = tuple[str, str | None, str | None]


class Expected:
    """What the serial engine made of a program."""

    def __init__(self, program: Program) -> None:
        missing = dict(program.world.missing)
        devices = {d: [missing[d]] if d in missing else [] for d in program.world.devices}
        self.engine = SerialEngine(
            devices, lambda *call: RuntimeError("injected") if call in program.failing else None
        )
        self.replies: list[dict[int, tuple[Any, Any]]] = []
        self.sessions = [self.open() for _ in range(program.world.sessions)]
        self.encoder = Encoder()
        for step in program.steps:
            execute(self.engine, self.sessions, self.encoder, step)

    def open(self) -> Any:
        mine: dict[int, tuple[Any, Any]] = {}
        self.replies.append(mine)
        return self.engine.open_session(lambda request, value, error: mine.__setitem__(request, (value, error)))


def check(program: Program, seed: int | None = None) -> list[str]:
    """Everything that is wrong with one run; empty if it is as it should be."""
    with failing_ops(), np.errstate(all="ignore"):
        return run_and_compare(program, program.seed if seed is None else seed)


def check_seed(seed: int) -> list[str]:
    """The program of that seed, in the interleaving of that seed."""
    with failing_ops():
        program = random_program(seed)
    return check(program)


def run_and_compare(program: Program, seed: int) -> list[str]:
    limits = tight_limits(program)
    expected = Expected(program)
    machine = Machine(program, seed, limits)
    try:
        machine.run(program.steps)
    except Stuck as error:
        return [f"stuck: {error}"]
    problems = compare_answers(program, expected, machine)
    problems += compare_effects(expected, machine)
    problems += [f"trace: {problem}" for problem in machine.trace().verify()]
    return problems + leftovers(machine)


def tight_limits(program: Program) -> dict[str, int]:
    """What strictly serial execution needs on each sim device, if the world is to be tight."""
    if not program.world.tight:
        return {}
    serial = Machine(program, 0)
    serial.run(program.steps, serially=True)
    full = {name: device.peak for name, device in serial.devices.items() if name.startswith("sim")}
    less = {name: int(peak * program.world.tight) for name, peak in full.items()}
    tighter = Machine(program, 0, less)
    tighter.run(program.steps, serially=True)
    fits = not any(type(error).__name__ == "DeviceMemoryError" for error in tighter.errors)
    return less if fits else full


# -- answers -----------------------------------------------------------------------------------------------------------


def compare_answers(program: Program, expected: Expected, machine: Machine) -> list[str]:
    problems = []
    faulty = bool(program.world.faults)
    for number, session in enumerate(expected.sessions):
        mine = machine.answers[number]
        for request, (value, error) in expected.replies[number].items():
            if request == 0:
                continue
            if request not in mine:
                problems.append(f"session {number}, request {request}: no answer")
                continue
            wanted = session.answers.get(request)
            if wanted is None:
                wanted = Value((), ()) if error is None else Value(None, (error,))
            if (wrong := differs(wanted, *mine[request], faulty=faulty)) is not None:
                problems.append(f"session {number}, request {request}: {wrong}")
        if extra := mine.keys() - expected.replies[number].keys():
            problems.append(f"session {number}: answers to {sorted(extra)}, which nobody asked")
    return problems


def differs(wanted: Value, value: Any, error: TensordError | None, *, faulty: bool) -> str | None:
    """What is wrong with an answer, if anything."""
    possible = {root_of(e) for e in wanted.errors}
    if error is not None:
        if root_of(error) in possible or (faulty and is_injected(error)):
            return None
        healthy = "a value" if wanted.array is not None else "no value"
        return f"{root_of(error)} ({error}), expected {healthy} or one of {sorted(map(str, possible))}"
    if wanted.array is None:
        return f"a value, {value!r}, expected one of {sorted(map(str, possible))}"
    if isinstance(wanted.array, np.ndarray):
        return None if same(wanted.array, value) else f"{value!r}, expected {wanted.array!r}"
    if isinstance(wanted.array, list):
        return None if same_metas(wanted.array, value) else f"{value!r}, expected {wanted.array!r}"
    return None


def same(wanted: Any, value: Any) -> bool:
    """Equal in shape, dtype and bits; all NaNs are one."""
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (wanted.shape, wanted.dtype):
        return False
    return bool(np.array_equal(value, wanted, equal_nan=wanted.dtype.kind == "f"))


def same_metas(wanted: Any, value: Any) -> bool:
    """A meta that data decide may still be pending."""
    return len(wanted) == len(value) and all(
        home == home_ and meta_ in (meta, None) for (meta, home), (meta_, home_) in zip(wanted, value, strict=True)
    )


def root_of(error: TensordError) -> Root:
    """What identifies an error: where it arose. Which of a session's instructions were cancelled first is open."""
    if isinstance(error, CancelledError):
        return ("CancelledError", None, None)
    return (type(error).__name__, error.op, error.location)


def is_injected(error: TensordError) -> bool:
    return "injected" in str(error) or "lost" in str(error) or type(error).__name__ == "DeviceMemoryError"


# -- effects -----------------------------------------------------------------------------------------------------------


def compare_effects(expected: Expected, machine: Machine) -> list[str]:
    """Per chain: those that certainly happen did, in order, and no others than may."""
    problems = []
    for key in {(session, chain) for session, chain, _, _ in expected.encoder.effects + machine.encoder.effects}:
        wanted = [effect[2:] for effect in expected.encoder.effects if effect[:2] == key]
        found = [effect[2:] for effect in machine.encoder.effects if effect[:2] == key]
        problems += compare_chain(expected.sessions[key[0]].answers, wanted, found, str(key))
    return problems


def compare_chain(answers: Any, wanted: list[Any], found: list[Any], chain: str) -> list[str]:
    rest = iter(wanted)
    for number, arrays in found:
        for number_, arrays_ in rest:
            if number_ == number:
                break
            if not answers[number_].errors:
                return [f"chain {chain}: effect {number_} did not happen before {number}"]
        else:
            return [f"chain {chain}: effect {number} should not have happened, or not here"]
        if not all(map(same, arrays_, arrays)):
            return [f"chain {chain}: effect {number} saw {arrays}, expected {arrays_}"]
    return [f"chain {chain}: effect {number} did not happen" for number, _ in rest if not answers[number].errors]


# -- what is left ------------------------------------------------------------------------------------------------------


def leftovers(machine: Machine) -> list[str]:
    """After everything was released the engine holds nothing."""
    engine = machine.engine
    problems = []
    for what in ("live", "pending", "ready", "doomed", "finished", "outbox", "backlog", "names"):
        if getattr(engine, what):
            problems.append(f"left: engine.{what} is {getattr(engine, what)}")
    for lane in engine.lanes.values():
        for what in ("planned", "unreserved", "unreserved_bytes", "unknown", "live", "replicas"):
            if getattr(lane, what):
                problems.append(f"left: {lane.name}: {what} is {getattr(lane, what)}")
        if any(not i.retired for _, i in lane.waiting):
            problems.append(f"left: {lane.name}: waiting is {lane.waiting}")
        if any(lane.hand_me_downs.values()):
            problems.append(f"left: {lane.name}: hand-me-downs")
        if lane.device.allocated:
            problems.append(f"left: {lane.name}: {lane.device.allocated} bytes are allocated")
        if lane.idle != len(lane.compute) or any(s.queued for s in lane.device.streams):
            problems.append(f"left: {lane.name}: {lane.idle} idle, queued {[s.queued for s in lane.device.streams]}")
    for session in [*engine.sessions.values(), engine.nobody]:
        if session.live or session.tensors or session.barrier is not None or session.payload:
            problems.append(f"left: session {session.id}: {session.live}, {list(session.tensors)}, {session.payload}")
    return problems
