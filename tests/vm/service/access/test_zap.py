"""Authentication: the decision alone, and with real sockets."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
import zmq
from zmq.utils import z85

from tensord.client.transport.keys import curve_options
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.wire import keys
from tensord.vm.service.access import zap
from tensord.vm.service.access.listen_address import listen_guards
from tensord.vm.service.access.zap import AllowList, Gatekeeper
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.process.instance import private

from ....each_case import each_case

ME = os.getuid()
PATIENCE = 30_000  # milliseconds that an expected event may take


def ask(gatekeeper, domain=zap.IPC, address=b"localhost:%d:0:1" % ME, mechanism=b"NULL", *credentials):
    reply = gatekeeper.answer([b"1.0", b"17", domain, address, b"identity", mechanism, *credentials])
    assert len(reply) == 6
    assert reply[:2] == [b"1.0", b"17"]
    return reply[2], reply[4]


@pytest.fixture
def key_files(tmp_path):
    """Keys of a server and of two clients; alice is allowed."""
    directory = tmp_path / "keys"
    for name in ("server", "alice", "mallory"):
        keys.create(directory, name)
    allow = directory / "allowed_clients"
    allow.write_bytes(b"# who may connect\n\n" + keys.read_public(directory / "alice.key") + b" alice\n")
    allow.chmod(0o600)
    return directory


def allowed_key(directory, name):
    return z85.decode(keys.read_public(directory / f"{name}.key"))


# -- the decision ------------------------------------------------------------------------------------------------------


def test_ipc_is_for_our_own_uid():
    assert ask(Gatekeeper()) == (b"200", b"uid:%d" % ME)
    assert ask(Gatekeeper(), zap.IPC, b"localhost:%d:0:1" % (ME + 1)) == (b"400", b"")
    assert ask(Gatekeeper(uid=ME + 1))[0] == b"400"


@each_case(
    "address",
    [
        b"",
        b"localhost",
        b"127.0.0.1",
        b"localhost:%d" % ME,
        b"localhost:%d:0" % ME,
        b"localhost:%d:0:1:2" % ME,
        b"elsewhere:%d:0:1" % ME,
        b"localhost:-%d:0:1" % ME,
        b"localhost:+%d:0:1" % ME,
        b"localhost: %d:0:1" % ME,
        b"localhost:" + b"9" * 5000 + b":0:1",
        b"\xff" * 10,
    ],
)
def test_credentials_in_another_form_are_refused(address):
    assert ask(Gatekeeper(), zap.IPC, address)[0] == b"400"


@each_case(
    ("address", "status"),
    [
        (b"127.0.0.1", b"200"),
        (b"127.8.9.1", b"200"),
        (b"::1", b"200"),
        (b"::ffff:127.0.0.1", b"200"),
        (b"192.0.2.1", b"400"),
        (b"::ffff:192.0.2.1", b"400"),
        (b"localhost", b"400"),
        (b"", b"400"),
        (b"127.0.0.1" + b" " * 1000, b"400"),
    ],
)
def test_tcp_without_keys_is_for_this_machine(address, status):
    assert ask(Gatekeeper(), zap.LOOPBACK, address)[0] == status


def test_curve_is_for_keys_in_the_allow_list(key_files):
    gatekeeper = Gatekeeper(AllowList(key_files / "allowed_clients"))
    alice, mallory = (allowed_key(key_files, name) for name in ("alice", "mallory"))
    assert ask(gatekeeper, zap.CURVE, b"192.0.2.1", b"CURVE", alice) == (b"200", b"key:alice")
    assert ask(gatekeeper, zap.CURVE, b"192.0.2.1", b"CURVE", mallory)[0] == b"400"
    assert ask(gatekeeper, zap.CURVE, b"127.0.0.1", b"NULL")[0] == b"400"
    assert ask(gatekeeper, zap.CURVE, b"127.0.0.1", b"CURVE")[0] == b"400"
    assert ask(gatekeeper, zap.CURVE, b"127.0.0.1", b"CURVE", b"short")[0] == b"400"
    assert ask(Gatekeeper(), zap.CURVE, b"127.0.0.1", b"CURVE", alice)[0] == b"400"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_refused_key_is_in_the_log_also_if_no_monitor_tells_of_its_connection(key_files, caplog):
    """The operator can see whose key is missing, and add it."""
    clock = Clock()
    gatekeeper = Gatekeeper(AllowList(key_files / "allowed_clients"), clock=clock)
    mallory = allowed_key(key_files, "mallory")
    ask(gatekeeper, zap.CURVE, b"192.0.2.1", b"CURVE", mallory)
    gatekeeper.tell_overdue()
    assert caplog.text == ""
    clock.now += zap.MATCH_TIMEOUT + 0.1
    gatekeeper.tell_overdue()
    gatekeeper.tell_overdue()
    assert caplog.text.count(f"key={z85.encode(mallory).decode()!r}") == 1


def test_a_refusal_belongs_to_the_first_refused_peer_of_its_host():
    gatekeeper = Gatekeeper()
    for host in (b"192.0.2.1", b"192.0.2.10", b"::1", b"192.0.2.1"):
        ask(gatekeeper, zap.CURVE, host, b"CURVE", b"x")
    origins = ("192.0.2.10:5", "[::1]:7", "192.0.2.1:6", "gone", "192.0.2.1:8")
    found = [gatekeeper.refusal_of(origin) for origin in origins]
    assert [one and one.host for one in found] == ["192.0.2.10", "::1", "192.0.2.1", "192.0.2.1", None]


def test_a_flood_of_refused_peers_is_not_kept(caplog):
    gatekeeper = Gatekeeper()
    for _ in range(3 * zap.MAX_REFUSALS):
        ask(gatekeeper, zap.CURVE, b"192.0.2.1", b"CURVE", b"x")
    assert len(gatekeeper.refused) <= zap.MAX_REFUSALS
    assert "a peer was refused" in caplog.text


@each_case("mechanism", [b"PLAIN", b"GSSAPI", b"CURVE", b"", b"null"])
def test_other_mechanisms_and_domains_are_refused(mechanism):
    assert ask(Gatekeeper(), zap.IPC, b"localhost:%d:0:1" % ME, mechanism, b"user", b"password")[0] == b"400"
    assert ask(Gatekeeper(), b"", b"localhost:%d:0:1" % ME)[0] == b"400"
    assert ask(Gatekeeper(), b"global", b"127.0.0.1")[0] == b"400"


@each_case(
    "frames",
    [[], [b"1.0"], [b"1.0", b"7"], [b"1.0", b"7", b"", b"", b""], [b"2.0", b"7", b"", b"", b"", b"NULL"]],
)
def test_what_is_no_request_is_answered_with_500(frames):
    reply = Gatekeeper().answer(frames)
    assert len(reply) == 6
    assert reply[2] == b"500"
    assert reply[1] == (b"7" if len(frames) > 1 else b"")


def test_a_question_that_cannot_be_answered_refuses(key_files, monkeypatch):
    gatekeeper = Gatekeeper(AllowList(key_files / "allowed_clients"))
    monkeypatch.setattr(AllowList, "name_of", lambda *_: 1 / 0)
    assert ask(gatekeeper, zap.CURVE, b"127.0.0.1", b"CURVE", bytes(32))[0] == b"500"


# -- the allow list ----------------------------------------------------------------------------------------------------


def test_the_allow_list_is_read_again_when_it_changes(key_files):
    path = key_files / "allowed_clients"
    allowed = AllowList(path)
    alice, mallory = (keys.read_public(key_files / f"{name}.key") for name in ("alice", "mallory"))
    assert (allowed.name_of(alice), allowed.name_of(mallory)) == ("alice", None)
    path.write_bytes(mallory + b" now me\n")
    assert (allowed.name_of(alice), allowed.name_of(mallory)) == (None, "now me")
    path.unlink()
    assert allowed.name_of(mallory) is None
    path.write_bytes(alice + b"\nnonsense\n")
    path.chmod(0o600)
    assert allowed.name_of(alice) == alice.decode()


def test_an_allow_list_that_others_may_write_allows_nobody(key_files):
    path = key_files / "allowed_clients"
    allowed = AllowList(path)
    alice = keys.read_public(key_files / "alice.key")
    path.write_bytes(alice + b" alice\n\n\n")
    path.chmod(0o666)
    assert allowed.name_of(alice) is None
    with pytest.raises(StartError, match=f"mode 0666.*chmod 600 {path}"):
        AllowList(path)


def test_a_key_may_begin_like_a_comment(tmp_path):
    path = tmp_path / "allowed"
    key = b"#" + b"a" * 39
    path.write_bytes(b"#comment\n# comment\n" + key + b" odd\n")
    path.chmod(0o600)
    assert AllowList(path).name_of(key) == "odd"


@pytest.mark.parametrize(("text", "told"), [(b"abc alice\n", "line 1 is not a key"), (None, "No such file")])
def test_a_wrong_allow_list_keeps_the_daemon_from_starting(text, told, tmp_path):
    path = tmp_path / "allowed"
    if text is not None:
        path.write_bytes(text)
        path.chmod(0o600)
    with pytest.raises(StartError, match=told):
        AllowList(path)


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_tcp_beyond_loopback_needs_keys(key_files):
    for address in ("tcp://0.0.0.0:7700", "tcp://*:7700", "tcp://[::]:7700", "tcp://192.0.2.1:7700"):
        with pytest.raises(StartError, match="tensord keygen"):
            listen_guards([address], None, None)
        (listen_address,) = listen_guards(
            [address], key_files / "server.key_secret", key_files / "allowed_clients"
        ).addresses
        assert listen_address.options[zmq.CURVE_SERVER] == 1


def test_keys_and_allow_list_go_together(key_files):
    for secret, allow in ((key_files / "server.key_secret", None), (None, key_files / "allowed_clients")):
        with pytest.raises(StartError, match="go together"):
            listen_guards(["tcp://127.0.0.1:7700"], secret, allow)


def test_a_secret_that_others_may_read_keeps_the_daemon_from_starting(key_files):
    secret = key_files / "server.key_secret"
    secret.chmod(0o640)
    with pytest.raises(StartError, match=f"mode 0640.*chmod 600 {secret}"):
        listen_guards(["tcp://127.0.0.1:7700"], secret, key_files / "allowed_clients")


def test_what_was_judged_is_what_is_bound():
    ipc, name, interface, six = listen_guards(
        ["ipc:///x", "tcp://localhost:1", "tcp://lo:2", "tcp://[::1]:3"], None, None
    ).addresses
    assert (ipc.endpoint, ipc.options, ipc.local) == ("ipc:///x", {zmq.ZAP_DOMAIN: zap.IPC}, True)
    assert name.endpoint in {"tcp://127.0.0.1:1", "tcp://[::1]:1"}
    assert interface.endpoint == "tcp://127.0.0.1:2"
    assert (six.endpoint, six.options[zmq.IPV6]) == ("tcp://[::1]:3", 1)


# -- real sockets ------------------------------------------------------------------------------------------------------


class Daemon:
    """A ROUTER per address behind a gatekeeper, in the test's own thread."""

    def __init__(self, stack, addresses, secret=None, allow=None, gatekeeper=None):
        found = listen_guards(addresses, secret, allow)
        self.gatekeeper = gatekeeper or found.gatekeeper
        self.context = stack.enter_context(zmq.Context())
        self.context.linger = 0
        self.zap = stack.enter_context(self.context.socket(zmq.REP))
        self.zap.bind(zap.ENDPOINT)
        self.routers = []
        self.poller = zmq.Poller()
        self.poller.register(self.zap, zmq.POLLIN)
        for address in found.addresses:
            router = stack.enter_context(self.context.socket(zmq.ROUTER))
            for option, value in address.options.items():
                router.setsockopt(option, value)
            with private():
                router.bind(address.endpoint)
            self.poller.register(router, zmq.POLLIN)
            self.routers.append(router)
        self.endpoints = [router.last_endpoint.decode() for router in self.routers]

    def serve(self, client, endpoint, wanted):
        """Answer ZAP until the client's monitor has a wanted event, which is returned with the message, if any."""
        monitor = client.get_monitor_socket(wanted)  # before it connects: some events happen once
        self.poller.register(monitor, zmq.POLLIN)
        client.connect(endpoint)
        client.send(b"hello")
        event, message = None, None
        while event is None or (event == zmq.EVENT_HANDSHAKE_SUCCEEDED and message is None):
            ready = [socket for socket, _ in self.poller.poll(PATIENCE)]
            assert ready, "nothing happened"
            for socket in ready:
                if socket is self.zap:
                    self.zap.send_multipart(self.gatekeeper.answer(self.zap.recv_multipart()))
                elif socket is monitor:
                    event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
                else:
                    message = socket.recv_multipart(copy=False)[-1]
        self.poller.unregister(monitor)
        client.disable_monitor()
        monitor.close(0)
        return event, message


ANSWERS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


def knock(daemon, number, wanted=ANSWERS, **options):
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        for name, value in options.items():
            setattr(client, name, value)
        return daemon.serve(client, daemon.endpoints[number], wanted)


@pytest.fixture
def curve_daemon(key_files):
    with ExitStack() as stack:
        yield Daemon(stack, ["tcp://127.0.0.1:0"], key_files / "server.key_secret", key_files / "allowed_clients")


def options_of(key_files, name):
    names: dict[int, str] = {
        zmq.CURVE_SERVERKEY: "curve_serverkey",
        zmq.CURVE_PUBLICKEY: "curve_publickey",
        zmq.CURVE_SECRETKEY: "curve_secretkey",
    }
    return {names[option]: value for option, value in curve_options(key_files / f"{name}.key_secret").items()}


def test_the_right_key_comes_in_and_is_known_by_name(curve_daemon, key_files):
    event, message = knock(curve_daemon, 0, **options_of(key_files, "alice"))
    assert event == zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert message.bytes == b"hello"
    assert message.get("User-Id") == "key:alice"


def test_a_key_that_is_not_in_the_list_is_refused(curve_daemon, key_files):
    assert knock(curve_daemon, 0, **options_of(key_files, "mallory")) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, None)


def test_a_client_without_keys_is_refused(curve_daemon):
    failed = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
    event, message = knock(curve_daemon, 0, ANSWERS | failed)
    assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert message is None


def test_a_client_that_takes_another_for_the_server_does_not_come_in(curve_daemon, key_files):
    options = options_of(key_files, "alice") | {"curve_serverkey": keys.read_public(key_files / "mallory.key")}
    event, message = knock(curve_daemon, 0, ANSWERS | zmq.EVENT_DISCONNECTED, **options)
    assert event != zmq.EVENT_HANDSHAKE_SUCCEEDED
    assert message is None


def test_ipc_and_loopback_come_in_and_another_uid_does_not(tmp_path):
    tmp_path.chmod(0o700)
    with ExitStack() as stack:
        daemon = Daemon(stack, [f"ipc://{tmp_path / 's'}", "tcp://127.0.0.1:0"])
        assert knock(daemon, 0)[1].get("User-Id") == f"uid:{ME}"
        assert knock(daemon, 1)[1].get("User-Id") == "loopback"
    with ExitStack() as stack:
        daemon = Daemon(stack, [f"ipc://{tmp_path / 's'}"], gatekeeper=Gatekeeper(uid=ME + 1))
        assert knock(daemon, 0) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, None)


# -- the client's side -------------------------------------------------------------------------------------------------


def test_the_client_says_what_is_missing(key_files, monkeypatch, tmp_path):
    monkeypatch.delenv("TENSORD_KEYS", raising=False)
    assert curve_options() == {}
    with pytest.raises(MetadataError, match=r"several secret keys \(alice.key_secret, mallory.key_secret\)"):
        curve_options(key_files)
    (key_files / "mallory.key_secret").unlink()
    assert curve_options(key_files)[zmq.CURVE_PUBLICKEY] == keys.read_public(key_files / "alice.key")
    monkeypatch.setenv("TENSORD_KEYS", str(key_files / "alice.key_secret"))
    assert set(curve_options()) == {zmq.CURVE_SERVERKEY, zmq.CURVE_PUBLICKEY, zmq.CURVE_SECRETKEY}
    (key_files / "server.key").unlink()
    with pytest.raises(MetadataError, match=r"server\.key is missing: copy it"):
        curve_options()
    with pytest.raises(MetadataError, match="tensord keygen"):
        curve_options(tmp_path / "nothing")
    tmp_path.joinpath("empty").mkdir()
    with pytest.raises(MetadataError, match="--name NAME"):
        curve_options(tmp_path / "empty")
