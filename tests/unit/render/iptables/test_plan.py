"""Batches and the order in which chains may be deleted."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.render import Plan
from kproxy.render.iptables.plan import Change, height, order_batches
from kproxy.services import ServicePortName

WEB = ServicePortName("shop", "web", "", "TCP")


def test_batches_in_order() -> None:
    plan = Plan(
        full=True,
        base={
            ("filter", "KUBE-FORWARD"): "",
            ("nat", "KUBE-SERVICES"): "",
            ("nat", "KUBE-NODEPORTS"): "",
            ("nat", "KUBE-POSTROUTING"): "",
            ("nat", "KUBE-MARK-MASQ"): "",
        },
        service_ports={WEB: {"KUBE-EXT-A": "", "KUBE-SVC-A": "", "KUBE-SEP-A": ""}},
        deletions=("KUBE-SEP-B",),
    )
    assert [(batch.purpose, len(batch.chains), batch.deletions) for batch in plan.batches()] == [
        ("refusals", 1, ()),
        ("nat chains", 7, ("KUBE-SEP-B",)),
    ], "what fits into one transaction is one"
    assert [(batch.purpose, list(batch.chains)) for batch in plan.batches(3)] == [
        ("refusals", ["KUBE-FORWARD"]),
        ("base chains", ["KUBE-POSTROUTING", "KUBE-MARK-MASQ"]),
        ("service chains", ["KUBE-SEP-A", "KUBE-SVC-A", "KUBE-EXT-A"]),
        ("dispatch chains", ["KUBE-SERVICES", "KUBE-NODEPORTS"]),
        ("deletions", []),
    ]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("", "a\n", [("refusals", "a\n")]),
        ("a\n", "", [("filter chains", "")]),
        ("a\n", "b\n", [("refusals", "b\na\n"), ("filter chains", "b\n")]),
        ("a\nb\n", "b\n", [("filter chains", "b\n")]),
        ("a\nb\n", "b\na\n", [("refusals", "b\na\n")]),
    ],
)
def test_refusals_come_before_nat_changes_and_go_after(old: str, new: str, wanted: list[tuple[str, str]]) -> None:
    place = ("filter", "KUBE-SERVICES")
    plan = Plan(
        full=False,
        base={place: new, ("nat", "KUBE-SERVICES"): "x"},
        service_ports={},
        previous={place: old},
    )
    batches = list(plan.batches())
    found = [(batch.purpose, batch.chains["KUBE-SERVICES"]) for batch in batches if batch.table == "filter"]
    assert found == wanted
    nat = next(i for i, batch in enumerate(batches) if batch.table == "nat")
    for i, batch in enumerate(batches):
        assert (i < nat) == (batch.purpose == "refusals")


class JumpEdit(msgspec.Struct, frozen=True):
    """An edit of a built-in chain."""

    table: str
    only_removes: bool
    text: str = "-D INPUT -j X\n"


@pytest.mark.parametrize("size", [None, 200, 1])
def test_jumps_to_refusals_come_before_nat_changes_and_go_after(size: int | None) -> None:
    edits = (JumpEdit("filter", True), JumpEdit("filter", False), JumpEdit("nat", False), JumpEdit("mangle", True))
    writes = {("nat", f"KUBE-{kind}-A"): "" for kind in ("SVC", "SEP")} | {("nat", "KUBE-SERVICES"): ""}
    deletions = [("filter", "KUBE-OLD"), ("nat", "KUBE-SEP-B"), ("mangle", "KUBE-OLD")]
    batches = list(order_batches(Change(writes, deletions, edits), size))
    order = [(batch.table, batch.edits) for batch in batches if batch.edits]
    assert order == [("filter", edits[1:2]), ("nat", edits[2:3]), ("filter", edits[:1]), ("mangle", edits[3:])]
    assert [batch.deletions for batch in batches if batch.table == "filter"] == [(), ("KUBE-OLD",)]
    dispatch = next(i for i, batch in enumerate(batches) if "KUBE-SERVICES" in batch.chains)
    assert next(i for i, batch in enumerate(batches) if "KUBE-SEP-A" in batch.chains) <= dispatch
    assert next(i for i, batch in enumerate(batches) if "KUBE-SEP-B" in batch.deletions) >= dispatch


def test_chains_of_older_releases_have_their_place() -> None:
    chains = ["KUBE-MARK-DROP", "KUBE-SEP-A", "KUBE-SVC-A", "KUBE-XLB-A", "KUBE-FW-A", "KUBE-PORTALS-HOST"]
    assert [height(chain) for chain in chains] == [-1, 0, 1, 2, 3, 4]
