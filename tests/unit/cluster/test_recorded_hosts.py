"""Hosts as Docker, firewalld, ufw, fail2ban, netavark, libvirt, Calico, flannel and kube-proxy left them: what the
model says of a packet is what the kernel did with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from kproxy.cluster.rules import HostRules, read_ipsets, read_rule_file
from kproxy.dataplane import Host, Index, Outcome, parse_host
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.report import report
from kproxy.dataplane.query.spec import read_question
from kproxy.netfilter import Family
from tests.support.recorded_hosts import FOLDER, SAVES, host_document, questions, read

HOSTS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@cache
def recorded(name: str) -> tuple[HostRules, Host]:
    files = [*SAVES.values(), "ruleset.nft"]
    rules = HostRules([read_rule_file(text, file) for file in files if (text := read(name, file)) is not None])
    sets = read_ipsets(read(name, "ipset.save") or "", "ipset.save")
    return rules, dataclasses.replace(parse_host(host_document(name)), sets=sets)


@cache
def index(name: str, family: Family) -> Index:
    return recorded(name)[0].index(family)


def src(outcome: Outcome) -> str:
    return outcome.src.rpartition(":")[0].strip("[]") if outcome.packet.sport is not None else outcome.src


def fits(outcome: Outcome, answer: Mapping[str, Any], source: str) -> bool:
    if outcome.verdict != str(answer["verdict"]):
        return False
    if outcome.verdict == "REJECT":
        return outcome.reject == str(answer.get("reject", outcome.reject))
    if outcome.verdict == "DROP":
        return True
    seen = {
        "src": src(outcome),
        "dst": outcome.dst,
        "dnat": outcome.dnat,
        # What is masqueraded to the address that it has already is not seen to be.
        "masquerade": outcome.masquerade and src(outcome) != source.rpartition(":")[0].strip("[]"),
        "out": outcome.packet.out_interface if outcome.via == "out" else None,
        "via": outcome.via,
    }
    return all(seen[key] == value for key, value in answer.items() if key in seen)


@pytest.mark.parametrize("name", HOSTS)
def test_the_kernels_answers(name: str) -> None:
    host = recorded(name)[1]
    wrong = []
    for item in questions(name):
        question = read_question(item.packet)
        given = {text.rpartition("=")[0]: text.endswith("yes") for text in item.assume}
        found = report(
            index(name, question.packet.family), Surroundings.known(host), question, limit=True, assumed=given
        )
        for reported in found.outcomes:
            outcome = reported.outcome
            possible = [outcome]
            if outcome.verdict == "INDETERMINATE":  # only by what dumps do not show: which writer came first
                ordered = outcome.hints and all(" before " in hint for hint in outcome.hints)
                possible = list(outcome.possible) if ordered else []
            if not any(fits(each, answer, item.packet["src"]) for each in possible for answer in item.answers):
                told = (outcome.verdict, outcome.src, outcome.dst, outcome.masquerade, outcome.packet.out_interface)
                wrong.append(f"{item.name}: {told} {outcome.reject} {outcome.reasons} {outcome.hints}; {item.answers}")
    assert not wrong, "\n".join(wrong)
