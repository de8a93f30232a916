"""`kproxy cleanup`: nothing of kube-proxy's is left, and nothing else changed."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Run
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.linux.suite import FOREIGN, FOREIGN_V6
from tests.support.machine import only_these_programs
from tests.support.recorded import MINIKUBE

pytestmark = pytest.mark.root

MINI = ("-f", MINIKUBE / "cluster.yaml", "--config", MINIKUBE / "config.yaml", "--node", "minikube")
COMMANDS = [f"{command}-{variant}" for command in ("iptables", "ip6tables") for variant in ("nft", "legacy")]


@pytest.fixture
def namespace() -> Iterator[str]:
    with fresh_namespace() as name:
        yield name


def saved(command: str, namespace: str) -> str:
    return re.sub(r"^#.*\n", "", run(f"{command}-save", "-c", namespace=namespace), flags=re.MULTILINE)


def test_both_variants_and_families(kproxy: Run, namespace: str) -> None:
    for command in COMMANDS:
        text = FOREIGN if command.startswith("iptables") else FOREIGN_V6
        run(f"{command}-restore", "--noflush", "--counters", namespace=namespace, text=text)
    before = {command: saved(command, namespace) for command in COMMANDS}
    for variant in ("nft", "legacy"):
        assert kproxy("apply", *MINI, "--netns", namespace, "--variant", variant).returncode == 0
    assert all(saved(command, namespace) != text for command, text in before.items())
    told = json.loads(kproxy("cleanup", "--netns", namespace, "--dry-run", "-o", "json").stdout)
    assert [each["jumpsDeleted"] for each in told["tables"]] == [14, 14, 14, 14, 0, 0], "the last two: of nftables mode"
    done = kproxy("cleanup", "--netns", namespace)
    assert done.returncode == 0, done.stderr
    assert {command: saved(command, namespace) for command in COMMANDS} == before
    assert kproxy("cleanup", "--netns", namespace).stdout.count(": none") == 6


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_what_kube_proxy_itself_programmed(kproxy: Run, namespace: str, variant: str) -> None:
    """The dump of a real node, without its counting rules, which need objects that a dump does not make."""
    for command, family in ((f"iptables-{variant}", "v4"), (f"ip6tables-{variant}", "v6")):
        dump = (MINIKUBE / f"{command}-save.{family}.txt").read_text()
        lines = [re.sub(r"-m nfacct --nfacct-name +\S+ ", "", line) for line in dump.splitlines()]
        run(f"{command}-restore", namespace=namespace, text="\n".join(lines) + "\n")
    assert kproxy("cleanup", "--netns", namespace).returncode == 0
    for command in COMMANDS:
        assert "KUBE" not in saved(command, namespace)


def test_tables_that_do_not_exist_are_not_made(kproxy: Run, namespace: str) -> None:
    kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft", "-4")
    kproxy("cleanup", "--netns", namespace)
    for name in ("ip_tables_names", "ip6_tables_names"):
        assert run("cat", f"/proc/net/{name}", namespace=namespace) == ""
    assert saved("ip6tables-nft", namespace) == ""


def test_the_lock_does_not_matter_where_there_are_no_legacy_tables(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft")
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = kproxy("cleanup", "--netns", namespace, "--lock-wait", "600")
        assert done.returncode == 0, done.stderr
        assert kproxy("drift", *MINI, "--netns", namespace, "--lock-wait", "600", "--variant", "nft").returncode == 1
    kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy", "-4")
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = kproxy("cleanup", "--netns", namespace, "--lock-wait", "0.2")
    assert done.returncode == 1
    assert f"IPv4 legacy: the xtables lock {tmp_path}/lock was not free within 0.2 s" in done.stderr
    assert "state: the kernel's rules are unchanged" in done.stderr


def test_nfacct_counters_go_too(kproxy: Run, namespace: str) -> None:
    kproxy("apply", *MINI, "--netns", namespace, "--feature", "nfacct=on", "-4")
    done = kproxy("cleanup", "--netns", namespace)
    assert "nfacct counters removed: ct_state_invalid_dropped_pkts, localhost_nps_accepted_pkts" in done.stdout


def test_a_namespace_that_is_not_there(kproxy: Run) -> None:
    assert kproxy("cleanup", "--netns", "kp-is-not-there").returncode == 2


def test_a_family_without_iptables_is_reported(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    for name in ("iptables-nft-save", "iptables-nft-restore"):
        found = shutil.which(name)
        assert found is not None
        shutil.copy(found, tmp_path / name)
    done = kproxy("cleanup", "--netns", namespace, prefix=only_these_programs(tmp_path))
    assert done.returncode == 0
    assert "IPv6 was not looked at: ip6tables is not installed" in done.stderr
    assert "IPv4" not in done.stderr
