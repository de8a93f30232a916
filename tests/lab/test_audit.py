"""`kproxy audit` of a lab: damage that a script does is named, with node, Service and rule; nothing else is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.lifecycle import processes
from tests.support.cli import run_kproxy
from tests.support.lab.audit_damages import DAMAGES, NFTABLES_DAMAGES, Damage
from tests.support.lab.labtools import Lab, deployment, lab_up, service

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module", params=["iptables", "nftables"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose proxies write rules when something changes only, and whose overlay does nothing more."""
    folder = tmp_path_factory.mktemp("labs")
    config = folder / "config.yaml"
    config.write_text(
        "apiVersion: kproxy/v1\nkind: Lab\nproxy: {config: {iptables: {syncPeriod: 2h}, nftables: {syncPeriod: 2h}}}\n"
    )
    with lab_up(folder, "--config", str(config), "--mode", request.param) as lab:
        build(lab)
        stop_overlays(lab, "STOP")
        try:
            yield lab
        finally:
            stop_overlays(lab, "CONT")


def build(lab: Lab) -> None:
    """The Services of `audit_damages`."""
    web, dns, edge = {"app": "web"}, {"app": "dns"}, {"app": "edge"}
    lab.apply(
        deployment("web1", 1, node="node-1", labels=web),
        deployment("web2", 1, node="node-2", labels=web),
        deployment("dns", 1, ((53, "UDP"),), node="node-2", labels=dns),
        deployment("edge", 1, ((8443, "TCP"),), node="node-3", labels=edge),
        service("web", "web", type="NodePort"),
        service("dns", "dns", ((53, 53, "UDP"),)),
        service("edge", "edge", ((443, 8443, "TCP"),), type="NodePort"),
    )
    for name, number, port in (("web", 30080, 0), ("edge", 30443, 0)):
        patch = [{"op": "replace", "path": f"/spec/ports/{port}/nodePort", "value": number}]
        lab.kubectl("patch", "service", name, "--type=json", "-p", json.dumps(patch))
    lab.settled(
        lambda found: (
            sum(pod.ready for pod in found.pods) == 4
            and [len(found.service(name).ports[0].endpoints) for name in ("web", "dns", "edge")] == [2, 1, 1]
        )
    )


def stop_overlays(lab: Lab, signal: str) -> None:
    for process in processes.find(lab.directory):
        if process.role.startswith("overlay/"):
            subprocess.run(["kill", f"-{signal}", str(process.pid)], check=True)


def names_of(lab: Lab) -> dict[str, str]:
    """What words in commands stand for."""
    cluster = lab.cluster()
    pods = {pod.name.rpartition("/")[2].partition("-")[0]: pod.addresses[0] for pod in cluster.pods}
    nodes = json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
    cidrs = {node["metadata"]["name"]: node["spec"]["podCIDR"] for node in nodes}
    links = subprocess.run(
        ["ip", "-json", "-n", cluster.node("node-1").namespace, "-d", "link", "show", "type", "vxlan"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = {"WEB1": pods["web1"], "WEB2": pods["web2"], "DNS2": pods["dns"], "EDGE3": pods["edge"]}
    found |= {f"CIDR{number}": cidrs[f"node-{number}"] for number in (1, 2, 3)}
    found |= {f"ADDRESS{number}": cluster.node(f"node-{number}").addresses[0] for number in (1, 2, 3)}
    return {
        **found, "VIPDNS": cluster.service("dns").cluster_ips[0], "VXLAN": json.loads(links)[0]["ifname"],
    }  # fmt: skip


def replaced(text: str, names: dict[str, str]) -> str:
    for word, value in names.items():
        text = text.replace(word, value)
    return text


def shell(lab: Lab, damage: Damage, text: str, folder: Path) -> None:
    text = text.replace("/tmp/$KEEP", str(folder / "kept"))
    namespace = f"kp-lab-{lab.name}-{damage.node}"
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "sh", "-ec", text], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{damage.name}: {text}: {done.stderr}"


def audited(lab: Lab, *source: str) -> list[Any]:
    """The findings but those that only inform."""
    done = run_kproxy("audit", *source, "-o", "json", environment=lab.environment, timeout=180)
    assert done.returncode in (0, 1), done.stderr
    findings = json.loads(done.stdout)["findings"]
    return [each for each in findings if each["severity"] != "info"]


def counted(findings: list[Any]) -> list[tuple[str, int, int]]:
    """What redaction keeps of findings: their kinds, and of how many nodes and Services."""
    return sorted((each["kind"], len(each["nodes"]), len(each["services"])) for each in findings)


def problems(lab: Lab, damage: Damage, names: dict[str, str], folder: Path) -> list[str]:
    """What is said of a damage that is not as it should be: live, from a snapshot then, and from that one redacted."""
    shell(lab, damage, replaced(damage.do, names), folder)
    try:
        live = audited(lab, "--lab", lab.name)
        snapshot = folder / f"{damage.name}.tar.gz"
        run_kproxy("collect", "--lab", lab.name, "-o", str(snapshot), environment=lab.environment, timeout=180)
        kept = audited(lab, str(snapshot))
    finally:
        shell(lab, damage, replaced(damage.undo, names), folder)
    redacted = folder / f"{damage.name}.redacted.tar.gz"
    done = run_kproxy("collect", "--from", str(snapshot), "--redact", "-o", str(redacted), environment=lab.environment)
    assert done.returncode == 0, done.stderr
    told = []
    if (hidden := counted(audited(lab, str(redacted)))) != counted(kept):
        told.append(f"redacted: {damage.name}: {hidden}, and not {counted(kept)}")
    for where, found in (("live", live), ("snapshot", kept)):
        mine = [each for each in found if each["kind"] == damage.kind]
        summary = [(each["kind"], each["nodes"], each["services"]) for each in found]
        right = mine and mine[0]["nodes"] == [damage.node]
        if not right or (damage.services and mine[0]["services"] != list(damage.services)):
            told.append(f"{where}: {damage.name}: {summary}")
        elif damage.rule and not any(damage.rule.split()[0] in each["text"] for each in mine[0]["rules"]):
            told.append(f"{where}: {damage.name}: {mine[0]['rules']}")
    return told


@pytest.mark.soak
def test_a_lab_is_audited_right_whatever_is_done_to_it(lab: Lab, tmp_path: Path) -> None:
    names = names_of(lab)
    assert audited(lab, "--lab", lab.name) == []
    damages = NFTABLES_DAMAGES if lab.cluster().mode == "nftables" else DAMAGES
    told = [problem for damage in damages for problem in problems(lab, damage, names, tmp_path)]
    assert not told, "\n".join(told)
    assert audited(lab, "--lab", lab.name) == []


def test_what_a_node_of_a_lab_has_is_a_side_of_diff(lab: Lab) -> None:
    """By the lab's name and by the node's namespace: the same rules, read in two ways."""
    namespace = next(node.namespace for node in lab.cluster().nodes if node.name == "node-1")
    done = run_kproxy("diff", f"lab:{lab.name}@node-1", f"netns:{namespace}", environment=lab.environment, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "alike: every packet is treated the same" in done.stdout
    done = run_kproxy("diff", f"lab:{lab.name}@node-9", f"netns:{namespace}", environment=lab.environment)
    assert (done.returncode, "has no node 'node-9'" in done.stderr) == (2, True), done.stderr
