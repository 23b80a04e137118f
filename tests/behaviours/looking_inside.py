"""Views into an embedded machine for the behaviour tests: transfers, copies, addresses, gates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.concurrency.leader_followers import NEVER
from tensord.vm.machine import VirtualMachine
from tensord.vm.model.tensor import Copy
from tensord.vm.tracing.record import Record

from ..puppet import eventually
from ..streams.fake_cuda.gpu import Gpu

WAIT = 30.0  # seconds until a test that hangs is given up; never slept
ROUND = 0.002  # seconds that the machine is driven between two looks


def machine_of(session: Session) -> VirtualMachine:
    """The virtual machine of an embedded session."""
    machine: VirtualMachine = session._core.transport.machine
    return machine


def device_of(session: Session, name: str) -> Any:
    """A device, with its gates and faults."""
    return machine_of(session).devices[name]


def store_of(session: Session) -> Any:
    """The store, with its gates and faults."""
    return machine_of(session).tiers["store:0"]


@contextmanager
def held(session: Session, device: str, which: str) -> Iterator[None]:
    """Streams of a device stand still inside the block."""
    gate = device_of(session, device)
    gate.hold(which)
    try:
        yield
    finally:
        gate.resume(which)


def until(session: Session, predicate: Any) -> None:
    """Drive the machine until a condition holds.

    The machine's own waits check their predicates on any thread, also under the machine's lock, where a predicate that
    asks the session would deadlock.
    """
    machine, deadline = machine_of(session), time.monotonic() + WAIT
    while not predicate():
        assert time.monotonic() < deadline, "it never came true"
        machine.wait_for(NEVER, ROUND)


def run_until_graph(gpu: Gpu, session: Session, run: Callable[[], object]) -> None:
    """Run again and again until a graph is launched. Another thread makes the graph meanwhile."""
    before = gpu.calls["graphLaunch"]

    def is_launched() -> bool:
        run()
        session.sync()
        return gpu.calls["graphLaunch"] > before

    eventually(is_launched)


def moved(session: Session) -> dict[str, tuple[int, int]]:
    """Transfers so far: "device kind" -> (count, bytes)."""
    found = session.stats()["transfers"]
    return {
        f"{device} {kind}": (entry["count"], entry["bytes"])
        for device, kinds in found.items()
        for kind, entry in kinds.items()
    }


def moved_since(session: Session, before: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Transfers since an earlier `moved`."""
    now = moved(session)
    changed = {key: (n - before.get(key, (0, 0))[0], b - before.get(key, (0, 0))[1]) for key, (n, b) in now.items()}
    return {key: value for key, value in changed.items() if value != (0, 0)}


def records(session: Session, op: str = "", opcode: str = "") -> list[Record]:
    """Records of the trace by op (its beginning) and opcode."""
    return [r for r in session.trace().records if r.op.startswith(op) and opcode in ("", r.opcode)]


def moves(session: Session) -> list[Record]:
    """Records of the Transfers, without those that only brought a value to the host of its reader."""
    found = records(session)
    needed = {o.copy for r in found if r.op != "fetch" for o in r.operands if o.kind == "const"}
    made = [(r, {o.copy for o in r.operands if o.kind != "const"}) for r in found if r.opcode == "Transfer"]
    return [record for record, copies in made if needed & copies]


def transfers(session: Session) -> list[str]:
    """Ops of those Transfers, in program order: "h2d cpu:0->sim:0"."""
    return [r.op for r in moves(session)]


def copies_of(session: Session, tensor: Tensor) -> dict[str, Copy]:
    """Device -> current whole copy of the tensor's storage."""
    session.flush()
    inside = machine_of(session).engine.directory.sessions[session._core.transport._session.id].tensors[tensor._id]
    return {device.name: copy for device, copy in inside.storage.copies.items()}


def address(session: Session, tensor: Tensor, device: str) -> int:
    """The offset of the tensor's storage in a device's memory."""
    buffer = copies_of(session, tensor)[device].buffer
    assert buffer is not None
    pointer = getattr(buffer.raw, "ptr", None)  # a GPU's
    return int(buffer.raw.__array_interface__["data"][0] if pointer is None else pointer)


def allocated(session: Session, device: str) -> int:
    """Bytes in use on a device."""
    return int(session.stats()["devices"][device]["allocated"])


def ones(*shape: int, value: float = 1.0) -> Any:
    """A float32 array of one value."""
    return np.full(shape, value, np.float32)


def assert_sound(session: Session) -> None:
    """Every instruction has ended, and the trace is consistent."""
    session.sync(WAIT)
    until(session, lambda: not machine_of(session).engine.live)  # transfers that nobody waits for belong to no session
    assert session.trace().verify() == []
    stats = session.stats()
    assert (stats["live"], stats["pending"]) == (0, 0)
    for device, entry in stats["devices"].items():
        assert entry["allocated"] == entry["planned"] + entry["kept_for_runs"], f"{device}: {entry}"
        assert entry["waiting_for_memory"] == 0
        assert entry["queued"] == {}
