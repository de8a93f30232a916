"""`kproxy explain`: what one Service becomes on a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS
from kproxy.api.octets import read_octets
from kproxy.cli.evidence import assume_option, tell_unseen, unseen_lines
from kproxy.cli.objects import RenderChoices
from kproxy.cli.options import one_family, rendering_options, tell_unused_options
from kproxy.cli.output import (
    Branch,
    report_note,
    table_lines,
    terminal_width,
    working,
    write_answer,
    write_files,
    write_report,
)
from kproxy.cli.sources import EVERYTHING, NAMES_NAMESPACE, OBJECTS, Sources, sources
from kproxy.cluster.evidence.unseen import ENDPOINTS, Assumed, Unseen, headlines, suspected
from kproxy.cluster.rendered import render_node
from kproxy.cluster.services_in_rules import RecordedServices
from kproxy.cluster.sources import Kind
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.render.explain import Explanation, ObjectExplanation, ServicePortExplanation, explain_service, objects_of
from kproxy.render.origin import RenderedObject, RenderedRule
from kproxy.services import IPFamily

_MOST_NAMES = 10


@click.command("explain")
@sources((*OBJECTS, Kind.RULES, Kind.NETNS), NAMES_NAMESPACE, needs=EVERYTHING, usual=True)
@click.option("-A", "--all-namespaces", is_flag=True, help="Without --service: the Services of all namespaces.")
@rendering_options(ipvs=True)
@one_family
@click.option("--service", metavar="[NS/]NAME", help="The Service. Default: all of them.")
@assume_option
@click.option(
    "-o", "--output", "output_format", type=click.Choice(["text", "wide", "json", "yaml"]), default="text",
    help="Default: text; wide is one line a port.",
)  # fmt: skip
@click.option("--html", metavar="FILE", help="Write a page that shows it as a picture, instead.")
def command(
    sources: Sources,
    all_namespaces: bool,
    how: RenderChoices,
    family: IPFamily | None,
    service: str | None,
    assumed: Assumed,
    output_format: str,
    html: str | None,
) -> None:
    """Explain in plain words what one Service becomes on a node, or all of them.

    Shows its ServicePorts, its endpoints and why some are left out, its chains and its rules. Of a dump it tells what
    the rules know; of a dump and manifests, both. Without SOURCE it asks the cluster of $KUBECONFIG or ~/.kube/config.

    \b
    Examples:
      kproxy explain cluster.yaml --service kube-system/kube-dns
      kproxy explain cluster.yaml --service shop/web --html web.html
      kproxy explain cluster:prod@worker-1 -n shop --service web
      kproxy explain node.save -n shop
      kproxy explain node.save cluster.yaml -o wide
    """
    if all_namespaces and (service or sources.namespace):
        raise click.UsageError("-A stands alone: it goes with neither --service nor -n")
    if html is not None:
        if output_format != "text" or service is None or not sources.kinds <= {*OBJECTS}:
            raise click.UsageError(
                "--html shows one Service of objects: it goes with --service alone, without a dump and -o"
            )
        _write_page(html, sources, how, service, family)
        return
    recorded = None
    if not sources.kinds <= {*OBJECTS}:
        rules = sources.host_rules(assumed)
        if family is not None and not rules.tells(family):
            asked = f"-{family.version} asks for this one"
            raise InputError(f"{rules.label}: these are rules of the other family, and {asked}")
        recorded = RecordedServices(rules)
    hiding = None if recorded is None or service is not None else recorded.hiding(family)
    found: list[tuple[Explanation, tuple[Unseen, ...]]] = []
    if sources.has_objects:
        found = _of_objects(sources, how, service, family, assumed)
    if recorded is not None and (not sources.has_objects or service is None):
        where = "the rules, of which not all were seen" if suspected(recorded.rules.unseen) else "the rules"
        keys = _chosen(recorded.keys, service, sources.namespace, where)
        there = {each.service for each, _ in found}
        found += [_recorded(recorded, key, family, sources) for key in keys if key not in there]
    values = []
    lines: list[str] = []
    for explanation, unseen in found:
        values.append(msgspec.to_builtins(explanation) | {"unseen": msgspec.to_builtins(list(unseen))})
        others = unseen_lines(each for each in unseen if not each.suspected)
        lines += ["", *_lines(explanation, suspected(unseen)), *others]
        if recorded is not None and sources.has_objects and explanation.service in recorded.keys:
            own, gaps = _recorded(recorded, explanation.service, family, sources)
            if own != explanation:
                values[-1]["recorded"] = msgspec.to_builtins(own) | {"unseen": msgspec.to_builtins(list(gaps))}
                lines += ["", f"What the rules of {own.node} have:", *_lines(own, suspected(gaps))]
    if output_format in ("text", "wide"):
        tell_unseen(hiding or ())
        write_report(_table(found) if output_format == "wide" else lines[1:])
    elif service is not None:
        write_answer("Explanation", values[0], output_format)
    else:
        write_answer("Explanations", {"items": values}, output_format, hiding)


def _recorded(
    recorded: RecordedServices, key: str, asked: IPFamily | None, sources: Sources
) -> tuple[Explanation, tuple[Unseen, ...]]:
    """What rules have of a Service, in the family that is asked for, else the first in which they have any; and what
    was not seen of them."""
    family = asked or recorded.families(key)[0]
    host = ", ".join(each.label for each in sources.of(Kind.RULES, Kind.NETNS))
    explanation = recorded.explain(key, family, sources.node or host)
    return explanation, recorded.unseen(explanation, family)


def _chosen(keys: Sequence[str], service: str | None, namespace: str | None, where: str) -> list[str]:
    """The Services that are meant, of those that there are. Raises InputError: there is none of that name, or it is the
    name of several."""
    if service is None:
        return [key for key in keys if namespace in (None, key.partition("/")[0])]
    name = service.removeprefix("svc/")
    wanted = name if "/" in name else f"{namespace or 'default'}/{name}"
    by_name = "/" not in name and not namespace
    found = [key for key in keys if key == wanted or (by_name and key.partition("/")[2] == name)]
    if len(found) > 1:
        raise InputError(f"Service {name} is one of {', '.join(found)}: say which, as in --service {found[0]}")
    if not found:
        near = [each for each in keys if each.endswith(f"/{wanted.partition('/')[2]}")]  # of another namespace
        shown = ", ".join((near or keys)[:_MOST_NAMES])
        listed = f": {shown}{', ...' if len(near or keys) > _MOST_NAMES else ''}" if shown else ""
        raise InputError(f"Service {wanted} is not among the {len(keys)} Services of {where}{listed}")
    return found


def _of_objects(
    sources: Sources, how: RenderChoices, service: str | None, asked: IPFamily | None, assumed: Assumed
) -> list[tuple[Explanation, tuple[Unseen, ...]]]:
    """What kube-proxy makes of the Services that are meant, and what was not seen of each."""
    read = sources.read(how, narrow=False)
    config, cluster = read.config, read.cluster
    tell_unused_options(config.mode)
    target = read.target(sources.node)
    known = {each.metadata.key: each for each in cluster.services}
    namespace = sources.default_namespace() if sources.is_live and service is not None else sources.namespace
    keys = _chosen(sorted(known), service, namespace, "the cluster")
    family = asked or target.primary_family(config)
    lacking, _ = read.lacking(assumed).on_node(cluster, target, config, assumed)
    things = lacking.things(target.node_name)
    with working("rendering"):
        rendered = render_node(target, Family(family.value), cluster, config, how.features)
        mine: dict[str, list[RenderedRule | RenderedObject]] = {}
        for each in objects_of(rendered):
            if each.origin.service_port is not None:
                mine.setdefault(each.origin.service_port.service, []).append(each)
    found = []
    for key in keys:
        of_it = [each for each, services in things.items() if not services or known[key] in services]
        unseen = assumed.left(each for each in of_it if each.is_met_by(family))
        seen = all(each.what != ENDPOINTS for each in unseen)
        explanation = explain_service(
            known[key], rendered, cluster.endpoint_slices, mine.get(key, ()), endpoints_seen=seen
        )
        found.append((explanation, unseen))
    return found


def _table(found: Sequence[tuple[Explanation, tuple[Unseen, ...]]]) -> Iterator[str]:
    """One line a ServicePort; where something was not seen, its endpoints may be more."""
    rows = [("NAMESPACE", "SERVICE", "PORT", "PROTOCOL", "ENDPOINTS", "RULES", "ANSWERS AT", "NODE")]
    for each, unseen in found:
        namespace, _, name = each.service.partition("/")
        more = " or more" if suspected(unseen) else ""
        for port in each.ports:
            used = sum(bool(endpoint.used_for) for endpoint in port.endpoints)
            label, rules = port.name.partition(":")[2], len(port.rules) + len(port.objects)
            at = next(iter(port.facts), "").partition(",")[0]
            rows.append((namespace, name, label, port.protocol, f"{used}{more}", str(rules), at, each.node))
        if not each.ports:
            rows.append((namespace, name, "", "", "0", "0", each.skipped, each.node))
    yield from table_lines(rows, width=terminal_width())


def _write_page(html: str, sources: Sources, how: RenderChoices, service: str, family: IPFamily | None) -> None:
    from kproxy.explorer.export.commands import explain_page
    from kproxy.explorer.model.model import Model

    stdin = read_octets("-") if "-" in sources.object_files else b""
    with working("reading the cluster"):
        known = sources.explored(how, stdin).read()
    assert known.cluster is not None
    keys = sorted(each.metadata.key for each in known.cluster.manifests.services)
    namespace = sources.default_namespace() if sources.is_live else sources.namespace
    (key,) = _chosen(keys, service, namespace, "the cluster")
    for note in known.warnings:
        report_note(note)
    with working("rendering"):
        model = Model(known, 1)
        if model.rendering.mode_of(model.node(sources.node or "")) == MODE_IPVS:
            raise InputError("--html: the picture does not know ipvs mode; the text does")
        of_family = None if family is None else family.value
        page = explain_page(
            model, key, sources.node or "", of_family,
            lambda each: "".join(f"{click.unstyle(line)}\n" for line in _lines(each)),
        )  # fmt: skip
    write_files({Path(html): page})


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
            current.add(f"{rule.rule}. {rule.reason}" if rule.rule else rule.reason, rule.text)
        if port.objects:
            _add_objects(branch, port.objects)
    yield from tree.lines()


def _add_objects(branch: Branch, objects: Sequence[ObjectExplanation]) -> None:
    shown = branch.add(click.style(f"objects: {len(objects)}", bold=True))
    inside = [
        each for each in objects if each.object in ("rule", "element", "address", "virtual server", "real server")
    ]
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
        if not endpoint.endpoint_slice:
            lines.append(f"{endpoint.address:<{width}}  {endpoint.state}")
            continue
        use = f"used ({', '.join(endpoint.used_for)})" if endpoint.used_for else f"not used: {endpoint.why_not}"
        lines.append(f"{endpoint.address:<{width}}  {where:<13}  {endpoint.state}; {use}; {endpoint.endpoint_slice}")
    return lines
