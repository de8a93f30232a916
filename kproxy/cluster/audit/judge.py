"""What a node's rules do to Service traffic that kube-proxy's alone would not: by asking both, packet by packet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.cluster.audit.dump import Dump, line_of_nft
from kproxy.cluster.audit.expected_actual import Rendered, Sides, sides_of
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.observation import AuditWitness, BlamedRule, EndShare, Observation
from kproxy.cluster.audit.question_sampling import Alike
from kproxy.cluster.audit.questions import ENDPOINT, FROM_OUTSIDE, ITSELF, NODE_PORT, POD_HERE, AuditQuestion, Questions
from kproxy.cluster.evidence.unseen import NAT_TABLE, NFTABLES, VARIANTS, suspected
from kproxy.cluster.fates import shares
from kproxy.cluster.rendered import is_ours
from kproxy.dataplane import ACCEPT, DataplaneError, Index, Outcome, Step, TraceResult, trace
from kproxy.dataplane.model.packet import format_endpoint
from kproxy.dataplane.model.pipeline import Source
from kproxy.netfilter import Family, line_of_rule
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.text import target_of
from kproxy.render.nftables.names import TABLE
from kproxy.services.serviceport import ServicePort
from kproxy.words import exact

_TOLERANCE: Final = Fraction(1, 50)
"""Shares that differ by less are equal: iptables rounds chances."""
_WHERE_RULES_ARE: Final = frozenset({NAT_TABLE, NFTABLES, *VARIANTS.values()})
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

Difference = tuple[str, Step | None, str]
"""A kind, the rule to blame, and details."""


class Known(msgspec.Struct):
    """What is known of the nodes that were judged: for surroundings and kinds of ServicePorts what was found, and how
    often something was not decided."""

    rendered: Rendered = msgspec.field(default_factory=Rendered)
    found: dict[object, Judgement] = msgspec.field(default_factory=dict)


class Judgement(NamedTuple):
    """What was found for one ServicePort, which stands for all of its kind."""

    observations: tuple[tuple[str, Observation], ...]
    """With the kind of address that was asked."""
    undecided: dict[str, int]


class Judge:
    """Asks one node's rules of one family.

    Attributes:
        undecided: what depends on something that is not known, and how often.
        asked: how many questions were answered.
    """

    def __init__(self, node: AuditedNode, family: Family, known: Known, *, everything: bool = False) -> None:
        """
        Args:
            known: what earlier nodes told.
            everything: ask every Service, also where one of its kind has been asked.
        """
        self._node = node
        self._family = family
        self._known = known
        self._everything = everything
        self.questions = Questions(node, family)
        self.undecided: dict[str, int] = {}
        self.asked = 0

    def observe(self) -> Iterator[Observation]:
        """What is found, or nothing if the rules are not known. Raises InputError: they cannot be read."""
        ports = self.questions.facts.service_ports
        if not self._node.host.knows_rules(self._family) or not ports:
            return
        lost = self._node.lost_jumps(self._family)
        if lost:
            yield Observation("jumps-lost", self._node.name, self._family.value, f"{self._family.value}: {lost}")
        if not self._node.has_own_rules(self._family):
            if lost:
                return
            if any(
                each.what in _WHERE_RULES_ARE
                for each in suspected(self._node.host.unseen)
                if each.is_met_by(self._family)
            ):
                return
            file = self._node.host.file_of_rules(self._family, native=self._node.mode == MODE_NFTABLES)
            yield Observation(
                "rules-missing", self._node.name, f"{self._node.mode} {self._family.value}",
                f"{self._family.value}: mode {self._node.mode}, and {file} has no rules of it",
            )  # fmt: skip
            return
        sides = sides_of(self._node, self._family, self._known.rendered)
        groups = self._groups(ports, sides)
        new = [found[0] for key, found in groups.items() if self._is_new(key)]
        if new:
            self._indexes = sides.indexes(new)
        for key, found in groups.items():
            verdict = self._known.found.get(key)
            if self._is_new(key) or verdict is None:
                verdict = self._known.found[key] = self._ask_all(found[0])
            for reason, count in verdict.undecided.items():
                self._undecided(reason, count * len(found))
            for what, observation in verdict.observations:
                yield from self._for_all(found, what, observation)

    def _groups(self, ports: Sequence[ServicePort], sides: Sides) -> dict[object, list[ServicePort]]:
        """ServicePorts by what they have in common."""
        if self._everything:
            return {(self._node.name, port.name): [port] for port in ports}
        alike = Alike(self._node, self._family, sides)
        found: dict[object, list[ServicePort]] = {}
        for port in ports:
            kind = alike.kind(port, self.questions.clients(port))
            found.setdefault((alike.surroundings, kind), []).append(port)
        for key, alike_ports in list(found.items()):
            if alike_ports[0].name in sides.changed and len(alike_ports) <= _FEW:
                del found[key]
                found |= {(self._node.name, port.name): [port] for port in alike_ports}
        return found

    def _is_new(self, key: object) -> bool:
        """Whether it must be asked here: it was not yet, or its rule to blame is another one here."""
        verdict = self._known.found.get(key)
        if verdict is None:
            return True
        rules = (each.rule for _, each in verdict.observations if each.rule is not None)
        return any(self._here(rule) is None for rule in rules)

    def _ask_all(self, port: ServicePort) -> Judgement:
        undecided, self.undecided = self.undecided, {}
        asked = (*self.questions.of_services((port,)), *self.questions.of_endpoints((port,)))
        found = [(question.what, each) for question in asked for each in self._ask(question, *self._indexes)]
        verdict = Judgement(tuple(found), self.undecided)
        self.undecided = undecided
        return verdict

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
        name = rule.file.rpartition("/")[2]
        file = f"nodes/{self._node.name}/{name}"
        if rule.file == file:
            return rule
        for dump in self._node.dumps(self._family):
            if dump.label.endswith(f": {file}"):
                line = dump.line_of(rule.text) if rule.rule else line_of_rule(dump.text, rule.table, rule.chain, 0)
                if not line:
                    return None
                number = dump.number_of((rule.table, rule.chain), rule.text) if rule.rule else 0
                return BlamedRule(file, line, rule.table, rule.chain, number, rule.text)
        return None

    def _ask(self, question: AuditQuestion, expected: Index, actual: Index) -> Iterator[Observation]:
        host = self._node.model
        try:
            alone, found = (trace(index, host, question.packet) for index in (expected, actual))
        except DataplaneError as error:
            self._undecided(str(error))
            return
        if not (alone.determined and found.determined):
            for outcome in (*alone.outcomes, *found.outcomes):
                for reason in outcome.reasons[:1]:
                    self._undecided(reason)
            return
        self.asked += 1
        for kind, step, detail in self._differences(question, alone, found):
            rule = None if step is None else self._rule(step)
            name = question.port.name
            text = "" if rule is None else rule.text
            foreign = step is not None and not _is_ours(step)
            yield Observation(
                kind, self._node.name, text if foreign else detail, detail, f"{name}", question.where,
                question.client.kind, rule,
                _witness(self._node.name, question, alone, found),
            )  # fmt: skip

    def _undecided(self, reason: str, count: int = 1) -> None:
        self.undecided[reason] = self.undecided.get(reason, 0) + count

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
        if _is_native(step):
            files = [each.label for each in self._node.shared_rules.files if each.nftables is not None]
            file = files[0].rpartition(": ")[2] if files else f"nodes/{self._node.name}"
            line = line_of_nft(self._node.host.text(file.rpartition("/")[2]) or "", step.table, step.chain, step.rule)
            return BlamedRule(file, line, step.table, step.chain, step.rule, step.text)
        dump = self._dump(step)
        if dump is None:
            return BlamedRule(f"nodes/{self._node.name}", 0, step.table, step.chain, step.rule, step.text)
        line = line_of_rule(dump.text, step.table, step.chain, step.rule if step.kind == "rule" else 0)
        text = step.text or f"{step.chain}: {step.did}"
        return BlamedRule(dump.label.rpartition(": ")[2], line, step.table, step.chain, step.rule, text)

    def _dump(self, step: Step) -> Dump | None:
        mine = self._node.dumps(self._family)
        variants = {each.label: each.iptables.variant for each in self._node.shared_rules.files if each.iptables}
        chosen = (each for each in mine if Source.of_variant(variants.get(each.label)) == step.source)
        return next(chosen, mine[0] if mine else None)


def _keeps_its_address(question: AuditQuestion) -> bool:
    """Whether the client's address must not be hidden by others. What comes from another node, and goes on to a third
    one, must come back by this one."""
    return question.what == ENDPOINT or question.client.kind in (POD_HERE, ITSELF, FROM_OUTSIDE)


def _is_native(step: Step) -> bool:
    return " " in step.table


def _is_ours(step: Step) -> bool:
    if _is_native(step):
        return step.table.split(" ", 1)[1] == TABLE
    return is_ours(step.table, step.chain) or _calls_ours(step)


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
    one, other = (shares(each, lambda outcome: outcome.dst) for each in (alone, found))
    odd = [dst for dst, share in other.items() if abs(share - one.get(dst, Fraction(0))) > _TOLERANCE]
    if odd:
        shown = ", ".join(f"{dst} {float(other[dst]):.0%}" for dst in sorted(odd))
        yield "share-uneven", None, shown


def _witness(node: str, question: AuditQuestion, alone: TraceResult, found: TraceResult) -> AuditWitness:
    packet, client = question.packet, question.client
    return AuditWitness(
        node, client.name, str(packet), _words(alone), _words(found), client.reference,
        packet.source, packet.destination, protocol_name(packet.protocol), packet.origin,
        _fates(alone), _fates(found),
    )  # fmt: skip


def _fates(result: TraceResult) -> tuple[EndShare, ...]:
    """What becomes of the packet, what is alike once."""

    def key(each: Outcome) -> tuple[str, str, str]:
        return (each.verdict, each.src, each.dst) if each.verdict == ACCEPT else (each.verdict, "", "")

    return tuple(EndShare(exact(share), *ends) for ends, share in shares(result, key).items())


def _words(result: TraceResult) -> tuple[str, ...]:
    """What becomes of the packet, in words."""

    def text(outcome: Outcome) -> str:
        if outcome.verdict == ACCEPT:
            return f"to {outcome.dst}" + (", masqueraded" if outcome.snat else "")
        return outcome.verdict.lower() + (f" ({outcome.reason})" if outcome.reason else "")

    ordered = sorted(shares(result, text).items(), key=lambda each: -each[1])
    return tuple(words if share == 1 else f"{float(share):.0%} {words}" for words, share in ordered)
