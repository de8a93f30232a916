"""Lists in docs/ that nothing makes: what they list is what the program has."""

from __future__ import annotations

import re

import pytest

from kproxy.cluster.audit.finding_kinds import KINDS
from kproxy.netfilter.iptables.matches import MATCH_CLASSES
from kproxy.netfilter.iptables.option import Extension
from kproxy.netfilter.iptables.targets import TARGET_CLASSES
from tests.support.paths import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize(("label", "classes"), [("Matches", MATCH_CLASSES), ("Targets", TARGET_CLASSES)])
def test_typed_matches_and_targets(label: str, classes: tuple[type[Extension], ...]) -> None:
    text = page("netfilter.md").partition("## What is typed")[2]
    listed = re.search(rf"^{label}: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    words = {word for word in re.split(r",\s+", listed[1]) if " " not in word}
    assert words == {cls.NAME for cls in classes}


def test_modelled_matches() -> None:
    text = page("dataplane.md").partition("## What is modelled")[2]
    assert {cls.NAME for cls in MATCH_CLASSES} - set(re.findall(r"`(\w+)`", text)) == set()


def test_findings_of_the_audit() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning|info) \|", page("audit.md"), re.MULTILINE)
    assert dict(rows) == {kind.id: kind.severity.value for kind in KINDS.values()}


def test_kinds_of_answers() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "kproxy" / "cli").rglob("*.py"))
    listed = page("formats.md").partition("the `kind` of what it is:")[2].partition(". Only")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(re.findall(r'(?:answer|result)\(\s*"(\w+)"', sources))


def test_scenarios() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| IPv", page("scenarios.md"), re.MULTILINE)
    assert sorted(rows) == sorted(path.parent.name for path in (ROOT / "rules_golden").glob("*/packets.yaml"))
