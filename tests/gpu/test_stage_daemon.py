"""Tracebacks in a daemon's log that are its own, and those that are CuPy's."""

from __future__ import annotations

from ..each_case import each_case
from .stage_daemon import has_frame_of_ours

CUPYS = (
    '  File "cupy_backends/cuda/api/runtime.pyx", line 146, in check_status\nCUDARuntimeError: cudaErrorIllegalAddress'
)
OURS = '  File "/opt/tensord/streams/cuda/cuda.py", line 200, in _block\n'


@each_case(
    ("trace", "ours"), [(CUPYS, False), (OURS + CUPYS, True), (OURS, True), ("ValueError: without a frame", True)]
)
def test_only_a_traceback_of_cupys_frames_alone_is_left_out(trace, ours):
    assert has_frame_of_ours(trace) is ours
