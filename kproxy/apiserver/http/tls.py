"""What TLS offers and asks for: the server's certificate, and one of the client by our authority, or none.

Another certificate ends the handshake. kube-apiserver answers 401 to it; a context of the standard library cannot.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kproxy.apiserver.auth.certs import Identity, write_private

HANDSHAKE: Final = 10.0
"""Seconds for the handshake."""


def server_context(authority: Identity, server: Identity) -> ssl.SSLContext:
    """A context for listening with `server`, which `authority` has issued; clients may show what `authority` issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with TemporaryDirectory(prefix="kproxy-") as directory:  # OpenSSL wants a file
        path = Path(directory) / "server.pem"
        write_private(path, server.key_pem + server.certificate_pem + authority.certificate_pem)
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context
