"""CertificateSigningRequests: approving and signing take rights on the signer."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.apiserver.server import Api

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MERGE = "application/merge-patch+json"


def _request(name: str, signer: str, group: str) -> Any:
    subject = x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, "bob"),
    ])  # fmt: skip
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )
    spec = {"signerName": signer, "request": b64encode(pem).decode(), "usages": ["client auth"]}
    return {"metadata": {"name": name}, "spec": spec}


def _allow(api: Api, name: str, rules: list[Any]) -> None:
    api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [{"kind": "User", "name": "bob"}]}
    api.ok("POST", f"{RBAC}/clusterrolebindings", binding)


def test_approving_and_signing_take_rights_on_the_signer(api: Api) -> None:
    bob = api.as_user("bob-token")
    group, plural = "certificates.k8s.io", "certificatesigningrequests"
    resources = [plural, f"{plural}/approval", f"{plural}/status"]
    _allow(api, "writes", [{"verbs": ["create", "patch"], "apiGroups": [group], "resources": resources}])
    clients = "kubernetes.io/kube-apiserver-client"
    status, answer = bob("POST", REQUESTS, _request("masters", clients, "system:masters"))
    assert (status, "system:masters group is not allowed" in answer["message"]) == (403, True)
    assert bob("POST", REQUESTS, _request("mine", clients, "people"))[0] == 201
    approved = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}]}}
    failed = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "x"}]}}
    signed = {"status": {"certificate": b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()}}
    for verb, part, body in (("approve", "approval", approved), ("sign", "status", signed), ("sign", "status", failed)):
        status, answer = bob("PATCH", f"{REQUESTS}/mine/{part}", body, MERGE)
        assert status == 403
        assert f'not permitted to {verb} requests with signerName "{clients}"' in answer["message"]
    assert bob("PATCH", f"{REQUESTS}/mine", {"metadata": {"labels": {"a": "b"}}}, MERGE)[0] == 200
    own = {"apiGroups": [group], "resources": ["signers"]}
    rules = [own | {"verbs": ["approve"], "resourceNames": [clients]}]
    _allow(api, "signers", [*rules, own | {"verbs": ["sign"], "resourceNames": ["kubernetes.io/*"]}])
    assert bob("PATCH", f"{REQUESTS}/mine/approval", approved, MERGE)[0] == 200
    assert bob("PATCH", f"{REQUESTS}/mine/status", signed, MERGE)[0] == 200
