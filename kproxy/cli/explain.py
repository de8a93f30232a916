"""`kproxy explain`: what one Service becomes on a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.api.octets import read_octets
from kproxy.cli import names
from kproxy.cli.cluster_source import NAMES_NAMESPACE, ClusterSource
from kproxy.cli.evidence import assume_option, unseen_lines
from kproxy.cli.options import (
    chosen_family,
    family_options,
    feature_option,
    manifest_options,
    tell_unused_options,
)
from kproxy.cli.output import (
    Branch,
    output_option,
    report_note,
    working,
    write_answer,
    write_files,
    write_report,
)
from kproxy.cluster.evidence.signs import ipvs_of_mode
from kproxy.cluster.evidence.unseen import ENDPOINTS, Assumed, Unseen, headlines, suspected
from kproxy.errors import InputError
from kproxy.render import Features, RenderedTable, RenderedTarget, render_table, render_target, select_target
from kproxy.render.explain import Explanation, ObjectExplanation, ServicePortExplanation, explain_service
from kproxy.services import IPFamily

_MOST_NAMES = 10


@click.command("explain")
@partial(manifest_options, namespace_help=NAMES_NAMESPACE, usual=True)
@family_options
@feature_option
@click.option(
    "--service", "service_key", metavar="NS/NAME", required=True, help="The Service: its namespace and name.",
    shell_complete=names.services,
)  # fmt: skip
@assume_option
@output_option
@click.option("--html", metavar="FILE", help="Write a page that shows it as a picture, instead.")
def command(
    source: ClusterSource,
    config_path: str | None,
    node: str | None,
    mode: str | None,
    ipv4: bool,
    ipv6: bool,
    features: Features,
    service_key: str,
    assumed: Assumed,
    output_format: str,
    html: str | None,
) -> None:
    """Explain in plain words what one Service becomes on a node.

    Shows its ServicePorts, its endpoints and why some are left out, its chains and its rules. Without -f it asks the
    cluster of $KUBECONFIG or ~/.kube/config, as `kproxy get` does.

    \b
    Examples:
      kproxy explain -f cluster.yaml --service kube-system/kube-dns
      kproxy explain -f cluster.yaml --node worker-2 --service shop/web -6
      kproxy explain -f cluster.yaml --service shop/web -o json
      kproxy explain -f cluster.yaml --service shop/web --html web.html
      kproxy explain --context prod -n shop --service web --node worker-1
    """
    if html is not None:
        if output_format != "text":
            raise click.UsageError(f"--html and -o {output_format} exclude each other")
        key = service_key if "/" in service_key else f"{source.default_namespace()}/{service_key}"
        family = chosen_family(ipv4, ipv6)
        _write_page(html, source, (config_path, mode, features), key, node, family)
        return
    with working("reading the cluster"):
        config, cluster = source.read(config_path, mode, narrow=False, node=node)
    tell_unused_options(config.mode)
    target = select_target(cluster.nodes, config, node)
    key = service_key if "/" in service_key else f"{source.default_namespace()}/{service_key}"
    service = next((service for service in cluster.services if service.metadata.key == key), None)
    if service is None:
        keys = sorted(each.metadata.key for each in cluster.services)
        near = [each for each in keys if each.endswith(f"/{key.partition('/')[2]}")]  # of another namespace
        names = ", ".join((near or keys)[:_MOST_NAMES])
        listed = f": {names}{', ...' if len(near or keys) > _MOST_NAMES else ''}" if names else ""
        raise InputError(f"Service {key} is not among the {len(keys)} Services of the cluster{listed}")
    family = chosen_family(ipv4, ipv6) or target.primary_family(config)
    lacking, _ = source.lacking(cluster, assumed).on_node(cluster, target, config, assumed)
    of_it = [each for each, services in lacking.things(target.node_name).items() if not services or service in services]
    unseen = assumed.left(
        each for each in (*ipvs_of_mode(target.node_name, config.mode), *of_it) if each.is_met_by(family)
    )
    with working("rendering"):
        rendered: RenderedTarget | RenderedTable
        if config.mode == MODE_NFTABLES:
            rendered = render_table(
                target, family, cluster.services, cluster.endpoint_slices, config, features, cluster.service_cidrs
            )
        else:
            rendered = render_target(target, family, cluster.services, cluster.endpoint_slices, config, features)
        endpoints_seen = all(each.what != ENDPOINTS for each in unseen)
        explanation = explain_service(service, rendered, cluster.endpoint_slices, endpoints_seen=endpoints_seen)
    if output_format != "text":
        write_answer("Explanation", explanation, output_format, unseen)
    else:
        others = unseen_lines(each for each in unseen if not each.suspected)
        write_report([*_lines(explanation, suspected(unseen)), *others])


def _write_page(
    html: str,
    source: ClusterSource,
    rendering: tuple[str | None, str | None, Features],
    key: str,
    node: str | None,
    family: IPFamily | None,
) -> None:
    """`rendering` is the configuration's file, the mode and what hosts can do."""
    from kproxy.explorer.export.commands import explain_page
    from kproxy.explorer.model.model import Model

    stdin = read_octets("-") if "-" in source.filenames else b""
    with working("reading the cluster"):
        known = source.explored(*rendering, stdin).read()
    for note in known.warnings:
        report_note(note)
    with working("rendering"):
        page = explain_page(Model(known, 1), key, node or "", None if family is None else family.value, _text)
    write_files({Path(html): page})


def _text(explanation: Explanation) -> str:
    return "".join(f"{click.unstyle(line)}\n" for line in _lines(explanation))


def _lines(explanation: Explanation, unseen: Sequence[Unseen] = ()) -> Iterator[str]:
    title = f"Service {explanation.service} on node {explanation.node}, {explanation.family}"
    things = ", ".join(dict.fromkeys(each.what for each in unseen))
    yield click.style(f"{title}; not certain: {things} not seen" if things else title, bold=True)
    tree = Branch("")
    if explanation.skipped:
        tree.add(f"kube-proxy programs nothing for it: {explanation.skipped}")
    for note in (*headlines(unseen), *explanation.notes):
        tree.add(click.style(note, fg="yellow"))
    for port in explanation.ports:
        branch = tree.add(click.style(f"ServicePort {port.name} ({port.protocol})", fg="cyan", bold=True))
        for fact in port.facts:
            branch.add(fact)
        endpoints = branch.add(click.style(f"endpoints: {len(port.endpoints)}", bold=True))
        for line in _endpoint_lines(port):
            endpoints.add(line)
        chains = branch.add(click.style(f"rules: {len(port.rules)}", bold=True)) if port.rules else branch
        current, chain = branch, ("", "")
        for rule in port.rules:
            if chain != (rule.table, rule.chain):
                chain = (rule.table, rule.chain)
                current = chains.add(click.style(f"{rule.table} {rule.chain}", fg="cyan"))
            current.add(f"{rule.rule}. {rule.reason}", rule.text)
        if port.objects:
            _add_objects(branch, port.objects)
    yield from tree.lines()


def _add_objects(branch: Branch, objects: Sequence[ObjectExplanation]) -> None:
    shown = branch.add(click.style(f"objects: {len(objects)}", bold=True))
    inside = [each for each in objects if each.object in ("rule", "element")]
    for container, name in dict.fromkeys((each.container, each.name) for each in objects):
        group = shown.add(click.style(f"{container} {name}", fg="cyan"))
        for each in inside:
            if (each.container, each.name) == (container, name):
                number = f"{each.rule}. " if each.rule else ""
                group.add(f"{number}{each.reason}", each.text)


def _endpoint_lines(port: ServicePortExplanation) -> Sequence[str]:
    width = max((len(endpoint.address) for endpoint in port.endpoints), default=0)
    lines = []
    for endpoint in port.endpoints:
        where = "this node" if endpoint.is_local else "not this node"
        use = f"used ({', '.join(endpoint.used_for)})" if endpoint.used_for else f"not used: {endpoint.why_not}"
        lines.append(f"{endpoint.address:<{width}}  {where:<13}  {endpoint.state}; {use}; {endpoint.endpoint_slice}")
    return lines
