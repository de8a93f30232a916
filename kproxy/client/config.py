"""Where the API server is and how to be let in: kubeconfig as kubectl resolves it, and in-cluster service accounts.

Merging, looking up entries and the in-cluster files are the official client's (`kubernetes.config`): of the
maintained libraries it alone reads $KUBECONFIG lists with each entry relative to its own file. Where it differs from
kubectl, kubectl wins: the first file that names a current-context decides, tokenFile goes before token, empty files are
no error, and exec plugins are run by `execplugin`. It is imported only here, when a configuration is loaded: it takes
0.15 s.
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
import yaml

from kproxy.client.credentials import (
    Anonymous,
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
from kproxy.client.overrides import Impersonation, Overrides

DEFAULT_PATH: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


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
    credential: Credential = field(default_factory=Anonymous)
    impersonation: Impersonation = field(default_factory=Impersonation)


class _Kebab(msgspec.Struct, rename="kebab"):
    """An entry of a kubeconfig: its fields are spelled with hyphens, except where they are not."""


class _Cluster(_Kebab):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: Any = None


class _User(_Kebab):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    as_user: str | None = msgspec.field(name="as", default=None)
    as_groups: tuple[str, ...] | None = None
    as_uid: str | None = None


class _Context(_Kebab):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


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
            return _configured(_Cluster(), _User(), ("", ""), _Context(), overrides)
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


def kubeconfig_paths(kubeconfig: str | None, environ: Mapping[str, str]) -> list[str]:
    """The files that count, in their order. Raises ConfigError if the one that was named cannot be read."""
    if kubeconfig is not None:
        if not os.path.isfile(kubeconfig):
            raise ConfigError(f"the kubeconfig {kubeconfig} does not exist")
        return [kubeconfig]
    listed = environ.get("KUBECONFIG")
    if listed:
        names = [name for name in listed.split(os.pathsep) if name]
    else:
        home = environ.get("HOME")
        names = [os.path.join(home, ".kube", "config")] if home else [os.path.expanduser(DEFAULT_PATH)]
    return [name for name in names if os.path.isfile(name) and not _is_blank(name)]


def _is_blank(path: str) -> bool:
    try:
        return not Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error


def _from_files(paths: list[str], context: str | None, overrides: Overrides) -> ClientConfig:
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigMerger

    merge: Callable[[str], Any] = KubeConfigMerger
    names = os.pathsep.join(paths)
    try:
        merger = merge(names)
        merged = merger.config
        chosen = context or next(
            (file["current-context"] for file in merger.config_files.values() if file.get("current-context")), None
        )
        stated = _context(merged, chosen, names, overrides)
        cluster_entry = _entry(merged, "clusters", stated.cluster or "")
        if cluster_entry is None and (stated.cluster or not overrides.server):
            raise ConfigError(f'context "{chosen}": cluster "{stated.cluster or ""}" does not exist')
        cluster = msgspec.convert((cluster_entry.value["cluster"] or {}) if cluster_entry else {}, _Cluster)
        user_entry = _entry(merged, "users", stated.user) if stated.user else None
        if stated.user and user_entry is None:
            raise ConfigError(f'context "{chosen}": user "{stated.user}" does not exist')
        user = msgspec.convert((user_entry.value["user"] or {}) if user_entry else {}, _User)
        bases = (_directory(cluster_entry), _directory(user_entry))
        return _configured(cluster, user, bases, stated, overrides)
    except (ConfigException, msgspec.ValidationError, yaml.YAMLError) as error:
        raise ConfigError(f"{names}: {' '.join(str(error).split())}") from error
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        # The merger takes the files to be maps of lists of named maps, and its error is no clearer.
        raise ConfigError(f"{names}: not a kubeconfig: {error!r}") from error


def _context(merged: Any, chosen: str | None, names: str, overrides: Overrides) -> _Context:
    """The context, with the cluster and the user that flags name instead of its own."""
    stated = _Context()
    if chosen:
        found = _entry(merged, "contexts", chosen)
        if found is None:
            raise ConfigError(f'context "{chosen}" does not exist')
        stated = msgspec.convert(found.value["context"] or {}, _Context)
    elif not overrides.cluster and not overrides.server:
        raise ConfigError(f"{names}: there is no current-context; name one with --context")
    for section, name in (("cluster", overrides.cluster), ("user", overrides.user)):
        if name and _entry(merged, f"{section}s", name) is None:
            raise ConfigError(f'{section} "{name}" does not exist')
    return msgspec.structs.replace(
        stated, cluster=overrides.cluster or stated.cluster, user=overrides.user or stated.user
    )


def _configured(
    cluster: _Cluster, user: _User, bases: tuple[str, str], context: _Context, flags: Overrides
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


def _with_flags(cluster: _Cluster, flags: Overrides) -> _Cluster:
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


def _user_with_flags(user: _User, flags: Overrides) -> _User:
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


def _entry(merged: Any, section: str, name: str) -> Any:
    """The ConfigNode of a named entry; None if there is none."""
    return merged[section].get_with_name(name, safe=True)


def _directory(entry: Any) -> str:
    return os.path.dirname(os.path.abspath(entry.path)) if entry is not None else ""


def _client_config(cluster: _Cluster, base: str, namespace: str | None) -> ClientConfig:
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
    entry: Mapping[str, Any], user: str, base: str, cluster: _Cluster, config: ClientConfig
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


def _credential(user: _User, base: str, run: Callable[[], Mapping[str, Any]] | None) -> Credential:
    """In kubectl's order: token file, token, password, plugin; a certificate beside any of them."""
    credential: Credential = Anonymous()
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


@dataclass(slots=True)
class _InCluster:
    """What the official loader fills in."""

    host: str = ""
    ssl_ca_cert: str = ""
    api_key: dict[str, str] = field(default_factory=dict)
    refresh_api_key_hook: object = None


def in_cluster_config(environ: Mapping[str, str] = os.environ, directory: str = SERVICE_ACCOUNT) -> ClientConfig:
    """The configuration of a pod: its service account, whose token file is read again as the kubelet renews it.

    Raises ConfigError outside a pod.
    """
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    loader: Callable[[str, str, bool, Mapping[str, str]], Any] = InClusterConfigLoader
    token, ca, namespace = (os.path.join(directory, name) for name in ("token", "ca.crt", "namespace"))
    loaded = _InCluster()
    try:
        loader(token, ca, False, environ).load_and_set(loaded)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError(f"not in a cluster: {error}") from error
    return ClientConfig(
        server=loaded.host,
        ca=_read(loaded.ssl_ca_cert, "the service account's ca.crt"),
        namespace=_read(namespace, "the namespace").strip() if os.path.isfile(namespace) else "default",
        credential=TokenFile(token),
    )
