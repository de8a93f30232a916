"""What people read when there is no answer: one line with the address and the reason, and no class of Python's."""

from __future__ import annotations

import socket
import time

import pytest

from kproxy.client import SERVICES, ClientConfig, ConfigError, RestClient, TransportError
from kproxy.client import http as http_module
from kproxy.client.credentials import Credential, InlineCertificate
from kproxy.client.errors import describe_failure
from tests.support.client.authority import Authority
from tests.support.fakeapi.server import FakeApiServer, Handler

CLASS_NAMES = ("Pool", "Error", "Exception", "object at", "urllib3", "_ssl.c", "Errno", "MaxRetry")


def reason(config: ClientConfig, timeout: float = 20.0) -> tuple[str, str]:
    """The reason and the address of the failure."""
    with pytest.raises(TransportError) as caught:
        RestClient(config).list_page(SERVICES, timeout=timeout)
    text = str(caught.value)
    assert text == f"{caught.value.address}: {caught.value.reason}"
    assert not [name for name in CLASS_NAMES if name in text], text
    assert "\n" not in text
    return caught.value.reason, caught.value.address


@pytest.mark.parametrize(
    ("server", "address", "why"),
    [
        ("http://127.0.0.1:9", "127.0.0.1:9", "connection refused"),
        ("https://127.0.0.1:9", "127.0.0.1:9", "connection refused"),
        ("http://[::1]:9", "[::1]:9", "connection refused"),
        ("https://no.such.host.invalid", "no.such.host.invalid:443", "lookup of the host name failed: "),
        ("http://no.such.host.invalid", "no.such.host.invalid:80", "lookup of the host name failed: "),
    ],
)
def test_a_server_that_is_not_there(server: str, address: str, why: str) -> None:
    found, where = reason(ClientConfig(server=server))
    assert where == address
    assert found.startswith(why)


def test_a_proxy_that_is_not_there() -> None:
    for scheme in ("http", "https"):
        config = ClientConfig(server=f"{scheme}://192.0.2.1:6443", proxy_url="http://127.0.0.1:9")
        assert reason(config) == ("the proxy: connection refused", "192.0.2.1:6443")


def test_certificates() -> None:
    authority, other = Authority(), Authority()
    with FakeApiServer(tls=authority.server_context("127.0.0.1", need_client=False)) as server:
        assert reason(ClientConfig(server.url))[0] == "TLS: certificate signed by unknown authority"
        assert reason(ClientConfig(server.url, ca=other.pem))[0] == "TLS: certificate signed by unknown authority"
        named = ClientConfig(server.url, ca=authority.pem, tls_server_name="api.internal")
        assert reason(named)[0].startswith("TLS: certificate")
    with FakeApiServer(tls=authority.server_context("api.internal", need_client=False)) as server:
        found = reason(ClientConfig(server.url, ca=authority.pem))[0]
        assert found == "TLS: certificate is not valid for 127.0.0.1"
    with FakeApiServer(tls=authority.server_context("127.0.0.1", need_client=True)) as server:
        # With TLS 1.3 the refusal comes after the handshake, and may be lost when the connection is reset.
        pair = InlineCertificate(other.client_pair(), Credential())
        for config in (
            ClientConfig(server.url, ca=authority.pem),
            ClientConfig(server.url, ca=authority.pem, credential=pair),
        ):
            found = reason(config)[0]
            assert "client certificate" in found or "closed the connection" in found or "connection reset" in found


def test_https_where_there_is_http() -> None:
    with FakeApiServer() as server:
        found = reason(ClientConfig(server.url.replace("http", "https")))[0]
        assert found == "TLS: the server does not speak TLS; is its URL http://?"


def test_time_outs(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_handler: Handler) -> bool:
        time.sleep(1)
        return True

    with FakeApiServer() as server:
        server.intercept = slow
        assert reason(ClientConfig(server.url), timeout=0.2)[0] == "timed out: no answer"
    monkeypatch.setattr(http_module, "CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert reason(ClientConfig(f"https://127.0.0.1:{port}"))[0] == "timed out: no answer"


def test_an_invalid_url() -> None:
    for server in ("http://host:port", "https://host:99999", "http://[::1"):
        with pytest.raises(ConfigError, match="server"):
            RestClient(ClientConfig(server=server))


def test_errors_without_words() -> None:
    assert describe_failure(ValueError()) == "no answer"
    assert describe_failure(ConnectionResetError(104, "Connection reset by peer")) == "connection reset by peer"
    assert describe_failure(ValueError("Invalid header.")) == "invalid header"
