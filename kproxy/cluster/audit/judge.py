"""What a node's rules do to Service traffic that kube-proxy's alone would not: by asking both, packet by packet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.observation import BlamedRule, Observation, Witness
from kproxy.cluster.audit.questions import (
    ENDPOINT,
    FROM_OUTSIDE,
    ITSELF,
    NODE_PORT,
    POD_HERE,
    Question,
    Questions,
)
from kproxy.cluster.migrate.foreign import is_ours
from kproxy.cluster.rules import RuleFile
from kproxy.dataplane import ACCEPT, DataplaneError, Index, Outcome, Step, TraceResult, trace
from kproxy.dataplane.compare.observe import index_rules
from kproxy.dataplane.model.packet import format_endpoint
from kproxy.dataplane.model.pipeline import Source
from kproxy.netfilter import Family, line_of_rule
from kproxy.render.nftables.names import TABLE

_TOLERANCE: Final = Fraction(1, 50)
"""Shares that differ by less are equal: iptables rounds chances."""
_DECIDES: Final = re.compile(
    r"-j (?:DNAT|REDIRECT|NETMAP|TPROXY|ACCEPT|RETURN|CT|NOTRACK)\b|\b(?:dnat|redirect|tproxy|accept|return|notrack)\b"
)
_SENDS: Final = re.compile(r"-j (?:DNAT|REDIRECT|NETMAP|TPROXY)\b|\b(?:dnat|redirect|tproxy)\b")
_HIDES: Final = re.compile(r"-j (?:MASQUERADE|SNAT|NETMAP)\b|\b(?:masquerade|snat)\b")
_CALLS_OURS: Final = re.compile(r"-[jg] KUBE-")
_BEFORE_ROUTING: Final = ("PREROUTING", "OUTPUT", "INGRESS")

Difference = tuple[str, Step | None, str]
"""A kind, the rule to blame, and details."""


class Judge:
    """Asks one node's rules of one family. `undecided` is what depends on something that is not known, and how often;
    `asked` how many questions were answered."""

    def __init__(self, node: AuditedNode, family: Family) -> None:
        self._node = node
        self._family = family
        self.questions = Questions(node, family)
        self.undecided: dict[str, int] = {}
        self.asked = 0

    def observe(self) -> Iterator[Observation]:
        """What is found, or nothing if the rules are not known. Raises InputError: they cannot be read."""
        actual = self._node.actual(self._family)
        if actual is None or not self.questions.facts.service_ports:
            return
        if not self._node.has_own_rules(self._family):
            files = "nft.json" if self._node.mode == "nftables" else "iptables-save"
            yield Observation(
                "rules-missing", self._node.name, f"{self._node.mode} {self._family.value}",
                f"{self._family.value}: mode {self._node.mode}, and {files} has no rules of it",
            )  # fmt: skip
            return
        indexes = [index_rules(rules, self._family) for rules in (self._node.expected(self._family), actual)]
        asked: Iterable[Question] = (*self.questions.of_services(), *self.questions.of_endpoints())
        for question in asked:
            yield from self._ask(question, *indexes)

    def _ask(self, question: Question, expected: Index, actual: Index) -> Iterator[Observation]:
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
                Witness(self._node.name, question.client.name, str(question.packet), _told(alone), _told(found)),
            )  # fmt: skip

    def _undecided(self, reason: str) -> None:
        self.undecided[reason] = self.undecided.get(reason, 0) + 1

    # --- what differs ---

    def _differences(self, question: Question, alone: TraceResult, found: TraceResult) -> list[Difference]:
        result: list[Difference] = []
        refused = _refused(question, alone, found)
        if refused is not None:
            result.append(refused)
        wanted = {outcome.dst for outcome in alone.outcomes if outcome.verdict == ACCEPT}
        translated = any(outcome.dnat for outcome in alone.outcomes)
        seen = {outcome.dst for outcome in found.outcomes if outcome.verdict == ACCEPT}
        astray = [o for o in found.outcomes if o.verdict == ACCEPT and o.dst not in wanted]
        result += [_astray(question, outcome, translated) for outcome in astray]
        if wanted - seen and translated and {kind for kind, _, _ in result} <= {"endpoint-stale"}:
            lost = f"not to {', '.join(sorted(wanted - seen))}"
            stale = [(kind, step, f"{detail}, and {lost}") for kind, step, detail in result]
            result = stale or [("endpoint-missing", None, lost)]
        if not result:
            result += _uneven(alone, found)
            if self._node.config_known:
                result += self._masquerade(question, alone, found)
        return list({(kind, detail): (kind, step, detail) for kind, step, detail in result}.values())

    def _masquerade(self, question: Question, alone: TraceResult, found: TraceResult) -> Iterator[Difference]:
        wanted = {o.dst: o for o in alone.outcomes if o.verdict == ACCEPT}
        for outcome in found.outcomes:
            expected = wanted.get(outcome.dst)
            if expected is None or outcome.verdict != ACCEPT or expected.snat == outcome.snat:
                continue
            if expected.snat:
                yield "masquerade-missing", None, f"{question.what}, from {question.client.kind}"
                continue
            step = next((each for each in reversed(outcome.path) if _HIDES.search(each.text)), None)
            if step is None or _is_ours(step):
                yield "masquerade-extra", step, f"{question.what}, from {question.client.kind}"
            elif _keeps_its_address(question) and self._is_pod(outcome):
                yield "foreign-masquerade", step, f"{question.what}, from {question.client.kind}"

    def _is_pod(self, outcome: Outcome) -> bool:
        """Whether it ends at a Pod: network plugins masquerade what leaves the pod networks, and must."""
        address = format_endpoint(self._family, outcome.packet.dst, None)
        return any(
            address in pod.addresses and not pod.host_network and pod.phase for pod in self._node.cluster.pods.values()
        )

    # --- the rule to blame ---

    def _rule(self, step: Step) -> BlamedRule:
        native = _is_native(step)
        file = self._file(step, native)
        if file is None:
            return BlamedRule(f"nodes/{self._node.name}", 0, step.table, step.chain, step.rule, step.text)
        line = 0
        if not native and step.kind == "rule":
            line = line_of_rule(file.text, step.table, step.chain, step.rule)
        elif not native:
            line = _line_of_policy(file.text, step.table, step.chain)
        text = step.text or f"{step.chain}: {step.did}"
        return BlamedRule(file.label.rpartition(": ")[2], line, step.table, step.chain, step.rule, text)

    def _file(self, step: Step, native: bool) -> RuleFile | None:
        rules = self._node.host.host_rules
        files = () if rules is None else rules.files
        if native:
            return next((each for each in files if each.nftables is not None), None)
        mine = [each for each in files if each.iptables and each.iptables.ruleset.family in (self._family, None)]
        return next(
            (each for each in mine if each.iptables and Source.of_variant(each.iptables.variant) == step.source),
            mine[0] if mine else None,
        )


def _keeps_its_address(question: Question) -> bool:
    """Whether the client's address must not be hidden by others. What comes from another node, and goes on to a third
    one, must come back by this one."""
    return question.what == ENDPOINT or question.client.kind in (POD_HERE, ITSELF, FROM_OUTSIDE)


def _is_native(step: Step) -> bool:
    return " " in step.table


def _is_ours(step: Step) -> bool:
    if _is_native(step):
        return step.table.split(" ", 1)[1] == TABLE
    return is_ours(step.table, step.chain) or _CALLS_OURS.search(step.text) is not None


def _line_of_policy(text: str, table: str, chain: str) -> int:
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("*"):
            current = line[1:].strip()
        elif current == table and line.startswith(f":{chain} "):
            return number
    return 0


def _refused(question: Question, alone: TraceResult, found: TraceResult) -> Difference | None:
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
    if _is_ours(step):
        return "refused", step, f"{question.what}: {outcome.verdict.lower()}"
    outside = question.client.kind == FROM_OUTSIDE
    detail = f"{outcome.verdict.lower()} in {step.hook}"
    return ("foreign-drop-outside" if outside else "foreign-drop"), step, detail


def _astray(question: Question, outcome: Outcome, translated: bool) -> Difference:
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
    if last is not None and not any(_CALLS_OURS.search(step.text) for step in rules if step.table == "nat"):
        return "foreign-bypass", last, f"{question.what}: not translated"
    return "service-missing", None, f"{question.what}: not translated"


def _uneven(alone: TraceResult, found: TraceResult) -> Iterator[Difference]:
    shares: list[dict[str, Fraction]] = []
    for each in (alone, found):
        counted: dict[str, Fraction] = {}
        for outcome in each.outcomes:
            counted[outcome.dst] = counted.get(outcome.dst, Fraction(0)) + outcome.probability
        shares.append(counted)
    odd = [dst for dst, share in shares[1].items() if abs(share - shares[0].get(dst, Fraction(0))) > _TOLERANCE]
    if odd:
        told = ", ".join(f"{dst} {float(shares[1][dst]):.0%}" for dst in sorted(odd))
        yield "share-uneven", None, told


def _told(result: TraceResult) -> tuple[str, ...]:
    """What becomes of the packet, in words."""
    found: dict[str, Fraction] = {}
    for outcome in result.outcomes:
        if outcome.verdict == ACCEPT:
            text = f"to {outcome.dst}" + (", masqueraded" if outcome.snat else "")
        else:
            text = outcome.verdict.lower() + (f" ({outcome.reason})" if outcome.reason else "")
        found[text] = found.get(text, Fraction(0)) + outcome.probability
    ordered = sorted(found.items(), key=lambda each: -each[1])
    return tuple(text if share == 1 else f"{float(share):.0%} {text}" for text, share in ordered)
