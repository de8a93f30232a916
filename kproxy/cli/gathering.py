"""What is known of a live cluster, as a snapshot in memory: for `kproxy collect`, and for commands that ask at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from kproxy.cli.cluster_source import Connection
from kproxy.cli.output import report_error, report_note
from kproxy.client import TransportError
from kproxy.collect.collect import Collected, Collector
from kproxy.collect.exec import find_runners
from kproxy.collect.netns import NamespaceRunner
from kproxy.collect.nodes import Runner
from kproxy.errors import InputError
from kproxy.extras import require

VIA = ("exec", "netns", "lab", "none")


def gather(
    connection: Connection, via: str, lab: str, nodes: Sequence[str], label: str, selector: str | None = None
) -> Collected:
    """A snapshot in memory; progress goes to stderr.

    Args:
        via: one of `VIA`. lab: the lab's name, for `lab`. nodes: as --node has them.
        label: what messages call it. selector: of the Pods, for `exec`.

    Raises:
        InputError: there is no such node, lab or namespace. ServerError: the server refuses.
        click.exceptions.Exit: the server cannot be reached, which has been said.
    """
    if via == "lab":
        kubeconfig, runners, source = _lab(lab, nodes)
        connection = Connection(kubeconfig)
    else:
        runners, source = _namespaces(nodes) if via == "netns" else {}, connection.context or ""
    collector = Collector(label, via, source, report_note)
    if via == "netns" and not connection.given:
        return collector.nodes(runners, {})
    client = connection.client()
    missing: Mapping[str, str] = {}
    try:
        collector.objects(client)
        if via == "exec":
            runners, missing = find_runners(client, nodes, selector)
        return collector.nodes(runners, missing)
    except TransportError as error:
        report_error(TransportError(f"cannot reach the server {client.config.server}: {error.reason}"))
        raise click.exceptions.Exit(1) from error
    finally:
        client.close()


def _namespaces(nodes: Sequence[str]) -> Mapping[str, Runner]:
    """Runners for `--node NAME` or `NAME=NAMESPACE`."""
    if not nodes:
        raise click.UsageError("--via netns needs --node NAME or NAME=NAMESPACE, once for each node")
    found: dict[str, Runner] = {}
    for each in nodes:
        name, _, netns = each.partition("=")
        if not name or "/" in name or name in (".", ".."):
            raise InputError(f"--node {each!r}: NAME or NAME=NAMESPACE expected")
        found[name] = NamespaceRunner(netns or name)
    return found


def _lab(name: str, nodes: Sequence[str]) -> tuple[str, Mapping[str, Runner], str]:
    """The lab's kubeconfig, runners for its nodes, its fabric and its client, and what the cluster is called."""
    require("lab", "--lab")
    from kproxy.lab.spec import CLIENT, FABRIC
    from kproxy.lab.state import open_lab

    lab, record = open_lab(name)
    plans = {plan.name: plan.namespace for plan in lab.plans(record)}
    unknown = [each for each in nodes if each not in plans]
    if unknown:
        raise InputError(f"lab {name} has no node {unknown[0]!r}: there are {', '.join(plans)}")
    wanted = {**{each: plans[each] for each in nodes or plans}, FABRIC: record.spec.fabric, CLIENT: record.spec.client}
    runners: dict[str, Runner] = {host: NamespaceRunner(netns, "lab") for host, netns in wanted.items()}
    return str(lab.kubeconfig), runners, f"lab {name}"
