"""The open pages: each gets the newest view when it is ready for one, and never a queue of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

MAX_PAGES: Final = 32  # pages


class Viewer:
    """One open page. `ended`: there will be no more views for it."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.ended = False
        self._state: str | None = None
        self._history: str | None = None
        self._view: str | None = None
        self._skipped = 0

    def tell(self, state: str) -> None:
        self._state = state
        self._changed.set()

    def show(self, view: str) -> None:
        self._skipped += self._view is not None
        self._view = view
        self._changed.set()

    def show_history(self, view: str) -> None:
        """Send a view before all others."""
        self._history = view
        self._changed.set()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    async def next(self) -> list[str]:
        """The views to send: waits until there are some."""
        await self._changed.wait()
        return list(self._take())

    def _take(self) -> Iterator[str]:
        self._changed.clear()
        state, history, view, skipped = self._state, self._history, self._view, self._skipped
        self._state, self._history, self._view, self._skipped = None, None, None, 0
        if state is not None:
            yield state
        if history is not None:
            yield message(history, 0)
        if view is not None:
            yield message(view, skipped)


def message(view: str, skipped: int) -> str:
    return f'{{"skipped":{skipped},"view":{view}}}'


class Viewers:
    """The open pages. `taken` is set while there is a page, `empty` while there is none."""

    def __init__(self, most: int = MAX_PAGES) -> None:
        self._most = most
        self._viewers: set[Viewer] = set()
        self._state = ""  # told last, and told to each new page
        self.taken, self.empty = asyncio.Event(), asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._viewers)

    def join(self) -> Viewer | None:
        """A viewer for one more page; None if there are too many."""
        if len(self._viewers) >= self._most:
            return None
        viewer = Viewer()
        if self._state:
            viewer.tell(self._state)
        self._viewers.add(viewer)
        self.taken.set()
        self.empty.clear()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers:
            self.taken.clear()
            self.empty.set()

    def tell(self, state: str) -> None:
        self._state = state
        for viewer in self._viewers:
            viewer.tell(state)

    def show(self, view: str) -> None:
        for viewer in self._viewers:
            viewer.show(view)

    def end(self) -> None:
        for viewer in self._viewers:
            viewer.end()
