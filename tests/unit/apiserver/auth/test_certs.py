"""Certificates, keys and kubeconfigs that the server makes."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from kproxy.apiserver.auth import certs
from kproxy.apiserver.auth.certs import kubeconfig_text


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


def test_kubeconfigs_carry_user_and_groups() -> None:
    authority = certs.new_authority()
    loaded = yaml.safe_load(kubeconfig_text("https://127.0.0.1:1", authority, "alice", ("a", "b")))
    assert loaded["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    user = loaded["users"][0]["user"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(user["client-certificate-data"]))
    certificate.verify_directly_issued_by(authority.certificate)
    subject = certificate.subject
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n"])
def test_broken_files_say_which(tmp_path: Path, text: str) -> None:
    (tmp_path / "ca.pem").write_text(text)
    (tmp_path / "key").write_text(text)
    with pytest.raises(certs.CertificateError, match=r"ca\.pem"):
        certs.load_or_make_authority(tmp_path)
    with pytest.raises(certs.CertificateError, match="key"):
        certs.load_or_make_key(tmp_path / "key")
