"""A certificate authority for servers and clients of tests."""

from __future__ import annotations

import ssl

import trustme

from kproxy.client.credentials import ClientCertificate


class Authority:
    """A certificate authority with a server behind it that wants client certificates."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.pem = self.ca.cert_pem.bytes().decode()

    def server_context(self, name: str, need_client: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(name).configure_cert(context)
        if need_client:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_pair(self) -> ClientCertificate:
        issued = self.ca.issue_cert("kproxy")
        return ClientCertificate(
            b"".join(blob.bytes() for blob in issued.cert_chain_pems), issued.private_key_pem.bytes()
        )
