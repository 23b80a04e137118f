"""A session's account: the bytes of its storages, and their peak."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vm.bare_engine import Bare


@pytest.mark.parametrize("inline", [True, False])
def test_the_peak_is_the_most_that_a_sessions_storages_ever_had(inline):
    bare = Bare(inline=inline)
    client = bare.client()
    account = client.session.account
    first, second = client.upload(np.ones(8)), client.upload(np.ones(8))
    assert (account.bytes, account.peak) == (128, 128)
    client.release(first, second)
    assert (account.bytes, account.peak) == (0, 128)
    client.upload(np.ones(4))
    assert (account.bytes, account.peak) == (32, 128)
    client.upload(np.ones(16))
    assert (account.bytes, account.peak) == (160, 160)


def test_results_that_come_and_go_do_not_add_up():
    bare = Bare()
    client = bare.client()
    for _ in range(5):
        client.release(client.upload(np.ones(8)))
    assert client.session.account.peak == 64


def test_a_name_that_outlives_the_session_stays_on_its_account():
    bare = Bare()
    client, other = bare.client(), bare.client()
    client.publish("w", ids=[client.upload(np.ones(8))])
    account = client.session.account
    bare.engine.close(client.session)
    bare.drain()
    assert (account.bytes, account.peak, other.session.account.peak) == (64, 64, 0)
