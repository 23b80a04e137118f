"""A cluster's secrets are not shown by accident."""

from __future__ import annotations

from tensord.vm.cluster.credentials import ClusterCredentials


def test_no_representation_shows_the_token() -> None:
    secrets = ClusterCredentials().with_client("alice", "a-public-key")
    assert "alice" in repr(secrets)
    assert secrets.token not in repr(secrets)
    assert secrets.token not in f"{secrets}"
