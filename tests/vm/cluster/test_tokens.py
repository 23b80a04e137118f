"""Ray's token: is one needed, present and right? With a control service that the test plays."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import NoDaemon
from tensord.vm.cluster import tokens
from tensord.vm.cluster.errors import ClusterError
from tensord.vm.cluster.gcs import CallOutcome, GcsReply

RIGHT = "right" * 8
HERE = "2.60.0"
ADDRESS = "127.0.0.1:6379"


@pytest.fixture
def gcs(monkeypatch, tmp_path):
    """Plays one that wants the token in `wants`, "" for none; `asked`: with which tokens it was asked."""

    class Gcs:
        wants = RIGHT
        has = {"ray": "2.60.0"}  # noqa: RUF012 - nobody changes it
        asked: list[str] = []  # noqa: RUF012 - one for each test

        def __call__(self, _host, _port, token, _seconds):
            self.asked.append(token)
            return (
                GcsReply(CallOutcome.ADMITTED, self.has) if self.wants in ("", token) else GcsReply(CallOutcome.REFUSED)
            )

    played = Gcs()
    Gcs.asked = []
    monkeypatch.setattr(tokens, "call", played)
    monkeypatch.setenv("HOME", str(tmp_path))
    return played


def refused(environment):
    with pytest.raises(ClusterError) as caught:
        tokens.settle_token(ADDRESS, environment, HERE)
    return caught.value.message


def test_a_ray_without_tokens_is_asked_once_and_nothing_changes(gcs):
    gcs.wants = ""
    environment: dict[str, str] = {}
    tokens.settle_token(ADDRESS, environment, HERE)
    assert (gcs.asked, environment) == ([""], {})
    assert not tokens.asks_for_token(ADDRESS, {"RAY_AUTH_MODE": "token"})


@pytest.mark.usefixtures("gcs")
def test_a_missing_token_is_told_with_where_to_get_it():
    told = refused({"RAY_AUTH_MODE": "token"})
    assert told.startswith(f"Ray at {ADDRESS} asks for a token, but there is none here: `ray get-auth-token` prints it")
    assert refused({}) == told


@pytest.mark.usefixtures("gcs")
def test_a_wrong_token_is_told_with_where_it_came_from(tmp_path):
    assert "does not accept the token of $RAY_AUTH_TOKEN" in refused({"RAY_AUTH_TOKEN": "wrong"})
    file = tmp_path / "token"
    file.write_text("wrong\n")
    assert f"does not accept the token of {file}" in refused({"RAY_AUTH_TOKEN_PATH": str(file)})


@pytest.mark.usefixtures("gcs")
def test_a_mode_with_which_ray_would_send_no_token_is_told():
    assert "RAY_AUTH_MODE is 'disabled' here" in refused({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": RIGHT})


@pytest.mark.usefixtures("gcs")
def test_the_right_token_is_used_wherever_it_lies(tmp_path):
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(f"{RIGHT}\n")
    for given in ({}, {"RAY_AUTH_TOKEN": RIGHT}, {"RAY_AUTH_MODE": "TOKEN"}):
        environment = dict(given)
        tokens.settle_token(ADDRESS, environment, HERE)
        assert environment["RAY_AUTH_MODE"].lower() == "token"
        assert tokens.asks_for_token(ADDRESS, environment)


def test_what_is_no_ray_and_where_nobody_listens(monkeypatch):
    monkeypatch.setattr(tokens, "call", lambda *_: GcsReply(CallOutcome.FOREIGN))
    assert "the process at 127.0.0.1:6379 is not a Ray cluster" in refused({})
    monkeypatch.setattr(tokens, "call", lambda *_: GcsReply(CallOutcome.UNKNOWN))
    tokens.settle_token(ADDRESS, {}, HERE)
    assert tokens.asks_for_token(ADDRESS, {"RAY_AUTH_MODE": "token"})
    assert not tokens.asks_for_token(ADDRESS, {})

    def none(*_):
        raise TimeoutError("it does not answer")

    monkeypatch.setattr(tokens, "call", none)
    with pytest.raises(NoDaemon, match=r"is running at 127.0.0.1:6379 \(it does not answer\): start one"):
        tokens.settle_token(ADDRESS, {}, HERE)


def test_a_ray_that_only_rays_own_code_reaches_is_left_to_it(gcs):
    for own in ({"RAY_USE_TLS": "1"}, {"RAY_ENABLE_K8S_TOKEN_AUTH": "true"}):
        tokens.settle_token(ADDRESS, own, HERE)
        assert tokens.asks_for_token(ADDRESS, {**own, "RAY_AUTH_MODE": "token"})
    tokens.settle_token("auto", {}, HERE)
    assert gcs.asked == []


def test_addresses_that_have_a_host_and_a_port():
    assert tokens.host_and_port("[::1]:6379") == ("::1", 6379)
    for other in ("", "auto", "local", "6379", "node0", "node0:x", "node0:0", "node0:70000", "ray://h:1"):
        assert tokens.host_and_port(other) is None


def nodes(*hosts):
    return [{"NodeManagerAddress": host, "Alive": host != "10.0.0.9"} for host in hosts]


def test_beyond_loopback_a_ray_has_to_ask_for_a_token():
    tokens.check_token(nodes("127.0.0.1", "::1", "localhost", "10.0.0.9"), asks=False)
    tokens.check_token(nodes("127.0.0.1", "10.0.0.1"), asks=True)
    with pytest.raises(
        ClusterError, match=r"\(at 10.0.0.1\), and it asks for no token, .* RAY_AUTH_MODE=token on each"
    ):
        tokens.check_token(nodes("127.0.0.1", "10.0.0.1"), asks=False)


def test_another_ray_or_python_is_told_with_both_versions():
    here = {"ray": "2.60.0", "python": "3.11.7"}
    for there in ({}, {"ray": "2.60.0"}, {"ray": "2.60.0", "python": "3.11.2"}):
        tokens.check_versions(ADDRESS, there, here)
    with pytest.raises(ClusterError, match=r"has other versions: ray 2.52.1 there and 2.60.0 here; install"):
        tokens.check_versions(ADDRESS, {"ray": "2.52.1"}, here)
    with pytest.raises(ClusterError, match=r"python 3.12.7 there and 3.11.7 here"):
        tokens.check_versions(ADDRESS, {"ray": "2.60.0", "python": "3.12.7"}, here)


@pytest.mark.usefixtures("gcs")
def test_versions_are_compared_once_the_caller_is_let_in():
    with pytest.raises(ClusterError, match=r"ray 2.60.0 there and 2.59.0 here"):
        tokens.settle_token(ADDRESS, {"RAY_AUTH_TOKEN": RIGHT}, "2.59.0")
