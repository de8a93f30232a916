"""What is known of a live cluster, as a snapshot in memory: for `kproxy collect`, and for commands that ask at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kproxy.cli.connection import Connection
from kproxy.cli.options import exclude
from kproxy.cli.output import report_error, report_note
from kproxy.cluster.motion import AGAIN, TIMES
from kproxy.errors import InputError
from kproxy.extras import require
from kproxy.words import counted

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.info import SnapshotInfo
    from kproxy.collect.collect import Collected
    from kproxy.collect.nodes import NodeReader
    from kproxy.lab.state import LabDirectory, LabRecord

Found = TypeVar("Found", bound=Hashable)
State = TypeVar("State")
Command = TypeVar("Command", bound=Callable[..., object])

Tell = Callable[[str], None]
VIA = ("exec", "agent", "netns", "lab", "none")
FIELDS = {"via": "--via", "selector": "--selector", "agent_url": "--agent-url", "token_file": "--agent-token-file"}
"""The options of a `Reading`, but for --node and the lab: what commands call them, and how they are spelled."""
_WITH_NODES = "exec, agent, netns or lab"


@dataclass(frozen=True, slots=True)
class Reading:
    """How the nodes of a cluster are read, as the options say it.

    Attributes:
        via: one of `VIA`; None if it was not given.
        lab: the lab's name.
        nodes: as --node has them.
        selector: of the Pods, for `exec`.
        agent_url, token_file: for `agent`.
    """

    via: str | None = None
    lab: str | None = None
    nodes: tuple[str, ...] = ()
    selector: str | None = None
    agent_url: str | None = None
    token_file: str | None = None

    @classmethod
    def taken_from(cls, values: dict[str, Any]) -> Reading:
        """What a command was given: its options are taken out of `values`, but for --node."""
        return cls(**{name: values.pop(name) for name in FIELDS if name in values})

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, but for --node."""
        return tuple(spelled for name, spelled in FIELDS.items() if getattr(self, name) is not None)

    @property
    def chosen(self) -> str:
        """How nodes are read, whether it was said or follows from what else was."""
        if self.via is None and any("=" in each for each in self.nodes):
            return "netns"
        return self.via or ("lab" if self.lab is not None else "none")

    def label(self, connection: Connection) -> str:
        """What reports call the cluster."""
        if self.chosen == "lab":
            return f"lab {self.lab or 'lab'}"
        return connection.label

    def check(self, connection: Connection) -> None:
        """Raises click.UsageError: options do not go together."""
        via = self.chosen
        exclude(
            (self.lab is not None and via != "lab", "--lab goes with --via lab"),
            (via == "lab" and connection.given, "a lab has its own kubeconfig"),
            (self.selector is not None and via != "exec", "--selector goes with --via exec"),
            (self.agent_url is not None and via != "agent", "--agent-url goes with --via agent"),
            (self.token_file is not None and via != "agent", "--agent-token-file goes with --via agent"),
            (via == "none" and self.nodes, f"--node goes with --via {_WITH_NODES}: without --via no node is read"),
            (via == "netns" and not self.nodes, "--via netns needs --node NAME or NAME=NAMESPACE, once for each node"),
        )


def reading_options() -> list[Callable[[Command], Command]]:
    """--via, and the options that go with its ways, which are not in --help (documentation: collect)."""
    return [
        click.option(
            "--via", type=click.Choice(VIA), help="How the nodes of cluster: are read. Default: they are not."
        ),
        click.option("--selector", help="With --via exec: the Pods. Default: kube-proxy's own.", hidden=True),
        click.option("--agent-url", metavar="URL", help="With --via agent: the nodes' metrics ports.", hidden=True),
        click.option("--agent-token-file", "token_file", metavar="FILE", help="With --via agent.", hidden=True),
    ]


def gather(connection: Connection, reading: Reading, label: str, tell: Tell = report_note) -> Collected:
    """A snapshot in memory.

    Args:
        label: what messages call it.
        tell: gets the progress, a sentence a node.

    Raises:
        click.UsageError: options do not go together.
        InputError: there is no such node, lab or namespace. ClusterReadError: the server refuses.
        click.exceptions.Exit: the server cannot be reached, which has been said.
    """
    from kproxy.client import TransportError
    from kproxy.collect.collect import Collector

    reading.check(connection)
    via = reading.chosen
    readers: Mapping[str, NodeReader] = {}
    missing: Mapping[str, str] = {}
    source = connection.context or ""
    if via == "lab":
        kubeconfig, readers, source = _lab(reading.lab or "lab", reading.nodes)
        connection = Connection(kubeconfig)
    elif via == "netns":
        readers = _namespaces(reading.nodes)
    elif any("=" in each for each in reading.nodes):
        raise InputError("--node NAME=NAMESPACE goes with --via netns")
    token = ""
    if reading.token_file is not None:
        from kproxy.cluster.snapshot.script import read_token

        token = read_token(reading.token_file)
    collector = Collector(label, via, source, tell)
    nodes_alone = via == "netns" or (via == "agent" and reading.agent_url and reading.nodes)
    client = None if nodes_alone and not connection.given else connection.client()
    try:
        if client is not None:
            collector.objects(client)
        if via == "exec" and client is not None:
            from kproxy.collect.exec import find_readers

            readers, missing = find_readers(client, reading.nodes, reading.selector)
        elif via == "agent":
            from kproxy.collect.agent import find_agents

            readers, missing = find_agents(client, reading.nodes, reading.agent_url, token)
        return collector.nodes(readers, missing)
    except TransportError as error:
        if client is None:
            raise
        report_error(TransportError(f"cannot reach the server {client.config.server}: {error.reason}"))
        raise click.exceptions.Exit(1) from error
    finally:
        if client is not None:
            client.close()


def report_unread(info: SnapshotInfo) -> bool:
    """Names on stderr what of a live cluster could not be read, and returns whether there is any."""
    failed = info.failed
    if failed:
        report_note(f"{counted(len(failed), 'part')} could not be read: {', '.join(each.what for each in failed[:8])}")
    return bool(failed)


def _namespaces(nodes: Sequence[str]) -> Mapping[str, NodeReader]:
    """Readers for `--node NAME` or `NAME=NAMESPACE`."""
    from kproxy.collect.netns import NamespaceReader

    found: dict[str, NodeReader] = {}
    for each in nodes:
        name, _, netns = each.partition("=")
        if not name or "/" in name or name in (".", ".."):
            raise InputError(f"--node {each!r}: NAME or NAME=NAMESPACE expected")
        found[name] = NamespaceReader(netns or name)
    return found


def named_lab(name: str) -> tuple[LabDirectory, LabRecord]:
    """A lab, by default `lab`. Raises KproxyError: there is none of that name."""
    require("lab", "lab:NAME")
    from kproxy.lab.state import open_lab

    return open_lab(name or "lab")


def _lab(name: str, nodes: Sequence[str]) -> tuple[str, Mapping[str, NodeReader], str]:
    """The lab's kubeconfig, readers for its nodes, its fabric and its client, and what the cluster is called."""
    lab, record = named_lab(name)
    from kproxy.collect.netns import NamespaceReader
    from kproxy.lab.spec import CLIENT, FABRIC

    plans = {plan.name: plan.namespace for plan in lab.plans(record)}
    unknown = [each for each in nodes if each not in plans]
    if unknown:
        raise InputError(f"lab {name} has no node {unknown[0]!r}: there are {', '.join(plans)}")
    wanted = {**{each: plans[each] for each in nodes or plans}, FABRIC: record.spec.fabric, CLIENT: record.spec.client}
    readers: dict[str, NodeReader] = {host: NamespaceReader(netns, "lab") for host, netns in wanted.items()}
    return str(lab.kubeconfig), readers, f"lab {name}"


def settled(
    read: Callable[[], State], wrong: Callable[[State], Iterable[Found]], *, live: bool = True
) -> tuple[State, set[Found], int]:
    """The last reading, what is wrong in each one, and how much was wrong in the first one only. What is `live` is read
    again while something is wrong: whoever keeps the rules lags behind a change by a moment."""
    state = read()
    stays = first = set(wrong(state))
    for _ in range(TIMES if live else 0):
        if stays:
            time.sleep(AGAIN)
            state = read()
            stays = stays & set(wrong(state))
    return state, stays, len(first) - len(stays)
