"""apply, drift and cleanup in nftables mode: the recorded clusters, in the kernel."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kproxy.linux.drift.find import CannotTellError, find_drift
from kproxy.linux.errors import ApplyFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.sync.apply import apply_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.linux.sync.cleanup import cleanup
from kproxy.render import Target
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.nft_tables import comparable
from tests.support.recorded import CLUSTERS, SUFFIX, load, load_nftables

pytestmark = pytest.mark.root

SOME = CLUSTERS[3:80:40]


def request_for(case: Path, mode: str = "nftables") -> NodeRequest:
    """What the recorded cluster wants of its node-0."""
    manifests, config = load_nftables(case) if mode == "nftables" else load(case)
    node = next(node for node in manifests.nodes if node.metadata.name == "node-0")
    return NodeRequest(
        Target("node-0", node),
        config,
        manifests.services,
        manifests.endpoint_slices,
        service_cidrs=manifests.service_cidrs,
    )


def tables(namespace: Namespace) -> dict[IPFamily, list[str]]:
    """The tables of both families."""
    nft = find_nft()
    return {family: comparable(NftExecutor(namespace, nft, family).list_table()) for family in IPFamily}


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_apply_makes_the_table_that_kube_proxy_makes_and_cleanup_removes_it(case: Path) -> None:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        for suffix in SUFFIX.values():
            run("nft", "-f", str(case / f"kube-proxy.{suffix}.nft"), namespace=name)
        expected = tables(namespace)
        run("nft", "flush", "ruleset", namespace=name)
        request = request_for(case)
        dry = apply_node(request, namespace, dry_run=True)
        assert run("nft", "list", "ruleset", namespace=name) == ""
        report = apply_node(request, namespace)
        assert [each.services for each in report.families] == [each.services for each in dry.families]
        assert tables(namespace) == expected
        assert not apply_node(request, namespace).changed
        assert find_drift(request, namespace).findings == ()
        cleaned = cleanup(namespace)
        assert {each.family: each.chains_deleted for each in cleaned.tables if each.variant == "nftables"} == {
            each.family: each.chains_created for each in report.families
        }
        assert run("nft", "list", "tables", namespace=name) == ""


def test_the_modes_replace_one_another_and_leave_nothing() -> None:
    request, other = request_for(SOME[0]), request_for(SOME[0], "iptables")
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        apply_node(request, namespace)
        expected = tables(namespace)
        findings = find_drift(other, namespace).findings
        assert {(each.family, each.variant) for each in findings if each.kind == "other-mode"} == {
            ("IPv4", "nftables"),
            ("IPv6", "nftables"),
        }
        would = apply_node(other, namespace, dry_run=True).cleaned
        assert tables(namespace) == expected
        assert apply_node(other, namespace).cleaned == would
        assert "kube-proxy" not in run("nft", "list", "tables", namespace=name)
        assert "KUBE-SERVICES" in run("iptables-nft-save", namespace=name)
        assert not apply_node(other, namespace).changed
        assert {each.kind for each in find_drift(request, namespace).findings} == {"table-missing", "other-mode"}
        report = find_drift(request, namespace, repair=True)
        assert report.repaired
        assert tables(namespace) == expected
        for command in ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"):
            assert "KUBE" not in run(f"{command}-save", namespace=name)
        assert find_drift(request, namespace).findings == ()


def test_drift_names_the_service_and_is_repaired() -> None:
    request = msgspec.structs.replace(request_for(SOME[0]), families=(IPFamily.IPV4,))
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        apply_node(request, namespace)
        # Rules of others, as on every node: nft shows them, and not all that they say.
        for tool in ("iptables-nft", "ip6tables-nft"):
            run(tool, "-A", "INPUT", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "ACCEPT", namespace=name)
        executor = NftExecutor(namespace, find_nft(), IPFamily.IPV4)
        listing = run("nft", "list", "map", "ip", "kube-proxy", "service-ips", namespace=name)
        line = next(line for line in listing.splitlines() if " : goto service-" in line)
        key, chain = line.removeprefix("\t\telements = {").strip(" \t,}").split(" : goto ")
        port = "/".join(chain.split("-", 2)[2].split("/")[:2])
        t = executor.table
        executor.run(
            f"delete element {t} service-ips {{ {key} }}\nflush chain {t} {chain}\nadd rule {t} {chain} counter drop\n"
            f"flush chain {t} masquerading\nadd element {t} cluster-ips {{ 10.96.250.250 }}\n"
            f"add chain {t} mine\n"
        )
        report = find_drift(request, namespace)
        assert any(f"Service {port}" in each and "B, as found, " in each for each in report.packets), report.packets
        told = {(each.kind, each.chain or each.set): each for each in report.findings}
        assert set(told) == {
            ("rule-altered", chain),
            ("rule-missing", "masquerading"),
            ("element-missing", "service-ips"),
            ("element-extra", "cluster-ips"),
        }
        for kind in (("rule-altered", chain), ("element-missing", "service-ips")):
            assert told[kind].service.partition(":")[0] == port
            assert f"Service {port}" in told[kind].explanation
        assert told["element-missing", "service-ips"].wanted == f"{key} : goto {chain}"
        assert report.notes == (f"table {t} also holds what kube-proxy does not make, which stays: chain mine",)
        assert find_drift(request, namespace, repair=True).repaired
        assert find_drift(request, namespace).findings == ()
        run("nft", "list", "chain", *t.split(), "mine", namespace=name)
        run("nft", "delete", "table", *t.split(), namespace=name)
        report = find_drift(request, namespace)
        assert [each.kind for each in report.findings] == ["table-missing"]
        assert any("sends all to its own destination" in each for each in report.packets), report.packets


def test_a_table_that_stays_for_want_of_nft_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with the host's network may lack the tool that the host has; kube-proxy's nftables mode ran there."""
    other = request_for(SOME[0], "iptables")
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        with monkeypatch.context() as without:
            without.setattr("kproxy.linux.sync.cleanup.find_program", lambda _name: None)
            apply_node(other, namespace)
            assert not cleanup(namespace, dry_run=True).notes
        apply_node(request_for(SOME[0]), namespace)
        monkeypatch.setattr("kproxy.linux.sync.cleanup.find_program", lambda _name: None)
        with pytest.raises(ApplyFailedError, match=r"not all removed.*rules of the table ip kube-proxy; it stays.*nft"):
            apply_node(other, namespace)
        with pytest.raises(CannotTellError, match="table ip kube-proxy"):
            find_drift(other, namespace)
        with pytest.raises(ApplyFailedError, match="table ip kube-proxy"):
            cleanup(namespace)
        assert "table ip6 kube-proxy" in run("nft", "list", "tables", namespace=name)
