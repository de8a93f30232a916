"""What every executor must make true: run against the kernel in memory, and in network namespaces against the real
one."""

from __future__ import annotations

import contextlib
import random
import re

import pytest

from kproxy.linux.errors import ApplyFailedError, KernelState
from kproxy.linux.iptables.executor import Executor, parse_dump
from kproxy.linux.iptables.ownership import owned_chains
from kproxy.linux.sync.iptables import reconcile
from kproxy.linux.sync.iptables.describe import family_findings
from kproxy.linux.sync.iptables.desired import DesiredRules, desired_rules, find_difference
from kproxy.linux.sync.iptables.reconcile import cleanup_tables, family_report, read_dump, reconcile_rules
from kproxy.linux.sync.report import NOTHING, WOULD_CHANGE, FamilyReport
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText
from kproxy.services import IPFamily
from tests.support.linux.fake import Faulty, Killed, refused
from tests.support.recorded import CLUSTERS, MINIKUBE, render

FOREIGN = """\
*mangle
:OTHER-CANARY - [0:0]
COMMIT
*filter
:DOCKER-USER - [0:0]
:KUBE-KUBELET-HINTS - [0:0]
[3:180] -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
[5:400] -A FORWARD -j DOCKER-USER
[7:420] -A FORWARD -i docker0 -j ACCEPT
[9:540] -A DOCKER-USER -j RETURN
COMMIT
*nat
:DOCKER - [0:0]
[2:120] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
[4:240] -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
[6:360] -A DOCKER -i docker0 -j RETURN
COMMIT
"""
FOREIGN_V6 = FOREIGN.replace("172.17.0.0/16", "fd00:17::/64")

OLD = """\
*filter
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-SERVICES
COMMIT
*nat
:KUBE-MARK-DROP - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-XLB-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-FW-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-MARK-DROP -j MARK --or-mark 0x8000
-A KUBE-SERVICES -m comment --comment "old/svc loadbalancer IP" -j KUBE-FW-AAAAAAAAAAAAAAAA
-A KUBE-FW-AAAAAAAAAAAAAAAA -m comment --comment "old/svc loadbalancer IP" -j KUBE-XLB-AAAAAAAAAAAAAAAA
-A KUBE-FW-AAAAAAAAAAAAAAAA -m comment --comment "old/svc loadbalancer IP" -j KUBE-MARK-DROP
-A KUBE-XLB-AAAAAAAAAAAAAAAA -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -m comment --comment old/svc -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -m comment --comment old/svc -j KUBE-MARK-MASQ
COMMIT
"""


def wanted(case: int, family: IPFamily) -> DesiredRules:
    """What a recorded cluster wants; the last one is minikube."""
    return desired_rules(render([*CLUSTERS, MINIKUBE][case], family))


def fresh_text(case: int, family: IPFamily) -> str:
    return render([*CLUSTERS, MINIKUBE][case], family).save_text


def rules_of(executor: Executor) -> dict[str, dict[str, list[str]]]:
    """Every rule, without counters."""
    return rules_in(read_dump(executor, counters=False))


def rules_in(dump: SaveText) -> dict[str, dict[str, list[str]]]:
    return {
        table: {name: list(chain.rules) for name, chain in sorted(chains.items())}
        for table, chains in sorted(dump.tables.items())
    }


def foreign_lines(executor: Executor) -> list[str]:
    """Lines of others, counters included."""
    lines = []
    for line in executor.save(counters=True).splitlines():
        if line.startswith(("[", "*")) and "KUBE-" not in line.replace("KUBE-KUBELET-HINTS", ""):
            lines.append(line)
        if line.startswith((":DOCKER", ":OTHER", ":KUBE-KUBELET-HINTS")):
            lines.append(line)
    return lines


def reported(executor: Executor, rules: DesiredRules, *, dry_run: bool = False) -> FamilyReport:
    outcome = reconcile_rules(executor, rules, dry_run=dry_run)
    return family_report(executor, "", rules, outcome, dry_run)


class EngineSuite:
    """Needs a fixture `executor`."""

    def test_a_first_apply_gives_the_save_form_and_a_second_writes_nothing(self, executor: Executor) -> None:
        for case in (1, -1):
            assert reported(executor, wanted(case, executor.family)).result == "applied"
            assert rules_of(executor) == rules_in(parse_dump(fresh_text(case, executor.family)))
        counted = Faulty(executor)
        assert reported(counted, wanted(-1, executor.family)).result == NOTHING
        assert counted.restores == 0

    def test_a_dry_run_tells_the_same_and_writes_nothing(self, executor: Executor) -> None:
        counted = Faulty(executor)
        told = reported(counted, wanted(2, executor.family), dry_run=True)
        assert (told.result, counted.restores) == (WOULD_CHANGE, 0)
        done = reported(executor, wanted(2, executor.family))
        assert done.services == told.services
        assert done.jumps == told.jumps

    def test_there_and_back(self, executor: Executor) -> None:
        reconcile_rules(executor, wanted(3, executor.family))
        first = rules_of(executor)
        for case in (4, 5, 3):
            reconcile_rules(executor, wanted(case, executor.family))
        assert rules_of(executor) == first

    def test_rules_of_others_keep_their_order_and_counters(self, executor: Executor) -> None:
        executor.restore(FOREIGN_V6 if executor.family.is_ipv6 else FOREIGN)
        before = foreign_lines(executor)
        for case in (6, 7):
            reconcile_rules(executor, wanted(case, executor.family))
            assert foreign_lines(executor) == before
        cleanup_tables(executor)
        assert foreign_lines(executor) == before
        assert not owned_chains(read_dump(executor, counters=False))

    def test_what_older_releases_left_goes(self, executor: Executor) -> None:
        executor.restore(OLD)
        report = reported(executor, wanted(1, executor.family))
        assert rules_of(executor) == rules_in(parse_dump(fresh_text(1, executor.family)))
        removed = next(change for change in report.services if change.service == "old/svc")
        assert (removed.change, removed.chains_deleted) == ("removed", 4)
        assert {jump.kind for jump in report.jumps} == {"missing", "extra"}

    def test_a_chain_that_others_use_stays(self, executor: Executor) -> None:
        executor.restore(OLD)
        executor.restore("*nat\n:THEIRS - [0:0]\n-A THEIRS -j KUBE-SVC-AAAAAAAAAAAAAAAA\nCOMMIT\n")
        report = reported(executor, wanted(1, executor.family))
        stay = {"KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA"}
        assert {kept.chain for kept in report.kept} == stay
        assert stay <= rules_of(executor)["nat"].keys()
        assert cleanup_tables(executor).kept
        left = set(owned_chains(read_dump(executor, counters=False)))
        assert left == {("nat", chain) for chain in (*stay, "KUBE-MARK-MASQ")}

    @pytest.mark.parametrize("table", ["filter", "nat", "mangle"])
    def test_a_flushed_table_is_mended(self, executor: Executor, table: str) -> None:
        reconcile_rules(executor, wanted(8, executor.family))
        before = rules_of(executor)
        dump = read_dump(executor, counters=False)
        flushed = [f"-F {chain}\n" for chain in dump.tables[table]]
        deleted = [f"-X {chain}\n" for name, chain in owned_chains(dump) if name == table]
        executor.restore("".join([f"*{table}\n", *flushed, *deleted, "COMMIT\n"]))
        assert rules_of(executor) != before
        rules = wanted(8, executor.family)
        dump = read_dump(executor, counters=False)
        findings = family_findings(rules, dump, find_difference(rules, dump), executor.variant)
        assert ("table-flushed", table) in {(finding.kind, finding.table) for finding in findings}
        reconcile_rules(executor, rules)
        assert rules_of(executor) == before

    def test_a_failing_batch_leaves_what_was_there(self, executor: Executor) -> None:
        executor.restore(FOREIGN_V6 if executor.family.is_ipv6 else FOREIGN)
        reconcile_rules(executor, wanted(9, executor.family))
        before = executor.save(counters=True)
        count = _transactions(wanted(10, executor.family), before, executor.variant)
        for fail_at in range(count):
            faulty = Faulty(executor, fail_at=fail_at, error=refused)
            with pytest.raises(ApplyFailedError, match="No such file or directory") as caught:
                reconcile_rules(faulty, wanted(10, executor.family))
            expected = KernelState.UNCHANGED if fail_at == 0 else KernelState.RESTORED
            assert caught.value.state is expected
            assert _undated(executor.save(counters=True)) == _undated(before)

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
    def test_an_interruption_leaves_what_was_there(
        self, executor: Executor, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reconcile_rules(executor, wanted(9, executor.family))
        before = rules_of(executor)
        for command in (lambda e: reconcile_rules(e, wanted(10, executor.family)), cleanup_tables):
            with pytest.raises(ApplyFailedError, match="interrupted") as caught:
                command(Faulty(executor, fail_at=1, error=interrupt))
            assert caught.value.state is KernelState.RESTORED
            assert rules_of(executor) == before

        def interrupted(*_arguments: object) -> None:
            raise interrupt

        monkeypatch.setattr(reconcile, "service_changes", interrupted)
        with pytest.raises(ApplyFailedError, match="interrupted") as caught:
            reported(executor, wanted(10, executor.family))
        assert caught.value.state is KernelState.APPLIED

    def test_when_nothing_can_be_put_back_it_says_which_part_is_new(self, executor: Executor) -> None:
        reconcile_rules(executor, wanted(9, executor.family))
        faulty = Faulty(executor, fail_at=1, error=refused, once=False)
        with pytest.raises(ApplyFailedError, match="partly applied") as caught:
            reconcile_rules(faulty, wanted(10, executor.family))
        assert caught.value.state is KernelState.PARTLY_APPLIED
        assert "KUBE-" in caught.value.detail

    def test_a_kill_between_any_two_transactions(self, executor: Executor) -> None:
        fresh = {case: rules_in(parse_dump(fresh_text(case, executor.family))) for case in (11, 12)}
        for fail_at in range(4):
            with contextlib.suppress(Killed):  # raised unless the apply has fewer transactions
                reconcile_rules(Faulty(executor, fail_at=fail_at), wanted(11, executor.family))
            reconcile_rules(executor, wanted(12, executor.family))
            assert rules_of(executor) == fresh[12]
        reconcile_rules(executor, wanted(11, executor.family))
        assert rules_of(executor) == fresh[11]

    def test_a_change_that_does_not_stay_is_taken_back(self, executor: Executor) -> None:
        reconcile_rules(executor, wanted(13, executor.family))
        before = rules_of(executor)
        with pytest.raises(ApplyFailedError, match="verification failed") as caught:
            reconcile_rules(_Meddler(executor), wanted(14, executor.family))
        assert caught.value.state is KernelState.RESTORED
        assert rules_of(executor) == before

    def test_jump_rules_are_put_right(self, executor: Executor) -> None:
        executor.restore(FOREIGN_V6 if executor.family.is_ipv6 else FOREIGN)
        rules = wanted(1, executor.family)
        reconcile_rules(executor, rules)
        before = executor.save(counters=True)
        jumps = rules.jumps[("filter", "FORWARD")]
        for edit in (
            f"-D FORWARD {jumps[0]}\n",
            f"-D FORWARD {jumps[-1]}\n-D FORWARD {jumps[1]}\n",
            f"-A FORWARD {jumps[2]}\n",
            f"-D FORWARD {jumps[0]}\n-A FORWARD {jumps[0]}\n",
            "-A OUTPUT -j KUBE-FORWARD\n",
            "-I FORWARD -j DROP\n",
        ):
            executor.restore(f"*filter\n{edit}COMMIT\n")
            report = reported(executor, rules)
            assert report.jumps
            if "DROP" in edit:
                kinds = {jump.kind for jump in report.jumps}
                assert kinds == {"misplaced"}
                executor.restore("*filter\n-D FORWARD -j DROP\nCOMMIT\n")
            assert _undated(executor.save(counters=True)) == _undated(before), edit
        executor.restore("*filter\n-I FORWARD -s 192.0.2.1 -j DROP\nCOMMIT\n" if not executor.family.is_ipv6 else "")
        assert not reconcile_rules(executor, rules).difference

    def test_cleanup_leaves_the_kubelets_chain(self, executor: Executor) -> None:
        reconcile_rules(executor, wanted(-1, executor.family))
        executor.restore("*nat\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n")
        cleanup_tables(executor)
        assert owned_chains(read_dump(executor, counters=False)) == [("filter", "KUBE-FIREWALL")]
        assert rules_of(executor)["filter"]["INPUT"] == ["-j KUBE-FIREWALL"]

    def test_a_failing_cleanup_leaves_what_was_there(self, executor: Executor) -> None:
        reconcile_rules(executor, wanted(-1, executor.family))
        before = rules_of(executor)
        with pytest.raises(ApplyFailedError) as caught:
            cleanup_tables(Faulty(executor, fail_at=1, error=refused))
        assert caught.value.state is KernelState.RESTORED
        assert rules_of(executor) == before

    @pytest.mark.parametrize("seed", range(4))
    def test_random_edits_are_named_and_mended(self, executor: Executor, seed: int) -> None:
        rng = random.Random(seed)
        executor.restore(FOREIGN_V6 if executor.family.is_ipv6 else FOREIGN)
        rules = wanted(rng.randrange(len(CLUSTERS)), executor.family)
        reconcile_rules(executor, rules)
        clean, others = rules_of(executor), foreign_lines(executor)
        for _ in range(13):
            text = random_edit(rng, read_dump(executor, counters=False))
            executor.restore(text)
            dump = read_dump(executor, counters=False)
            difference = find_difference(rules, dump)
            findings = family_findings(rules, dump, difference, executor.variant)
            touched = {(f.table, f.chain) for f in findings}
            for place in edited(text):
                assert place in touched or _harmless(text), (text, findings)
            if rules_in(dump) != clean:
                assert findings, text
            assert all(finding.explanation for finding in findings)
            reconcile_rules(executor, rules)
            assert rules_of(executor) == clean, text
            assert foreign_lines(executor) == others


class _Meddler(Faulty):
    """Somebody who changes a chain right after it was written, once."""

    def restore(self, text: str) -> None:
        super().restore(text)
        if self.restores == 1:
            super().restore("*nat\n-F KUBE-POSTROUTING\nCOMMIT\n")


def _transactions(rules: DesiredRules, saved: str, variant: Variant) -> int:
    from kproxy.linux.sync.iptables.reconcile import change_of, plan_runs

    dump = parse_dump(saved)
    change = change_of(find_difference(rules, dump), rules, dump)
    return sum(len(run) for run in plan_runs(change, variant))


def _undated(text: str) -> str:
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)


def random_edit(rng: random.Random, dump: SaveText) -> str:
    """Restore input that changes one thing of kube-proxy's."""
    places = owned_chains(dump)
    full = [place for place in places if (chain := dump.chain(*place)) is not None and chain.rules]
    table, name = rng.choice(full)
    chain = dump.chain(table, name)
    assert chain is not None
    number = rng.randrange(len(chain.rules))
    rule = chain.rules[number]
    kind = rng.choice(
        ("delete", "duplicate", "extra", "alter", "swap", "flush", "canary", "stale", "jump", "jump-twice", "jump-last")
    )
    if kind == "swap" and len(set(chain.rules)) < 2:
        kind = "delete"
    if kind == "canary":
        lines = "-X KUBE-PROXY-CANARY"
    elif kind == "stale":
        table, lines = "nat", f":KUBE-SVC-{rng.randrange(10**15):016} - [0:0]"
    elif kind == "delete":
        lines = f"-D {name} {number + 1}"
    elif kind == "duplicate":
        lines = f"-I {name} {rng.randrange(len(chain.rules)) + 1} {rule}"
    elif kind == "extra":
        lines = f"-I {name} {number + 1} -p udp -m udp --dport 7 -j RETURN"
    elif kind == "alter":
        lines = f"-D {name} {number + 1}\n-I {name} {number + 1} -p udp -m udp --sport 9 -j RETURN"
    elif kind == "flush":
        lines = f"-F {name}"
    elif kind == "swap":
        other = next(i for i, each in enumerate(chain.rules) if each != rule)
        low, high = sorted((number, other))
        first, second = chain.rules[low], chain.rules[high]
        lines = f"-D {name} {high + 1}\n-D {name} {low + 1}\n-I {name} {low + 1} {second}\n-I {name} {high + 1} {first}"
    else:
        table, source = rng.choice([("filter", "INPUT"), ("filter", "FORWARD"), ("filter", "OUTPUT")])
        builtin = dump.chain(table, source)
        assert builtin is not None
        jump = rng.choice([rule for rule in builtin.rules if "-j KUBE-" in rule])
        lines = {
            "jump": f"-D {source} {jump}",
            "jump-twice": f"-A {source} {jump}",
            "jump-last": f"-D {source} {jump}\n-A {source} {jump}",
        }[kind]
    return f"*{table}\n{lines}\nCOMMIT\n"


def edited(text: str) -> set[tuple[str, str]]:
    """The chains that restore input names."""
    table = text[1 : text.index("\n")]
    return {(table, line.split()[1]) for line in text.splitlines() if line.startswith("-")}


def _harmless(text: str) -> bool:
    """Whether an edit may leave things as they were: moving the last jump to the end where it is."""
    return text.count("\n-D ") == 1 and text.count("\n-A ") == 1
