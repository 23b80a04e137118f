"""What clients of random programs know."""

from __future__ import annotations

from tensord.interpreter.types.meta import Meta


class Handle:
    """What a client knows of a tensor."""

    def __init__(self, meta: Meta | None, home: str) -> None:
        self.meta = meta
        self.home = home


class Client:
    """One session's side: its handles, its chains, whether it is cancelled."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids = 0
        self.handles: dict[int, Handle] = {}
        self.gone: list[int] = []
        self.chains: list[int] = []
        self.own_chain = 0  # the one that is there from the beginning, once it is needed
        self.drawn = 0  # random calls
        self.cancelled = False
        self.cancels = 0
        self.closed = False

    def new(self) -> int:
        self.ids += 1
        return self.ids
