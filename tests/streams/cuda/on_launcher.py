"""Functions that run on the launcher's thread of a device, where graphs are made."""

from __future__ import annotations

import threading
from typing import Any

from tensord.streams.graph import GraphRefusal, LaunchGraph

from ..conftest import FakeTask, Reports

PATIENCE = 60.0  # seconds: a first call compiles


class OnLauncher:
    """A device, and its launcher's thread. `reports`: the sink of its tasks."""

    def __init__(self, device: Any, reports: Reports) -> None:
        self.device, self.reports = device, reports
        self.xp = device.xp

    def run(self, body: Any, *, after: bool = True) -> Any:
        """The result of `body`, called on the launcher's thread; if `after`, once the device has done its work."""
        found: list[Any] = []
        errors: list[BaseException] = []

        def task() -> None:
            try:
                found.append(body())
            except Exception as error:
                errors.append(error)
            done.set()

        count, done = len(self.reports.ids), threading.Event()
        self.device.compute[0].submit([FakeTask(0, task)])
        assert done.wait(PATIENCE), "the launcher does not get there"
        if after:
            self.reports.wait(count + 1)
        if errors:
            raise errors[0]
        return found[0]

    def attempt(self, calls: Any, moving: Any = ()) -> LaunchGraph | GraphRefusal:
        """A graph of the calls, or the reason for its absence."""
        found: LaunchGraph | GraphRefusal = self.run(lambda: self.device.graph_of(calls, moving))
        return found

    def graph(self, calls: Any, moving: Any = ()) -> LaunchGraph:
        """A graph of the calls."""
        found = self.attempt(calls, moving)
        assert isinstance(found, LaunchGraph), found
        return found

    def refused(self, calls: Any, moving: Any = ()) -> GraphRefusal:
        """Why there is no graph of the calls."""
        found = self.attempt(calls, moving)
        assert isinstance(found, GraphRefusal)
        return found

    def launch(self, graph: LaunchGraph) -> None:
        """Launch, and wait for the device."""
        self.run(graph.launch)
