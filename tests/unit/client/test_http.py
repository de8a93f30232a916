"""TLS, client certificates, tokens and proxies over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from kproxy.client import SERVICES, ApiError, Call, ClientConfig, ConfigError, RestClient, TransportError
from kproxy.client.credentials import CertificateFiles, ClientCertificate, Header, InlineCertificate, TokenFile
from kproxy.client.credentials import Credential as Nobody
from tests.support.client.authority import Authority
from tests.support.fakeapi.server import FakeApiServer


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secure(authority: Authority) -> Iterator[FakeApiServer]:
    with FakeApiServer(tls=authority.server_context("127.0.0.1", need_client=True)) as server:
        yield server


def test_client_certificates(authority: Authority, secure: FakeApiServer, tmp_path: Path) -> None:
    pair = authority.client_pair()
    inline = ClientConfig(server=secure.url, ca=authority.pem, credential=InlineCertificate(pair, Nobody()))
    assert RestClient(inline).list(SERVICES).items == ()
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    files = CertificateFiles(str(cert), str(key), Nobody())
    client = RestClient(ClientConfig(server=secure.url, ca=authority.pem, credential=files))
    assert client.list(SERVICES).items == ()
    renewed = authority.client_pair()
    cert.write_bytes(renewed.certificate)
    key.write_bytes(renewed.key)
    assert client.list(SERVICES).items == ()
    assert files.certificate() == renewed
    cert.unlink()
    assert files.certificate() == renewed, "what was read last stays"
    with pytest.raises(TransportError):
        RestClient(ClientConfig(server=secure.url, ca=authority.pem)).list(SERVICES)
    bad = InlineCertificate(ClientCertificate(b"x", b"y"), Nobody())
    with pytest.raises(ConfigError, match="client certificate and key cannot be used"):
        RestClient(ClientConfig(server=secure.url, ca=authority.pem, credential=bad)).list(SERVICES)


def test_server_certificates(authority: Authority) -> None:
    with FakeApiServer(tls=authority.server_context("api.internal", need_client=False)) as server:
        with pytest.raises(TransportError, match="certificate"):
            RestClient(ClientConfig(server=server.url, ca=authority.pem)).list(SERVICES)
        named = ClientConfig(server=server.url, ca=authority.pem, tls_server_name="api.internal")
        assert RestClient(named).list(SERVICES).items == ()
        with pytest.raises(TransportError, match="certificate"):
            RestClient(ClientConfig(server=server.url)).list(SERVICES)
        unchecked = ClientConfig(server=server.url, insecure_skip_tls_verify=True)
        assert RestClient(unchecked).list(SERVICES).items == ()
        with pytest.raises(ConfigError, match="certificate-authority cannot be used"):
            RestClient(ClientConfig(server=server.url, ca="nonsense")).list(SERVICES)


def test_a_watch_over_tls_can_be_cancelled(authority: Authority) -> None:
    with FakeApiServer(tls=authority.server_context("127.0.0.1", need_client=False)) as server:
        client = RestClient(ClientConfig(server=server.url, ca=authority.pem))
        call = Call()
        stream = client.watch(SERVICES, resource_version="100", call=call)
        threading.Timer(0.2, call.cancel).start()
        with pytest.raises(Exception, match="the call was ended"):
            list(stream)


def test_a_token_file_is_read_again_when_it_is_rejected(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    with FakeApiServer(tokens={"one": "me"}) as server:
        client = RestClient(ClientConfig(server=server.url, credential=TokenFile(str(token))))
        assert client.list(SERVICES).items == ()
        token.write_text("two")
        server.tokens = {"two": "me"}
        assert client.list(SERVICES).items == ()
        server.tokens = {}
        with pytest.raises(ApiError) as error:
            client.list(SERVICES)
        assert error.value.reason == "Unauthorized"
        with pytest.raises(ApiError) as error:
            RestClient(ClientConfig(server=server.url)).list(SERVICES)
        assert error.value.code == 403
        server.tokens = {"three": "me"}
        static = ClientConfig(server=server.url, credential=Header.bearer("three"))
        assert RestClient(static).list(SERVICES).items == ()


def test_proxy_url() -> None:
    seen: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.path} {self.headers.get('Proxy-Authorization')}")
            self.send_response(200)
            body = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        proxy = f"http://me:secret@127.0.0.1:{server.server_address[1]}"
        client = RestClient(ClientConfig(server="http://api.example", proxy_url=proxy))
        assert client.list(SERVICES).items == ()
        assert seen == ["http://api.example/api/v1/services?limit=500 Basic bWU6c2VjcmV0"]
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(ConfigError, match="only http and https proxies"):
        RestClient(ClientConfig(server="http://api.example", proxy_url="socks5://x:1")).list(SERVICES)
