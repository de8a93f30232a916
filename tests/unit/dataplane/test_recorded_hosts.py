"""Recorded hosts (tests/reference/hosts): every dump is read, and the model answers as the kernel did.

tests/kernel/hosts asks the kernel. Two things are no contradiction: the model calls masquerade what masquerading
rewrites, to the same address, too, or would rewrite if the packet left; and where a device has no address of its own,
the address that the kernel borrows from another is not known (`?`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kproxy.cluster.rules import HostRules, RuleFile, read_ipsets, read_rule_file
from kproxy.dataplane import Host, Index, Outcome, make_packet, parse_endpoint, parse_host, trace
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from tests.support import recorded_hosts
from tests.support.recorded_hosts import HOSTS, SAVES, Question


@cache
def _rules(host: str) -> HostRules:
    files: list[RuleFile] = []
    for name in [*SAVES.values(), "ruleset.nft"]:
        text = recorded_hosts.read(host, name)
        if text is not None:
            files.append(read_rule_file(text, name))
    return HostRules(files)


@cache
def _index(host: str, family: Family) -> Index:
    return _rules(host).index(family)


@cache
def _host(host: str) -> Host:
    sets = read_ipsets(recorded_hosts.read(host, "ipset.save") or "", "ipset.save")
    found = parse_host(recorded_hosts.host_document(host))
    return Host(**{**{name: getattr(found, name) for name in found.__slots__}, "sets": sets})


def _address(packet: Any, value: int | None) -> str:
    return "?" if value is None else format_address(value, packet.family)


def _told(outcome: Outcome) -> dict[str, Any]:
    packet = outcome.packet
    if outcome.verdict == "REJECT":
        return {"verdict": "REJECT", "reject": outcome.reject}
    if outcome.verdict != "ACCEPT":
        return {"verdict": outcome.verdict, **({"reasons": outcome.reasons} if outcome.reasons else {})}
    told = {"verdict": "ACCEPT", "src": _address(packet, packet.src), "dst": outcome.dst, "dnat": outcome.dnat}
    told["masquerade"] = outcome.masquerade
    return {**told, "via": "local"} if outcome.via == "local" else {**told, "out": packet.out_interface}


def _agrees(told: dict[str, Any], answer: dict[str, Any], sent: str) -> bool:
    if told["verdict"] == "ACCEPT":
        if told["src"] == sent or "via" in told:
            told = {**told, "masquerade": False}
        if told["src"] == "?":
            told = {**told, "src": answer.get("src")}
    return told == answer


def _wrong(host: str, question: Question) -> str | None:
    fields = question.packet
    family, source, _ = parse_endpoint(fields["src"])
    more: dict[str, Any] = {"origin": "local"} if fields.get("origin") == "local" else {"in_interface": fields["in"]}
    if "inPort" in fields:
        more["in_port"] = fields["inPort"]
    packet = make_packet(fields["src"], fields["dst"], fields.get("proto", "tcp"), **more)
    assumed = {name: word == "yes" for name, _, word in (item.rpartition("=") for item in question.assume)}
    limit = None if question.limit is None else question.limit == "within"
    result = trace(_index(host, family), _host(host), packet, limit=limit, assumed=assumed)
    told = [_told(outcome) for outcome in result.outcomes]
    answers = [dict(item) for item in question.answers]
    sent = format_address(source, family)
    covered = all(any(_agrees(item, answer, sent) for answer in answers) for item in told)
    if covered and all(any(_agrees(item, answer, sent) for item in told) for answer in answers):
        return None
    return f"{question.name}: {dict(fields)}\n  model: {told}\n  kernel: {answers}"


@pytest.mark.parametrize("host", HOSTS)
def test_the_model_answers_as_the_kernel(host: str) -> None:
    wrong = [item for item in (_wrong(host, question) for question in recorded_hosts.questions(host)) if item]
    assert not wrong, "\n".join(wrong)
