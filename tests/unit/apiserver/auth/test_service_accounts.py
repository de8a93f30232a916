"""Beside a controller manager: its tokens, its accounts' roles, and how it learns whose certificates count."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.auth.certs import CertificateError, load_public_keys
from kproxy.apiserver.controllers.roles import controller_rules
from tests.support.apiserver.server import TOKENS, Api

_PEM = serialization.Encoding.PEM


def _public(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_a_token_of_another_signer_counts_as_long_as_its_secret_holds_it(tmp_path: Path) -> None:
    """[sig-auth] ServiceAccounts should mount an API token: of a Secret that a controller manager has filled."""
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "sa.pub").write_bytes(_public(ec.generate_private_key(ec.SECP256R1())) + _public(signer))
    (tmp_path / "tokens.csv").write_text(TOKENS)
    keys = tuple(load_public_keys(tmp_path / "sa.pub"))
    with running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv", account_keys=keys) as server:
        api = Api(server)
        accounts, secrets = (f"/api/v1/namespaces/default/{plural}" for plural in ("serviceaccounts", "secrets"))
        uid = api.ok("POST", accounts, {"metadata": {"name": "builder"}})["metadata"]["uid"]
        prefix = "kubernetes.io/serviceaccount/"
        claims = {
            "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:builder",
            f"{prefix}namespace": "default", f"{prefix}secret.name": "token",
            f"{prefix}service-account.name": "builder", f"{prefix}service-account.uid": uid,
        }  # fmt: skip
        token = jwt.encode(claims, signer, algorithm="RS256")
        whoami = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        assert api.as_user(token)("POST", path, whoami)[0] == 401, "no Secret holds it"
        secret = {
            "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "builder"}},
            "type": "kubernetes.io/service-account-token", "data": {"token": b64encode(token.encode()).decode()},
        }  # fmt: skip
        api.ok("POST", secrets, secret)
        status, answer = api.as_user(token)("POST", path, whoami)
        assert (status, answer["status"]["userInfo"]["username"]) == (201, "system:serviceaccount:default:builder")
        stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        assert api.as_user(jwt.encode(claims, stranger, algorithm="RS256"))("POST", path, whoami)[0] == 401
        assert api.as_user(jwt.encode(claims, "", algorithm="none"))("POST", path, whoami)[0] == 401
        api.ok("DELETE", f"{accounts}/builder")
        assert api.as_user(token)("POST", path, whoami)[0] == 401, "its account is gone"


def test_key_files(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("x")
    with pytest.raises(CertificateError, match="no RSA or elliptic-curve key"):
        load_public_keys(tmp_path / "none.pem")
    with pytest.raises(CertificateError, match="No such file"):
        load_public_keys(tmp_path / "absent.pem")
    private = ec.generate_private_key(ec.SECP384R1())
    pem = private.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "private.pem").write_bytes(pem)
    assert load_public_keys(tmp_path / "private.pem") == [private.public_key()]


def test_the_authority_of_client_certificates_is_told(api: Api) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert api.ok("GET", path)["data"]["client-ca-file"] == api.server.ca.read_text()
    review = {"spec": {"user": "system:kube-scheduler", "resourceAttributes": {
        "namespace": "kube-system", "verb": "get", "resource": "configmaps",
        "name": "extension-apiserver-authentication"}}}  # fmt: skip
    assert api.ok("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


def test_each_controller_has_its_role(api: Api) -> None:
    rules = controller_rules()
    assert rules["system:controller:ttl-controller"][0] == {
        "verbs": ["list", "patch", "update", "watch"], "apiGroups": [""], "resources": ["nodes"],
    }  # fmt: skip
    asked = {"namespace": "default", "verb": "create", "resource": "pods"}
    review = {"spec": {"user": "system:serviceaccount:kube-system:job-controller", "resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert api.ok("POST", path, review)["status"]["allowed"]
    asked["resource"] = "secrets"
    assert not api.ok("POST", path, review)["status"]["allowed"]
