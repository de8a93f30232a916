"""`kproxy run` with no more than its DaemonSet gives it: few capabilities, a read-only root file system and sysctls."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from tests.support import paths
from tests.support.cli import KPROXY
from tests.support.kernel.namespaces import fresh_namespace, run, save
from tests.support.waiting import eventually

pytestmark = pytest.mark.root

ROOT = paths.ROOT
CLUSTER = ROOT / "rules_golden" / "minikube" / "cluster.yaml"
DNS = "10.96.0.10"
FEWEST = ["net_admin", "net_raw"]

ASK = "import urllib.request as r; print(r.urlopen('http://localhost:10249/proxyMode').read().decode(), end='')"

CONTAINER = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
: >/run/xtables.lock
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -o remount,bind,ro /
exec setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all "$@"
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    with fresh_namespace() as name:
        run("ip", "link", "set", "lo", "up", namespace=name)
        run("ip", "route", "add", "default", "dev", "lo", namespace=name)
        yield name


def manifest_capabilities() -> list[str]:
    daemonset: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "daemonset.yaml").read_text())
    context = daemonset["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"]["drop"] == ["ALL"]
    return [name.lower() for name in context["capabilities"]["add"]]


def may_lower_the_oom_score() -> bool:
    """Whether this machine's root has CAP_SYS_RESOURCE, bit 24, itself."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapBnd:")[2].split()[0], 16) >> 24 & 1)


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
@pytest.mark.parametrize("capabilities", [manifest_capabilities(), FEWEST], ids=["manifest", "fewest"])
def test_a_container_without_sys_admin(
    namespace: str, tmp_path: Path, variant: Variant, capabilities: list[str]
) -> None:
    """Rules, connection tracking, drift and the ports all work; only sysctls, which the init container sets, do not."""
    iptables = f"iptables-{variant.value}"
    stale = ["-p", "udp", "-s", "192.0.2.1", "-d", DNS, "--sport", "4321", "--dport", "53"]
    entry = [*stale, "-r", DNS, "-q", "192.0.2.1", "--reply-port-src", "53", "--reply-port-dst", "4321", "-t", "300"]
    log = tmp_path / "log"
    with log.open("w") as out:
        command = ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", CONTAINER, "sh"]
        command += [f"--bounding-set=-all,{','.join(f'+{name}' for name in capabilities)}", *KPROXY, "run"]
        command += ["-f", str(CLUSTER), "--node", "minikube", "--variant", variant.value, "--yes"]
        run("iptables-nft", "-A", "INPUT", "-m", "conntrack", "--ctstate", "NEW", namespace=namespace)
        run("conntrack", "-I", *entry, namespace=namespace)
        process = subprocess.Popen([*command, "--iptables-sync-period", "1s"], stdout=out, stderr=out)
    try:
        eventually(lambda: log.read_text().count(" synced ") >= 2, what=log.read_text)
        rules = save(iptables, namespace)
        assert "KUBE-SVC-HW2XM7FRY33HEVYM" in rules["nat"]
        assert not any("PREFLIGHT" in text for text in rules.values())
        assert "sport=4321" not in run("conntrack", "-L", "-p", "udp", namespace=namespace)
        run(iptables, "-t", "nat", "-F", "KUBE-SERVICES", namespace=namespace)
        eventually(lambda: "drift repaired" in log.read_text(), what=log.read_text)
        assert save(iptables, namespace) == rules
        assert run(sys.executable, "-c", ASK, namespace=namespace) == "iptables"
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(40)
    told = log.read_text()
    assert code == 0, told
    warnings = [line for line in told.splitlines() if line[0] in "WE"]
    harmless = ["cannot set a sysctl", "drift repaired"]
    if "sys_resource" not in capabilities or not may_lower_the_oom_score():
        harmless.append("cannot set the OOM score")
    assert all(any(text in line for text in harmless) for line in warnings), warnings


def test_entering_another_namespace_says_which_capability_it_takes(namespace: str) -> None:
    command = ["setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all", *KPROXY, "run"]
    done = subprocess.run(
        [*command, "-f", str(CLUSTER), "--netns", namespace], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "CAP_SYS_ADMIN" in done.stderr
    with Namespace.current():
        assert "KUBE" not in run("iptables-nft-save", namespace=namespace)
