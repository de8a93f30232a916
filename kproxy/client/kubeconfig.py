"""kubeconfig files: read, merged as kubectl merges them, and looked up by name.

The rules are client-go's (tools/clientcmd): of the files of a list, the first to have an entry of a name, or to name a
current-context, wins; entries are not merged with one another; an empty file says nothing; a name that comes twice in
one file is an error. Each entry remembers its own file's folder, from which its relative paths start. All entries are
read with their types, also those that nobody asks for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import DocumentError
from kproxy.client.errors import ConfigError

DEFAULT_PATH: Final = "~/.kube/config"


class _Kebab(msgspec.Struct, rename="kebab"):
    """A map of a kubeconfig: its fields are spelled with hyphens, except where they are not."""


class Cluster(_Kebab):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: Any = None


class User(_Kebab):
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


class Context(_Kebab):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _Named(msgspec.Struct):
    """An entry of one of the three sections, which has what the section is of."""

    name: str = ""
    cluster: Cluster | None = None
    user: User | None = None
    context: Context | None = None


class _File(_Kebab):
    kind: str | None = None
    current_context: str | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None


Body = TypeVar("Body", Cluster, User, Context)


class Entry(msgspec.Struct, Generic[Body], frozen=True):
    """A cluster, user or context. `base` is the folder of the file that it is in."""

    body: Body
    base: str


class KubeConfig(msgspec.Struct):
    """What the files of a list say together. `names` are the files, for messages."""

    names: str
    current_context: str = ""
    clusters: dict[str, Entry[Cluster]] = msgspec.field(default_factory=dict)
    users: dict[str, Entry[User]] = msgspec.field(default_factory=dict)
    contexts: dict[str, Entry[Context]] = msgspec.field(default_factory=dict)


def kubeconfig_paths(kubeconfig: str | None, environ: Mapping[str, str]) -> list[str]:
    """The files that count, in their order: one that is named, or those of $KUBECONFIG, or ~/.kube/config, as far as
    they are there and not empty. Raises ConfigError if the one that was named cannot be read."""
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
    return [name for name in names if os.path.isfile(name) and _text(name).strip()]


def read_kubeconfig(paths: list[str]) -> KubeConfig:
    """The files as one. Raises ConfigError, which says in which file what is wrong."""
    merged = KubeConfig(os.pathsep.join(paths))
    for path in paths:
        file = _read_file(path)
        at = (path, os.path.dirname(os.path.abspath(path)))
        merged.current_context = merged.current_context or file.current_context or ""
        _add(merged.clusters, "clusters", [(each.name, each.cluster or Cluster()) for each in file.clusters or ()], at)
        _add(merged.users, "users", [(each.name, each.user or User()) for each in file.users or ()], at)
        _add(merged.contexts, "contexts", [(each.name, each.context or Context()) for each in file.contexts or ()], at)
    return merged


def _add(into: dict[str, Entry[Body]], section: str, found: list[tuple[str, Body]], at: tuple[str, str]) -> None:
    """Adds what a file has and those before it had not; `at` is its path, and its folder."""
    seen: set[str] = set()
    path, base = at
    for name, body in found:
        if name in seen:
            raise ConfigError(f'{path}: {section}: the name "{name}" comes twice')
        seen.add(name)
        into.setdefault(name, Entry(body, base))


def _read_file(path: str) -> _File:
    try:
        documents = read_documents(_text(path))
        file = msgspec.convert((documents[0].value if documents else None) or {}, _File)
    except DocumentError as error:
        where = f"{path}: line {error.line}" if error.line else path
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}") from error
    if file.kind not in (None, "", "Config"):
        raise ConfigError(f"{path}: not a kubeconfig: its kind is {file.kind}, and not Config")
    return file


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not a kubeconfig: no UTF-8") from error
