"""Blocks whose results are copied to the host while later ones are computed, so that a fetch finds them there.

Source: Glow's `ensureOnHost` and its graphs' outputs, which are copied back unless they are left on the device.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.types.device_names import kind_of
from ..calls.checks import check_host, own
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..outbox import host_results
from ..outbox.current import refuse_captured
from ..tensor.tensor import Tensor


class HostResults:
    """A block: results of ops that the session issues inside are copied to the host. See `Session.host_results`.

    MetadataError if the machine has no cpu device; CaptureError while a routine is captured.
    """

    def __init__(self, core: Core) -> None:
        refuse_captured(core.outbox, "host_results cannot be opened")
        check_host(core)
        self._core = core
        self._moves = not all(kind_of(name) == "cpu" for name in core.devices)  # otherwise all results are on the host
        self._inside = False

    def leave(self, tensor: Tensor) -> Tensor:
        """Do not copy a result to the host; returns it: `h = results.leave(f(x))`. Earlier results are unaffected."""
        outbox = self._core.outbox
        own(self._core, tensor)
        with outbox.lock:
            if outbox.host_results is not None:
                outbox.host_results.leave(tensor._id)
        return tensor

    def __enter__(self) -> Self:
        if self._inside:
            raise located(ProtocolError("this block is open already: make another one with session.host_results()"))
        outbox = self._core.outbox
        with outbox.lock:
            self._inside = True
            if self._moves:
                if outbox.host_results is None:
                    outbox.host_results = host_results.HostResultHints()
                outbox.host_results.begin(outbox.ids)
        return self

    def __exit__(self, *_: object) -> None:
        outbox = self._core.outbox
        with outbox.lock:
            self._inside = False
            if self._moves and outbox.host_results is not None:
                outbox.host_results.end(outbox.ids)
        with suppress(TensordError):  # the session has ended
            outbox.flush()
            outbox.flush()  # the hints


make_public(HostResults)
