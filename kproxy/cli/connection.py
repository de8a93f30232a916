"""Which API server a command asks, and as whom: --kubeconfig, --context and kubectl's flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kproxy.cli.loading import gives

if TYPE_CHECKING:
    from kproxy.client import RestClient

Command = TypeVar("Command", bound=Callable[..., object])

PLUGIN: Final = "kubectl"
"""The root context's `obj` under `kubectl-kproxy`: without -f a command asks the API server that kubectl would."""

KUBECONFIG_HELP: Final = "A cluster's kubeconfig, instead of $KUBECONFIG and ~/.kube/config."

KUBECTL_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster": ("--cluster",),
    "user": ("--user",),
    "server": ("-s", "--server"),
    "token": ("--token",),
    "username": ("--username",),
    "password": ("--password",),
    "certificate_authority": ("--certificate-authority",),
    "client_certificate": ("--client-certificate",),
    "client_key": ("--client-key",),
    "tls_server_name": ("--tls-server-name",),
    "insecure_skip_tls_verify": ("--insecure-skip-tls-verify",),
    "as_user": ("--as",),
    "as_groups": ("--as-group",),
    "as_uid": ("--as-uid",),
}
"""kubectl's flags that stand for parts of a kubeconfig. By the fields of `Overrides`.

They are not in --help; docs/live.md has them."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Which API server, and as whom: what the options say. `flags` are those of KUBECTL_FLAGS that were given, with
    their values."""

    kubeconfig: str | None = None
    context: str | None = None
    flags: tuple[tuple[str, Any], ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given."""
        own = (("--kubeconfig", self.kubeconfig), ("--context", self.context))
        of_kubectl = (KUBECTL_FLAGS[name][-1] for name, _ in self.flags)
        return (*(name for name, value in own if value is not None), *of_kubectl)

    @property
    def label(self) -> str:
        """What messages call the server."""
        return self.context or self.kubeconfig or "the cluster"

    def client(self) -> RestClient:
        """Raises ConfigError."""
        from kproxy.client import Overrides, RestClient, load_client_config

        overrides = Overrides(**dict(self.flags))
        return RestClient(load_client_config(self.kubeconfig, self.context, overrides=overrides))


def is_plugin() -> bool:
    """Whether the command is kubectl's plugin."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().obj == PLUGIN


def has_usual() -> bool:
    """Whether there is a kubeconfig that kubectl would take by itself, or $KUBECONFIG names one."""
    import os

    from kproxy.client.kubeconfig import kubeconfig_paths

    return bool(os.environ.get("KUBECONFIG") or kubeconfig_paths(None, os.environ))


def connection_flags(*, hidden: bool = True) -> list[Callable[[Command], Command]]:
    """--kubeconfig, --context and kubectl's flags, which `take_connection` reads; kubectl's are never in --help."""
    found = [
        click.option("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP, hidden=hidden),
        click.option(
            "--context",
            metavar="NAME",
            help="The context of the kubeconfig, instead of its current one.",
            hidden=hidden,
        ),
    ]
    for name, spelled in KUBECTL_FLAGS.items():
        switch: dict[str, Any] = {"is_flag": True, "default": None} if name == "insecure_skip_tls_verify" else {}
        found.append(click.option(*spelled, name, hidden=True, multiple=name == "as_groups", **switch))
    return found


def take_connection(values: dict[str, Any]) -> Connection:
    """What these options say; they are taken out of a command's arguments."""
    flags = {name: values.pop(name) for name in KUBECTL_FLAGS}
    given = tuple((name, value) for name, value in flags.items() if value not in (None, ()))
    return Connection(values.pop("kubeconfig"), values.pop("context"), given)


def connection_options(*, hidden: bool = False) -> Callable[[Command], Command]:
    """Adds --kubeconfig, --context and kubectl's flags, and gives them to the command as `connection`."""
    return gives("connection", take_connection, *connection_flags(hidden=hidden))
