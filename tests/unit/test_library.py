"""The library's face: what `kproxy` itself offers."""

from __future__ import annotations

import doctest
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import kproxy
from kproxy import library
from kproxy.api import KubeProxyConfiguration
from kproxy.dataplane import DataplaneError
from kproxy.errors import InputError
from kproxy.netfilter import Family
from tests.support.cluster.audited import cluster
from tests.support.cluster.snapshots import write_files
from tests.support.paths import ROOT

SHOP = ROOT / "docs" / "examples" / "shop.yaml"
DROP = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.1 -j DROP\nCOMMIT\n"
FROM_THERE = {"src": "192.0.2.1:4000", "dst": "10.0.0.1:80"}


def test_the_import_is_light() -> None:
    code = "import sys, kproxy; print([name for name in sys.modules if 'kproxy.' in name], kproxy.read_rules.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] read_rules\n"
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        kproxy.nope  # noqa: B018


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert doctest.testmod(library).failed == 0
    assert all(getattr(kproxy, name).__doc__ for name in kproxy.__all__)


def test_read_rules(tmp_path: Path) -> None:
    (tmp_path / "v4.save").write_text(DROP)
    (tmp_path / "v6.save").write_text(DROP.replace("192.0.2.1", "2001:db8::1"))
    rules = kproxy.read_rules(tmp_path / "v4.save", tmp_path / "v6.save")
    assert rules.families == (Family.IPV4, Family.IPV6)
    assert rules.rule_count == 2
    assert repr(kproxy.read_rules(tmp_path / "v4.save")) == f"<Rules {tmp_path}/v4.save: 1 rule of IPv4>"
    for sources, words in (
        ((), "rules expected"),
        ((tmp_path / "none",), "none: No such file"),
        (("",), "not an empty one"),
        (("*filter\n-A X\n",), "rules: line 2"),
        ((tmp_path / "v4.save", DROP), "both rules of"),
    ):
        with pytest.raises(InputError, match=words):
            kproxy.read_rules(*sources)


def test_render_rules() -> None:
    rendered = kproxy.render_rules(SHOP, "worker-1")
    assert (rendered.node, rendered.mode, rendered.families) == ("worker-1", "iptables", (Family.IPV4,))
    assert [rule.text for rule in rendered.rules] == [line for line in rendered.text.splitlines() if line[:2] == "-A"]
    owners = {str(rule.origin.service_port) for rule in rendered.rules if rule.chain.startswith("KUBE-SVC-")}
    assert "shop/web:http" in owners
    config = KubeProxyConfiguration(mode="nftables")
    table = kproxy.render_rules([SHOP], "worker-1", config=config, family="IPv4")
    assert table.text.startswith("table ip kube-proxy {")
    assert repr(table).startswith("<RenderedRules node worker-1: ")
    with pytest.raises(InputError, match="say which"):
        kproxy.render_rules(SHOP)
    with pytest.raises(InputError, match="no such file"):
        kproxy.render_rules("none.yaml", "n")


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_trace_packet(mode: str) -> None:
    rendered = kproxy.render_rules(SHOP, "worker-1", config=KubeProxyConfiguration(mode=mode))
    found = kproxy.trace_packet(rendered, {"src": "10.244.1.77:4000", "dst": "10.96.0.10:53"})
    assert [(each.probability, each.dst) for each in found.outcomes] == [
        (Fraction(1, 2), "10.244.1.2:53"),
        (Fraction(1, 2), "10.244.2.2:53"),
    ]
    assert repr(found) == (
        "<PacketTrace 10.244.1.77:4000 -> 10.96.0.10:53: ACCEPT 10.244.1.77:4000 -> 10.244.1.2:53 (1/2); "
        "ACCEPT 10.244.1.77:4000 -> 10.244.2.2:53 (1/2)>"
    )


def test_what_is_not_known_stays_open() -> None:
    dropped = kproxy.trace_packet(DROP, FROM_THERE, local_ips=["10.0.0.1"])
    assert [str(each.verdict) for each in dropped.outcomes] == ["DROP"]
    open_ = kproxy.trace_packet(DROP, FROM_THERE)
    assert [str(each.verdict) for each in open_.outcomes] == ["INDETERMINATE"]
    assert open_.assumptions
    with pytest.raises(DataplaneError, match="dst"):
        kproxy.trace_packet(DROP, {"src": "192.0.2.1"})
    with pytest.raises(InputError, match="rules of IPv4"):
        kproxy.trace_packet(DROP, {"dst": "[2001:db8::1]:80"})


def test_objects_that_lack_endpoints_leave_answers_open(tmp_path: Path) -> None:
    manifest = tmp_path / "service.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
        "spec: {clusterIP: 10.96.0.7, selector: {app: web}, ports: [{port: 80}]}\n"
    )
    rendered = kproxy.render_rules(manifest, "n")
    found = kproxy.trace_packet(rendered, {"src": "10.244.0.9:4000", "dst": "10.96.0.7:80"})
    assert [str(each.verdict) for each in found.outcomes] == ["INDETERMINATE"]
    assert any(gap.suspected for gap in found.unseen)


def test_compare_rules() -> None:
    rendered = kproxy.render_rules(SHOP, "worker-1")
    assert repr(kproxy.compare_rules(rendered, rendered.text)) == "<RuleComparison alike>"
    changed = rendered.text.replace("10.244.1.2:53", "10.244.1.3:53")
    found = kproxy.compare_rules(rendered, changed, family="IPv4")
    assert found.alike is False
    assert found.families == (Family.IPV4,)
    assert repr(found).startswith(
        "<RuleComparison 1 difference: 10.96.0.10 (port 53/tcp, port 53/udp) from anywhere: A sends"
    )
    with pytest.raises(InputError, match="no family in common"):
        kproxy.compare_rules(DROP, DROP.replace("192.0.2.1", "2001:db8::1"))


def test_what_was_not_seen_of_one_side_cannot_be_told() -> None:
    rendered = kproxy.render_rules(SHOP, "worker-1")
    nat = rendered.text[rendered.text.index("*nat") :]
    found = kproxy.compare_rules(rendered, nat)
    assert found.alike is None
    assert [gap.what for gap in found.unseen] == ["filter table"]
    assert repr(found) == "<RuleComparison cannot be told>"


def test_a_family_of_which_one_side_has_no_file_cannot_be_told() -> None:
    six = DROP.replace("192.0.2.1", "2001:db8::1")
    for sides in ((kproxy.read_rules(DROP, six), DROP), (DROP, kproxy.read_rules(DROP, six))):
        found = kproxy.compare_rules(*sides)
        assert (found.alike, found.families) == (None, (Family.IPV4,))
        assert [gap.family for gap in found.unseen] == ["IPv6"]
        assert kproxy.compare_rules(*sides, family="IPv4").alike is True
    rendered = kproxy.render_rules(SHOP, "worker-1")
    assert kproxy.compare_rules(rendered, kproxy.read_rules(rendered.text, six)).alike is True
    with pytest.raises(InputError, match="IPv4 or IPv6 expected, not 'ipv4'"):
        kproxy.compare_rules(DROP, DROP, family="ipv4")


def test_audit_snapshot(tmp_path: Path) -> None:
    files = cluster()
    well = kproxy.audit_snapshot(write_files(tmp_path / "well", files))
    assert well.is_well
    assert "nodes judged: all well" in repr(well)
    path = next(path for path in sorted(files) if path.endswith("iptables-save"))
    lines = files[path].decode().splitlines(keepends=True)
    lost = next(index for index, line in enumerate(lines) if "-j DNAT" in line)
    broken = {**files, path: "".join(lines[:lost] + lines[lost + 1 :]).encode()}
    found = kproxy.audit_snapshot(write_files(tmp_path / "broken", broken))
    assert not found.is_well
    assert found.findings == found.report.findings
    assert found.findings[0].title in repr(found)
    with pytest.raises(InputError, match="nothing"):
        kproxy.audit_snapshot(tmp_path / "nothing")
