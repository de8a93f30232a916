"""The library's face: rules read, rendered, asked and compared, and a snapshot audited, each by one function.

`kproxy` itself offers these names and imports them when they are first used, so that `import kproxy` costs nothing.
What is behind them may move; these functions and the attributes that their results name stay. docs/python.md is the
user's page. Nothing here reads a live host, opens a socket or runs a process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from kproxy.api import KubeProxyConfiguration, Manifests, load_config, load_manifests
from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.report import AuditReport, Finding
from kproxy.cluster.evidence.manifests import Lacking, open_services
from kproxy.cluster.evidence.opened import open_rules, opened_side
from kproxy.cluster.evidence.signs import ipvs_of_mode
from kproxy.cluster.evidence.unseen import NOTHING, Unseen, lacking_both, suspected
from kproxy.cluster.hosts import node_host, read_host
from kproxy.cluster.inputs import read_text
from kproxy.cluster.rendered import index_of, render_node, rules_of
from kproxy.cluster.rules import HostRules, read_rule_file
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.dataplane import Host, Index, Outcome
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.report import report
from kproxy.dataplane.query.spec import Question, read_question
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import Features, RenderedTable, Target, select_target
from kproxy.words import counted, exact

Path_ = str | os.PathLike[str]


class Rules:
    """All rules of one host, of both families, as files or `render_rules` gave them.

    Attributes:
        label: what messages call them.
        families: those of which there are rules.
        rule_count: how many rules.
        unseen: what the rules point to and do not show; answers that depend on it are open.
    """

    def __init__(self, host_rules: HostRules) -> None:
        self._held = host_rules
        self.label = host_rules.label
        self.families = tuple(family for family in Family if host_rules.tells(family))
        native = () if host_rules.nftables is None else host_rules.nftables.rules()
        self.rule_count = sum(each.rule_count for each in host_rules.rulesets) + sum(1 for _ in native)

    def __repr__(self) -> str:
        families = " and ".join(family.value for family in self.families) or "no family"
        return f"<{type(self).__name__} {self.label}: {counted(self.rule_count, 'rule')} of {families}>"

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        return self._held.unseen

    def _index(self, family: Family) -> Index:
        return self._held.index(family)

    def _side(self, family: Family) -> SideRules:
        return SideRules(self._held.iptables(family), self._held.nftables or NftRuleset())

    def _around(self, question: Question) -> Surroundings:
        return self._held.surroundings(question.packet)


class RenderedRules(Rules):
    """The rules that kube-proxy would program on a node.

    Attributes:
        node: its name. mode: `iptables`, `nftables` or `ipvs`. text: as iptables-save or `nft list table` prints them
            once they are loaded. restore_text: input for `iptables-restore --noflush` or `nft -f`.
        rules: every rule of iptables with the Service, port and endpoint that it was made for, in the order of `text`;
            empty in nftables mode.
    """

    def __init__(self, cluster: Manifests, config: KubeProxyConfiguration, target: Target, family: Family) -> None:
        self._rendered = made = render_node(target, family, cluster, config, Features())
        self.node, self.mode = target.node_name, config.mode
        self.restore_text = self._rendered.restore_text
        self.text = made.save_text() if isinstance(made, RenderedTable) else made.save_text
        self.rules = () if isinstance(made, RenderedTable) else tuple(made.rules())
        super().__init__(HostRules([read_rule_file(self.text, f"node {self.node}")], live=True, host=self.node))
        self.families = (family,)
        self._cluster, self._config, self._target = cluster, config, target
        self._lacking = Lacking.of(cluster, complete=False, assumed=NOTHING)

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        return (*self._held.unseen, *self._lacking.unseen(self.label))

    def _index(self, family: Family) -> Index:
        return index_of(self._rendered, self._side(family), family)

    def _side(self, family: Family) -> SideRules:
        side = rules_of(self._rendered)
        opened = open_rules(side.iptables, family, ipvs_of_mode(self.node, self.mode), side.nftables)
        return replace(side, iptables=open_services(opened, family, self._cluster, self._lacking))

    def _around(self, question: Question) -> Surroundings:
        node = self._target.node
        if node is None:
            return super()._around(question)
        return Surroundings.known(node_host(node, self._config, question.packet.family))


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """What can happen to a packet.

    Attributes:
        packet: source and destination, `IP:PORT`.
        outcomes: the likeliest first; their chances (`probability`, exact fractions) add up to 1. One whose `verdict`
            is INDETERMINATE depends on its `reasons`, and turns out as one of `possible`.
        assumptions: what was taken for granted, as sentences. unseen: what was not seen of the host.
    """

    packet: tuple[str, str]
    outcomes: tuple[Outcome, ...]
    assumptions: tuple[str, ...]
    unseen: tuple[Unseen, ...]

    def __repr__(self) -> str:
        ends = [f"{each.verdict} {each.src or '?'} -> {each.dst}{_chance(each.probability)}" for each in self.outcomes]
        return f"<PacketTrace {self.packet[0] or '?'} -> {self.packet[1]}: {'; '.join(ends)}>"


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """Whether two hosts' rules treat every packet alike.

    Attributes:
        alike: True, or False, or None: it cannot be told, see `undecided` and `unseen`.
        differences: each with the packets that meet it, what either side does, a packet as `witness`, and the rule.
        undecided: what the model cannot decide. unseen: what was not seen of one side alone.
        families: those whose packets were compared.
    """

    alike: bool | None
    differences: tuple[Difference, ...]
    undecided: tuple[str, ...]
    unseen: tuple[Unseen, ...]
    families: tuple[Family, ...]

    def __repr__(self) -> str:
        shown = "; ".join(each.statement() for each in self.differences[:3])
        answer = {True: "alike", False: counted(len(self.differences), "difference"), None: "cannot be told"}[
            self.alike
        ]
        return f"<RuleComparison {answer}{f': {shown}' if shown else ''}>"


@dataclass(frozen=True, slots=True)
class SnapshotAudit:
    """What is wrong in a cluster.

    Attributes:
        report: all of it, as `kproxy audit -o json` prints it.
        findings: one for each cause, the worst first: `title`, `severity`, `nodes`, `services`, `rules`, `witness`.
        is_well: whether there is nothing to mend, as far as was seen.
    """

    report: AuditReport

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings

    @property
    def is_well(self) -> bool:
        return self.report.is_well

    def __repr__(self) -> str:
        answer = "; ".join(f"{each.title} ({', '.join(each.nodes[:3])})" for each in self.findings[:3]) or "all well"
        nodes = f"{len(self.report.judged)} of {counted(len(self.report.nodes), 'node')} judged"
        return f"<SnapshotAudit {self.report.source}, {nodes}: {answer}>"


def read_rules(*sources: Path_) -> Rules:
    """Read one host's rules: what iptables-save, ip6tables-save or `nft list ruleset` printed.

    Args:
        sources: names of files, or texts, which are told by their line breaks; each is recognised by its content.

    Raises:
        InputError: one cannot be read or parsed (file, line, and what was expected), or two are of one kind and family.

    >>> import kproxy
    >>> kproxy.read_rules("*filter\\n:INPUT ACCEPT [0:0]\\n-A INPUT -s 192.0.2.1 -j DROP\\nCOMMIT\\n")
    <Rules rules: 1 rule of IPv4>
    """
    files = []
    for source in sources:
        name = os.fspath(source)
        if "\n" in name:
            files.append(read_rule_file(name, "rules"))
            continue
        files.append(read_rule_file(read_text(name, rules=True), name))
    if not files:
        raise InputError("rules expected: a file's name, or their text")
    return Rules(HostRules(files))


def render_rules(
    manifests: Path_ | Sequence[Path_] | Manifests,
    node: str | None = None,
    *,
    family: Family | str | None = None,
    config: Path_ | KubeProxyConfiguration | None = None,
) -> RenderedRules:
    """Render the rules that kube-proxy v1.36 would program on a node.

    Args:
        manifests: files or directories of Services, EndpointSlices and Nodes, or these objects.
        node: the Node's name; it may be left out if there is one.
        family: `IPv4` or `IPv6`; by default the node's first.
        config: a KubeProxyConfiguration, or the file that has it; its `mode` is `iptables` or `nftables`.

    Raises:
        InputError: a file is wrong (every problem is named, with its line), or there is no such node.

    >>> import kproxy
    >>> kproxy.render_rules("rules_golden/minikube/cluster.yaml")
    <RenderedRules node minikube: 57 rules of IPv4>
    """
    if not isinstance(manifests, Manifests):
        paths = [manifests] if isinstance(manifests, str | os.PathLike) else list(manifests)
        manifests = load_manifests(paths)
    cluster = manifests.with_mirrored_slices()
    if not isinstance(config, KubeProxyConfiguration):
        config = KubeProxyConfiguration() if config is None else load_config(os.fspath(config)).config
    target = select_target(cluster.nodes, config, node)
    chosen = target.primary_family(config) if family is None else _family(family)
    return RenderedRules(cluster, config, target, chosen)


def trace_packet(
    rules: Rules | Path_,
    packet: Mapping[str, object],
    *,
    host: Host | Path_ | None = None,
    local_ips: Sequence[str] = (),
) -> PacketTrace:
    """Send a packet through a host's rules: every outcome with its exact chance, and the rules that decided.

    Args:
        rules: of `read_rules` or `render_rules`, or what `read_rules` takes.
        packet: as `kproxy trace` has it: `dst` (`IP:PORT`), and perhaps `src`, `proto` (`tcp` if not given), `in` (the
            interface), `origin` (`local`: the host itself sends it), `mark`, `ctstate`; docs/trace.md has all fields.
        host: routes, addresses and sysctls, or a host file (docs/host-file.md). local_ips: the host's addresses alone.

    Raises:
        InputError: rules or host cannot be read, or there are no rules of the packet's family.
        DataplaneError: a field of the packet is wrong.

    >>> import kproxy
    >>> rules = kproxy.read_rules("*filter\\n:INPUT ACCEPT [0:0]\\n-A INPUT -s 192.0.2.1 -j DROP\\nCOMMIT\\n")
    >>> kproxy.trace_packet(rules, {"src": "192.0.2.1:4000", "dst": "10.0.0.1:80"}, local_ips=["10.0.0.1"])
    <PacketTrace 192.0.2.1:4000 -> 10.0.0.1:80: DROP 192.0.2.1:4000 -> 10.0.0.1:80>
    """
    held = rules if isinstance(rules, Rules) else read_rules(rules)
    question = read_question(packet)
    if host is not None:
        around = Surroundings.known(host if isinstance(host, Host) else read_host(os.fspath(host)))
    elif local_ips:
        around = Surroundings.known(Host.simple(local_ips))
    else:
        around = held._around(question)
    family = question.packet.family
    found = report(held._index(family), around, question)
    unseen = tuple(each for each in held.unseen if each.is_met_by(family))
    ends = (question.packet.source, question.packet.destination)
    return PacketTrace(ends, tuple(each.outcome for each in found.outcomes), found.assumptions, unseen)


def compare_rules(
    one: Rules | Path_, other: Rules | Path_, *, family: Family | str | None = None, host: Host | Path_ | None = None
) -> RuleComparison:
    """Decide whether two hosts' rules treat every packet alike: not by samples, but for all packets.

    Args:
        one, other: of `read_rules` or `render_rules`, or what `read_rules` takes.
        family: `IPv4` or `IPv6`; by default that of rendered rules, else each of which both have rules. Where one has a
            file of a family and the other none, the rules of that family are `unseen`.
        host: then only packets that its addresses allow count.

    Raises:
        InputError: rules or host cannot be read, or they have no family in common.

    >>> import kproxy
    >>> one = "*filter\\n:INPUT ACCEPT [0:0]\\n-A INPUT -s 192.0.2.1 -j DROP\\nCOMMIT\\n"
    >>> other = one.replace("192.0.2.1", "192.0.2.2")
    >>> kproxy.compare_rules(one, one)
    <RuleComparison alike>
    >>> kproxy.compare_rules(one, other).alike
    False
    """
    sides = [each if isinstance(each, Rules) else read_rules(each) for each in (one, other)]
    rendered = {each for side in sides if isinstance(side, RenderedRules) for each in side.families}
    asked = [each for each in Family if each in rendered or not rendered] if family is None else [_family(family)]
    families = [each for each in asked if all(each in side.families for side in sides)]
    if not families:
        raise InputError(f"{sides[0].label} and {sides[1].label} have rules of no family in common")
    known = read_host(os.fspath(host)) if isinstance(host, str | os.PathLike) else host
    why = "there is no file of these rules, and the other side has some"
    unseen: dict[Unseen, None] = {
        side._held.no_file_of(each, why): None
        for side, other in (sides, reversed(sides))
        for each in asked
        if each not in side.families and other._held.has_file_of(each)
    }
    lacking = bool(unseen)
    found: dict[Family, Comparison] = {}
    for each in families:
        gaps = [tuple(gap for gap in side.unseen if gap.is_met_by(each)) for side in sides]
        same = lacking_both(*gaps)
        opened = [opened_side(side._side(each), each, lost, same) for side, lost in zip(sides, gaps, strict=True)]
        unseen |= dict.fromkeys(gap for lost in gaps for gap in suspected(lost) if gap.thing not in same)
        found[each] = compare(opened[0], opened[1], family=each, host=known)
    answer = Comparison.of(found)
    alike = False if answer.differences else (answer.alike and not lacking) or None
    undecided = tuple(f"{each.where}: {each.reason}" for each in answer.undecided)
    return RuleComparison(alike, answer.differences, undecided, tuple(unseen), tuple(families))


def audit_snapshot(path: Path_) -> SnapshotAudit:
    """Say which Services are wrong on which nodes of a snapshot, and why.

    Args:
        path: what `kproxy collect` wrote: a directory or an archive.

    Raises:
        InputError: it cannot be read; the message has file and line.

    >>> import kproxy
    >>> kproxy.audit_snapshot("prod.tar.gz").findings[0].title  # doctest: +SKIP
    'rules differ from the Service'
    """
    return SnapshotAudit(audit(read_snapshot(path), lambda _what: None))


def _family(name: Family | str) -> Family:
    try:
        return Family(name)
    except ValueError as error:
        raise InputError(f"family: IPv4 or IPv6 expected, not {name!r}") from error


def _chance(probability: Fraction) -> str:
    return "" if probability == 1 else f" ({exact(probability)})"
