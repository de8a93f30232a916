"""Steps and runs: how much at once, in which order, and what stays together."""

from __future__ import annotations

import pytest

from kproxy.linux import steps
from kproxy.linux.binaries import Variant
from kproxy.linux.canonical import Place
from kproxy.linux.jumps import JumpEdit
from kproxy.linux.steps import Change, plan_runs, run_text

EDIT = JumpEdit("nat", "PREROUTING", ("-j KUBE-OLD",), ((1, "[1:2]", "-j KUBE-SERVICES"),))


def change(services: int) -> Change:
    writes: dict[Place, str] = {}
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


def test_legacy_has_one_transaction_for_each_table() -> None:
    (run,) = plan_runs(change(500), Variant.LEGACY)
    assert [step.table for step in run] == ["filter", "nat", "mangle"]


def test_a_small_change_is_one_process() -> None:
    (run,) = plan_runs(change(2), Variant.NFT)
    assert [step.table for step in run] == ["filter", "nat", "mangle"]
    assert run[1].text == (
        "*nat\n"
        + "".join(f":KUBE-{kind}-{n:016} - [0:0]\n" for n in range(2) for kind in ("SVC", "SEP"))
        + ":KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n"
        + "".join(f":KUBE-SEP-{n:016} - [0:0]\n" for n in range(2, 5))
        + ":KUBE-SVC-X - [0:0]\n"
        + "".join(f"-A KUBE-{kind}-{n:016} -j RETURN\n" for n in range(2) for kind in ("SVC", "SEP"))
        + "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n"
        + "-D PREROUTING -j KUBE-OLD\n[1:2] -I PREROUTING 1 -j KUBE-SERVICES\n"
        + "".join(f"-X KUBE-SEP-{n:016}\n" for n in range(2, 5))
        + "-X KUBE-SVC-X\nCOMMIT\n"
    )


def test_a_large_change_goes_leaf_first_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "CHAINS_PER_STEP", 10)
    monkeypatch.setattr(steps, "STEPS_PER_RUN", 3)
    wanted = change(20)
    runs = plan_runs(wanted, Variant.NFT)
    assert all(len(run) <= 3 for run in runs)
    flat = [step for run in runs for step in run]
    assert [step.purpose for step in flat] == [
        "base chains",
        *["service chains"] * 4,
        "table filter",
        "dispatch chains and jumps",
        "table mangle",
        "deletions",
        "deletions",
    ]
    for step in flat[1:5]:
        numbers = sorted(chain[9:] for chain in step.chains)
        assert len(step.chains) == 10
        assert numbers[::2] == numbers[1::2], "a ServicePort's chains are in one transaction"
        kinds = [chain[:8] for chain in step.chains]
        assert kinds == sorted(kinds), "endpoint chains come first"
    assert flat[-1].deletions[0] == "KUBE-SVC-X"
    assert run_text(runs[0]).count("COMMIT\n") == 3


def test_without_owners_jumps_tell_what_belongs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "CHAINS_PER_STEP", 2)
    writes = {
        ("nat", "KUBE-SEP-A"): "-A KUBE-SEP-A -j RETURN\n",
        ("nat", "KUBE-SEP-B"): "-A KUBE-SEP-B -j RETURN\n",
        ("nat", "KUBE-SVC-B"): '-A KUBE-SVC-B -m comment --comment "x -j y" -j KUBE-SEP-B\n',
        ("nat", "KUBE-SVC-A"): "-A KUBE-SVC-A -j KUBE-SEP-A\n",
    }
    (run,) = plan_runs(Change(writes), Variant.NFT)
    assert [list(step.chains) for step in run] == [["KUBE-SEP-A", "KUBE-SVC-A"], ["KUBE-SEP-B", "KUBE-SVC-B"]]


def test_nothing_to_do_is_no_run() -> None:
    for variant in Variant:
        assert plan_runs(Change({}), variant) == []
