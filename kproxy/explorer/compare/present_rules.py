"""The rules that are there, compared for every packet: with those that the objects ask for (drift), and with those of
another source.

A node's rules are those of its dump, of a lab's namespace, or, of manifests and live clusters, what kube-proxy would
program. Nodes of two sources are matched by name; one host's rules with the node that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kproxy.cluster.evidence.opened import opened_side
from kproxy.cluster.evidence.unseen import Unseen, lacking_both, suspected
from kproxy.cluster.rules import HostRules
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.explorer.compare.findings import Compared, Findings, Gathered
from kproxy.explorer.compare.remedy import of_diff, of_drift
from kproxy.explorer.errors import cannot
from kproxy.explorer.model.model import HOST, Model, Work, family_named
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset

EXAMINED: Final = 30
"""Differences of one node that are put into words."""
MAX_SINGLE: Final = 8
"""Nodes that are compared each with its own addresses."""

Sides = tuple["SeenRules | None", "SeenRules | None"]
"""A node's rules on both sides, as far as they are known."""


@dataclass(frozen=True)
class SeenRules:
    """A node's rules, and what was not seen of them and may matter."""

    rules: SideRules
    unseen: tuple[Unseen, ...]

    @classmethod
    def read(cls, rules: HostRules | None, family: Family) -> SeenRules:
        """Rules that were read."""
        if rules is None:
            return cls(SideRules(), ())
        return cls(SideRules(rules.iptables(family), rules.nftables or NftRuleset()), _of(family, rules.unseen))

    @classmethod
    def rendered(cls, model: Model, host: HostFacts, family: Family) -> SeenRules:
        """Rules that the objects ask for."""
        rendering = model.rendering
        return cls(rendering.rules(host, family), _of(family, rendering.unseen(host, rendering.lacking)))


def _of(family: Family, unseen: Iterable[Unseen]) -> tuple[Unseen, ...]:
    return tuple(each for each in suspected(unseen) if each.is_met_by(family))


def rules_of(model: Model, name: str, family: Family) -> SeenRules | None:
    """The rules of a node, or of the one host of a dump; None if they are not known. Raises InputError."""
    known = model.known
    if known.cluster is None:
        return SeenRules.read(known.rules, family) if family in model.families else None
    host = known.cluster.hosts[name]
    with model.lock:
        if known.rendered:
            return SeenRules.rendered(model, host, family)
        return None if host.rules(family) is None else SeenRules.read(host.host_rules, family)


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
    report = Gathered(model, model, by_configuration=True, remedy=of_drift)
    notes = model.config_notes(names)
    for name in names:
        host = cluster.hosts[name]
        for each in families:
            sides = partial(_asked_and_there, model, host, each)
            step = partial(_compared, sides, each, host_of(model, name, len(names)), work)
            if not report.add(work, (name, name), each, step):
                notes.append(f"{name}: its {each.value} rules are not known")
    return report.findings(notes)


def _asked_and_there(model: Model, host: HostFacts, family: Family) -> Sides:
    actual = rules_of(model, host.name, family)
    return None if actual is None else SeenRules.rendered(model, host, family), actual


def compare_there(one: Model, other: Model, node: str, family: str | None, work: Work) -> Findings:
    """What the rules of two sources do differently.

    Raises:
        Refusal: no node is on both sides, no rules are known, or it takes too long.
    """
    pairs = _pairs(one, other, node)
    families = (family_named(family, ()),) if family else tuple(dict.fromkeys((*one.families, *other.families)))
    report = Gathered(one, other, remedy=of_diff)
    notes, compared = [] if node else unpaired(one, other), False
    for pair in pairs:
        first, second = (host_of(model, name, len(pairs)) for model, name in zip((one, other), pair, strict=True))
        if first is not None and second is not None and first.local_addresses != second.local_addresses:
            notes.append(f"{pair[0]} has other addresses on the two sides: those of {one.known.label} count")
        host = first or second
        for each in families:
            sides = partial(_both_there, (one, other), pair, each)
            if report.add(work, pair, each, partial(_compared, sides, each, host, work)):
                compared = True
                continue
            lacking = int(rules_of(one, pair[0], each) is not None)
            label = (one, other)[lacking].known.label
            notes.append(f"{label}: the {each.value} rules of {pair[lacking]} are not known")
    if not compared:
        raise cannot("; ".join(dict.fromkeys(notes)))
    return report.findings(notes)


def _both_there(models: tuple[Model, Model], pair: tuple[str, str], family: Family) -> Sides:
    return rules_of(models[0], pair[0], family), rules_of(models[1], pair[1], family)


def _compared(read: Callable[[], Sides], family: Family, host: Host | None, work: Work) -> Compared | None:
    """Reads and compares a node's rules: what neither side shows is taken to be the same on both. None if those of a
    side are not known."""
    one, other = read()
    if one is None or other is None:
        return None
    work.check()
    same = lacking_both(one.unseen, other.unseen)
    first, second = (opened_side(each.rules, family, each.unseen, same) for each in (one, other))
    gaps = [each for each in (*one.unseen, *other.unseen) if each.thing not in same]
    if first == second:
        return Compared(Comparison(True), gaps)
    return Compared(compare(first, second, family=family, host=host, progress=work.check, examine=EXAMINED), gaps)


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
