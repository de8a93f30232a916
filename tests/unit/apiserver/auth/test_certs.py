"""Certificates, keys and kubeconfigs that the server makes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from kproxy.apiserver.auth import certs


def test_an_authority_is_made_once(tmp_path: Path) -> None:
    made = certs.load_or_make_authority(tmp_path)
    assert certs.load_or_make_authority(tmp_path).certificate == made.certificate
    assert stat.S_IMODE((tmp_path / "ca.pem").stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["ca.pem"]


def test_serving_certificates_name_their_hosts() -> None:
    authority = certs.new_authority()
    identity = certs.new_server(authority, ("10.96.0.1", "host.example.org", "127.0.0.1"))
    identity.certificate.verify_directly_issued_by(authority.certificate)
    names = identity.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    assert {"127.0.0.1", "::1", "10.96.0.1"} <= set(addresses)
    assert len(addresses) == len(set(addresses))
    assert {"localhost", "kubernetes.default.svc", "host.example.org"} <= set(names.get_values_for_type(x509.DNSName))


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"])
def test_broken_files_say_which(tmp_path: Path, text: str) -> None:
    (tmp_path / "ca.pem").write_text(text)
    (tmp_path / "key").write_text(text)
    with pytest.raises(certs.CertificateError, match=r"ca\.pem"):
        certs.load_or_make_authority(tmp_path)
    with pytest.raises(certs.CertificateError, match="key"):
        certs.load_or_make_key(tmp_path / "key")
