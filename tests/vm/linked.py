"""A client of a bare engine that has linked a program, for tests of runs with control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.program import Program
from tensord.interpreter.wire.messages import Chain, Location, Upload
from tensord.vm.reporting.invariants import violations

from .bare_engine import Bare, Client
from .programs import link, run_message


class Linked:
    """A client that has linked a program, whose side effects append their arguments to `seen`."""

    def __init__(self, bare: Bare, text: str, captured: Sequence[Any] = (), **limits: int) -> None:
        self.bare = bare
        self.client = bare.client(**limits)
        self.client.send(*(Location(n, f"user.py:{n}") for n in range(2, 6)))
        self.program = Program.parse(f"tensord program 1\n{text}")
        self.uploads = self.captured = [upload(self.client, value) for value in captured]
        self.chain = self.client.new()
        self.client.send(Chain(self.chain))
        devices = [*bare.engine.devices][: self.program.devices]
        self.routine = link(self.client, self.program, self.captured, devices)
        self.seen: list[Any] = []
        self.indices: list[int] = []

    def message(self, *inputs: Any, n: Sequence[Any] = ()) -> Any:
        """A run; arrays among the inputs are uploaded."""
        ids = [upload(self.client, value) if isinstance(value, np.ndarray) else value for value in inputs]
        self.uploads = [*self.uploads, *ids]
        effects = [(self.chain, self.noting(n), 0) for n in range(self.program.effects[-1])]
        return run_message(self.client, self.routine, self.program, ids, n, effects)

    def run(self, *inputs: Any, n: Sequence[Any] = ()) -> tuple[int, ...]:
        message = self.message(*inputs, n=n)
        self.client.send(message)
        return tuple(message.outputs)

    def noting(self, index: int) -> Callable[..., None]:
        """The callback of a side effect, by its index among those of the program."""

        def call(*arrays: Any) -> None:
            self.indices.append(index)
            self.note(*arrays)

        return call

    def note(self, *arrays: Any) -> None:
        self.seen += [array.tolist() for array in arrays]

    def error(self, id_: int) -> TensordError:
        """The error that a tensor has in the place of a value."""
        with pytest.raises(TensordError) as caught:
            self.client.fetch(id_)
        return caught.value

    def is_left(self, *ids: int) -> None:
        """Check that beside uploads the client has exactly these tensors, and that the engine is sound."""
        self.bare.drain()
        assert set(self.client.session.tensors) - {*self.uploads} == {*ids}
        assert not violations(self.bare.engine)
        assert self.client.session.unfolding is None
        assert not self.bare.engine.held

    def close(self) -> None:
        """Close the session, and check that it leaves no state."""
        self.bare.engine.close(self.client.session)
        self.bare.drain()
        engine = self.bare.engine
        assert not any((engine.live, engine.pending, engine.held, self.client.session.tensors))
        assert self.bare.device.allocated == 0
        assert not violations(engine)


def upload(client: Client, value: Any) -> int:
    array = np.array(value)  # the array becomes the tensor's memory
    client.send(Upload(client.new(), array.shape, array.dtype.name, "cpu:0", array, 1))
    return client.ids


def scalar(value: Any) -> Any:
    return np.array(value)
