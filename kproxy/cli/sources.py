"""SOURCE: where a command takes rules and objects from, in the grammar of `kproxy.cluster.sources`.

`sources` adds the argument to a command, with -f, -n and the older options, which are hidden and mean the same. What
was named is grouped: dumps of one node are one host's rules, manifests are one cluster.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kproxy.api.octets import read_octets
from kproxy.cli.connection import Connection, connection_flags, has_usual, is_plugin, take_connection
from kproxy.cli.live_snapshot import Reading, gather, named_lab, reading_options
from kproxy.cli.loading import gives
from kproxy.cli.objects import AS_THEY_SAY, ReadObjects, Reads, RenderChoices, read_files, read_live
from kproxy.cli.options import exclude
from kproxy.cli.output import report_note, working
from kproxy.cluster.allocate import Network, read_networks
from kproxy.cluster.completeness import remark_no_slices
from kproxy.cluster.evidence.manifests import with_endpoints
from kproxy.cluster.evidence.unseen import NOTHING, Assumed
from kproxy.cluster.inputs import decode_cluster, first_octets, in_namespace, text_label
from kproxy.cluster.sources import Kind, SourceName, read_name
from kproxy.errors import InputError

if TYPE_CHECKING:
    from kproxy.api.load.reader import RawObject
    from kproxy.cluster.rules import HostRules
    from kproxy.cluster.snapshot.cluster import Cluster
    from kproxy.cluster.snapshot.files import Files
    from kproxy.collect.collect import Collected
    from kproxy.explorer.sources.source import Source

Command = TypeVar("Command", bound=Callable[..., object])

FILES_HELP: Final = "Manifests, as SOURCE may be; repeatable."
ENDPOINTS_HELP: Final = (
    "With manifests: Services that have a selector and no EndpointSlices get N endpoints, spread over the nodes."
)
ALLOCATE_HELP: Final = (
    "With manifests: cluster IPs from here (CIDR[,CIDR]), and node ports, for Services that have none."
)
ONLY_NAMESPACE: Final = "Only the Services of this namespace."
NAMES_NAMESPACE: Final = "The namespace of names that say none."
_START: Final = 4096
"""Bytes of a file that tell what it is."""
_FILES: Final = (Kind.MANIFESTS, Kind.SNAPSHOT)
OBJECTS: Final = (Kind.MANIFESTS, Kind.SNAPSHOT, Kind.LAB, Kind.CLUSTER)
"""What has the objects of a cluster."""
EVERYTHING: Final = tuple(Kind)
CURRENT: Final = SourceName("cluster:", Kind.CLUSTER, ("",))
"""The kubeconfig's current context."""
_BOTH: Final = "manifests or a live cluster"
_NOT_ALLOCATED: Final = "--allocate goes with manifests: an API server has allocated what it has"
_NOT_ASSUMED: Final = "--assume-endpoints goes with manifests: a live cluster has its own endpoints"
_WORDS: Final[Mapping[Kind, str]] = {
    Kind.RULES: "a dump of rules",
    Kind.MANIFESTS: "manifests",
    Kind.SNAPSHOT: "a snapshot",
    Kind.NETNS: "netns:NAME",
    Kind.LAB: "lab:NAME",
    Kind.CLUSTER: "cluster:CONTEXT",
}
_OTHERS: Final = ("nodes", "namespace", "allocate", "endpoints", "without")
"""The options that are attributes of `Sources` by the same names."""
_ALIASES: Final[Mapping[str, tuple[str, Kind]]] = {
    "filenames": ("-f", Kind.MANIFESTS),
    "rules": ("--rules", Kind.RULES),
    "snapshot": ("--snapshot", Kind.SNAPSHOT),
    "lab": ("--lab", Kind.LAB),
    "netns": ("--netns", Kind.NETNS),
}
"""The options that name a source: what the command calls them, how they are spelled, and what they name."""


@dataclass(frozen=True)
class Sources:
    """What a command was given to read.

    Attributes:
        names: all that was named, by whatever option; a live cluster by its name or by kubectl's flags.
        takes: the kinds that the command reads.
        connection: of a live cluster.
        nodes: of --node, which may be NAME=NAMESPACE where namespaces are read. namespace: of -n.
        reading: how the nodes of a live cluster are read.
        allocate: gives Services of manifests that have no cluster IP one. endpoints: gives those of files without
            EndpointSlices so many. without: what is to be gone of the objects.
        config: the file of kube-proxy's configuration on the nodes of dumps.
        reads: what both sides of a comparison name is read once; None reads each time.
    """

    names: tuple[SourceName, ...]
    takes: Collection[Kind] = EVERYTHING
    connection: Connection = field(default_factory=Connection)
    nodes: tuple[str, ...] = ()
    namespace: str | None = None
    reading: Reading = field(default_factory=Reading)
    allocate: tuple[Network, ...] = ()
    endpoints: int = 0
    without: tuple[str, ...] = ()
    config: str | None = None
    reads: Reads | None = field(default=None, compare=False)

    def of(self, *kinds: Kind) -> tuple[SourceName, ...]:
        """What was named of these kinds."""
        return tuple(each for each in self.names if each.kind in kinds)

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(each.kind for each in self.names)

    @property
    def dumps(self) -> tuple[str, ...]:
        """The files of rules."""
        return tuple(path for each in self.of(Kind.RULES) for path in each.names)

    @property
    def netns(self) -> str | None:
        """The one network namespace that was named."""
        return next((each.names[0] for each in self.of(Kind.NETNS)), None)

    @property
    def has_objects(self) -> bool:
        """Whether any of them has the objects of a cluster."""
        return not self.kinds.isdisjoint(OBJECTS)

    @property
    def node(self) -> str | None:
        """The node that @NODE or --node names, None if none does. Raises click.UsageError: they name several."""
        found = list(dict.fromkeys((*(each.node for each in self.names if each.node), *self.nodes)))
        if len(found) > 1:
            raise click.UsageError(f"one node expected, not {' and '.join(found)}")
        return found[0] if found else None

    @property
    def node_of_dumps(self) -> str | None:
        """The node of dumps that do not name theirs: that of --node, or of the objects."""
        named = (*self.nodes, *(each.node for each in self.of(*OBJECTS) if each.node))
        return next(iter(named), None)

    @property
    def label(self) -> str:
        """What messages call all of it."""
        return ", ".join(dict.fromkeys(each.label or self._server.label for each in self.names))

    @property
    def is_live(self) -> bool:
        """Whether the objects are an API server's."""
        return bool(self.of(Kind.LAB, Kind.CLUSTER))

    @property
    def object_files(self) -> tuple[str, ...]:
        """The files and snapshots that have the objects."""
        return tuple(path for each in self.of(*_FILES) for path in each.names)

    @property
    def _server(self) -> Connection:
        """The API server that has the objects. Raises KproxyError: there is no lab of that name."""
        for each in self.of(Kind.LAB, Kind.CLUSTER):
            if each.kind is Kind.LAB:
                return Connection(str(named_lab(each.names[0])[0].kubeconfig))
            return replace(self.connection, context=each.names[0] or self.connection.context)
        return self.connection

    def read(
        self,
        how: RenderChoices = AS_THEY_SAY,
        *,
        narrow: bool = True,
        used: Collection[str] = (),
        remark_config: bool = True,
    ) -> ReadObjects:
        """Reads kube-proxy's configuration, that of `node` where a snapshot has it, and the objects.

        Args:
            narrow: leave out Services that are not in the namespace of -n.
            used: kinds (`v1/Pod`) that the caller takes from the objects as they were read: they do not count as
                skipped.
            remark_config: say what follows if no configuration is known.

        Raises:
            InputError: what is wrong in either. ClusterReadError: the API server refused or did not answer.
        """
        from kproxy.cluster.snapshot.files import is_whole

        reads, node, names = self.reads or Reads(), self.node, self.object_files
        with working("reading the cluster"):
            if self.is_live:
                found = read_live(self._server, how, (self.namespace or "") if narrow else "", reads)
            else:
                found = read_files(
                    names, how, reads, allocate=self.allocate, used=used, node=node, remark_config=remark_config
                )
        cluster = found.cluster
        if self.endpoints and not self.is_live:
            cluster = with_endpoints(cluster, self.endpoints, node or found.config.hostname_override, report_note)
        for remark in () if self.is_live else remark_no_slices(cluster, ", or say --assume-endpoints N"):
            report_note(remark)
        if self.without:
            from kproxy.cluster.edits import manifests_without

            cluster = manifests_without(cluster, found.raw, self.without, self.default_namespace())
        if narrow and self.namespace:
            cluster = in_namespace(cluster, self.namespace)
            if not cluster.services:
                report_note(f"there are no Services in namespace {self.namespace}")
        whole = self.is_live or is_whole(cluster.endpoint_slices, filter(None, map(reads.snapshot, names)))
        return replace(found, cluster=cluster, whole=whole)

    def with_pods(self, raw: Sequence[RawObject]) -> list[RawObject]:
        """Objects as they were read, and of an API server its Pods. Raises ClusterReadError."""
        found = list(raw)
        if self.is_live:
            from kproxy.client.cluster import read_pods

            contents = dict(read_pods(self._server.client()))
            decode_cluster(contents, report_note, objects=found, used=("v1/Pod",))
        return found

    def default_namespace(self) -> str:
        """The namespace of names that say none: that of -n, else the context's."""
        if self.namespace:
            return self.namespace
        return self._server.client().config.namespace if self.is_live else "default"

    def explored(self, how: RenderChoices, stdin: bytes) -> Source:
        """The objects as the explorer reads them; `stdin` is what `-` stands for."""
        from kproxy.explorer.sources.rendering import ObjectChoices

        given = ObjectChoices(how.mode, how.features, self.allocate, self.endpoints)
        if self.is_live:
            from kproxy.explorer.sources import live

            server = self._server
            return live.ClusterSource(server.client, server.context or "", how.config, given)
        from kproxy.explorer.sources.source import manifest_source

        return manifest_source(self.object_files, how.config, given, stdin)

    @property
    def files(self) -> Files:
        """All that was named as one snapshot: read, gathered live, or put together of dumps and objects. Raises
        KproxyError: it cannot be read. click.UsageError: it does not go together."""
        from kproxy.cluster.snapshot.files import open_files
        from kproxy.cluster.together import together

        (first, *rest) = self.names
        for kind in (Kind.SNAPSHOT, Kind.NETNS):
            if len(found := self.of(kind)) > 1:
                raise click.UsageError(f"one {kind} expected, not {found[0].text} and {found[1].text}")
        if rest or first.kind in (Kind.RULES, Kind.MANIFESTS):
            return together(
                self.names, self.label, lambda name: self.gather(name).files, self.node_of_dumps, self.config
            )
        return open_files(first.names[0]) if first.kind is Kind.SNAPSHOT else self.gather(first).files

    def gather(self, name: SourceName, label: str = "") -> Collected:
        """A live source as a snapshot in memory; errors are those of `live_snapshot.gather`."""
        reading = self.reading_of(name)
        if name.kind is Kind.NETNS:
            from kproxy.linux.namespace import Namespace

            with Namespace.named(name.names[0]):  # an error says that it is not there
                return gather(Connection(), reading, name.label, lambda _progress: None)
        connection = self._server if name.kind is Kind.CLUSTER else Connection()
        return gather(connection, reading, label or name.label or reading.label(connection))

    def reading_of(self, name: SourceName) -> Reading:
        """How a live source's nodes are read: as its name says, and as the options do."""
        nodes = self.nodes or ((name.node,) if name.node else ())
        if name.kind is Kind.LAB:
            return replace(self.reading, via=self.reading.via or "lab", lab=name.names[0] or "lab", nodes=nodes)
        if name.kind is Kind.NETNS:
            (netns,) = name.names
            return replace(self.reading, via="netns", nodes=tuple(f"{node}={netns}" for node in nodes or (netns,)))
        found = replace(self.reading, nodes=self.nodes)
        return found if found.chosen == "none" else replace(found, nodes=nodes)

    def host_rules(self, assumed: Assumed = NOTHING) -> HostRules:
        """The rules of one host, of dumps or a network namespace. Raises KproxyError: they cannot be read."""
        if self.netns is None:
            return read_rules(self.dumps, assumed)
        found = next(iter(replace(self, names=self.of(Kind.NETNS)).read_cluster(assumed).hosts.values())).host_rules
        if found is None:
            raise InputError(f"{self.of(Kind.NETNS)[0].label}: no rules")
        return found

    def read_cluster(self, assumed: Assumed = NOTHING) -> Cluster:
        """The same as a cluster. Raises as `files`, and what `Cluster` raises."""
        from kproxy.cluster.snapshot.cluster import Cluster

        with working("reading the cluster"):
            return Cluster(self.files, tell=report_note, assumed=assumed)

    def check(self, needs: Collection[Kind]) -> None:
        """Raises click.UsageError: the command does not read such a source, several do not go together, or none of
        those is there that it `needs`."""
        expected = _listed(self.takes)
        wrong = next((each for each in self.names if each.kind not in self.takes), None)
        if wrong is not None:
            raise click.UsageError(f"{wrong.text} is {_WORDS[wrong.kind]}: this command reads {expected}")
        if needs and self.kinds.isdisjoint(needs):
            raise click.UsageError(f"a source expected: {_listed(needs)}")
        live = list(dict.fromkeys(self.of(Kind.CLUSTER, Kind.LAB)))
        others = [*live[1:], *(self.of(*_FILES) if live else ())]
        if others:
            first, other = (each.text or self.connection.given[0] for each in (live[0], others[0]))
            raise click.UsageError(f"{first} and {other}: one of both expected, {_BOTH}")
        if self.connection.given and not self.of(Kind.CLUSTER):
            option, name = self.connection.given[0], live[0] if live else self.names[0]
            raise click.UsageError(
                f"{option} names a live cluster, and {name.text} is {_WORDS[name.kind]}: {_BOTH} expected"
            )
        if self.reading.given:
            for reading in [self.reading_of(each) for each in live] or [self.reading]:
                reading.check(self.connection)
            if not live:
                raise click.UsageError(f"{self.reading.given[0]} goes with a live cluster, as in cluster:")
        paths = [path for each in self.names for path in each.names]
        exclude(
            (paths.count("-") > 1, "only one input can be standard input"),
            (self.allocate and not self.of(Kind.MANIFESTS), _NOT_ALLOCATED),
            (self.endpoints and not self.of(*_FILES), _NOT_ASSUMED),
            (self.without and not self.has_objects, "--without goes with objects: manifests, a snapshot or a cluster"),
        )


def read_rules(paths: Sequence[str], assumed: Assumed = NOTHING) -> HostRules:
    """The dumps of one host. Raises InputError: one cannot be read, or two say the same."""
    from kproxy.cluster.rules import HostRules, read_dumps

    with working(f"reading {', '.join(map(text_label, paths))}"):
        files, sets = read_dumps(paths)
        return HostRules(files, assumed=assumed, sets=sets)


def _listed(kinds: Collection[Kind]) -> str:
    *most, last = (_WORDS[kind] for kind in Kind if kind in kinds)
    return f"{', '.join(most)} or {last}" if most else last


def _stdin_kind(takes: Collection[Kind]) -> Kind:
    """What `-` is. Where a command reads both, it is looked at; whoever reads it next gets it from its beginning."""
    if Kind.RULES not in takes or Kind.MANIFESTS not in takes:
        return Kind.RULES if Kind.RULES in takes else Kind.MANIFESTS
    try:
        data = read_octets("-")
    except (OSError, ValueError) as error:
        raise InputError(f"standard input: {error}") from error
    from kproxy.cluster.rules import RuleKind, recognise

    sys.stdin = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")
    found = recognise(data.decode("utf-8", "replace"))
    if found is RuleKind.NFT_JSON and not b"".join(data[:200].split()).startswith(b'{"nftables"'):
        return Kind.MANIFESTS
    return Kind.MANIFESTS if found is None and data.strip() else Kind.RULES


def read_source(text: str, takes: Collection[Kind] = EVERYTHING) -> SourceName:
    """What a user names. A file that does not say what it is, is what the command reads. Raises InputError: the name
    cannot be used."""
    found = read_name(text)
    if found.names == ("-",):
        return found._replace(kind=_stdin_kind(takes))
    is_file = found.kind in (Kind.RULES, Kind.MANIFESTS) and found.kind not in takes
    other = next((kind for kind in (*_FILES, Kind.RULES) if kind in takes), None)
    if is_file and other is not None and not _is_dump(found.names[0]):
        return found._replace(kind=other, names=(text,) if other is Kind.SNAPSHOT else found.names)
    return found


def _is_dump(path: str) -> bool:
    """Whether a file has rules, by how it begins."""
    from kproxy.cluster.rules import recognise

    return recognise(first_octets(path, _START).decode("utf-8", "replace")) is not None


def _take(values: dict[str, Any], takes: Collection[Kind]) -> list[SourceName]:
    """What the argument and the options of a command name, in this order."""
    found = [read_source(text, takes) for text in values.pop("sources", ())]
    for name, (_, kind) in _ALIASES.items():
        given = values.pop(name, None)
        for text in () if given is None else given if isinstance(given, tuple) else (given,):
            if not text:
                raise InputError("the name of a file expected, not an empty one")
            each = SourceName(text, kind, (text,))
            if each not in found or kind in (Kind.RULES, Kind.MANIFESTS):
                found.append(each)
    return found


def _allocated(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[Network, ...]:
    """The networks of --allocate."""
    try:
        return () if text is None else read_networks(text)
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--allocate") from error


allocate_option = click.option("--allocate", metavar="CIDR", help=ALLOCATE_HELP, callback=_allocated, hidden=True)
"""--allocate, which fills up manifests; the command gets `allocate`, networks."""
endpoints_option = click.option(
    "--assume-endpoints", "endpoints", type=click.IntRange(1, 1000), help=ENDPOINTS_HELP, hidden=True,
    callback=lambda _context, _option, count: count or 0,
)  # fmt: skip
"""--assume-endpoints, which fills up manifests; the command gets `endpoints`, 0 for none."""


def _options(takes: Collection[Kind], namespace: str | None, *, via: bool, without: str | None) -> list[Any]:
    """The options of a command's sources: -f, -n, --via and --without as --help has them, and hidden ones."""
    found: list[Any] = []
    if Kind.MANIFESTS in takes:
        found.append(click.option("-f", "--filename", "filenames", metavar="PATH", multiple=True, help=FILES_HELP))
    if namespace is not None:
        found.append(click.option("-n", "--namespace", metavar="NS", help=namespace))
    found += reading_options() if via else []
    if without is not None:
        found.append(click.option("--without", metavar="REF", multiple=True, help=without, hidden=not without))
    for name, (spelled, kind) in _ALIASES.items():
        if kind in takes and name != "filenames":
            found.append(click.option(spelled, name, multiple=kind is Kind.RULES, hidden=True))
    found.append(click.option("--node", "nodes", multiple=True, hidden=True))
    found += [allocate_option, endpoints_option] if Kind.MANIFESTS in takes else []
    return found + (connection_flags() if Kind.CLUSTER in takes else [])


def sources(
    takes: Collection[Kind] = OBJECTS,
    namespace: str | None = None,
    *,
    needs: Collection[Kind] = OBJECTS,
    usual: bool = False,
    without: str | None = None,
    via: bool = False,
) -> Callable[[Command], Command]:
    """Adds SOURCE and the options that name one, and gives the command `sources`, checked.

    Args:
        namespace: the help of -n; None for a command without it.
        needs: the kinds of which one at least has to be there; none for a command that can do without.
        usual: where nothing is named it is the cluster of $KUBECONFIG or ~/.kube/config.
        without: the help of --without, "" for a hidden one; None for a command without it.
        via: whether nodes of a live cluster may be read.
    """

    def take(values: dict[str, Any]) -> Sources:
        found = _take(values, takes)
        connection = take_connection(values) if Kind.CLUSTER in takes else Connection()
        reading = Reading.taken_from(values)
        named = not {each.kind for each in found}.isdisjoint((Kind.LAB, Kind.CLUSTER, *_FILES))
        of_environment = not found and (is_plugin() or (usual and has_usual()))
        if Kind.CLUSTER in takes and not named and (connection.given or reading.given or of_environment):
            found.append(SourceName("", Kind.CLUSTER, (connection.context or "",)))
        others = {name: values.pop(name) for name in _OTHERS if name in values}
        given = Sources(tuple(found), takes, connection, reading=reading, **others)
        given.check(needs)
        return given

    argument = click.argument("sources", metavar="[SOURCE]...", nargs=-1)
    return gives("sources", take, argument, *_options(takes, namespace, via=via, without=without))
