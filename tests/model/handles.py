"""The clients of random programs: their handles and chains, as the generator of programs knows them."""

from __future__ import annotations

from tensord.interpreter.types.meta import Meta


class Handle:
    """A client's handle of a tensor. `meta`: None if the client does not know it."""

    def __init__(self, meta: Meta | None, home: str) -> None:
        self.meta = meta
        self.home = home


class Client:
    """The client of one session: its handles, its chains, whether it is cancelled."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids = 0
        self.handles: dict[int, Handle] = {}
        self.gone: list[int] = []
        self.chains: list[int] = []
        self.own_chain = 0  # the chain that a session has from the beginning; 0 until it is used
        self.drawn = 0  # the number of random calls
        self.cancelled = False
        self.cancels = 0
        self.closed = False

    def new(self) -> int:
        self.ids += 1
        return self.ids
