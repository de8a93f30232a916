"""Where the API server is and how to be let in: kubeconfig as kubectl resolves it, and in-cluster service accounts.

`kubeconfig` reads and merges the files; here a context becomes a configuration, with what flags say over it. As for
kubectl, tokenFile goes before token, and exec plugins are run by `execplugin`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from kproxy.client.credentials import (
    CertificateFiles,
    ClientCertificate,
    Credential,
    ExecPlugin,
    Header,
    InlineCertificate,
    TokenFile,
    decode_data,
)
from kproxy.client.errors import ConfigError
from kproxy.client.execplugin import cluster_info, read_exec_config, run_plugin
from kproxy.client.kubeconfig import DEFAULT_PATH, Cluster, Context, KubeConfig, User, kubeconfig_paths, read_kubeconfig
from kproxy.family import join_host_port

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom requests are made as (kubectl's --as, --as-group, --as-uid); nobody else without a user.

    Source: client-go transport.ImpersonationConfig, and the API server's headers of impersonation.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers, of which that of groups may be repeated."""
        if not self.user:
            return ()
        uid = (("Impersonate-Uid", self.uid),) if self.uid else ()
        return (("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups), *uid)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What kubectl's flags of these names say over a kubeconfig; None leaves what it says."""

    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    token: str | None = None
    username: str | None = None
    password: str | None = None
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach one API server.

    `server` is a URL, perhaps with a path. `ca` is PEM text, None for the system's certificate authorities.
    `tls_server_name` is what the server's certificate must say, "" for the host of the URL. `proxy_url` is "" for what
    the environment says (HTTPS_PROXY, NO_PROXY). `namespace` is where namespaced calls go by default.
    """

    server: str
    ca: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = "default"
    credential: Credential = field(default_factory=Credential)
    impersonation: Impersonation = field(default_factory=Impersonation)


def load_client_config(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Overrides | None = None,
) -> ClientConfig:
    """The configuration that kubectl would use.

    Args:
        kubeconfig: a file, which must exist; else the files of $KUBECONFIG, else ~/.kube/config, else the pod's
            service account.
        context: the context instead of the current one.
        environ: the environment.
        overrides: what goes before the files. With a server no file is needed.

    Raises ConfigError.
    """
    overrides = overrides or Overrides()
    paths = kubeconfig_paths(kubeconfig, environ)
    if not paths:
        if overrides.server and not (context or overrides.cluster or overrides.user):
            return _configured(Cluster(), User(), ("", ""), Context(), overrides)
        if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
            return _as_somebody(in_cluster_config(environ), overrides)
        raise ConfigError(
            f"no kubeconfig: {environ.get('KUBECONFIG') or DEFAULT_PATH} does not exist or is empty; "
            "name one with --kubeconfig or $KUBECONFIG"
        )
    return _from_files(paths, context, overrides)


def _as_somebody(config: ClientConfig, flags: Overrides) -> ClientConfig:
    """A pod's configuration with what --as says; the other flags stand for parts of a kubeconfig."""
    if dataclasses.replace(flags, as_user=None, as_groups=(), as_uid=None) != Overrides():
        raise ConfigError("no kubeconfig, so flags can stand for no part of it; name one with --kubeconfig")
    return dataclasses.replace(config, impersonation=_impersonation(flags.as_user, flags.as_groups, flags.as_uid))


def _impersonation(user: str | None, groups: tuple[str, ...] | None, uid: str | None) -> Impersonation:
    if (groups or uid) and not user:
        raise ConfigError("requesting groups or uid without impersonating a user: --as is missing")
    return Impersonation(user or "", groups or (), uid or "")


def _from_files(paths: list[str], context: str | None, overrides: Overrides) -> ClientConfig:
    merged = read_kubeconfig(paths)
    chosen = context or merged.current_context
    stated = _context(merged, chosen, overrides)
    cluster = merged.clusters.get(stated.cluster or "")
    if cluster is None and (stated.cluster or not overrides.server):
        raise ConfigError(f'context "{chosen}": cluster "{stated.cluster or ""}" does not exist')
    user = merged.users.get(stated.user) if stated.user else None
    if stated.user and user is None:
        raise ConfigError(f'context "{chosen}": user "{stated.user}" does not exist')
    bases = (cluster.base if cluster else "", user.base if user else "")
    return _configured(cluster.body if cluster else Cluster(), user.body if user else User(), bases, stated, overrides)


def _context(merged: KubeConfig, chosen: str, overrides: Overrides) -> Context:
    """The context, with the cluster and the user that flags name instead of its own."""
    stated = Context()
    if chosen:
        found = merged.contexts.get(chosen)
        if found is None:
            raise ConfigError(f'context "{chosen}" does not exist')
        stated = found.body
    elif not overrides.cluster and not overrides.server:
        raise ConfigError(f"{merged.names}: there is no current-context; name one with --context")
    if overrides.cluster and overrides.cluster not in merged.clusters:
        raise ConfigError(f'cluster "{overrides.cluster}" does not exist')
    if overrides.user and overrides.user not in merged.users:
        raise ConfigError(f'user "{overrides.user}" does not exist')
    return msgspec.structs.replace(
        stated, cluster=overrides.cluster or stated.cluster, user=overrides.user or stated.user
    )


def _configured(
    cluster: Cluster, user: User, bases: tuple[str, str], context: Context, flags: Overrides
) -> ClientConfig:
    """A configuration from a cluster and a user of kubeconfigs, from folders `bases`, and what flags say over them.

    Flags name files by paths from the working directory, entries of a kubeconfig by paths from its own.
    """
    cluster = _with_flags(cluster, flags)
    user = _user_with_flags(user, flags)
    config = _client_config(cluster, bases[0], context.namespace)
    run = _plugin(user.exec, context.user or "", bases[1], cluster, config) if user.exec else None
    impersonation = _impersonation(user.as_user, user.as_groups, user.as_uid)
    return dataclasses.replace(config, credential=_credential(user, bases[1], run), impersonation=impersonation)


def _with_flags(cluster: Cluster, flags: Overrides) -> Cluster:
    replace = msgspec.structs.replace
    if flags.server:
        cluster = replace(cluster, server=flags.server if "://" in flags.server else f"http://{flags.server}")
    if flags.tls_server_name:
        cluster = replace(cluster, tls_server_name=flags.tls_server_name)
    if flags.insecure_skip_tls_verify is not None:
        cluster = replace(cluster, insecure_skip_tls_verify=flags.insecure_skip_tls_verify)
        if flags.insecure_skip_tls_verify:
            cluster = replace(cluster, certificate_authority=None, certificate_authority_data=None)
    if flags.certificate_authority:
        path = os.path.abspath(flags.certificate_authority)
        cluster = replace(cluster, certificate_authority=path, certificate_authority_data=None)
    return cluster


def _user_with_flags(user: User, flags: Overrides) -> User:
    """A flag for one way of being let in goes before the other ways of the kubeconfig, certificates left alone."""
    replace = msgspec.structs.replace
    if flags.token or flags.username:
        user = replace(
            user, token=flags.token, token_file=None, username=flags.username, password=flags.password, exec=None,
            auth_provider=None,
        )  # fmt: skip
    if flags.client_certificate:
        path = os.path.abspath(flags.client_certificate)
        user = replace(user, client_certificate=path, client_certificate_data=None)
    if flags.client_key:
        user = replace(user, client_key=os.path.abspath(flags.client_key), client_key_data=None)
    if flags.as_user:
        user = replace(user, as_user=flags.as_user, as_groups=None, as_uid=None)
    if flags.as_groups:
        user = replace(user, as_groups=flags.as_groups)
    return replace(user, as_uid=flags.as_uid) if flags.as_uid else user


def _client_config(cluster: Cluster, base: str, namespace: str | None) -> ClientConfig:
    if not cluster.server:
        raise ConfigError("the cluster has no server")
    ca = None
    if cluster.certificate_authority_data:
        ca = decode_data(cluster.certificate_authority_data, "certificate-authority-data").decode("utf-8", "replace")
    elif cluster.certificate_authority:
        ca = _read(os.path.join(base, cluster.certificate_authority), "certificate-authority")
    insecure = bool(cluster.insecure_skip_tls_verify)
    if insecure and ca is not None:
        raise ConfigError("certificate-authority and insecure-skip-tls-verify are not allowed together")
    return ClientConfig(
        server=cluster.server.rstrip("/"),
        ca=ca,
        insecure_skip_tls_verify=insecure,
        tls_server_name=cluster.tls_server_name or "",
        proxy_url=cluster.proxy_url or "",
        namespace=namespace or "default",
    )


def _plugin(
    entry: Mapping[str, Any], user: str, base: str, cluster: Cluster, config: ClientConfig
) -> Callable[[], Mapping[str, Any]]:
    info = cluster_info(
        config.server,
        config.ca,
        config.tls_server_name,
        config.insecure_skip_tls_verify,
        config.proxy_url,
        cluster.extensions,
    )
    return partial(run_plugin, read_exec_config(entry, user, base, info))


def _read(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {what}: {error}") from error


def _credential(user: User, base: str, run: Callable[[], Mapping[str, Any]] | None) -> Credential:
    """In kubectl's order: token file, token, password, plugin; a certificate beside any of them."""
    credential = Credential()
    if user.token_file:
        credential = TokenFile(os.path.join(base, user.token_file), user.token or "")
    elif user.token:
        credential = Header.bearer(user.token)
    elif user.username:
        credential = Header.basic(user.username, user.password or "")
    elif run is not None:
        credential = ExecPlugin(run)
    elif user.auth_provider:
        raise ConfigError("auth-provider is not supported: Kubernetes 1.26 replaced it by exec plugins")
    has_certificate = bool(user.client_certificate_data or user.client_certificate)
    if has_certificate != bool(user.client_key_data or user.client_key):
        raise ConfigError("client-certificate and client-key must be given together")
    if not has_certificate:
        return credential
    if user.client_certificate_data or user.client_key_data:
        return InlineCertificate(
            ClientCertificate(
                _data_or_file(user.client_certificate_data, user.client_certificate, base, "client-certificate"),
                _data_or_file(user.client_key_data, user.client_key, base, "client-key"),
            ),
            credential,
        )
    paths = [os.path.join(base, path or "") for path in (user.client_certificate, user.client_key)]
    return CertificateFiles(paths[0], paths[1], credential)


def _data_or_file(data: str | None, file: str | None, base: str, field_name: str) -> bytes:
    if data:
        return decode_data(data, f"{field_name}-data")
    return _read(os.path.join(base, file or ""), field_name).encode()


def in_cluster_config(environ: Mapping[str, str] = os.environ, directory: str = SERVICE_ACCOUNT) -> ClientConfig:
    """The configuration of a pod: its service account, whose token file is read again as the kubelet renews it.

    Raises ConfigError outside a pod.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token, ca, namespace = (os.path.join(directory, name) for name in ("token", "ca.crt", "namespace"))
    for path in (token, ca):
        if not os.path.isfile(path) or not os.path.getsize(path):
            raise ConfigError(f"not in a cluster: {path} does not exist or is empty")
    return ClientConfig(
        server=f"https://{join_host_port(host, port)}",
        ca=_read(ca, "the service account's ca.crt"),
        namespace=_read(namespace, "the namespace").strip() if os.path.isfile(namespace) else "default",
        credential=TokenFile(token),
    )
