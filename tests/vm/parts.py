"""An engine without its front end: tests make tensors and instructions themselves. Devices have no threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensord.interpreter.errors import TensordError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.types.meta import Meta
from tensord.streams.device import Eviction
from tensord.streams.host.cpu import CpuOptions
from tensord.streams.sim.sim import SimOptions
from tensord.vm.engine import Engine
from tensord.vm.model.device_state import DeviceState
from tensord.vm.model.instruction import Instruction, InstructionEnd
from tensord.vm.model.session import VmSession
from tensord.vm.model.tensor import Binding, Copy, VmTensor
from tests.model.streams import ModelCpu, ModelSim, Steering

from .bare_engine import Bare

PLENTY = 1 << 24


class Parts(Bare):
    """An engine on several devices. Streams run nothing by themselves; the driving thread runs ops only if `inline`."""

    def __init__(
        self,
        *names: str,
        workers: int = 1,
        inline: bool = False,
        events: bool = False,
        peer: bool = True,
        late: bool = False,
        memory: int = PLENTY,
        eviction: Eviction = Eviction.NEVER,
        **options: Any,
    ) -> None:
        self.now = 0
        steering = Steering(self.clock, frozenset(), inline=inline, events=events)
        self.backends: dict[str, Any] = {}
        for name in names or ("cpu:0",):
            if name.startswith("cpu"):
                cpu = CpuOptions(workers=workers, memory=memory, late_errors=late)
                self.backends[name] = ModelCpu(name, self.sink, cpu, steering)
            else:
                sim = SimOptions(memory=memory, compute_streams=workers, peer=peer, late_errors=late, eviction=eviction)
                self.backends[name] = ModelSim(name, self.sink, sim, steering)
        self.device = next(iter(self.backends.values()))
        self.engine = Engine(self.backends, self.clock, **options)
        self.scheduler = self.engine.scheduler
        self.dispatcher = self.scheduler.dispatcher
        self.residency = self.engine.residency
        self.errors: list[TensordError] = []
        self.engine.report = lambda _session, error: self.errors.append(error)
        self.session: VmSession = self.engine.open_session(lambda *_: None)
        self.ran: list[str] = []
        self.ids = 0

    def at(self, name: str) -> DeviceState:
        return self.engine.devices[name]

    @property
    def here(self) -> DeviceState:
        return self.at(self.device.name)

    @property
    def streams(self) -> list[Any]:
        return [stream for backend in self.backends.values() for stream in backend.streams]

    def drain(self) -> None:
        """Execute, report and retire all instructions."""
        self.schedule()
        for stream in self.streams:
            stream.report(len(stream.executed))
        self.schedule()
        while busy := [stream for stream in self.streams if stream.can_execute()]:
            self.step(busy[0])

    def close(self) -> None:
        """End all instructions and close every session."""
        for session in list(self.engine.directory.sessions.values()):
            self.engine.close(session)
        self.drain()

    # -- tensors and instructions ----------------------------------------------------------------------------------

    def tensor(self, elements: int = 1, home: str = "", *, filled: bool = True) -> VmTensor:
        """A float64 tensor with a handle of the session and, if `filled`, with memory."""
        device = self.at(home or self.device.name)
        meta = Meta.of((elements,), "float64")
        tensor, copy = self.residency.new_tensor(meta, device)
        if filled:
            copy.buffer = buffer = device.backend.allocate(meta.nbytes)
            assert buffer is not None
            device.backend.bind(buffer, meta)[...] = 0
        self.session.newest += 1
        self.session.tensors[self.session.newest] = tensor
        tensor.storage.account = self.session.account
        self.session.account.bytes += meta.nbytes
        return tensor

    def release(self, tensor: VmTensor) -> None:
        """The session drops its handle."""
        (id_,) = [id_ for id_, one in self.session.tensors.items() if one is tensor]
        del self.session.tensors[id_]
        self.residency.releasing.release(self.session, tensor)
        self.schedule()

    def op(
        self,
        label: str = "op",
        *,
        reads: Iterable[VmTensor] = (),
        writes: Iterable[VmTensor] = (),
        opcode: Opcode = Opcode.CALL,
        kernel: Callable[..., Any] | None = None,
        session: VmSession | None = None,
        on: str = "",
        before: Callable[[Instruction], None] | None = None,
    ) -> Instruction:
        """Admit an instruction on the tensors' copies and dispatch ready ones; its kernel appends to `ran`."""
        device = self.at(on or self.device.name)
        instruction = self.scheduler.new_instruction(session or self.session, opcode, label, device, 0)
        instruction.reads = tuple({copy_of(tensor, device): None for tensor in reads})
        instruction.outputs = tuple(Binding(copy_of(t, device), t, 0, None) for t in writes)
        instruction.writes = tuple({binding.copy: None for binding in instruction.outputs})
        instruction.kernel = kernel or (lambda *_: self.ran.append(label))
        if before is not None:
            before(instruction)
        self.residency.tiers.admit(instruction)
        self.hand_over()
        return instruction

    def hand_over(self) -> None:
        """Dispatch ready instructions to their streams."""
        self.scheduler.retire_doomed()
        self.dispatcher.dispatch_ready()
        while self.scheduler.endings or self.scheduler.wanted:
            self.engine.admission.conclude()
            self.dispatcher.dispatch_ready()
        self.dispatcher.flush()

    def run(self, stream: Any = None, count: int = 1) -> None:
        """Execute, report and retire `count` tasks of a stream."""
        stream = stream or self.device.compute[0]
        for _ in range(count):
            stream.execute()
        stream.report(count)
        self.schedule()


class ToldEnd(InstructionEnd):
    """Calls a function when the instruction has retired."""

    def __init__(self, tell: Callable[[Instruction], object]) -> None:
        self.tell = tell

    def retired(self, done: Instruction) -> None:
        self.tell(done)


class ToldAtDoom(ToldEnd):
    """Calls a function when the instruction is doomed, or has retired."""

    at_doom = True


def copy_of(tensor: VmTensor, device: DeviceState | None = None) -> Copy:
    """The tensor's copy on a device, or at home."""
    return tensor.storage.copies[device or tensor.home]


def fail(*_: Any) -> None:
    """A kernel that fails."""
    raise ValueError("boom")
