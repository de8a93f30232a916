"""Random edits of kube-proxy's table: drift names each, and mends it and nothing else.

In the kernel, beside tables of others, a chain of others in kube-proxy's own table, and rules of iptables. The normal
suite has every kind of edit once in one family.
"""

from __future__ import annotations

import random
import re

import pytest

from kproxy.linux.drift.find import DriftReport, find_drift
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.executor import NftExecutor, find_nft
from kproxy.linux.sync.apply import apply_node, prepare_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.linux.sync.nftables.backend import PreparedTable
from kproxy.render import select_target
from kproxy.services import IPFamily
from tests.support.examples import spread
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.kernel.table_edits import TABLE_KINDS, Edit, TableEditor
from tests.support.linux.nft_tables import comparable
from tests.support.recorded import CLUSTERS, load_nftables

pytestmark = pytest.mark.root

DUAL_STACK = [CLUSTERS[number] for number in (5, 6, 7)]
OTHERS = """\
table inet wall {
	chain input {
		type filter hook input priority filter; policy accept;
		tcp dport 22 accept
	}
}
"""
FOREIGN = "add chain {t} mine {{ type filter hook forward priority 5 ; }}\nadd rule {t} mine tcp dport 9 accept\n"
NAMES = re.compile(r"(?:chain|rule|element|set|map) ip6? kube-proxy (\S+)")


@pytest.mark.parametrize(
    ("family", "group"),
    spread([(family, group) for family in IPFamily for group in range(len(DUAL_STACK))], 1, 1),
)
def test_each_edit_is_named_and_mended(family: IPFamily, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What drift means for packets has tests of its own, and would be most of this one's time.
    monkeypatch.setattr("kproxy.linux.drift.judge.packet_effects", lambda *_arguments: [])
    manifests, config = load_nftables(DUAL_STACK[group])
    request = NodeRequest(
        select_target(manifests.nodes, config), config, manifests.services, manifests.endpoint_slices, (family,),
        service_cidrs=manifests.service_cidrs,
    )  # fmt: skip
    kinds = sorted(TABLE_KINDS, key=str)
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        run("nft", "-f", "-", namespace=name, text=OTHERS)
        run("iptables-nft", "-A", "FORWARD", "-p", "udp", "-j", "ACCEPT", namespace=name)
        apply_node(request, namespace)
        executor = NftExecutor(namespace, find_nft(), family)
        executor.run(FOREIGN.format(t=executor.table))
        before = snapshot(name, executor)
        (prepared,) = prepare_node(request, namespace, writes=False).families
        assert isinstance(prepared, PreparedTable)
        editor = TableEditor(prepared.desired.text, family, random.Random(f"{family.value} {group}"))
        written = record_writes(monkeypatch)
        for kind in kinds:
            edit = editor.edit(kind)
            run("nft", "-f", "-", namespace=name, text=edit.text)
            written.clear()
            report = find_drift(request, namespace)
            assert written == [], edit
            check_named(edit, report)
            assert find_drift(request, namespace, repair=True).findings == report.findings
            touched = {place for script in written for place in NAMES.findall(script)}
            if kind == "delete_table":
                executor.run(FOREIGN.format(t=executor.table))  # that went with the table
            else:
                assert touched == {each.chain or each.set for each in report.findings} - {""}, edit
            assert snapshot(name, executor) == before, edit
        assert find_drift(request, namespace).findings == ()


def check_named(edit: Edit, report: DriftReport) -> None:
    """Whatever was edited is found, and nothing else."""
    found = {(each.kind, each.chain or each.set, each.wanted) for each in report.findings}
    assert {place for _, place, _ in found} == {said.place for said in edit.said}, edit
    for said in edit.said:
        assert any(found_kind == said.kind and place == said.place and said.wanted in (None, wanted)
                   for found_kind, place, wanted in found), (said, found)  # fmt: skip
    assert all(each.explanation for each in report.findings)


def record_writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every script that is carried out from now on."""
    written: list[str] = []
    really = NftExecutor.run

    def carry_out(self: NftExecutor, script: str) -> None:
        written.append(script)
        really(self, script)

    monkeypatch.setattr(NftExecutor, "run", carry_out)
    return written


def snapshot(namespace: str, executor: NftExecutor) -> list[object]:
    """All rules, counters left out."""
    others = [run("nft", "list", "table", "inet", "wall", namespace=namespace)]
    others.append(re.sub(r"^#.*\n", "", run("iptables-nft-save", namespace=namespace), flags=re.MULTILINE))
    return [*others, comparable(executor.list_table())]
