"""Uploads: a small one is copied at admission, a large one becomes its tensor's memory; values are the same."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.wire.messages import Release, encode_message
from tensord.vm.admission.inline import COPIED_BYTES
from tensord.vm.tracing.flat import SourceLocation

from ...each_case import each_case
from ..bare_engine import Bare

SMALL, LARGE = np.arange(8.0), np.arange(float(COPIED_BYTES))


def test_a_small_upload_is_there_at_once_in_memory_of_the_device() -> None:
    """No instruction waits, and the sent array may be used again."""
    bare = Bare()
    client = bare.client()
    message = client.upload_message(SMALL)
    bare.engine.admission.take(client.session, [encode_message(message)])
    assert not bare.engine.live
    message.payload[:] = -1.0
    assert client.fetch(client.ids) == SMALL.tolist()


@each_case("values", [SMALL, LARGE], ids=["small", "large"])
@each_case("inline", [True, False])
def test_uploads_leave_one_kind_of_record_and_no_memory_behind(values: np.ndarray, inline: bool) -> None:
    """Inline uploads, and uploads on a stream."""
    bare = Bare(inline=inline)
    client = bare.client()
    x = client.upload(values)
    bare.drain()
    assert bare.device.allocated == values.nbytes == client.session.account.bytes
    assert client.session.payload == 0
    (record,) = bare.engine.ring.records(lambda _session, _number: SourceLocation())
    assert (record.op, record.device, record.nbytes) == ("upload", "cpu:0", values.nbytes)
    assert [(operand.kind, operand.version) for operand in record.operands] == [("mut", 1)]
    assert client.fetch(x) == values.tolist()
    client.send(Release((x,)))
    assert bare.device.allocated == client.session.account.bytes == 0


@each_case("dtype", ["nonsense", "float32", "int64"])
def test_a_dtype_that_is_not_the_payloads_is_refused(dtype: str) -> None:
    """NumPy's float64 is equal to None, and so to a lookup that fails."""
    client = Bare().client()
    client.send(client.upload_message(SMALL)._replace(dtype=dtype))
    with pytest.raises(MetadataError, match="asarray"):
        client.fetch(client.ids)
