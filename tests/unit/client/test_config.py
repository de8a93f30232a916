"""kubeconfig as kubectl resolves it, and service accounts."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import ClientConfig, ConfigError, CredentialError, in_cluster_config, load_client_config
from kproxy.client.credentials import CertificateFiles, ClientCertificate, Credential, InlineCertificate
from tests.support.client.kubeconfig import kubeconfig

Env = dict[str, str]


def load(path: str, context: str | None = None) -> ClientConfig:
    return load_client_config(path, context, {})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_file_named_first_then_the_environment_then_home(tmp_path: Path) -> None:
    named = kubeconfig(tmp_path / "named", server="https://named")
    listed = kubeconfig(tmp_path / "listed", server="https://listed")
    kubeconfig(tmp_path / ".kube" / "config", server="https://home")
    environ = {"KUBECONFIG": listed, "HOME": str(tmp_path)}
    assert load_client_config(named, None, environ).server == "https://named"
    assert load_client_config(None, None, environ).server == "https://listed"
    assert load_client_config(None, None, {"HOME": str(tmp_path)}).server == "https://home"
    with pytest.raises(ConfigError, match="nosuch does not exist"):
        load_client_config("nosuch", None, environ)
    with pytest.raises(ConfigError, match="no kubeconfig"):
        load_client_config(None, None, {"HOME": str(tmp_path / "empty")})


def test_files_of_a_list_are_merged_and_the_first_to_say_something_wins(tmp_path: Path) -> None:
    first = kubeconfig(
        tmp_path / "a" / "c", server="https://first", name="one", cluster={"certificate-authority": "ca"}
    )
    (tmp_path / "a" / "ca").write_text("PEM of a")
    second = kubeconfig(tmp_path / "b" / "c", server="https://second", name="two", user={"tokenFile": "token"})
    (tmp_path / "b" / "token").write_text("from b")
    third = kubeconfig(tmp_path / "c", server="https://ignored", name="one")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    environ: Env = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "nosuch"), str(empty), first, second, "", third])}
    one = load_client_config(None, None, environ)
    assert (one.server, one.ca) == ("https://first", "PEM of a")
    two = load_client_config(None, "two", environ)
    assert (two.server, two.credential.authorization()) == ("https://second", "Bearer from b")


def test_the_first_file_with_a_current_context_decides(tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.write_text("current-context: ''\nclusters: [{name: two, cluster: {server: 'https://over'}}]\n")
    files = [str(without), kubeconfig(tmp_path / "b", name="two"), kubeconfig(tmp_path / "c", name="three")]
    environ: Env = {"KUBECONFIG": os.pathsep.join(files)}
    # The entry of the first file stands alone: nothing of the later file's entry of that name is merged into it.
    assert load_client_config(None, None, environ).server == "https://over"


def test_a_bad_file_of_a_list_is_named_whether_or_not_it_is_needed(tmp_path: Path) -> None:
    good = kubeconfig(tmp_path / "good")
    for text, said in (
        ("users: [{name: x, user: {token: 12345}}]", r"bad: not a kubeconfig: .*users\[0\].user.token"),
        ("clusters: [{name: x}, {name: x}]", 'bad: clusters: the name "x" comes twice'),
        ("kind: Service", "its kind is Service, and not Config"),
        ("a:\n  - b\n c", "bad: line 3: "),
    ):
        bad = tmp_path / "bad"
        bad.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load_client_config(None, None, {"KUBECONFIG": os.pathsep.join([good, str(bad)])})


def test_contexts(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "c", context={"namespace": "shop"}, server="https://h/prefix/")
    config = load(path)
    assert (config.namespace, config.server) == ("shop", "https://h/prefix")
    assert load(kubeconfig(tmp_path / "d")).namespace == "default"
    with pytest.raises(ConfigError, match='context "nosuch" does not exist'):
        load(path, "nosuch")
    with pytest.raises(ConfigError, match='cluster "x" does not exist'):
        load(kubeconfig(tmp_path / "e", context={"cluster": "x"}))
    with pytest.raises(ConfigError, match='user "x" does not exist'):
        load(kubeconfig(tmp_path / "f", context={"user": "x"}))
    with pytest.raises(ConfigError, match="no server"):
        load(kubeconfig(tmp_path / "g", server=""))
    anonymous = load(kubeconfig(tmp_path / "h", context={"user": ""}))
    assert type(anonymous.credential) is Credential


def test_cluster_fields(tmp_path: Path) -> None:
    cluster = {
        "certificate-authority-data": encoded("PEM"),
        "certificate-authority": "is not read",
        "tls-server-name": "api.internal",
        "proxy-url": "http://proxy:3128",
    }
    config = load(kubeconfig(tmp_path / "c", cluster=cluster))
    assert (config.ca, config.tls_server_name, config.proxy_url) == ("PEM", "api.internal", "http://proxy:3128")
    insecure = load(kubeconfig(tmp_path / "d", cluster={"insecure-skip-tls-verify": True}))
    assert insecure.insecure_skip_tls_verify
    both = {"insecure-skip-tls-verify": True, "certificate-authority-data": encoded("PEM")}
    with pytest.raises(ConfigError, match="not allowed together"):
        load(kubeconfig(tmp_path / "e", cluster=both))
    with pytest.raises(ConfigError, match="certificate-authority-data is not base64"):
        load(kubeconfig(tmp_path / "f", cluster={"certificate-authority-data": "%%"}))
    with pytest.raises(ConfigError, match="cannot read certificate-authority"):
        load(kubeconfig(tmp_path / "g", cluster={"certificate-authority": "nosuch"}))


def test_tokens_and_passwords(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from file\n")

    def header(name: str, **user: Any) -> str:
        return load(kubeconfig(tmp_path / name, user=user)).credential.authorization()

    assert header("a", token="secret") == "Bearer secret"
    assert header("b", tokenFile="token", token="older") == "Bearer from file"
    assert header("c", tokenFile="nosuch", token="older") == "Bearer older"
    assert header("d", username="me", password="pw") == f"Basic {encoded('me:pw')}"
    with pytest.raises(CredentialError, match="cannot read a token"):
        header("e", tokenFile="nosuch")
    with pytest.raises(ConfigError, match="auth-provider is not supported"):
        header("f", **{"auth-provider": {"name": "gcp"}})


def test_client_certificates(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("CERT")
    (tmp_path / "key").write_text("KEY")
    files = load(kubeconfig(tmp_path / "a", user={"client-certificate": "cert", "client-key": "key", "token": "t"}))
    assert isinstance(files.credential, CertificateFiles)
    assert files.credential.certificate() == ClientCertificate(b"CERT", b"KEY")
    assert files.credential.authorization() == "Bearer t"
    user = {"client-certificate-data": encoded("C"), "client-key-data": encoded("K")}
    inline = load(kubeconfig(tmp_path / "b", user=user))
    assert isinstance(inline.credential, InlineCertificate)
    assert inline.credential.certificate() == ClientCertificate(b"C", b"K")
    mixed = load(kubeconfig(tmp_path / "c", user={"client-certificate": "cert", "client-key-data": encoded("K")}))
    assert mixed.credential.certificate() == ClientCertificate(b"CERT", b"K")
    with pytest.raises(ConfigError, match="must be given together"):
        load(kubeconfig(tmp_path / "d", user={"client-key": "key"}))
    missing = load(kubeconfig(tmp_path / "e", user={"client-certificate": "x", "client-key": "z"}))
    with pytest.raises(CredentialError, match="cannot read the client certificate"):
        missing.credential.certificate()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "a: b",
        "7",
        "current-context: x\ncontexts: 7\n",
        "current-context: x\ncontexts: [7]\n",
        "current-context: x\ncontexts: [{name: x}]\n",
        "current-context: x\ncontexts: [{name: x, context: {cluster: [1]}}]\n",
        "clusters: []\n",
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load(str(path))


def test_service_accounts(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="not in a cluster"):
        in_cluster_config(environ, str(tmp_path))
    for name, text in (("token", "abc"), ("ca.crt", "PEM"), ("namespace", "kube-system\n")):
        (tmp_path / name).write_text(text)
    config = in_cluster_config(environ, str(tmp_path))
    assert (config.server, config.ca, config.namespace) == ("https://[fd00::1]:443", "PEM", "kube-system")
    assert config.credential.authorization() == "Bearer abc"
    (tmp_path / "token").write_text("def")
    assert config.credential.rejected("Bearer abc")
    assert config.credential.authorization() == "Bearer def"
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"):
        in_cluster_config({}, str(tmp_path))
    with pytest.raises(ConfigError, match="not in a cluster"):
        load_client_config(None, None, environ | {"HOME": str(tmp_path)})
