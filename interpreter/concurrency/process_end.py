"""Actions at the normal end of this process, such as closing sessions: done once all threads but daemon threads have
ended.

`atexit` alone is not enough. An action that is registered again has to move in front of those registered in between.
And a child that `multiprocessing` has forked ends with `os._exit`, without the handlers of `atexit`; it runs the
finalizers of `multiprocessing.util` that were registered in the child itself. So an object that needs an end registers
it when it begins, not when its module is imported.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

AFTER_ITS_CHILDREN: Final = -100  # the priority of a finalizer; below 0: once the process's children are joined


class ProcessEnd:
    """The actions at the end of this process. The last registered action is done first, and each once."""

    def __init__(self) -> None:
        self._actions: dict[Callable[[], object], None] = {}
        self._finalizer: Any = None
        atexit.register(self.run)

    def register(self, action: Callable[[], object]) -> None:
        """Register an action. Registering it again moves it in front of everything registered in between."""
        self._actions.pop(action, None)
        self._actions[action] = None
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            self._have_child_finish()

    def run(self) -> None:
        """Do the registered actions."""
        while self._actions:
            self._actions.popitem()[0]()

    def _have_child_finish(self) -> None:
        """Make `multiprocessing` call us at the end of this child, which has forgotten its parent's registrations."""
        from multiprocessing.util import Finalize

        if self._finalizer is None or not self._finalizer.still_active():
            self._finalizer = Finalize(None, self._run_in_child, exitpriority=AFTER_ITS_CHILDREN)

    def _run_in_child(self) -> None:
        """Wait for the child's threads, then do the registered actions."""
        for thread in threading.enumerate():  # as at any other end; `multiprocessing` waits for them afterwards
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
        self.run()


AT_END = ProcessEnd()
