"""Runs: how much at once, in which order, and what stays together."""

from __future__ import annotations

from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.sync.jumps import JumpEdit
from kproxy.linux.sync.restore_batches import Change, plan_runs, run_text
from kproxy.netfilter.hooks import Variant

EDIT = JumpEdit("nat", "PREROUTING", ("-j KUBE-OLD",), ((1, "[1:2]", "-j KUBE-SERVICES"),))


def change(services: int) -> Change:
    writes: dict[ChainRef, str] = {}
    groups: dict[str, object] = {}
    for number in range(services):
        for prefix in ("KUBE-SVC", "KUBE-SEP"):
            writes[("nat", f"{prefix}-{number:016}")] = f"-A {prefix}-{number:016} -j RETURN\n"
            groups[f"{prefix}-{number:016}"] = number
    writes[("filter", "KUBE-FORWARD")] = ""
    writes[("nat", "KUBE-MARK-MASQ")] = "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n"
    writes[("nat", "KUBE-SERVICES")] = ""
    writes[("mangle", "KUBE-PROXY-CANARY")] = ""
    deletions = [("nat", f"KUBE-SEP-{number:016}") for number in range(services, services + 3)]
    return Change(writes, [*deletions, ("nat", "KUBE-SVC-X"), ("filter", "KUBE-NODE-PORT")], (EDIT,), groups)


def test_with_legacy_the_nat_table_is_one_transaction() -> None:
    (run,) = plan_runs(change(500), Variant.LEGACY)
    assert [(batch.table, batch.purpose) for batch in run] == [
        ("filter", "refusals"),
        ("nat", "nat chains"),
        ("filter", "filter chains"),
        ("mangle", "table mangle"),
    ]
    assert run[2].deletions == ("KUBE-NODE-PORT",)


def test_a_small_change_is_one_process_and_one_transaction_of_the_nat_table() -> None:
    (run,) = plan_runs(change(2), Variant.NFT)
    assert [batch.table for batch in run] == ["filter", "nat", "filter", "mangle"]
    assert run[1].text == (
        "*nat\n"
        + "".join(f":KUBE-{kind}-{n:016} - [0:0]\n" for n in range(2) for kind in ("SVC", "SEP"))
        + ":KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n"
        + "".join(f":KUBE-SEP-{n:016} - [0:0]\n" for n in range(2, 5))
        + "".join(f"-A KUBE-{kind}-{n:016} -j RETURN\n" for n in range(2) for kind in ("SVC", "SEP"))
        + "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n"
        + "-D PREROUTING -j KUBE-OLD\n[1:2] -I PREROUTING 1 -j KUBE-SERVICES\n"
        + "-X KUBE-SVC-X\n"
        + "".join(f"-X KUBE-SEP-{n:016}\n" for n in range(2, 5))
        + "COMMIT\n"
    )


def test_a_large_change_goes_leaf_first_in_steps() -> None:
    runs = plan_runs(change(20), Variant.NFT, chains_per_batch=10, batches_per_run=3)
    assert all(len(run) <= 3 for run in runs)
    flat = [batch for run in runs for batch in run]
    assert [batch.purpose for batch in flat] == [
        "refusals",
        "base chains",
        *["service chains"] * 4,
        "dispatch chains",
        "filter chains",
        "table mangle",
        "deletions",
    ]
    for batch in flat[2:6]:
        numbers = sorted(chain[9:] for chain in batch.chains)
        assert len(batch.chains) == 10
        assert numbers[::2] == numbers[1::2], "a ServicePort's chains are in one transaction"
        kinds = [chain[:8] for chain in batch.chains]
        assert kinds == sorted(kinds), "endpoint chains come first"
    assert flat[6].edits == (EDIT,)
    assert flat[-1].deletions[0] == "KUBE-SVC-X"
    assert run_text(runs[0]).count("COMMIT\n") == 3


def test_without_owners_jumps_tell_what_belongs_together() -> None:
    writes = {
        ("nat", "KUBE-SEP-A"): "-A KUBE-SEP-A -j RETURN\n",
        ("nat", "KUBE-SEP-B"): "-A KUBE-SEP-B -j RETURN\n",
        ("nat", "KUBE-SVC-B"): '-A KUBE-SVC-B -m comment --comment "x -j y" -j KUBE-SEP-B\n',
        ("nat", "KUBE-SVC-A"): "-A KUBE-SVC-A -j KUBE-SEP-A\n",
    }
    (run,) = plan_runs(Change(writes), Variant.NFT, chains_per_batch=2)
    assert [list(batch.chains) for batch in run] == [["KUBE-SEP-A", "KUBE-SVC-A"], ["KUBE-SEP-B", "KUBE-SVC-B"]]


def test_nothing_to_do_is_no_run() -> None:
    for variant in Variant:
        assert plan_runs(Change({}), variant) == []
