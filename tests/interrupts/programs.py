"""Small programs to be struck. Each takes a world, which stays: a session, and tensors from before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tensord as td
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

LARGE = 1 << 13  # float64s that travel in shared memory


class World:
    """The surroundings of the programs: tensors that they read, one that they write in place, and a global one; a
    routine.
    """

    def __init__(self, session: Session, folder: Path) -> None:
        self.session = session
        self.device = session.devices[-1]
        self.folder = folder
        self.keep = session.asarray(np.arange(4.0))
        self.written = session.asarray(np.zeros(8), device=self.device)
        self.placement = td.placement([name for name in session.devices if name.startswith("sim:")])
        self.spread = session.global_tensor(np.zeros(8), self.placement)
        self.lent = session.empty_host(LARGE)  # a host array
        self.lent[...] = 1
        self.printed: list[Any] = []

        def step(w: Tensor, x: Tensor) -> Any:
            w += x
            return (w * 2).sum()

        self.step = session.routine(step)

    def tensors(self) -> int:
        """The number of the world's handles."""
        return 2 + len(self.placement.names)

    def check(self) -> None:
        """The session works, and the world is as it was."""
        assert (self.keep * 2 + 1).wait(timeout=10).tolist() == [1, 3, 5, 7]
        values = self.written.wait(timeout=10).numpy()
        assert np.all(values == values[0]), values
        parts = self.session.fetch(self.spread.parts())
        assert all(np.all(part == parts[0][0]) for part in parts), parts
        self.session.sync(timeout=10)
        assert self.lent.flags.writeable, "a host array is still handed over"


def ops(world: World) -> None:
    """Ops of all kinds: with a new result, in place, on a part, over several devices."""
    s = world.session
    x = s.asarray(np.ones(8), device=world.device)
    y = x * 0.5 + x
    world.written += 1
    del x
    y[:4] += 1
    z = y.to_device(s.devices[0])
    float(z[0])
    q, r = s.xp.linalg.qr(z.reshape((4, 2)))
    s.fetch([q, r])


def parts(world: World) -> None:
    """Ops on global tensors: in place, with and without moves, known ones, and reading."""
    s = world.session
    x = s.global_tensor(np.ones(8), world.placement, td.split(0))
    for _ in range(2):
        world.spread += 1
        world.spread += x
    world.spread[...] = x.to_global(layout=td.broadcast)
    x.numpy()
    float(s.xp.sum(x * x))


def waits(world: World) -> None:
    """Every entry that waits."""
    s = world.session
    y = (world.keep + 1).wait()
    y.numpy(), y.is_ready(), y.residency()
    s.xp.nonzero(y)[0].shape  # noqa: B018 - it waits
    s.sync()
    s.stats()
    s.flush()


def shared(world: World) -> None:
    """Names, atomic blocks, contexts, spans."""
    s = world.session
    x = s.asarray(np.ones(8))
    s.publish("x", x)
    with s.atomic():
        x += 1
        world.written += x.to_device(world.device)
    with s.context() as c, s.span("part"):
        y = x * 2
        c["y"] = y
        c.keep(y)
    s.lookup("x", snapshot=True).numpy()
    s.names()
    s.unpublish("x")


def routines(world: World) -> None:
    """A routine that was captured, one that is new, and one that prints."""
    s = world.session
    x = s.asarray(np.ones(8), device=world.device)
    world.step(world.written, x).item()

    @s.routine
    def new(x: Tensor) -> Tensor:
        return s.xp.exp(x * 2) + 1

    new(x)
    new(x).numpy()


def lending(world: World) -> None:
    """Large uploads: of host arrays, of those of a pool, and of other values."""
    s = world.session
    x = s.asarray(world.lent, device=world.device)
    y = x + 1
    del x
    float(y[0])
    with s.pool(LARGE, count=1) as pool:
        array: Any = pool.get()
        array[...] = 2
        s.asarray(array).wait()
        pool.put(array)
        array = pool.get()
        s.asarray(array[: LARGE // 2])
    float(s.asarray(np.ones(LARGE))[0])


def dropped(world: World) -> None:
    """Another session, which is never closed."""
    other = td.connect(world.session.address)
    (other.asarray([1.0]) + 1).wait()
    del other


def effects(world: World) -> None:
    """Side effects, cancellation, files."""
    s = world.session
    chain = s.chain()
    s.effect(lambda values: world.printed.append(values.tolist()), world.keep, chain=chain)
    s.check_chain(chain)
    path = world.folder / "saved.safetensors"
    s.save(path, {"w": world.keep}).wait()
    loaded = s.load(path)
    loaded["w"].numpy()
    s.cancel()
    s.restart()


PROGRAMS = {each.__name__: each for each in (ops, parts, waits, shared, routines, lending, dropped, effects)}
