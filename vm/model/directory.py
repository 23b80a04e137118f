"""The directory: open sessions by id, published tensors and routines by name, and closed sessions being released.

The serial engine uses the classes of published objects, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from ...interpreter.layouts.part_names import Families
from ...interpreter.programs.program import Program
from .account import Account
from .device_state import DeviceState
from .session import VmSession
from .tensor import Storage, VmTensor

BLOCK: Final = 256  # handles that are searched together
GOLDEN: Final = (5**0.5 - 1) / 2  # the fractional parts of its multiples are spread evenly, for any number of them


class Leaving:
    """A closed session with the tensors that are still to be released, by handle.

    `unseen`: for each device that needed memory, the blocks of handles that were not searched yet.
    """

    __slots__ = ("session", "tensors", "unseen")

    def __init__(self, session: VmSession, tensors: dict[int, VmTensor]) -> None:
        self.session = session
        self.tensors = tensors
        self.unseen: dict[DeviceState, list[list[int]]] = {}

    def newest(self, most: int) -> list[VmTensor]:
        """Remove and return at most `most` of the tensors, newest first."""
        return [self.tensors.popitem()[1] for _ in range(min(most, len(self.tensors)))]

    def block_on(self, device: DeviceState) -> list[int]:
        """Handles whose tensors have a copy on the device, or may get one; empty if all blocks were searched.

        A searched handle that is not returned has a tensor of this session alone, so nothing brings the tensor to the
        device later, except an eviction by an operator (in which case another value is evicted needlessly).
        """
        blocks = self.unseen.get(device)
        if blocks is None:
            blocks = self.unseen[device] = [] if self.has_nothing_on(device) else spread(list(self.tensors))
        while blocks:
            found = [id_ for id_ in blocks.pop() if self._may_be_on(device, id_)]
            if found:
                return found
        return []

    def has_nothing_on(self, device: DeviceState) -> bool:
        """Whether the device's candidates show that no tensor is there. Quick, since it gives up if they are many."""
        candidates = device.candidates
        if self.session.shares or device.below is None or not device.short or len(candidates) > 8 * len(self.tensors):
            return False
        account = self.session.account
        return not any(storage.account is account for storage in candidates.values())

    def _may_be_on(self, device: DeviceState, id_: int) -> bool:
        tensor = self.tensors.get(id_)
        if tensor is None:
            return False
        storage = tensor.storage
        return device in storage.copies or storage.sharers > 1 or tensor.holders > 1 or storage.views is not None


def spread(handles: list[int]) -> list[list[int]]:
    """Blocks of handles, in an order that mixes ages, since tensors made together tend to be on the same device."""
    order = sorted(range(-(-len(handles) // BLOCK)), key=lambda n: n * GOLDEN % 1.0)
    return [handles[n * BLOCK : (n + 1) * BLOCK] for n in order]


class Directory:
    """Sessions and names.

    `publishers`: the account that each name counts against: that of its latest publisher. `durable`: names that
    survive the machine's end, until they are unpublished; `lasting`: the number of durable names of each tensor.
    `families`: the names of the parts of global tensors. `leaving`: closed sessions whose handles are being released,
    in the order of their turns.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, VmSession] = {}
        self.names: dict[str, Published[VmTensor]] = {}
        self.publishers: dict[str, Account] = {}
        self.durable: dict[str, None] = {}
        self.lasting: dict[VmTensor, int] = {}
        self.families = Families()
        self.leaving: deque[Leaving] = deque()

    def tensors(self) -> list[VmTensor]:
        """Every tensor that a name or a handle holds, some of them more than once."""
        tensors = [tensor for published in self.names.values() for tensor in published.tensors]
        for session in self.sessions.values():
            tensors.extend(session.tensors.values())
        for closing in self.leaving:
            tensors.extend(closing.tensors.values())
        return tensors

    def handles(self) -> Iterator[tuple[VmSession, int, VmTensor]]:
        """Every handle, including those of closed sessions. The machine may go on between steps of the iteration."""
        for session in list(self.sessions.values()):
            yield from handles_of(session, session.tensors)
        for closing in list(self.leaving):
            yield from handles_of(closing.session, closing.tensors)

    def keep(self, name: str) -> None:
        """Make a bound name durable."""
        if name not in self.durable:
            self.durable[name] = None
            for tensor in self.names[name].tensors:
                self.lasting[tensor] = self.lasting.get(tensor, 0) + 1

    def bind(self, name: str, published: Published[VmTensor], account: Account) -> None:
        """Bind a free name to an object, for which an account is charged."""
        self.names[name] = published
        self.families.add(name)
        self.publishers[name] = account
        account.names += 1
        account.steps += published.weight

    def unbind(self, name: str) -> Published[VmTensor] | None:
        """Remove a name; return the object that it was bound to, if any."""
        before = self.names.pop(name, None)
        self.families.remove(name)
        if before is None:
            return None
        account = self.publishers.pop(name)
        account.names -= 1
        account.steps -= before.weight
        if name in self.durable:
            del self.durable[name]
            for tensor in before.tensors:
                self.lasting[tensor] -= 1
                if not self.lasting[tensor]:
                    del self.lasting[tensor]
        return before

    def named(self) -> Iterator[tuple[str, VmTensor]]:
        """Each name with each tensor that it holds, including the tensors captured by published routines."""
        for name, published in self.names.items():
            for tensor in published.tensors:
                yield name, tensor

    def storages(self) -> Iterable[Storage]:
        """Every storage that a handle or a name reaches."""
        return {id(tensor.storage): tensor.storage for tensor in self.tensors()}.values()


def handles_of(session: VmSession, tensors: Mapping[int, VmTensor]) -> Iterator[tuple[VmSession, int, VmTensor]]:
    """The handles of a session, except those that are released before the iteration reaches them."""
    for id_ in list(tensors):  # ids alone: a tuple for each of a million pairs takes 100 ms
        tensor = tensors.get(id_)
        if tensor is not None:
            yield session, id_, tensor


Held = TypeVar("Held")


class PublishedRoutine:
    """A published routine, which refers to nothing of its publisher's session.

    `lines`: the texts of the program's lines, by number; `convention`: the encoded calling convention, or None;
    `weight`: its weight in the quota of steps.
    """

    __slots__ = ("convention", "devices", "lines", "program", "weight")

    def __init__(self, program: Program, devices: tuple[str, ...], lines: Mapping[Any, str], convention: Any) -> None:
        self.program = program
        self.devices = devices
        self.lines = lines
        self.convention = convention
        self.weight = program.weight


class Published(Generic[Held]):
    """The value of a name, which keeps its tensors alive. `routine`: None for a name of a tensor."""

    __slots__ = ("routine", "tensors")

    def __init__(self, tensors: Sequence[Held], routine: PublishedRoutine | None = None) -> None:
        self.tensors = tuple(tensors)
        self.routine = routine

    @property
    def weight(self) -> int:
        """Its weight in the publisher's quota of steps."""
        return 0 if self.routine is None else self.routine.weight
