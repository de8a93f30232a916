"""The rules that are there, compared for every packet: with those that the objects ask for (drift), and with those of
another source.

A node's rules are those of its dump, of a lab's namespace, or, of manifests and live clusters, what kube-proxy would
program. Nodes of two sources are matched by name; one host's rules with the node that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.symbolic.side import SideRules
from kproxy.explorer.errors import cannot
from kproxy.explorer.findings import Findings, Gathered
from kproxy.explorer.model import HOST, Model, Work, family_named
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset

EXAMINED: Final = 30
"""Differences of one node that are put into words."""
MAX_SINGLE: Final = 8
"""Nodes that are compared each with its own addresses."""


def there(rules: HostRules | None, family: Family) -> SideRules:
    """Rules that were read."""
    return SideRules() if rules is None else SideRules(rules.iptables(family), rules.nftables or NftRuleset())


def rules_of(model: Model, name: str, family: Family) -> SideRules | None:
    """The rules of a node, or of the one host of a dump; None if they are not known. Raises InputError."""
    known = model.known
    if known.cluster is None:
        return there(known.rules, family) if family in model.families else None
    host = known.cluster.hosts[name]
    with model.lock:
        if known.rendered:
            found, _ = model.rendering.rules(host, family)
            return found
        return None if host.rules(family) is None else there(host.host_rules, family)


def host_of(model: Model, name: str, count: int) -> Host | None:
    """The node, if its addresses are known, so that only packets count that it can meet. Of many nodes None: then nodes
    with the same rules are compared once, for any host."""
    if count > MAX_SINGLE or model.known.cluster is None:
        return None
    with model.lock:
        host = model.network.host(name).host
    return None if host.local_addresses is None else host


def drift(model: Model, node: str, family: str | None, work: Work) -> Findings:
    """The rules that objects ask for, against those that are there.

    Raises:
        Refusal: the rules are made from the objects, or it takes too long.
    """
    cluster = model.cluster
    if model.known.rendered:
        raise cannot("the rules are made from the objects here: drift needs a snapshot with rules, or a lab")
    names = [model.node(node).name] if node else list(model.nodes)
    families = (family_named(family, ()),) if family else model.families
    report = Gathered(model, model)
    notes = []
    for name in names:
        host = cluster.hosts[name]
        if host.proxy_config is None and cluster.proxy_config is None:
            notes.append(f"{name}: kube-proxy's configuration is not known: its defaults count, which masquerade less")
        for each in families:
            actual = rules_of(model, name, each)
            if actual is None:
                notes.append(f"{name}: its {each.value} rules are not known")
                continue
            expected, _ = model.rendering.rules(host, each)
            _add(report, (name, name), each, (expected, actual), host_of(model, name, len(names)), work)
    return report.findings(notes)


def compare_there(one: Model, other: Model, node: str, family: str | None, work: Work) -> Findings:
    """What the rules of two sources do differently.

    Raises:
        Refusal: no node is on both sides, no rules are known, or it takes too long.
    """
    pairs = _pairs(one, other, node)
    families = (family_named(family, ()),) if family else tuple(dict.fromkeys((*one.families, *other.families)))
    report = Gathered(one, other)
    notes, compared = [] if node else unpaired(one, other), False
    for pair in pairs:
        first, second = (host_of(model, name, len(pairs)) for model, name in zip((one, other), pair, strict=True))
        if first is not None and second is not None and first.local_addresses != second.local_addresses:
            notes.append(f"{pair[0]} has other addresses on the two sides: those of {one.known.label} count")
        host = first or second
        for each in families:
            sides = [rules_of(model, name, each) for model, name in zip((one, other), pair, strict=True)]
            if sides[0] is None or sides[1] is None:
                label = (other if sides[1] is None else one).known.label
                notes.append(f"{label}: the {each.value} rules of {pair[sides[0] is not None]} are not known")
                continue
            compared = True
            if sides[0] != sides[1]:
                _add(report, pair, each, (sides[0], sides[1]), host, work)
    if not compared:
        raise cannot("; ".join(dict.fromkeys(notes)))
    return report.findings(notes)


def _add(
    report: Gathered,
    nodes: tuple[str, str],
    family: Family,
    sides: tuple[SideRules, SideRules],
    host: Host | None,
    work: Work,
) -> None:
    """Compares a node, if the time suffices."""
    step = partial(compare, *sides, family=family, host=host, progress=work.check, examine=EXAMINED)
    found = work.within(step)
    if found is None:
        report.left_out(nodes[0])
    else:
        report.add(nodes, family, found)


def _pairs(one: Model, other: Model, node: str) -> Sequence[tuple[str, str]]:
    """What each node is called on the two sides. Raises Refusal."""
    has_nodes = [model.known.cluster is not None for model in (one, other)]
    if all(has_nodes):
        return [(name, name) for name in paired(one, other, node)]
    if has_nodes[0]:
        return [(one.node(node).name, HOST)]
    if has_nodes[1]:
        return [(HOST, other.node(node).name)]
    return [(HOST, HOST)]


def paired(one: Model, other: Model, node: str) -> Sequence[str]:
    """The nodes that two clusters both have, or the one that is asked for.

    Raises:
        Refusal: there is none.
    """
    if node:
        return [other.node(one.node(node).name).name]
    names = [name for name in other.nodes if name in one.nodes]
    if not names:
        shown = (f"{model.known.label} has {', '.join(model.nodes[:5]) or 'none'}" for model in (one, other))
        raise cannot(f"no node is on both sides: {'; '.join(shown)}")
    return names


def unpaired(one: Model, other: Model) -> list[str]:
    """The nodes that only one of two sources has, in words."""
    if one.known.cluster is None or other.known.cluster is None:
        nodes = one.nodes or other.nodes
        return [f"compared with the rules that {nodes[0]} has"] if nodes else []
    return [
        f"{lacking.known.label} has no node {name}"
        for lacking, has in ((one, other), (other, one))
        for name in has.nodes
        if name not in lacking.nodes
    ]
