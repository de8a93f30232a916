"""`kproxy apply`: what it does, what it prints, what it says when it cannot."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.linux.programs import find_program
from kproxy.services import IPFamily
from tests.support.cli import KPROXY, Run
from tests.support.kernel.namespaces import NOBODY, fresh_namespace, save, split_tables
from tests.support.kernel.namespaces import run as run_command
from tests.support.machine import only_these_programs
from tests.support.recorded import CLUSTERS, MINIKUBE, render

pytestmark = pytest.mark.root

MINI = ("-f", MINIKUBE / "cluster.yaml", "--config", MINIKUBE / "config.yaml", "--node", "minikube")


@pytest.fixture
def namespace() -> Iterator[str]:
    with fresh_namespace() as name:
        yield name


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_it_programs_both_families(kproxy: Run, namespace: str, variant: str) -> None:
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", variant)
    assert (done.returncode, done.stderr) == (0, "")
    assert "IPv4: applied" in done.stdout
    assert "default/crd-array-watcher  added: 3 chains written" in done.stdout
    for command, family in (("iptables", IPFamily.IPV4), ("ip6tables", IPFamily.IPV6)):
        assert save(f"{command}-{variant}", namespace) == split_tables(render(MINIKUBE, family).save_text)
    again = kproxy("apply", *MINI, "--netns", namespace)
    assert again.stdout.count("nothing to do") == 2
    assert f"{variant} iptables (kube-proxy's chains are there already)" in again.stdout


def test_one_family_only(kproxy: Run, namespace: str) -> None:
    done = kproxy("apply", *MINI, "--netns", namespace, "-6")
    assert done.returncode == 0
    assert "IPv4" not in done.stdout
    assert save("iptables-nft", namespace) == {}
    assert "KUBE-SERVICES" in save("ip6tables-nft", namespace)["nat"]


def test_json_tells_what_changed_and_how_long_it_took(kproxy: Run, namespace: str) -> None:
    case = CLUSTERS[0]
    kproxy("apply", *MINI, "--netns", namespace)
    arguments = ("-f", case / "cluster.yaml", "--config", case / "config.yaml", "--netns", namespace, "-o", "json")
    told = json.loads(kproxy("apply", *arguments, "--dry-run").stdout)
    done = json.loads(kproxy("apply", *arguments).stdout)
    assert (told["dryRun"], told["changed"], done["dryRun"], done["changed"]) == (True, True, False, True)
    first, real = told["families"][0], done["families"][0]
    assert (first["family"], first["result"], real["result"]) == ("IPv4", "would change", "applied")
    assert first["services"] == real["services"]
    gone = next(change for change in real["services"] if change["service"] == "default/crd-array-watcher")
    assert gone["change"] == "removed"
    assert {step["step"] for step in real["steps"]} == {"read", "compare", "write", "verify", "report"}
    assert all(step["seconds"] >= 0 for step in real["steps"])
    assert json.loads(kproxy("apply", *arguments).stdout)["changed"] is False


def test_a_dry_run_changes_nothing(kproxy: Run, namespace: str) -> None:
    done = kproxy("apply", *MINI, "--netns", namespace, "--dry-run")
    assert (done.returncode, "would change" in done.stdout) == (0, True)
    assert save("iptables-nft", namespace) == {}
    assert save("iptables-legacy", namespace) == {}


@pytest.mark.parametrize(
    ("name", "more"), [("apply", MINI), ("cleanup", ()), ("drift --repair", MINI)], ids=lambda each: str(each)[:9]
)
def test_the_machines_own_rules_need_a_yes(kproxy_on_the_machine: Run, name: str, more: tuple[str | Path, ...]) -> None:
    done = kproxy_on_the_machine(*name.split(), *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the machine's own rules" in done.stderr
    assert f"ip netns add NAME && kproxy {name} ... --netns NAME" in done.stderr
    assert "--yes" in done.stderr


def test_rules_in_the_other_variant_are_reported(kproxy: Run, namespace: str) -> None:
    kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy", "-4")
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft", "-4")
    assert done.returncode == 0
    assert "legacy variant holds 29 chains of kube-proxy's too" in done.stderr
    assert "kproxy cleanup" in done.stderr


def test_a_namespace_that_is_not_there(kproxy: Run) -> None:
    done = kproxy("apply", *MINI, "--netns", "kp-is-not-there")
    assert done.returncode == 2
    assert "network namespace 'kp-is-not-there' is not there" in done.stderr
    assert not Path("/run/netns/kp-is-not-there").exists()
    assert kproxy("apply", *MINI, "--netns", "/proc/self/ns/mnt").returncode == 2


def test_bad_manifests_touch_nothing(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: 3}\n")
    assert kproxy("apply", "-f", "bad.yaml", "--node", "n", "--netns", namespace).returncode == 2
    assert save("iptables-nft", namespace) == {}


def test_ipvs_mode_needs_a_kernel_with_ipvs(kproxy: Run, namespace: str) -> None:
    """Where there is none, nothing is written; the virtual machine's checks apply this mode."""
    config = CLUSTERS[0] / "config.ipvs.yaml"
    done = kproxy("apply", "-f", CLUSTERS[0] / "cluster.yaml", "--config", config, "--netns", namespace)
    if not Path("/proc/net/ip_vs").exists():
        assert (done.returncode, done.stdout) == (1, "")
        assert "IPVS" in done.stderr
        assert "unchanged" in done.stderr
        assert save("iptables-nft", namespace) == {}


def test_without_root(kproxy: Run, namespace: str) -> None:
    arguments = [str(each) for each in (*MINI, "--netns", namespace)]
    done = subprocess.run([*NOBODY, *KPROXY, "apply", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs root" in done.stderr
    assert "state: unchanged" in done.stderr


@pytest.mark.parametrize("command", ["apply", "drift", "cleanup"])
def test_root_without_the_capability(namespace: str, command: str) -> None:
    arguments = [str(each) for each in (*(MINI if command != "cleanup" else ()), "--netns", namespace)]
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *KPROXY, command, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2 if command == "drift" else 1, "")
    assert "root but lacks the capability CAP_NET_ADMIN" in done.stderr
    assert "state: unchanged" in done.stderr


def fake_tools(directory: Path, refuse: str, commands: tuple[str, ...]) -> None:
    """Wrappers of the real binaries that refuse input holding `refuse`, each line of it named as iptables would."""
    for command in commands:
        real = shutil.which(command)
        assert real is not None
        path = directory / command
        path.write_text(
            "#!/bin/sh\n"
            'case "$*" in *version*) exec ' + real + ' "$@";; esac\n'
            "input=$(mktemp)\n"
            'cat > "$input"\n'
            f"line=$(grep -n -e '{refuse}' \"$input\" | head -n 1 | cut -d: -f1)\n"
            'if [ -n "$line" ]; then\n'
            f'  echo "{command} v1.8.9: Couldn\'t load it" >&2\n'
            '  echo "Error occurred at line: $line" >&2\n'
            '  rm -f "$input"; exit 2\n'
            "fi\n"
            f'{real} "$@" < "$input"; code=$?; rm -f "$input"; exit $code\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_no_iptables(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    done = kproxy("apply", *MINI, "--netns", namespace, prefix=only_these_programs(tmp_path))
    assert done.returncode == 1
    assert "not installed" in done.stderr
    assert "unchanged" in done.stderr


def test_programs_that_are_not_in_path(kproxy: Run, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's PATH lacks /usr/sbin on Debian, and sudo may be told to keep it."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for command in ("apply", "drift"):
        done = kproxy(command, *MINI, "--netns", namespace)
        assert done.returncode == 0, done.stderr
    assert kproxy("cleanup", "--netns", namespace).returncode == 0


def test_the_variant_that_is_not_installed(kproxy: Run, namespace: str, tmp_path: Path) -> None:
    for command in ("iptables", "ip6tables"):
        for suffix in ("restore", "save"):
            real = find_program(f"{command}-nft-{suffix}")
            assert real is not None
            shutil.copy(real, tmp_path / f"{command}-{suffix}")  # what it does, it knows by its name
    machine = only_these_programs(tmp_path)
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy", prefix=machine)
    assert done.returncode == 1
    assert "of the legacy variant is not installed: iptables is of the nft variant" in done.stderr
    assert kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft", prefix=machine).returncode == 0


@pytest.mark.parametrize(
    ("refuse", "feature", "loss"),
    [
        ("-m statistic", "statistic", "all go to its first endpoint"),
        ("-m recent", "recent", "session affinity ClientIP has no effect"),
        ("-m addrtype", "addrtype", "node ports work on the addresses that interfaces have now"),
        ("--random-fully", "random-fully", "less randomly"),
        ("-m nfacct", "nfacct", "packets are not counted"),
        ("-m comment", "comment", "rules carry no comments"),
        ("REJECT", "REJECT", "clients wait"),
        ("-p sctp", "sctp", "SCTP ports do not work"),
        ("mangle", "table mangle", "no canary in table mangle"),
    ],
)
def test_a_missing_optional_feature_costs_only_itself(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: str, feature: str, loss: str
) -> None:
    fake_tools(tmp_path, refuse, ("iptables-nft-restore",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    case = CLUSTERS[3]
    arguments = ("-f", case / "cluster.yaml", "--config", case / "config.yaml", "--netns", namespace, "-4")
    extra = ("--feature", "nfacct=on") if feature == "nfacct" else ()
    done = kproxy("apply", *arguments, "--variant", "nft", *extra)
    assert done.returncode == 0, done.stderr
    assert f"{feature} cannot be used here" in done.stderr
    assert loss in " ".join(done.stderr.split())
    assert refuse not in run_command("iptables-nft-save", namespace=namespace)
    assert "-j DNAT" in run_command("iptables-nft-save", namespace=namespace)
    assert kproxy("drift", *arguments, "--variant", "nft", *extra).returncode == 0


@pytest.mark.parametrize(
    ("refuse", "feature"), [("DNAT", "DNAT"), ("-m conntrack", "conntrack"), ("MARK --or", "MARK")]
)
def test_a_missing_required_feature_is_named(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: str, feature: str
) -> None:
    fake_tools(tmp_path, refuse, ("iptables-nft-restore",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft", "-4")
    assert done.returncode == 1
    assert f"{feature}, needed for" in done.stderr
    assert "unchanged" in done.stderr
    assert save("iptables-nft", namespace) == {}


def test_a_family_that_the_host_cannot_do_is_left_alone(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tools(tmp_path, "nat", ("ip6tables-nft-restore",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft")
    assert done.returncode == 0
    assert "IPv6 is left alone" in done.stderr
    assert "KUBE-SERVICES" in save("iptables-nft", namespace)["nat"]
    assert kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft", "-4", "-6").returncode == 1
    fake_tools(tmp_path, "nat", ("iptables-nft-restore",))
    assert kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft").returncode == 1


def test_iptables_failing_in_the_middle(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CLUSTERS[3]
    kproxy("apply", *MINI, "--netns", namespace, "-4", "--variant", "nft")
    before = save("iptables-nft", namespace)
    fake_tools(tmp_path, "KUBE-SEP-2HOYKLJ74O6HO2NH -m comment", ("iptables-nft-restore",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    arguments = ("-f", case / "cluster.yaml", "--config", case / "config.yaml", "--netns", namespace)
    done = kproxy("apply", *arguments, "-4", "--variant", "nft")
    assert done.returncode == 1
    assert "KUBE-SEP-2HOYKLJ74O6HO2NH -m comment" in done.stderr
    assert "state: the kernel's rules are unchanged" in done.stderr
    assert save("iptables-nft", namespace) == before


def test_iptables_crashing_in_the_middle(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("ip6tables-nft-restore")
    fake = tmp_path / "ip6tables-nft-restore"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *version*) exec {real} "$@";; esac\n'
        f'cat > {tmp_path}/input\nif grep -q PREFLIGHT {tmp_path}/input; then exec {real} "$@" < {tmp_path}/input; fi\n'
        "kill -SEGV $$\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "nft")
    assert done.returncode == 1
    assert "IPv6: ip6tables 1" in done.stderr
    assert "was ended by signal 11" in done.stderr
    assert "(at least 0 of 3 transactions had been carried out)" in done.stderr
    assert "the rules of IPv4 are applied, those of IPv6 are unchanged" in done.stderr


def test_a_lock_that_another_process_holds(
    kproxy: Run, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock))
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy", "--lock-wait", "1")
    assert done.returncode == 1
    assert f"the xtables lock {lock} was not free within 1 s" in done.stderr
    assert f"process {os.getpid()}" in done.stderr
    assert "unchanged" in done.stderr


def test_a_lock_that_cannot_be_opened(kproxy: Run, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", "/proc/is-not-there")
    done = kproxy("apply", *MINI, "--netns", namespace, "--variant", "legacy")
    assert done.returncode == 1
    assert "cannot open the xtables lock" in done.stderr
    assert "lacks" not in done.stderr
    assert "unchanged" in done.stderr
