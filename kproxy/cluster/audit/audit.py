"""The audit of a cluster: each node's rules and facts, then how the nodes fit one another."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.audit.checks import observe_all, observe_node
from kproxy.cluster.audit.finding_kinds import KINDS, Severity
from kproxy.cluster.audit.ipvs import observe_ipvs
from kproxy.cluster.audit.judge import Judge, Known
from kproxy.cluster.audit.node import AuditedCluster, AuditedNode
from kproxy.cluster.audit.report import FORMAT_VERSION, AuditReport, Gap, Observation, gaps, group
from kproxy.cluster.evidence.unseen import CONFIGURATION, ENDPOINTS, SERVICES, Unseen, suspect
from kproxy.cluster.evidence.unseen import NODES as NODE_OBJECTS
from kproxy.cluster.motion import TIMES
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.layout import ENDPOINT_SLICES, NODES
from kproxy.netfilter.iptables.save import collector_paused

Tell = Callable[[str], None]
Again = Callable[[Collection[str]], Cluster]
SMALLEST: Final = 20
"""Nodes for which another process is worth its while."""
_LARGEST: Final = 5
"""Times that many are at most in one part."""
_ENDPOINT: Final = re.compile(r"\S+:\d+")
_MISSING: Final = re.compile(rf"{NODES}/([^/]+)(?:/(.+))?")
_NODE_FILE: Final = "objects/Node.json"
_NEEDED: Final = {
    ENDPOINT_SLICES: (ENDPOINTS, "no EndpointSlices", "nodes are not judged: what is stale is not known"),
    _NODE_FILE: (
        NODE_OBJECTS,
        "no Nodes",
        "nodes are not judged: their zones, addresses and pods' networks are not known",
    ),
    "objects/Service.json": (SERVICES, "no Services", "there is nothing to judge"),
}


class Part(NamedTuple):
    """What was found on some nodes: `judged` are their names, `questions` how many were answered."""

    found: list[Observation]
    undecided: list[tuple[str, Gap]]
    judged: list[str]
    unseen: list[Unseen]
    questions: int = 0


Parts = Callable[[Callable[[range], Part], Sequence[range]], Iterable[Part]]
"""Applies a function to some ranges of nodes, as `map` does: in their order, here or in several processes."""


def audit(
    cluster: Cluster,
    tell: Tell = lambda _what: None,
    *,
    parts: Parts = map,
    smallest: int = SMALLEST,
    again: Again | None = None,
) -> AuditReport:
    """Audits a cluster.

    Args:
        tell: gets what is being done, in a few words.
        parts: how the parts of a large cluster are done. The report is the same whichever way.
        smallest: nodes of a part. Parts are made by the number of nodes alone; what one part has been asked, the others
            do not know.
        again: reads some nodes and the objects of a live cluster again, a while later. What is wrong then, too, stays.

    Raises:
        InputError: a file of a node cannot be read; it names file and line or entry.
    """

    def observe(looked_at: Cluster) -> list[Part]:
        shared = AuditedCluster(looked_at)
        count = sum(host.has_node for host in looked_at.hosts.values())

        def do(some: range) -> Part:
            with collector_paused():  # a collection walks the whole cluster
                return _part(shared, some, tell)

        return list(parts(do, _ranges(count, smallest)))

    done = observe(cluster)
    found, moving = [each for part in done for each in part.found], list[Observation]()
    if again is not None:
        read = again
        found, moving = settle(found, lambda names: [each for part in observe(read(names)) for each in part.found])
    nodes = [host for host in cluster.hosts.values() if host.has_node]
    found += observe_all(nodes)
    undecided = [each for part in done for each in part.undecided]
    undecided += _policies(cluster)
    undecided += [(name, Gap("no Node object", _NEEDED[_NODE_FILE][2])) for name in cluster.lost_nodes]
    return AuditReport(
        FORMAT_VERSION,
        cluster.label,
        cluster.info.created,
        tuple(node.name for node in nodes),
        tuple(dict.fromkeys(name for part in done for name in part.judged)),
        len(cluster.manifests.services),
        sum(part.questions for part in done),
        group(found),
        gaps(undecided),
        gaps(_missing(cluster)),
        cluster.assumed.left((*_unseen_objects(cluster), *(each for part in done for each in part.unseen))),
        len(group(moving)) or msgspec.UNSET,
        cluster.info.apart or msgspec.UNSET,
    )


def _unseen_objects(cluster: Cluster) -> Iterator[Unseen]:
    """Objects of the cluster without which no node can be judged, and those of single nodes."""
    yield from cluster.lost_nodes.values()
    for each in cluster.missing_objects:
        if each.what in _NEEDED:
            what, lack, _ = _NEEDED[each.what]
            yield suspect(cluster.label, None, what, f"the snapshot has {lack}")


def _unseen(node: AuditedNode) -> Iterator[Unseen]:
    """What was not seen of a node. Rules of a family in which it has an address are expected to be there."""
    yield from node.unseen if node.mode == MODE_IPVS else node.host.unseen_of(node.families)
    if not node.config_known and any(node.host.knows_rules(family) for family in node.families):
        yield suspect(
            node.name, None, CONFIGURATION, "masquerading, node ports and external policy Local are not judged"
        )
    if not any(each.what == SERVICES for each in _unseen_objects(node.cluster)):
        lost = node.cluster.lost_services(node.host)
        yield from () if lost is None else (lost,)


def _ranges(count: int, smallest: int) -> list[range]:
    """Parts of nearly the same size: one, or an even number, so that two processes have the same to do."""
    if count < 2 * smallest:
        return [range(count)]
    most = 2 * -(-count // (2 * _LARGEST * smallest))
    bounds = [count * number // most for number in range(most + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


def _part(shared: AuditedCluster, some: range, tell: Tell) -> Part:
    """Audits some of the nodes."""
    found: list[Observation] = []
    undecided: list[tuple[str, Gap]] = []
    judged: list[str] = []
    unseen: list[Unseen] = []
    questions, known = 0, Known()
    hosts = [host for host in shared.cluster.hosts.values() if host.has_node]
    for number in some:
        node = AuditedNode(shared, hosts[number])
        tell(f"{node.name} ({number + 1} of {len(hosts)})")
        unseen += _unseen(node)
        unknown = {each.what for each in node.cluster.missing_objects} & _NEEDED.keys()
        if unknown:
            undecided.append((node.name, Gap(*_NEEDED[min(unknown)][1:])))
            continue
        if node.name in node.cluster.lost_nodes:
            continue
        found += observe_node(node)
        if node.mode == MODE_IPVS:
            if node.host.ipvs is None:
                continue  # IPVS is among what was not seen
            found += [each for family in node.families for each in observe_ipvs(node, family)]
        elif node.mode not in (MODE_IPTABLES, MODE_NFTABLES):
            then = "its rules are not judged: iptables, nftables and IPVS mode are known"
            undecided.append((node.name, Gap(f"mode {node.mode}", then)))
            continue
        for family in node.families:
            if not node.host.knows_rules(family):
                continue
            judge = Judge(node, family, known)
            found += judge.observe()
            questions += judge.asked
            undecided += [(node.name, Gap(reason, count=count)) for reason, count in judge.undecided.items()]
            judged.append(node.name)
    return Part(found, undecided, judged, unseen, questions)


def _policies(cluster: Cluster) -> Iterator[tuple[str, Gap]]:
    """NetworkPolicies of any API are not evaluated."""
    for kind, count in cluster.manifests.skipped.items():
        if kind.endswith("NetworkPolicy"):
            then = "not evaluated: a plugin's rule that refuses what a policy forbids is a finding"
            yield "", Gap(f"{count} {kind.rpartition('/')[2]}", then)


def _missing(cluster: Cluster) -> Iterator[tuple[str, Gap]]:
    for each in cluster.missing:
        match = _MISSING.match(each.what)
        if match is None:
            yield "", Gap(each.what, each.then, each.why)
        elif cluster.hosts[match[1]].has_node:
            yield match[1], Gap(match[2] or "everything of a node", each.then, each.why)


# --- what is in motion ---


def settle(
    found: Sequence[Observation], observe: Callable[[Collection[str]], Sequence[Observation]]
) -> tuple[list[Observation], list[Observation]]:
    """What stays of some observations, and what was in motion: kube-proxy lags behind a change by a moment.

    Args:
        observe: what is observed on some nodes when they and the objects are read again, a while later.
    """
    stays, moving = list(found), []
    for _ in range(TIMES):
        wrong = [each for each in stays if KINDS[each.kind].severity is not Severity.INFO]
        if not wrong:
            break
        later: dict[tuple[str, str, str], list[Observation]] = {}
        for each in observe(sorted({each.node for each in wrong})):
            later.setdefault((each.kind, each.node, each.service), []).append(each)
        gone = [each for each in wrong if not _is_among(each, later.get((each.kind, each.node, each.service), ()))]
        moving += gone
        stays = [each for each in stays if each not in gone]
    return stays, moving


def _is_among(one: Observation, others: Iterable[Observation]) -> bool:
    """Whether the same is wrong: by the same cause, or with one of the same endpoints."""
    endpoints = set(_ENDPOINT.findall(one.detail))
    return any(each.cause == one.cause or endpoints & set(_ENDPOINT.findall(each.detail)) for each in others)
