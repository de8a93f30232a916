"""Batches and the order in which chains may be deleted."""

from __future__ import annotations

import pytest

from kproxy.render import Batch, Plan
from kproxy.render.plan import deletion_order
from kproxy.services import ServicePortName

WEB = ServicePortName("shop", "web", "", "TCP")


def test_a_batch_is_one_restore_of_one_table() -> None:
    batch = Batch("nat", {"KUBE-SVC-A": "-A KUBE-SVC-A -j KUBE-SEP-A\n"}, ("KUBE-SEP-B",))
    assert batch.text == (
        "*nat\n:KUBE-SVC-A - [0:0]\n:KUBE-SEP-B - [0:0]\n-A KUBE-SVC-A -j KUBE-SEP-A\n-X KUBE-SEP-B\nCOMMIT\n"
    )


def test_callers_are_deleted_before_what_they_call() -> None:
    chains = ["KUBE-SEP-A", "KUBE-FW-A", "KUBE-SVL-A", "KUBE-EXT-A", "KUBE-SVC-A"]
    assert deletion_order(chains) == ("KUBE-FW-A", "KUBE-EXT-A", "KUBE-SVC-A", "KUBE-SVL-A", "KUBE-SEP-A")


def test_an_empty_plan_is_false_and_writes_nothing() -> None:
    plan = Plan(full=False, base={}, service_ports={})
    assert not plan
    assert plan.restore_text == ""
    assert list(plan.batches()) == []


def test_deletions_alone_make_a_plan() -> None:
    plan = Plan(full=False, base={}, service_ports={}, deletions=("KUBE-SVC-A", "KUBE-SEP-A"))
    assert plan
    assert [batch.deletions for batch in plan.batches(1)] == [("KUBE-SVC-A",), ("KUBE-SEP-A",)]


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
    assert [(batch.purpose, list(batch.chains)) for batch in plan.batches()] == [
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
