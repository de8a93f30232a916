"""Who may have a certificate signed, approve that, and sign: what a CertificateSigningRequest's signer says.

Source: kubernetes/kubernetes plugin/pkg/admission/certificates: CertificateSubjectRestriction, CertificateApproval,
CertificateSigning.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from kproxy.apiserver.auth.authentication import MASTERS
from kproxy.apiserver.errors import Json

REQUESTS: Final = ("certificates.k8s.io", "certificatesigningrequests")
_CLIENTS: Final = "kubernetes.io/kube-apiserver-client"


def objection(value: Json, old: Json | None, allows: Callable[[str, str], bool]) -> str:
    """Why a CertificateSigningRequest may not be written, "" if nothing is against it. `allows` says whether the user
    may do a verb with a signer."""
    signer = value["spec"].get("signerName", "")
    if old is None:
        masters = signer == _CLIENTS and MASTERS in _organizations(value["spec"].get("request", ""))
        return f"use of {signer} signer with {MASTERS} group is not allowed" if masters else ""
    for verb, field, types in (("approve", "", ("Approved", "Denied")), ("sign", "certificate", ("Failed",))):
        if _said(value, field, types) != _said(old, field, types) and not any(
            allows(verb, name) for name in (signer, f"{signer.partition('/')[0]}/*")
        ):
            return f'user not permitted to {verb} requests with signerName "{signer}"'
    return ""


def _said(value: Json, field: str, types: Iterable[str]) -> Any:
    status = value.get("status") or {}
    return status.get(field), [each for each in status.get("conditions") or () if each.get("type") in types]


def _organizations(request: str) -> list[str | bytes]:
    """The groups that a certificate would give its holder."""
    subject = x509.load_pem_x509_csr(b64decode(request)).subject
    return [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
