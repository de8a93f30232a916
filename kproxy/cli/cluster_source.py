"""The objects of a cluster: of manifests, or of an API server (with --kubeconfig, --context and kubectl's flags).

A ClusterSource is either; its `read` is the same for both. `kproxy.cli.sources` makes it of what a command was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.api.load.manifests import SUFFIXES
from kproxy.api.load.reader import RawObject
from kproxy.cli import names
from kproxy.cli.output import report_note
from kproxy.cluster.allocate import Network, read_networks
from kproxy.cluster.completeness import remark_no_config, remark_no_slices
from kproxy.cluster.evidence.manifests import Lacking, with_endpoints
from kproxy.cluster.evidence.unseen import Assumed
from kproxy.cluster.inputs import (
    decode_cluster,
    decode_proxy_config,
    in_namespace,
    read_both,
    read_cluster,
    read_config,
    text_label,
)
from kproxy.cluster.sources import SourceName
from kproxy.errors import InputError
from kproxy.render import Features

if TYPE_CHECKING:
    from kproxy.client import RestClient
    from kproxy.cluster.snapshot.files import Files
    from kproxy.collect.collect import Collected
    from kproxy.explorer.sources.source import Source

Command = TypeVar("Command", bound=Callable[..., object])

PLUGIN: Final = "kubectl"
"""The root context's `obj` under `kubectl-kproxy`: without -f a command asks the API server that kubectl would."""

KUBECONFIG_HELP: Final = "A cluster's kubeconfig, instead of $KUBECONFIG and ~/.kube/config."
ENDPOINTS_HELP: Final = (
    "With manifests: Services that have a selector and no EndpointSlices get N endpoints, spread over the nodes."
)
ALLOCATE_HELP: Final = (
    "With manifests: cluster IPs from here (CIDR[,CIDR]), and node ports, for Services that have none."
)
ONLY_NAMESPACE: Final = "Only the Services of this namespace."
NAMES_NAMESPACE: Final = "The namespace of names that say none."

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


@dataclass(frozen=True, slots=True)
class RenderChoices:
    """How kube-proxy's rules are made of objects.

    Attributes:
        config: a file instead of the cluster's ConfigMap, of what a snapshot has, of the ConfigMap among manifests, or
            of kube-proxy's defaults.
        mode: goes before what the configuration says.
        features: what the nodes can do.
    """

    config: str | None = None
    mode: str | None = None
    features: Features = field(default_factory=Features)


_Found = tuple[KubeProxyConfiguration, tuple[Manifests, list[RawObject]]]


class Reads:
    """What the sources of one command have read. Two that name the same get the same objects, which are read once: what
    an API server has may be another a moment later.

    `config_known` says whether the configuration that was read last is more than kube-proxy's defaults."""

    def __init__(self) -> None:
        self.config_known = True
        self._known: dict[Hashable, tuple[Manifests, list[RawObject]]] = {}
        self._snapshots: dict[str, Files | None] = {}

    def snapshot(self, name: str) -> Files | None:
        """The files of a snapshot, a directory or an archive; None of anything else. Raises InputError."""
        if name == "-" or Path(name).suffix in SUFFIXES:
            return None
        if name not in self._snapshots:
            from kproxy.cluster.snapshot.files import is_snapshot, open_files

            self._snapshots[name] = open_files(name) if is_snapshot(name) else None
        return self._snapshots[name]

    def live(self, name: SourceName, read: Callable[[SourceName], Collected]) -> Files:
        """What a live source holds, as a snapshot, which `read` gives the first time."""
        found = self._snapshots.get(name.text)
        if found is None:
            found = self._snapshots[name.text] = read(name).files
        return found

    def of(self, key: Hashable, read: Callable[[list[RawObject]], Manifests]) -> tuple[Manifests, list[RawObject]]:
        """What was read by this key, and every object as it was; else what `read` gives, which fills the list."""
        if key not in self._known:
            objects: list[RawObject] = []
            self._known[key] = read(objects), objects
        return self._known[key]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """Manifests or an API server, as the user named them; one of both.

    `live` says that an API server is meant although no option names one. `allocate` gives Services of manifests that
    have no cluster IP one, `endpoints` gives those without EndpointSlices so many. `without` names what is to be gone.
    Sources that share `reads` read what both name once.
    """

    filenames: tuple[str, ...] = ()
    connection: Connection = Connection()
    namespace: str | None = None
    live: bool = False
    allocate: tuple[Network, ...] = ()
    endpoints: int = 0
    without: tuple[str, ...] = ()
    reads: Reads = field(default_factory=Reads, compare=False)

    @property
    def is_live(self) -> bool:
        return not self.filenames and (self.live or bool(self.connection.given))

    def read(
        self,
        how: RenderChoices = RenderChoices(),
        *,
        narrow: bool = True,
        objects: list[RawObject] | None = None,
        used: Collection[str] = (),
        node: str | None = None,
        remark_config: bool = True,
    ) -> tuple[KubeProxyConfiguration, Manifests]:
        """Reads kube-proxy's configuration and the objects.

        Args:
            node: whose configuration a snapshot is asked for.
            narrow: leave out Services that are not in the namespace of -n.
            objects, used: see `kproxy.cluster.inputs.read_cluster`.
            remark_config: say what follows if no configuration is known.

        Raises:
            InputError: what is wrong in either. ClusterReadError: the API server refused or did not answer.
        """
        if self.is_live:
            config, (cluster, seen) = self._read_live(how.config, how.mode, (self.namespace or "") if narrow else "")
        else:
            config, (cluster, seen) = self._read_files(how.config, how.mode, used, node, remark_config)
        if objects is not None:
            objects += seen
        if self.endpoints and not self.is_live:
            cluster = with_endpoints(cluster, self.endpoints, node or config.hostname_override, report_note)
        for remark in () if self.is_live else remark_no_slices(cluster, ", or say --assume-endpoints N"):
            report_note(remark)
        if self.without:
            from kproxy.cluster.edits import manifests_without

            cluster = manifests_without(cluster, seen, self.without, self.default_namespace())
        if narrow and self.namespace:
            cluster = in_namespace(cluster, self.namespace)
            if not cluster.services:
                report_note(f"there are no Services in namespace {self.namespace}")
        return config, cluster

    def _read_files(
        self, config_path: str | None, mode: str | None, used: Collection[str], node: str | None, remark_config: bool
    ) -> _Found:
        def unpack(name: str) -> Mapping[str, bytes] | None:
            from kproxy.cluster.snapshot.cluster import object_contents

            files = self.reads.snapshot(name)
            return None if files is None else object_contents(files)

        def read(objects: list[RawObject]) -> Manifests:
            return read_cluster(
                self.filenames, report_note, objects=objects, used=looked_at, allocate=self.allocate,
                hint="; --allocate 10.96.0.0/12, say, gives addresses",
                unpack=unpack,
            )  # fmt: skip

        told = config_path is not None
        # Without --config kube-proxy's ConfigMap is looked for among them.
        looked_at = used if told else {*used, "v1/ConfigMap"}
        config, (cluster, seen) = read_both(
            partial(read_config, config_path, report_note, mode),
            partial(self.reads.of, ("files", self.filenames, self.allocate), read),
        )
        if not told:
            from kproxy.cluster.snapshot.cluster import proxy_config_of

            # Of kinds that are skipped every object is a dict.
            known = proxy_config_of((each for each in seen if isinstance(each, dict)), self.label, report_note, mode)
            config, told = known or config, known is not None
        for files in filter(None, map(self.reads.snapshot, () if config_path is not None else self.filenames)):
            from kproxy.cluster.snapshot.cluster import known_config

            found = known_config(files, seen, cluster.nodes, node, report_note)
            if found is not None:
                config, told = msgspec.structs.replace(found, mode=mode or found.mode), True
        self.reads.config_known = told
        remarks = () if told or not remark_config else remark_no_config(cluster, seen)
        for remark in remarks:
            report_note(remark)
        return config, (cluster, seen)

    def lacking(self, cluster: Manifests, assumed: Assumed) -> Lacking:
        """The Services that lack what a cluster has; none of a live one's, nor of a snapshot with EndpointSlices. And
        whether the configuration is unknown that was read last."""
        from kproxy.cluster.snapshot.files import is_whole

        snapshots = filter(None, map(self.reads.snapshot, self.filenames))
        whole = self.is_live or is_whole(cluster.endpoint_slices, snapshots)
        found = Lacking.of(cluster, complete=whole, assumed=assumed)
        return replace(found, configuration=not self.reads.config_known)

    def explored(self, how: RenderChoices, stdin: bytes) -> Source:
        """The same as the explorer reads it; `stdin` is what `-` stands for."""
        from kproxy.explorer.sources.rendering import ObjectChoices

        given = ObjectChoices(how.mode, how.features, self.allocate, self.endpoints)
        if self.is_live:
            from kproxy.explorer.sources import live

            connection = self.connection
            return live.ClusterSource(connection.client, connection.context or "", how.config, given)
        from kproxy.explorer.sources.source import manifest_source

        return manifest_source(self.filenames, how.config, given, stdin)

    @property
    def label(self) -> str:
        """What pages call it."""
        if self.is_live:
            return self.connection.context or self.connection.client().config.server
        return ", ".join(map(text_label, self.filenames))

    def default_namespace(self) -> str:
        """The namespace of names that say none: that of -n, else the context's."""
        if self.namespace:
            return self.namespace
        return self.connection.client().config.namespace if self.is_live else "default"

    def read_pods(self) -> list[RawObject]:
        """The Pods of an API server, and nothing of manifests, whose `objects` have them. Raises ClusterReadError."""
        from kproxy.client.cluster import read_pods

        found: list[RawObject] = []
        if self.is_live:
            decode_cluster(dict(read_pods(self.connection.client())), report_note, objects=found, used=("v1/Pod",))
        return found

    def _read_live(self, config_path: str | None, mode: str | None, namespace: str) -> _Found:
        from kproxy.client.cluster import read_objects

        client = self.connection.client()

        def read(objects: list[RawObject]) -> Manifests:
            return decode_cluster(dict(read_objects(client, namespace, report_note)), report_note, objects=objects)

        try:
            return read_both(
                partial(_live_config, client, config_path, mode, self.reads),
                partial(self.reads.of, ("live", self.connection, namespace), read),
            )
        finally:
            client.close()


def is_plugin() -> bool:
    """Whether the command is kubectl's plugin."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().obj == PLUGIN


def has_usual() -> bool:
    """Whether there is a kubeconfig that kubectl would take by itself, or $KUBECONFIG names one."""
    import os

    from kproxy.client.kubeconfig import kubeconfig_paths

    return bool(os.environ.get("KUBECONFIG") or kubeconfig_paths(None, os.environ))


def _live_config(client: RestClient, path: str | None, mode: str | None, reads: Reads) -> KubeProxyConfiguration:
    from kproxy.client.cluster import ClusterReadError, read_proxy_config

    if path is not None:
        return read_config(path, report_note, mode)
    try:
        found = read_proxy_config(client)
    except ClusterReadError as error:
        raise ClusterReadError(f"{error} (--config FILE gives kube-proxy's configuration instead)") from error
    reads.config_known = found is not None
    if found is None:
        report_note(
            "the cluster has no ConfigMap kube-system/kube-proxy: kube-proxy's defaults count, by which clusterCIDR is "
            "unknown; give its configuration with --config FILE"
        )
        return read_config(None, report_note, mode)
    return decode_proxy_config(found.data, found.source, report_note, mode)


def read_allocate(text: str | None) -> tuple[Network, ...]:
    """The networks of --allocate."""
    try:
        return () if text is None else read_networks(text)
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--allocate") from error


def object_options() -> list[Callable[[Command], Command]]:
    """--allocate and --assume-endpoints, which fill up manifests."""
    return [
        click.option("--allocate", metavar="CIDR", help=ALLOCATE_HELP, hidden=True),
        click.option("--assume-endpoints", "endpoints", type=click.IntRange(1, 1000), help=ENDPOINTS_HELP, hidden=True),
    ]


def connection_flags(*, hidden: bool = True) -> list[Callable[[Command], Command]]:
    """--kubeconfig, --context and kubectl's flags, which `take_connection` reads; kubectl's are never in --help."""
    found = [
        click.option("--kubeconfig", metavar="FILE", help=KUBECONFIG_HELP, hidden=hidden),
        click.option(
            "--context", metavar="NAME", help="The context of the kubeconfig, instead of its current one.",
            shell_complete=names.contexts, hidden=hidden,
        ),
    ]  # fmt: skip
    for name, spelled in KUBECTL_FLAGS.items():
        switch: dict[str, Any] = {"is_flag": True, "default": None} if name == "insecure_skip_tls_verify" else {}
        found.append(click.option(*spelled, name, hidden=True, multiple=name == "as_groups", **switch))
    return found


def take_connection(values: dict[str, Any]) -> Connection:
    """What these options say; they are taken out of a command's arguments."""
    flags = {name: values.pop(name) for name in KUBECTL_FLAGS}
    given = tuple((name, value) for name, value in flags.items() if value not in (None, ()))
    return Connection(values.pop("kubeconfig"), values.pop("context"), given)


def with_options(function: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """Adds options to a command, the first of them as the first of --help."""
    for option in reversed(options):
        function = option(function)
    return function


def connection_options(*, hidden: bool = False) -> Callable[[Command], Command]:
    """Adds --kubeconfig, --context and kubectl's flags, and gives them to the command as `connection`."""

    def add(function: Command) -> Command:
        @wraps(function)
        def with_connection(**values: Any) -> object:
            return function(connection=take_connection(values), **values)

        return with_options(with_connection, connection_flags(hidden=hidden))  # type: ignore[return-value]

    return add
