"""Runs a program on the serial engine and on the engine, and lists the differences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from tensord.interpreter.errors import CancelledError, DeviceMemoryError, KernelError, QuotaError, TensordError
from tensord.interpreter.opcodes import Opcode
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.memory import reservation
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.instruction import Instruction
from tensord.vm.serial.values import Value
from tensord.vm.tracing.analysis.trace import Trace

from .expected import Expected, expected_of
from .ops import failing_ops
from .programs import random_program
from .scheduler import Machine, Stuck, Unsound
from .snapshots import BUSY, wrong_with
from .steps import FLOW_EFFECTS, Program, Step

SHORT = (DeviceMemoryError, QuotaError)  # errors for lack of a device's memory, or of a session's share of it
GROWTH = 1.5  # the growth of a device's memory that does not suffice even with evictions
LACKED = re.compile(r"(?:not fit|more) on (\w+:\d+)")  # in errors for lack of memory

Root = tuple[str, str | None, str | None]


def check(
    program: Program,
    seed: int | None = None,
    piece: int = HANDLES_PER_STEP,
    expected: Expected | None = None,
    seen: Counter[str] | None = None,
) -> list[str]:
    """The problems of one run; empty for a correct one.

    `piece`: the number of handles of closed sessions that are released at once. The sessions of the programs are small.
    `expected`: the oracle's results, if they are known. `seen`: counts the segments that ran, by device and status.
    """
    chosen, counted = program.seed if seed is None else seed, Counter() if seen is None else seen
    with failing_ops(), np.errstate(all="ignore"):
        return run_and_compare(program, chosen, piece, expected or expected_of(program), counted)


def check_seed(seed: int) -> list[str]:
    """The program of that seed, in the interleaving of that seed."""
    with failing_ops():
        program = random_program(seed)
    return check(program)


def run_and_compare(program: Program, seed: int, piece: int, expected: Expected, seen: Counter[str]) -> list[str]:
    limits, certain = tight_limits(program)
    problems = compare_oracles(expected, expected_of(program, unfolds=True))
    machine = Machine(program, seed, limits, strict=True, piece=piece)
    try:
        machine.run(program.steps)
        sure = certain and not machine.asked.returned  # no instruction waits for memory of a host call's results
        faulty = bool(program.world.faults) or (not sure and lacked_memory(machine))
        problems += compare_answers(expected, machine, program.steps, faulty=faulty)
        problems += compare_effects(expected, machine, program.steps, faulty=faulty)
        problems += compare_checkpoints(expected, machine, faulty=faulty)
        machine.wind_up()
    except Stuck as error:
        return [f"stuck: {error}"]
    except Unsound as error:
        return [f"unsound: {error}"]
    finally:
        machine.close()
    trace = machine.trace()
    seen.update(segments_of(trace))
    seen.update(machine.sorts)
    problems += [f"trace: {problem}" for problem in trace.verify()]
    return problems + [f"left: {what}" for what in leftovers(machine)]


def segments_of(trace: Trace) -> Iterator[str]:
    """The kinds of events in a trace, such as launches, evictions and ends of segments, one for each occurrence."""
    for record in trace.records:
        if record.launch and record.opcode == Opcode.CALL.value:
            yield "launched"
        if record.launch and record.opcode == Opcode.RUN.value:
            yield "runs launched"
        if record.op.startswith("evict ") and record.status == "DONE":
            yield "evicted"
            if record.op.endswith("store:0"):
                yield "evicted to the store"
        if record.op.startswith("read ") and record.status == "DONE":
            yield "read from a file"
        if record.opcode == Opcode.RUN.value:
            yield f"on {record.device.partition(':')[0]}"
            yield f"{record.status.lower()}"
            if any(edge.elided for edge in record.edges):
                yield "dispatched before what they follow had ended"


def tight_limits(program: Program) -> tuple[dict[str, int], bool]:
    """The memory that strictly serial execution needs on each sim device, for a tight world; whether it must suffice.

    It need not suffice if an op fails: a serial run knows the failure, and plans no memory for the op's readers.
    """
    world = program.world
    if not world.tight or (world.faults and world.eviction == "never"):
        return {}, True
    if world.faults:
        return tight_limits(replace(program, world=replace(world, faults=())))[0], False
    with patch.object(reservation, "may_reserve", is_next):
        serial = run_serially(program)
        tight = ("sim", "cpu") if world.store else ("sim",)
        full = {name: device.peak for name, device in serial.devices.items() if name.startswith(tight)}
        if world.tight == 1.0:
            return full, not serial.errors
        less = {name: int(peak * world.tight) for name, peak in full.items()}
        while short := lacking(evicting := run_serially(program, less)):
            if world.eviction == "never":
                return full, not serial.errors
            less |= {name: int(less[name] * GROWTH) + 8 for name in short}
    # 0 means no limit
    more = evicting.in_other_orders
    return {name: nbytes and nbytes + more[name] for name, nbytes in less.items()}, not serial.errors


def run_serially(program: Program, limits: dict[str, int] | None = None) -> Machine:
    """A machine on which the program has run in strict order."""
    serial = Machine(program, 0, limits)
    serial.run(program.steps, serially=True)
    serial.close()
    return serial


def lacking(serial: Machine) -> set[str]:
    """The devices whose memory did not suffice."""
    return {found[1] for error in serial.errors if (found := LACKED.search(str(error)))}


def lacked_memory(machine: Machine) -> bool:
    """Whether an instruction has failed for lack of memory."""
    return any(isinstance(error, SHORT) for error in machine.errors)


def is_next(device: DeviceState, instruction: Instruction, _nbytes: int) -> bool:
    """Whether the instruction may reserve its memory, if instructions reserve in program order.

    A step may be several instructions: transfers of its operands, a copy of the tensor that it writes, and the op.
    """
    return next(iter(device.unreserved), instruction) is instruction


def compare_oracles(expected: Expected, other: Expected) -> list[str]:
    """The differences between runs as the serial engine unfolds them and the steps that they stand for."""
    problems = []
    for number, (session, mine) in enumerate(zip(expected.sessions, other.sessions, strict=True)):
        for request in session.answers.keys() | mine.answers.keys():
            wanted, value = session.answers.get(request), mine.answers.get(request)
            if wanted is None or value is None or not same_value(wanted, value):
                problems.append(f"serially unfolded: session {number}, request {request}: {value!r}, not {wanted!r}")
    keys = {effect[:2] for effect in expected.encoder.effects + other.encoder.effects}
    for key in keys:
        wanted, found = ([e[2:] for e in one.encoder.effects if e[:2] == key] for one in (expected, other))
        problems += compare_chain({number for number, _ in wanted}, wanted, found, f"{key}, serially unfolded")
    return problems


def same_value(wanted: Value, value: Value) -> bool:
    """Whether both have the same array or list, and the same errors."""
    if {root_of(e) for e in wanted.errors} != {root_of(e) for e in value.errors}:
        return False
    if not isinstance(wanted.array, np.ndarray) or not isinstance(value.array, np.ndarray):
        return bool(wanted.array == value.array)
    return same(wanted.array, value.array)


# -- answers -----------------------------------------------------------------------------------------------------------


def compare_answers(expected: Expected, machine: Machine, steps: Sequence[Step], *, faulty: bool) -> list[str]:
    problems, (_, undecided) = [], undecided_effects(steps)
    ended, waiting = ({step.session for step in steps if step.kind == kind} for kind in ("close", "FLOW"))
    unanswered = ended & waiting  # a session that ends while its run waits for a value gets no later answers
    for number, session in enumerate(expected.sessions):
        mine = machine.answers[number]
        for request, (told, error) in expected.replies[number].items():
            if request == 0:
                continue
            if request not in mine and number in unanswered:
                continue
            if request not in mine:
                problems.append(f"session {number}, request {request}: no answer")
                continue
            wanted = session.answers.get(request)
            if wanted is None:
                wanted = Value((), ()) if error is None else Value(None, (error,))
            if faulty and (number, request) in undecided:
                continue
            wrong = differs(wanted, *mine[request], faulty=faulty)
            if wrong is None and isinstance(told, list) and told and isinstance(told[0], list):
                wrong = other_routine(told, mine[request][0])
            if wrong is not None:
                problems.append(f"session {number}, request {request}: {wrong}")
        checkpoints = {request for session, request in expected.checkpoints if session == number}
        if extra := mine.keys() - expected.replies[number].keys() - checkpoints:
            problems.append(f"session {number}: answers to the requests {sorted(extra)}, which were never made")
    return problems


def compare_checkpoints(expected: Expected, machine: Machine, *, faulty: bool) -> list[str]:
    """The checkpoints that lack a value of their point in program order, or have another one.

    A checkpoint is refused while another one is being written to its directory.
    """
    problems = []
    for (number, request), wanted in expected.checkpoints.items():
        what, answers = f"session {number}, checkpoint {request}", machine.answers[number]
        if request not in answers:
            problems += [] if machine.sessions[number].closed else [f"{what}: no answer"]
            continue
        report, error = answers[request]
        if error is not None:
            problems += [] if BUSY in str(error) else [f"{what}: {error}"]
            continue
        machine.sorts["checkpoints"] += 1
        machine.sorts["values in checkpoints"] += report["written"]
        machine.sorts["values kept by checkpoints"] += report["kept"]
        problems += [f"{what}: {wrong}" for wrong in wrong_with(wanted, report, faulty=faulty)]
    return problems


def undecided_effects(steps: Sequence[Step]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """The chains with side effects of control flow, and the requests of all side effects on these chains.

    After a fault, the side effects of control flow may never have been issued, so no failure of theirs stops the chain.
    """
    found = list(effects_of_steps(steps))
    chains = {(session, chain) for session, chain, _, depends in found if depends}
    return chains, {(session, number) for session, chain, number, _ in found if (session, chain) in chains}


def effects_of_steps(steps: Iterable[Step]) -> Iterator[tuple[int, int, int, bool]]:
    """Session, chain and request of each side effect, and whether it is one of control flow."""
    for step in steps:
        if step.kind == "EFFECT":
            yield step.session, step.fields[1], step.number, False
        elif step.kind == "FLOW":
            yield from ((step.session, chain, number, True) for chain, number, _ in step.fields[FLOW_EFFECTS])
        else:
            yield from effects_of_steps(step.inner)


def differs(wanted: Value, value: Any, error: TensordError | None, *, faulty: bool) -> str | None:
    """The difference of an answer from the expected one; None if there is none."""
    possible = {root_of(e) for e in wanted.errors}
    if error is not None:
        if root_of(error) in possible or (faulty and is_injected(error)):
            return None
        if wanted.errors and isinstance(error, QuotaError):
            return None  # refused while cancelled or failed instructions still had their memory
        healthy = "a value" if wanted.array is not None else "no value"
        return f"the error {root_of(error)} ({error}); expected {healthy} or one of {sorted(map(str, possible))}"
    if wanted.array is None:
        return f"the value {value!r}; expected one of {sorted(map(str, possible))}"
    if isinstance(wanted.array, np.ndarray):
        return None if same(wanted.array, value) else f"the value {value!r}; expected {wanted.array!r}"
    if isinstance(wanted.array, list):
        return None if same_metas(wanted.array, value) else f"the metas {value!r}; expected {wanted.array!r}"
    return None


def same(wanted: Any, value: Any) -> bool:
    """Whether two arrays are equal in shape, dtype and bits (all NaNs are equal), or two lists of names, or two texts
    that stand for errors."""
    if isinstance(wanted, list | str):
        return type(value) is type(wanted) and bool(wanted == value)
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (wanted.shape, wanted.dtype):
        return False
    return bool(np.array_equal(value, wanted, equal_nan=wanted.dtype.kind == "f"))


def other_routine(wanted: list[Any], found: Any) -> str | None:
    """The difference between two descriptions of a routine (its devices, the records of its program), if any."""
    devices = [head[1] for head in wanted[0]]
    if found is None or ([head[1] for head in found[0]], found[1:]) == (devices, wanted[1:]):
        return None
    return f"the routine {found!r:.200}; expected {wanted!r:.200}"


def same_metas(wanted: Any, value: Any) -> bool:
    """Whether two lists of metas, or of names, agree; a meta that depends on data may still be pending."""
    if wanted == value:
        return True
    return len(wanted) == len(value) and all(
        home == home_ and meta_ in (meta, None) for (meta, home), (meta_, home_) in zip(wanted, value, strict=True)
    )


def root_of(error: TensordError) -> Root:
    """The identity of an error: its type, op and location. For a cancellation, the type alone, since the instruction
    that was cancelled first depends on timing."""
    if isinstance(error, CancelledError):
        return ("CancelledError", None, None)
    return (kind_of(error), error.op, error.location)


def kind_of(error: TensordError) -> str:
    """The name of an error's type. All KernelErrors are alike: an injected fault may precede the op's own error."""
    return "KernelError" if isinstance(error, KernelError) else type(error).__name__


def is_injected(error: TensordError) -> bool:
    return "injected" in str(error) or "lost" in str(error) or isinstance(error, SHORT)


# -- effects -----------------------------------------------------------------------------------------------------------


def compare_effects(expected: Expected, machine: Machine, steps: Sequence[Step], *, faulty: bool) -> list[str]:
    """The chains on which a certain side effect is missing or out of order, or an impossible one has happened."""
    problems = []
    undecided = undecided_effects(steps)[0] if faulty else set()
    for key in {effect[:2] for effect in expected.encoder.effects + machine.encoder.effects} - undecided:
        wanted = [effect[2:] for effect in expected.encoder.effects if effect[:2] == key]
        found = [effect[2:] for effect in machine.encoder.effects if effect[:2] == key]
        sure = {number for number, _ in wanted if not (faulty or expected.sessions[key[0]].answers[number].errors)}
        problems += compare_chain(sure, wanted, found, str(key), faulty=faulty)
    return problems


def compare_chain(
    sure: set[int], wanted: list[Any], found: list[Any], chain: str, *, faulty: bool = False
) -> list[str]:
    """The mistakes among the side effects of one chain: (number, arrays) of each."""
    rest = iter(wanted)
    for number, arrays in found:
        skipped = []
        effect = next((e for e in rest if e[0] == number or skipped.append(e[0])), None)  # type: ignore[func-returns-value]
        if effect is None:
            return [f"chain {chain}: effect {number} happened, but was not expected there"]
        if missed := sure.intersection(skipped):
            return [f"chain {chain}: effects {missed} did not happen before effect {number}"]
        if not all(
            same(one, other) or (faulty and isinstance(other, str))
            for one, other in zip(effect[1], arrays, strict=True)
        ):
            return [f"chain {chain}: effect {number} got {arrays}; expected {effect[1]}"]
    return [f"chain {chain}: effect {number} did not happen" for number, _ in rest if number in sure]


# -- leftovers ---------------------------------------------------------------------------------------------------------


def held_by(engine: Any) -> dict[str, Any]:
    """The containers of an engine that must be empty after all releases."""
    scheduler, directory = engine.scheduler, engine.directory
    dispatcher = scheduler.dispatcher
    return {
        "live": scheduler.live,
        "pending": engine.pending,
        "held": engine.held,
        "finished": scheduler.finished,
        "bound": scheduler.bound,
        "wanted": scheduler.wanted,
        "ready": dispatcher.ready,
        "doomed": dispatcher.doomed,
        "batches": dispatcher.batches,
        "backlog": dispatcher.backlog,
        "refills": dispatcher.refills,
        "names": directory.names,
        "publishers": directory.publishers,
        "sessions": directory.sessions,
        "leaving": directory.leaving,
        "exports": engine.residency.releasing.exports,
        "orphans": engine.residency.releasing.orphans,
        "the system's instructions": scheduler.system_session.live,
    }


DEVICE = ("planned", "unreserved", "unreserved_bytes", "unknown", "live", "candidates")


def leftovers(machine: Machine) -> list[str]:
    """The objects and bytes that an engine still has after all releases."""
    engine = machine.engine
    found = [f"{what}: {held}" for what, held in held_by(engine).items() if held]
    for device in engine.tiers.values():
        found += [f"{device.name}: {what} is {held}" for what in DEVICE if (held := getattr(device, what))]
        found += [f"{device.name}: {what}" for what, wrong in suspicions(device).items() if wrong]
    return found


def suspicions(device: Any) -> dict[str, bool]:
    """Conditions of a device that must not hold after all releases."""
    return {
        "an instruction waits for memory": any(not i.retired for _, i in device.waiting),
        "buffers are reusable by a stream": any(device.reusable.values()),
        f"{device.backend.allocated} bytes are allocated": device.backend.allocated != 0,
        "a stream counts as busy": any(stream.queued for stream in device.backend.streams),
    }
