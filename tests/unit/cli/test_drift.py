"""`kproxy drift`: exit codes, findings, repair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock, Mock

import msgspec
import pytest
import yaml

from kproxy.cli import drift
from kproxy.cli.drift import describe
from kproxy.linux.drift.find import DriftReport
from kproxy.linux.programs import find_program
from kproxy.linux.sync.finding import Drift
from tests.support.cli import Run
from tests.support.kernel.namespaces import fresh_namespace, run, save
from tests.support.machine import only_these_programs
from tests.support.recorded import MINIKUBE

pytestmark = pytest.mark.root

MINI = ("-f", MINIKUBE / "cluster.yaml", "--config", MINIKUBE / "config.yaml", "--node", "minikube")


@pytest.fixture
def namespace(kproxy: Run) -> Iterator[str]:
    """A namespace to which minikube has been applied."""
    with fresh_namespace() as name:
        assert kproxy("apply", *MINI, "--netns", name, "--variant", "nft").returncode == 0
        yield name


def test_no_drift(kproxy: Run, namespace: str) -> None:
    done = kproxy("drift", *MINI, "--netns", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no drift" in done.stdout


CLUSTER = """\
{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Node, metadata: {name: n1},
 spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, "fd00:10:244:1::/64"]},
 status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "2001:db8::1"}]}},
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: NodePort, clusterIP: 10.96.0.9,
 clusterIPs: [10.96.0.9, "fd00:10:96::9"], ipFamilies: [IPv4, IPv6], ports: [{port: 80, nodePort: 30080}]}},
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-4, namespace: shop,
 labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 8080}],
 endpoints: [{addresses: [10.244.1.5], nodeName: n1}]},
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-6, namespace: shop,
 labels: {kubernetes.io/service-name: web}}, addressType: IPv6, ports: [{port: 8080}],
 endpoints: [{addresses: ["fd00:10:244:1::5"], nodeName: n1}]}]}
"""
CONFIG_MAP = """\
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-proxy, namespace: kube-system}, data: {config.conf:
 "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, clusterCIDR: 10.244.0.0/16}"}}
"""
"""A node of both families, whose KUBE-NODEPORTS and KUBE-FORWARD count with nfacct."""


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), ""),
        (("--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"), "cluster CIDR 10.244.0.0/16,fd00:10:244::/48"),
        (("--detect-local-mode", "NodeCIDR"), "detectLocalMode NodeCIDR"),
        (("with its ConfigMap",), ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and value else None,
)
def test_what_the_agent_wrote_is_no_drift(
    kproxy: Run, tmp_path: Path, mode: str, flags: tuple[str, ...], told: str
) -> None:
    among = flags == ("with its ConfigMap",)
    manifests = tmp_path / "cluster.yaml"
    manifests.write_text(CLUSTER + (CONFIG_MAP if among else ""))
    of_node = ("-f", manifests, "--node", "n1")
    off = ("--metrics-port", "0", "--healthz-port", "0")
    with fresh_namespace() as name:
        given = ("--netns", name, "--mode", mode)
        wrote = kproxy("run", *of_node, *given, "--once", *off, *(() if among else flags))
        assert wrote.returncode == 0, wrote.stderr
        if mode == "iptables":
            assert "nfacct" in run("iptables-nft-save", namespace=name)
        done = kproxy("drift", *of_node, *given)
        assert (done.returncode, "no drift" in done.stdout) == (0, True), done.stdout
        assert told in done.stderr
        assert bool(told) is ("configuration is not known" in done.stderr)
        if mode == "iptables":
            asked = kproxy("drift", *of_node, *given, "--feature", "nfacct=off")
            assert (asked.returncode, "ct_state_invalid_dropped_pkts" in asked.stdout) == (1, True)
            run("iptables-nft", "-t", "nat", "-D", "KUBE-NODEPORTS", "1", namespace=name)
            assert "rule-missing" in kproxy("drift", *of_node, *given).stdout


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_a_service_that_has_rules_and_no_slices_in_the_manifests_is_not_judged(
    kproxy: Run, tmp_path: Path, mode: str
) -> None:
    api = CLUSTER.replace("web", "api").replace("10.96.0.9", "10.96.0.8").replace("96::9", "96::8")
    node, web, *slices = yaml.safe_load(CLUSTER)["items"]
    more = yaml.safe_load(api.replace("30080", "30081"))["items"][1:]
    whole, half = tmp_path / "whole.yaml", tmp_path / "half.yaml"
    whole.write_text(yaml.safe_dump_all([node, web, *slices, *more]))
    half.write_text(yaml.safe_dump_all([node, web, *more]))
    with fresh_namespace() as name:
        given = ("--node", "n1", "--netns", name, "--mode", mode)
        assert kproxy("apply", "-f", whole, *given).returncode == 0
        before = run("nft", "list", "ruleset", namespace=name)
        done = kproxy("drift", "-f", half, *given)
        assert (done.returncode, "shop/web not judged: no drift" in done.stdout) == (2, True), done.stdout
        assert "no EndpointSlice: shop/web" in done.stderr
        report = json.loads(kproxy("drift", "-f", half, *given, "-o", "json").stdout)
        assert (report["findings"], report["packets"], report["unjudged"]) == ([], [], ["shop/web"])
        assert [each["what"] for each in report["unseen"]] == ["endpoints"]
        done = kproxy("drift", "-f", half, *given, "--repair")
        assert (done.returncode, "nothing was mended" in done.stderr) == (2, True)
        assert run("nft", "list", "ruleset", namespace=name) == before
        assert kproxy("drift", "-f", whole, *given).returncode == 0


def test_rules_of_others_are_no_drift(kproxy: Run, namespace: str) -> None:
    run("iptables-nft", "-I", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT", namespace=namespace)
    run("iptables-nft", "-t", "nat", "-N", "DOCKER", namespace=namespace)
    run("iptables-nft", "-t", "nat", "-A", "PREROUTING", "-j", "DOCKER", namespace=namespace)
    assert kproxy("drift", *MINI, "--netns", namespace).returncode == 0


def test_each_difference_has_its_service_and_its_meaning(kproxy: Run, namespace: str) -> None:
    chain = "KUBE-SVC-GCRHHKL6ZB4XAFBC"
    run("iptables-nft", "-t", "nat", "-D", chain, "1", namespace=namespace)
    run("iptables-nft", "-t", "nat", "-I", "KUBE-SERVICES", "-p", "udp", "-j", "RETURN", namespace=namespace)
    run("iptables-nft", "-D", "INPUT", "1", namespace=namespace)
    done = kproxy("drift", *MINI, "--netns", namespace, "-o", "json")
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert [finding["kind"] for finding in findings] == ["rule-missing", "rule-extra", "jump-missing"]
    missing, extra, jump = findings
    assert missing["service"] == "default/crd-array-watchers"
    assert missing["chain"] == chain
    assert (extra["chain"], extra["rule"], extra["found"]) == ("KUBE-SERVICES", 1, "-p udp -j RETURN")
    assert (jump["chain"], jump["wanted"]) == ("INPUT", "-j KUBE-FIREWALL")
    assert all(finding["meaning"] for finding in findings)
    packets = json.loads(done.stdout)["packets"]
    door = "10.103.198.138:8080/tcp from anywhere but 10.244.0.0/16"
    assert packets[0] == (
        f"IPv4: Service default/crd-array-watchers (TCP): packets to {door}, arriving, the new destination is not this "
        f"host, mark 0x0/0x4000; {door}, made by this host, mark 0x0/0x4000: A, as wanted, rewrites the source "
        "(MASQUERADE --random-fully); B, as found, leaves the source as it is"
    )
    text = kproxy("drift", *MINI, "--netns", namespace).stdout
    assert "[Service default/crd-array-watchers]" in text
    assert f"packets: {packets[0]}" in text
    assert "3 differences" in text


def test_repair_mends_exactly_that(kproxy: Run, namespace: str) -> None:
    before = save("iptables-nft", namespace)
    run("iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES", namespace=namespace)
    run("iptables-nft", "-t", "mangle", "-X", "KUBE-PROXY-CANARY", namespace=namespace)
    done = kproxy("drift", *MINI, "--netns", namespace, "--repair")
    assert done.returncode == 0, done.stderr
    assert "differences, all mended" in done.stdout
    assert "packets to 10.96.0.10 (port 53/tcp, port 53/udp) from anywhere: A, as wanted, " in done.stdout
    assert save("iptables-nft", namespace) == before
    assert kproxy("drift", *MINI, "--netns", namespace).returncode == 0


def test_rules_in_the_other_variant(kproxy: Run, namespace: str) -> None:
    kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy", "-4")
    arguments = (*MINI, "--netns", namespace, "--variant", "nft")
    done = kproxy("drift", *arguments, "-o", "json")
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert {(each["kind"], each["variant"]) for each in findings} == {("other-variant", "legacy")}
    assert [each["table"] for each in findings] == ["mangle", "nat", "filter"]
    assert "KUBE-SVC-GCRHHKL6ZB4XAFBC" in findings[1]["found"].split()
    assert "legacy nat: other-variant\n  found:  KUBE-" in kproxy("drift", *arguments).stdout
    assert kproxy("drift", *arguments, "--repair").returncode == 0
    assert "KUBE" not in run("iptables-legacy-save", namespace=namespace)
    assert kproxy("drift", *arguments).returncode == 0


def test_what_the_kubelet_keeps_in_the_other_variant_is_no_drift(kproxy: Run, namespace: str) -> None:
    text = (
        "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
        "*filter\n:KUBE-FIREWALL - [0:0]\n-I INPUT -j KUBE-FIREWALL\nCOMMIT\n"
    )
    run("iptables-legacy-restore", "--noflush", namespace=namespace, text=text)
    done = kproxy("drift", *MINI, "--netns", namespace, "--variant", "nft")
    assert (done.returncode, "no drift" in done.stdout) == (0, True)


def test_a_flushed_table(kproxy: Run, namespace: str) -> None:
    run("iptables-nft", "-t", "nat", "-F", namespace=namespace)
    done = kproxy("drift", *MINI, "--netns", namespace, "-o", "json")
    kinds = [(finding["kind"], finding["table"]) for finding in json.loads(done.stdout)["findings"]]
    assert ("table-flushed", "nat") in kinds


def test_a_dormant_table(kproxy: Run, namespace: str) -> None:
    """iptables-nft shows and does nothing of it, and the kernel calls no chain."""
    before = save("iptables-nft", namespace)
    for table in ("nat", "mangle"):
        run("nft", f"add table ip {table} {{ flags dormant ; }}", namespace=namespace)
    assert save("iptables-nft", namespace) == before
    done = kproxy("drift", *MINI, "--netns", namespace, "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, [(each["kind"], each["table"]) for each in report["findings"]]) == (
        1, [("table-dormant", "nat")],
    )  # fmt: skip
    assert any(
        "B, as found, sends all to 10.100.116.139:8080 (source as it is)" in text for text in report["packets"]
    ), report["packets"]
    applied = kproxy("apply", *MINI, "--netns", namespace, "--dry-run")
    assert "table nat was dormant" in applied.stdout + applied.stderr
    assert kproxy("drift", *MINI, "--netns", namespace, "--repair").returncode == 0
    assert "dormant" not in run("nft", "-t", "list", "table", "ip", "nat", namespace=namespace)
    assert "dormant" in run("nft", "-t", "list", "table", "ip", "mangle", namespace=namespace), "only a canary is there"
    assert save("iptables-nft", namespace) == before
    assert kproxy("drift", *MINI, "--netns", namespace).returncode == 0


def test_what_is_unknown(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    assert kproxy("drift", *MINI, "--netns", "kp-is-not-there").returncode == 2
    done = kproxy("drift", *MINI, "--netns", namespace, prefix=only_these_programs(tmp_path))
    assert done.returncode == 2
    assert "whether there is drift is unknown" in done.stderr


def test_a_family_whose_iptables_is_not_installed(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    """What was not looked at is not called free of drift, nor is what was found there kept back."""
    for suffix in ("restore", "save"):
        real = find_program(f"iptables-nft-{suffix}")
        assert real is not None
        shutil.copy(real, tmp_path / f"iptables-nft-{suffix}")  # what it does, it knows by its name
    machine = only_these_programs(tmp_path)
    done = kproxy("drift", *MINI, "--netns", namespace, prefix=machine)
    assert done.returncode == 2
    assert "IPv6 not looked at: no drift" in done.stdout
    assert "whether there is drift in IPv6 is unknown: its iptables is not installed (-4: only the" in done.stderr
    assert json.loads(kproxy("drift", *MINI, "--netns", namespace, "-o", "json", prefix=machine).stdout)["unread"]
    assert kproxy("drift", *MINI, "--netns", namespace, "-4", prefix=machine).returncode == 0
    run("iptables-nft", "-t", "nat", "-D", "KUBE-SVC-GCRHHKL6ZB4XAFBC", "1", namespace=namespace)
    done = kproxy("drift", *MINI, "--netns", namespace, prefix=machine)
    assert (done.returncode, "1 difference" in done.stdout) == (1, True)


def test_what_a_live_cluster_outgrows_is_in_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two differences at first, one of which stays, at another number; both readings wait for a moment."""
    lasting = Drift("IPv4", "nft", "rule-missing", "nat", "KUBE-SERVICES", "", "shop/web", 3)
    passing = Drift("IPv4", "nft", "chain-missing", "nat", "KUBE-SVC-A", "", "shop/dns")
    moved = msgspec.structs.replace(lasting, rule=4)
    reports = [DriftReport("n1", "here", "nft", "", found) for found in ((moved, passing), (moved,))]
    waits: list[float] = []
    monkeypatch.setattr(drift, "find_drift", lambda *_args: reports.pop(0))
    monkeypatch.setattr("time.sleep", waits.append)
    first = DriftReport("n1", "here", "nft", "", (lasting, passing))
    settled = drift._settled(first, MagicMock(), Mock())
    assert (settled.findings, settled.moving, waits) == ((lasting,), 1, [2.0, 2.0])
    assert "1 change in motion: found at first, and gone when it was read again" in describe(settled)


def test_lines_fit_a_terminal() -> None:
    meaning = "traffic to the Service goes to other endpoints than it should, " * 3
    rule = "-m comment --comment default/web -m statistic --mode random --probability 0.5 -j KUBE-SEP-AAAAAAAAAAAAAAAA"
    finding = Drift("IPv4", "nft", "rule-missing", "nat", "KUBE-SVC-A", meaning.strip(), "default/web", 1, rule)
    report = DriftReport("node-1", "here", "nft", "", (finding,), packets=(meaning.strip(),))
    lines = list(describe(report, 80))
    assert [line for line in lines if len(line) > 80] == [f"  wanted: {rule}"], "a rule is whole, to be copied"
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(describe(report)).split())


@pytest.mark.parametrize("command", ["apply", "drift"])
def test_comments_that_are_no_utf_8(kproxy: Run, namespace: str, command: str) -> None:
    ours, theirs = os.fsdecode(b"caf\xe9"), os.fsdecode(b"na\xefve")
    comment = ("-m", "comment", "--comment")
    run("iptables-nft", "-t", "nat", "-A", "PREROUTING", *comment, ours, "-j", "KUBE-SERVICES", namespace=namespace)
    run("iptables-nft", "-A", "INPUT", *comment, theirs, "-j", "ACCEPT", namespace=namespace)
    read_only = {"apply": "--dry-run", "drift": "-4"}[command]
    assert "caf\\xe9" in kproxy(command, *MINI, "--netns", namespace, read_only).stdout
    told = kproxy(command, *MINI, "--netns", namespace, read_only, "-o", "json").stdout
    assert ours in json.dumps(json.loads(told), ensure_ascii=False)
    assert kproxy(command, *MINI, "--netns", namespace, *["--repair"][: command == "drift"]).returncode == 0
    full = ["ip", "netns", "exec", namespace, "iptables-nft-save"]
    left = subprocess.run(full, capture_output=True, check=True).stdout
    assert b"caf\xe9" not in left
    assert b"na\xefve" in left


def test_ipvs_is_not_compared(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n")
    asked = [("-f", MINIKUBE / "cluster.yaml", "--config", config, "--node", "minikube"), MINI]
    run("ip", "link", "add", "kube-ipvs0", "type", "bridge", namespace=namespace)
    for given in asked:
        done = kproxy("drift", *given, "--netns", namespace, "-o", "json")
        assert (done.returncode, "IPVS" in done.stderr or "ipvs" in done.stderr) == (2, True)
        unseen = json.loads(done.stdout)["unseen"]
        assert [(each["what"], each["suspected"]) for each in unseen] == [("ipvs", True)]
        assert "ipvs" in kproxy("drift", *given, "--netns", namespace).stderr
