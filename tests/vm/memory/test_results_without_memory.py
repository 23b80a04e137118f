"""Results of data-dependent size that do not fit fail; they do not wait for memory that will never be free."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import DeviceMemoryError

from ..bare_engine import Bare

COUNT = 10 << 17  # doubles: 10 of the device's 16 MiB
META = ((COUNT,), "float64")


@pytest.mark.parametrize("first", [0, 1])
def test_two_results_that_wait_for_each_other_both_fail(first: int) -> None:
    """The one that was executed first could hope for the other; once both were executed neither can."""
    bare = Bare(workers=2, inline=False)
    client = bare.client()
    x = client.upload(np.arange(float(COUNT)))
    mask = client.call("isfinite", x, meta=META)
    bare.drain()
    number = client.signature("masked_select", (META, ((COUNT,), "bool")))
    results = [client.new() for _ in range(2)]
    client.send(*([0, number, (x, mask), (result,), 0, 1] for result in results))
    busy = [stream for stream in bare.device.streams if stream.can_execute()]
    assert len(busy) == 2
    bare.step(busy[first])
    bare.step(busy[1 - first])
    assert not bare.engine.live
    for result in results:
        with pytest.raises(DeviceMemoryError, match="its result of"):
            client.fetch(result)
    assert client.fetch(x)[-1] == COUNT - 1
