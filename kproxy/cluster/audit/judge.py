"""What a node's rules do to Service traffic that kube-proxy's alone would not: by asking both, packet by packet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.audit.expected_actual import Rendered, Sides
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.question_sampling import Alike
from kproxy.cluster.audit.questions import ENDPOINT, FROM_OUTSIDE, ITSELF, NODE_PORT, POD_HERE, AuditQuestion, Questions
from kproxy.cluster.audit.report import AuditWitness, BlamedRule, EndShare, Observation
from kproxy.cluster.evidence.unseen import NFTABLES, TABLES, VARIANTS, suspected
from kproxy.cluster.rendered import is_of_ipvs, is_ours
from kproxy.dataplane import ACCEPT, DataplaneError, Outcome, Step, TraceResult, trace
from kproxy.dataplane.compare.outcome_words import summed
from kproxy.dataplane.model.packet import format_endpoint
from kproxy.netfilter import Family, line_of_rule
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.text import target_of
from kproxy.render.nftables.names import TABLE
from kproxy.services.serviceport import ServicePort
from kproxy.words import exact

_TOLERANCE: Final = Fraction(1, 50)
"""Shares that differ by less are equal: iptables rounds chances."""
_WHERE_RULES_ARE: Final = frozenset({TABLES["nat"], NFTABLES, *VARIANTS.values()})
"""Where kube-proxy's rules would be: whether they are on the node is open while one of these was not seen."""
_DECIDES: Final = re.compile(
    r"-j (?:DNAT|REDIRECT|NETMAP|TPROXY|ACCEPT|RETURN|CT|NOTRACK)\b|\b(?:dnat|redirect|tproxy|accept|return|notrack)\b"
)
_UNUSED_PORTS: Final = "cluster-ips-check"
"""The chain of nftables mode that refuses ports of ClusterIPs that no Service has."""
_OLD: Final = frozenset(("service-missing", "refused", "endpoint-stale", "endpoint-missing", "refusal-missing"))
"""What rules look like that were not brought up to date."""
_FEW: Final = 3
"""So many ServicePorts whose own rules are wrong are asked each, also where these are wrong in the same way."""
_SENDS: Final = re.compile(r"-j (?:DNAT|REDIRECT|NETMAP|TPROXY)\b|\b(?:dnat|redirect|tproxy)\b")
_HIDES: Final = re.compile(r"-j (?:MASQUERADE|SNAT|NETMAP)\b|\b(?:masquerade|snat)\b")
_BEFORE_ROUTING: Final = ("PREROUTING", "OUTPUT", "INGRESS")
_BLOCK: Final = re.compile(r"\s*(table|chain) (.+?) \{\s*(?:#.*)?$")
_NO_RULE: Final = re.compile(r"\s*(?:type |comment |policy |flags |#|$)")
"""Lines of `nft list ruleset`: a table's or a chain's first one, and those of a chain that are no rules."""

Difference = tuple[str, Step | None, str]
"""A kind, the rule to blame, and details."""


class Judgement(NamedTuple):
    """What was found for one ServicePort, which stands for all of its kind: observations, with the kind of address that
    was asked, and how often something was not decided."""

    observations: list[tuple[str, Observation]]
    undecided: Counter[str]


class Known:
    """What is known of the nodes that were judged, by surroundings and kinds of ServicePorts."""

    def __init__(self) -> None:
        self.rendered = Rendered()
        self.found: dict[object, Judgement] = {}


class Judge:
    """Asks one node's rules of one family. `undecided`: what depends on something that is not known, and how often;
    `asked`: how many questions were answered."""

    def __init__(self, node: AuditedNode, family: Family, known: Known) -> None:
        """`known`: what earlier nodes told."""
        self._node = node
        self._family = family
        self._known = known
        self.questions = Questions(node, family)
        self.undecided: Counter[str] = Counter()
        self.asked = 0

    def observe(self) -> Iterator[Observation]:
        """What is found. Raises InputError: the rules cannot be read."""
        node, family = self._node, self._family.value
        lost = node.lost_jumps(self._family)
        if lost:
            yield Observation("jumps-lost", node.name, family, f"{family}: {lost}")
        if node.has_own_rules(self._family):
            yield from self._judged()
            return
        unseen = (each.what for each in suspected(node.host.unseen) if each.is_met_by(self._family))
        if not lost and node.mode != MODE_IPVS and _WHERE_RULES_ARE.isdisjoint(unseen):
            file = node.host.file_of_rules(self._family, native=node.mode == MODE_NFTABLES)
            detail = f"{family}: mode {node.mode}, and {file} has no rules of it"
            yield Observation("rules-missing", node.name, f"{node.mode} {family}", detail)

    def _judged(self) -> Iterator[Observation]:
        sides = Sides(self._node, self._family, self._known.rendered)
        self._hosts = sides.hosts()
        for key, ports in self._groups(sides).items():
            judgement = self._known.found.get(key)
            if judgement is None or not self._holds_here(judgement):
                judgement = self._known.found[key] = self._ask_all(ports[0])
            for reason, count in judgement.undecided.items():
                self.undecided[reason] += count * len(ports)
            for what, observation in judgement.observations:
                yield from self._for_all(ports, what, observation)

    def _groups(self, sides: Sides) -> dict[object, list[ServicePort]]:
        """ServicePorts by what they have in common."""
        alike = Alike(self._node, self._family, sides)
        found: dict[object, list[ServicePort]] = {}
        for port in self.questions.facts.service_ports:
            kind = alike.kind(port, self.questions.clients(port))
            found.setdefault((alike.surroundings, kind), []).append(port)
        for key, alike_ports in list(found.items()):
            if alike_ports[0].name in sides.changed and len(alike_ports) <= _FEW:
                del found[key]
                found |= {(self._node.name, port.name): [port] for port in alike_ports}
        return found

    def _holds_here(self, judgement: Judgement) -> bool:
        """Whether its rules to blame are here, too."""
        rules = (each.rule for _, each in judgement.observations if each.rule is not None)
        return all(self._here(rule) is not None for rule in rules)

    def _ask_all(self, port: ServicePort) -> Judgement:
        found = Judgement([], Counter())
        for question in self.questions.of(port):
            found.observations.extend((question.what, each) for each in self._ask(question, found.undecided))
        return found

    def _for_all(self, ports: Sequence[ServicePort], what: str, first: Observation) -> Iterator[Observation]:
        """What was observed of one ServicePort, on this node and for all of its kind."""
        rule = None if first.rule is None else self._here(first.rule)
        for port in ports:
            same = (first.service, first.node) == (str(port.name), self._node.name)
            address = first.address if same else self.questions.where(port, what)
            yield msgspec.structs.replace(
                first,
                node=self._node.name,
                service=str(port.name),
                address=address,
                rule=rule,
                since=self._node.since(port) if first.kind in _OLD else "",
                young=first.kind in _OLD and self._node.is_young(port),
            )

    def _here(self, rule: BlamedRule) -> BlamedRule | None:
        """The same rule in this node's file; None if it is not there."""
        file = f"nodes/{self._node.name}/{rule.file.rpartition('/')[2]}"
        if rule.file == file:
            return rule
        dump = next((each for each in self._node.dumps(self._family) if each.file == file), None)
        chain = None if dump is None else dump.rules.ruleset.chain(rule.table, rule.chain)
        if dump is None or chain is None:
            return None
        texts = [each.to_save(chain.name) for each in chain.rules] if rule.rule else []
        if rule.rule and rule.text not in texts:
            return None
        number = texts.index(rule.text) + 1 if rule.rule else 0
        line = line_of_rule(dump.text, rule.table, rule.chain, number)
        return BlamedRule(file, line, rule.table, rule.chain, number, rule.text)

    def _ask(self, question: AuditQuestion, undecided: Counter[str]) -> Iterator[Observation]:
        node = self._node
        try:
            alone, found = (trace(index, host, question.packet) for index, host in self._hosts)
        except DataplaneError as error:
            undecided[str(error)] += 1
            return
        if not (alone.determined and found.determined):
            undecided.update(each.reasons[0] for each in (*alone.outcomes, *found.outcomes) if each.reasons)
            return
        self.asked += 1
        for kind, step, detail in self._differences(question, alone, found):
            rule = None if step is None else self._rule(step)
            yield Observation(
                kind, node.name, detail if rule is None or step is None or _is_ours(step) else rule.text, detail,
                str(question.port.name), question.where, question.client.kind, rule,
                _witness(node.name, question, alone, found),
            )  # fmt: skip

    # --- what differs ---

    def _differences(self, question: AuditQuestion, alone: TraceResult, found: TraceResult) -> list[Difference]:
        result: list[Difference] = []
        refused = _refused(question, alone, found)
        if refused is not None:
            result.append(refused)
        expected = {outcome.dst for outcome in alone.outcomes if outcome.verdict == ACCEPT}
        translated = any(outcome.dnat for outcome in alone.outcomes)
        seen = {outcome.dst for outcome in found.outcomes if outcome.verdict == ACCEPT}
        astray = [o for o in found.outcomes if o.verdict == ACCEPT and o.dst not in expected]
        result += [_astray(question, outcome, translated) for outcome in astray]
        if expected - seen and translated and {kind for kind, _, _ in result} <= {"endpoint-stale"}:
            lost = f"not to {', '.join(sorted(expected - seen))}"
            stale = [(kind, step, f"{detail}, and {lost}") for kind, step, detail in result]
            result = stale or [("endpoint-missing", None, lost)]
        if not result:
            result += _uneven(alone, found)
            if self._node.config_known:
                result += self._masquerade(question, alone, found)
        return list({(kind, detail): (kind, step, detail) for kind, step, detail in result}.values())

    def _masquerade(self, question: AuditQuestion, alone: TraceResult, found: TraceResult) -> Iterator[Difference]:
        expected = {o.dst: o for o in alone.outcomes if o.verdict == ACCEPT}
        for outcome in found.outcomes:
            ours = expected.get(outcome.dst)
            if ours is None or outcome.verdict != ACCEPT or ours.snat == outcome.snat:
                continue
            if ours.snat:
                yield "masquerade-missing", None, f"{question.what}, from {question.client.kind}"
                continue
            step = next((each for each in reversed(outcome.path) if _HIDES.search(each.text)), None)
            if step is None or _is_ours(step):
                yield "masquerade-extra", step, f"{question.what}, from {question.client.kind}"
            elif _keeps_its_address(question) and self._is_pod(outcome):
                yield "foreign-masquerade", step, f"{question.what}, from {question.client.kind}"

    def _is_pod(self, outcome: Outcome) -> bool:
        """Whether it ends at a Pod: network plugins masquerade what leaves the pod networks, and must."""
        return format_endpoint(self._family, outcome.packet.dst, None) in self._node.shared.pod_addresses

    # --- the rule to blame ---

    def _rule(self, step: Step) -> BlamedRule:
        native = _is_native(step)
        if native:
            files = [(each.label.rpartition(": ")[2], each.text) for each in self._node.rule_files if each.nftables]
        else:
            dumps = self._node.dumps(self._family)
            files = [(each.file, each.text) for each in dumps if each.rules.source == step.source]
            files += [(each.file, each.text) for each in dumps]
        if not files:  # rules that were not seen
            return BlamedRule(f"nodes/{self._node.name}", 0, step.table, step.chain, step.rule, step.text)
        (file, text), find = files[0], line_of_nft if native else line_of_rule
        line = find(text, step.table, step.chain, step.rule)
        return BlamedRule(file, line, step.table, step.chain, step.rule, step.text or f"{step.chain}: {step.did}")


def line_of_nft(text: str, table: str, chain: str, rule: int) -> int:
    """The line of what `nft list ruleset` prints in which a chain's rule of this number stands, from 1, or the chain
    itself for number 0; 0 if it is not there, as in a text that has several rules on a line."""
    place, count = ("", ""), 0
    for number, line in enumerate(text.splitlines(), 1):
        block = _BLOCK.match(line)
        if block is not None:
            place = (block[2], "") if block[1] == "table" else (place[0], block[2])
        elif line.strip() == "}":
            place = (place[0], "")
        if place != (table, chain):
            continue
        count += block is None and _NO_RULE.match(line) is None
        if count == rule:
            return number
    return 0


def _keeps_its_address(question: AuditQuestion) -> bool:
    """Whether the client's address must not be hidden by others. What comes from another node, and goes on to a third
    one, must come back by this one."""
    return question.what == ENDPOINT or question.client.kind in (POD_HERE, ITSELF, FROM_OUTSIDE)


def _is_native(step: Step) -> bool:
    return " " in step.table


def _is_ours(step: Step) -> bool:
    if _is_native(step):
        return step.table.split(" ", 1)[1] == TABLE
    return is_ours(step.table, step.chain) or is_of_ipvs(step.table, step.chain) or _calls_ours(step)


def _calls_ours(step: Step) -> bool:
    return target_of(step.text).startswith("KUBE-")


def _refused(question: AuditQuestion, alone: TraceResult, found: TraceResult) -> Difference | None:
    """What is refused more often than it should be."""
    chances = [sum(o.probability for o in each.outcomes if o.verdict != ACCEPT) for each in (alone, found)]
    if chances[1] - chances[0] < _TOLERANCE:
        return None
    outcome = max((o for o in found.outcomes if o.verdict != ACCEPT), key=lambda o: o.probability)
    step = next((each for each in reversed(outcome.steps) if each.kind in ("rule", "policy")), None)
    if step is None or (outcome.reason and not outcome.dnat):
        return "service-missing", None, f"{question.what}: not translated, and then: {outcome.reason}"
    if outcome.reason:  # no rule refused it
        return _astray(question, outcome, True)
    if step.chain == _UNUSED_PORTS and not outcome.dnat:  # no element of service-ips has it
        return "service-missing", None, f"{question.what}: not translated, and refused as a port that no Service has"
    if _is_ours(step):
        return "refused", step, f"{question.what}: {outcome.verdict.lower()}"
    outside = question.client.kind == FROM_OUTSIDE
    detail = f"{outcome.verdict.lower()} in {step.hook}"
    return ("foreign-drop-outside" if outside else "foreign-drop"), step, detail


def _astray(question: AuditQuestion, outcome: Outcome, translated: bool) -> Difference:
    """Who sends a packet where it should not go."""
    rules = [step for step in outcome.path if step.hook in _BEFORE_ROUTING]
    foreign = [step for step in rules if not _is_ours(step) and _DECIDES.search(step.text)]
    senders = [step for step in rules if _SENDS.search(step.text) or "destination becomes" in step.did]
    if outcome.dnat and senders and not _is_ours(senders[-1]):
        shadowed = question.what == NODE_PORT
        return ("node-port-shadowed" if shadowed else "foreign-redirect"), senders[-1], f"to {outcome.dst}"
    if outcome.dnat:
        return "endpoint-stale", senders[-1] if senders else None, f"to {outcome.dst}"
    if not translated:
        return "refusal-missing", None, f"{question.what}: goes to {outcome.dst}"
    last = next((step for step in reversed(foreign) if step.table in ("nat", "raw") or _is_native(step)), None)
    if last is not None and not any(_calls_ours(step) for step in rules if step.table == "nat"):
        return "foreign-bypass", last, f"{question.what}: not translated"
    return "service-missing", None, f"{question.what}: not translated"


def _uneven(alone: TraceResult, found: TraceResult) -> Iterator[Difference]:
    one, other = (summed((o.dst, o.probability) for o in each.outcomes) for each in (alone, found))
    odd = [dst for dst, share in other.items() if abs(share - one.get(dst, Fraction(0))) > _TOLERANCE]
    if odd:
        shown = ", ".join(f"{dst} {float(other[dst]):.0%}" for dst in sorted(odd))
        yield "share-uneven", None, shown


def _witness(node: str, question: AuditQuestion, alone: TraceResult, found: TraceResult) -> AuditWitness:
    packet, client = question.packet, question.client
    return AuditWitness(
        node, client.name, str(packet), _words(alone), _words(found), client.reference,
        packet.source, packet.destination, protocol_name(packet.protocol), packet.origin,
        _ends(alone), _ends(found),
    )  # fmt: skip


def _ends(result: TraceResult) -> tuple[EndShare, ...]:
    """What becomes of the packet, what is alike once."""
    ends = summed(
        ((o.verdict, *((o.src, o.dst) if o.verdict == ACCEPT else ("", ""))), o.probability) for o in result.outcomes
    )
    return tuple(EndShare(exact(share), *end) for end, share in ends.items())


def _words(result: TraceResult) -> tuple[str, ...]:
    """What becomes of the packet, in words."""

    def text(outcome: Outcome) -> str:
        if outcome.verdict == ACCEPT:
            return f"to {outcome.dst}" + (", masqueraded" if outcome.snat else "")
        return outcome.verdict.lower() + (f" ({outcome.reason})" if outcome.reason else "")

    ends = summed((text(outcome), outcome.probability) for outcome in result.outcomes)
    ordered = sorted(ends.items(), key=lambda each: -each[1])
    return tuple(words if share == 1 else f"{float(share):.0%} {words}" for words, share in ordered)
