"""The self-signed certificate with which this daemon receives values by TLS. Each start makes a new certificate.

A daemon that connects compares the certificate's fingerprint with its table of members, which arrived over the control
connections (CURVE). The private key is never written to a file system.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from socket import socket

from ...interpreter.errors import ProtocolError
from ...streams.links.tcp.sockets import Tls
from .process.errors import StartError

YEARS = 20  # a fingerprint does not expire, and clocks differ
MISSING = (
    'encryption between daemons needs the package cryptography: pip install "tensord[cluster]", or choose '
    'encryption = "none" in [cluster]'
)


def make_tls(node: str) -> Tls:
    """TLS contexts with a new certificate. StartError without `cryptography`."""
    certificate, key = certified(node)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.num_tickets = 0
    load(server, certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE  # the fingerprint is checked instead
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode())).hexdigest()
    return Tls(partial(wrapped, server, server_side=True), partial(tls_connection_to, client), fingerprint)


def wrapped(context: ssl.SSLContext, connection: socket, *, server_side: bool = False) -> ssl.SSLSocket:
    """The connection with TLS. OSError if the peer is gone; `wrap_socket` would raise it, but leave the socket open."""
    connection.getpeername()
    return context.wrap_socket(connection, server_side=server_side)


def tls_connection_to(context: ssl.SSLContext, connection: socket, fingerprint: str) -> ssl.SSLSocket:
    """A TLS connection to the daemon with this fingerprint; ProtocolError if its certificate has another one."""
    secure = wrapped(context, connection)
    try:
        actual = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
    except OSError:
        secure.close()
        raise
    if actual != fingerprint:
        secure.close()
        wanted = f"the table of members says {fingerprint[:16]}..." if fingerprint else "it should take plain TCP"
        raise ProtocolError(f"its certificate is {actual[:16]}..., and {wanted}")
    return secure


def certified(node: str) -> tuple[bytes, bytes]:
    """A certificate and its key, in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise StartError(MISSING) from None
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, node)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=365 * YEARS))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return (
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, *form),
    )


def load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate into a context. OpenSSL reads it from a file, which exists only in memory."""
    descriptor = os.memfd_create("tensord-certificate")
    try:
        os.write(descriptor, certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
