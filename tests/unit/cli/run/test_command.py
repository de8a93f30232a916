"""`kproxy run`: options and what is wrong with them; tests/kernel/run/test_run.py runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy import __version__
from kproxy.agent.config.flags import FLAGS
from kproxy.api import KubeProxyConfiguration, load_config
from kproxy.linux.namespace import in_initial_namespace
from tests.support import paths
from tests.support.cli import CODE, KPROXY, Run
from tests.support.kernel.namespaces import NOBODY, fresh_namespace, run

CONFIG = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n"
CLUSTER = paths.ROOT / "rules_golden" / "minikube" / "cluster.yaml"


def test_help_names_every_flag_and_has_examples(kproxy: Run) -> None:
    done = kproxy("run", "--help")
    assert done.returncode == 0
    for flag in FLAGS:
        assert f"-{flag.name} " in done.stdout, flag.name
    assert "kproxy run -f manifests/" in done.stdout


@pytest.mark.root
def test_without_a_namespace_there_is_no_question(
    kproxy_on_the_machine: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.conf"
    config.write_text(CONFIG)
    invocation = ("--config", config, "--hostname-override", "n")
    cases: list[tuple[object, ...]] = [("-f", CLUSTER), ("--cleanup",), ("-f", CLUSTER, "--once"), invocation]
    for in_a_pod in (False, True):
        if in_a_pod:  # where only kube-proxy's own options are consent
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
            cases = [("-f", CLUSTER), (*invocation, "--once"), (*invocation, "-4")]
        for arguments in cases:
            done = kproxy_on_the_machine("run", *arguments)
            assert_asked(done)


@pytest.mark.root
@pytest.mark.parametrize("more", [(), ("--init-only",), ("-v=2",), ("--cleanup",)], ids=" ".join)
def test_kube_proxys_own_invocation_in_its_daemonset_is_consent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """As `kubeadm` runs kube-proxy, with `kproxy run` in place of the program's name."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("NODE_NAME", "node-0")
    config = tmp_path / "config.conf"
    config.write_text(CONFIG)
    # It ends where it would ask: the rules stay as they are.
    ending = "run.confirm = lambda *given: sys.exit(f'yes: {given[-1]}')"
    code = f"import sys, importlib; run = importlib.import_module('kproxy.cli.run.command'); {ending}; {CODE}"
    command = [sys.executable, "-c", code, "run", f"--config={config}", "--hostname-override=node-0"]
    done = subprocess.run([*command, *more], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "yes: True"


def assert_asked(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2
    assert "--netns NAME" in done.stderr
    assert "--yes" in done.stderr


@pytest.mark.root
def test_in_another_network_namespace_there_is_no_question() -> None:
    """`ip netns exec`, as containers: what is changed is not the machine's own, so `--yes` is not asked for."""
    with fresh_namespace() as name:

        def there(*arguments: object) -> subprocess.CompletedProcess[str]:
            command = ["ip", "netns", "exec", name, *KPROXY, *map(str, arguments)]
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

        manifests = ("-f", CLUSTER, "--node", "minikube", "--variant", "nft", "-4")
        done = there("apply", *manifests)
        assert done.returncode == 0, done.stderr
        assert "in this process's network namespace" in done.stdout
        assert "KUBE-SERVICES" in ip_tables(name)
        run("iptables-nft", "-t", "nat", "-F", "KUBE-SERVICES", namespace=name)
        assert there("drift", *manifests, "--repair").returncode == 0
        assert there("run", *manifests, "--once").returncode == 0
        assert there("cleanup").returncode == 0
        assert "KUBE-SERVICES" not in ip_tables(name)


def ip_tables(namespace: str) -> str:
    return run("iptables-nft-save", namespace=namespace)


@pytest.mark.root
def test_where_the_process_is_does_not_hang_on_process_1(tmp_path: Path) -> None:
    """In a container process 1 is its own, and the host's may not be looked at: neither is asked."""
    tell = "from kproxy.linux.namespace import in_initial_namespace as ask; print(ask())"
    here = [sys.executable, "-c", tell]
    answer = run(*here)
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--mount", *here]
    assert run(*container) == answer, "as in a Pod with the host's network"
    assert run(*NOBODY, *here) == answer
    with fresh_namespace() as name:
        assert run(*container, namespace=name) == "False\n"
        assert run(*here, namespace=name) == "False\n"
    # Neither /proc/thread-self nor sysctls to be seen: as if it were the machine's own.
    assert in_initial_namespace(str(tmp_path))
    sysctls = tmp_path / "sys" / "net" / "core"
    sysctls.mkdir(parents=True)
    (sysctls / "somaxconn").touch()
    assert not in_initial_namespace(str(tmp_path))
    (sysctls / "netdev_max_backlog").touch()
    assert in_initial_namespace(str(tmp_path))


@pytest.mark.root
def test_bad_input_is_an_error_before_anything_starts(kproxy: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("kind: [")
    for arguments, message in (
        (("--iptables-sync-period", "soon"), "--iptables-sync-period: Invalid value"),
        (("--proxy-mode", "ipvs"), "proxy mode 'ipvs'"),
        (("--mode", "ipvs"), "'ipvs' is not one of"),
        (("--config", tmp_path / "missing.yaml"), "missing.yaml: cannot be read"),
        (("--config", broken), "broken.yaml"),
        (("--netns", "kp-not-there", "-f", CLUSTER), "kp-not-there"),
        (("-f", CLUSTER, "--use-endpoints", "--netns", "x"), "excludes --use-endpoints"),
        (("-f", "-", "-f", CLUSTER, "--netns", "x"), "excludes other -f"),
        (("--feature", "magic=on"), "magic"),
    ):
        done = kproxy("run", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert message in done.stderr


def test_the_configuration_that_would_be_used(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    done = kproxy("run", "--cluster-cidr", "10.1.0.0/16", "--masquerade-all", "--write-config-to", file)
    assert done.returncode == 0, done.stderr
    config = load_config(str(file)).config
    assert config.cluster_cidr == "10.1.0.0/16"
    assert config.iptables.masquerade_all


def test_a_flag_goes_before_a_file(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    file.write_text(f"{head}clusterCIDR: 10.2.0.0/16\n")
    out = tmp_path / "out.yaml"
    done = kproxy("run", "--config", file, "--cluster-cidr", "10.1.0.0/16", "--write-config-to", out)
    assert "--cluster-cidr: before what" in done.stderr
    assert load_config(str(out)).config.cluster_cidr == "10.1.0.0/16"


def config_of(kproxy: Run, out: Path, *arguments: object) -> KubeProxyConfiguration:
    done = kproxy("run", *arguments, "--write-config-to", out)
    assert done.returncode == 0, done.stderr
    return load_config(str(out)).config


def test_flags_in_every_form_that_pflag_takes(kproxy: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    config = config_of(
        kproxy, out, "--config=", "--proxy_mode", "iptables", "--masquerade_all", "--cleanup=false", "-v=3", "--yes=0",
        "--vmodule", "a=1", "--vmodule=b=2", "--nodeport-addresses=10.0.0.0/8", "--nodeport_addresses", "fd00::/8",
        "--iptables_localhost_nodeports=false", "--oom-score-adj", "-5", "--hostname-override=Me",
        "--cluster-cidr=10.1.0.0/16", "--cluster-cidr=10.2.0.0/16", "--ipvs-strict-arp",
    )  # fmt: skip
    assert config.iptables.masquerade_all
    assert not config.iptables.localhost_node_ports
    assert config.logging.verbosity == 3
    assert [item.file_pattern for item in config.logging.vmodule] == ["a", "b"]
    assert config.node_port_addresses == ("10.0.0.0/8", "fd00::/8")
    assert (config.oom_score_adj, config.hostname_override) == (-5, "me")
    assert config.cluster_cidr == "10.2.0.0/16", "the last one counts"
    assert config.ipvs.strict_arp
    for form in (("-v", "2"), ("-v=2",), ("-v2",), ("--v=2",), ("--v", "2")):
        assert config_of(kproxy, out, *form).logging.verbosity == 2, form
    assert not config_of(kproxy, out, "--masquerade-all", "--masquerade-all=false").iptables.masquerade_all


def test_logging_flags_count_beside_a_file(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    file.write_text(f"{head}logging: {{verbosity: 1}}\n")
    config = config_of(kproxy, tmp_path / "out", "--config", file, "-v=6", "--logging-format=json")
    assert (config.logging.verbosity, config.logging.format) == (6, "json")


def test_the_version(kproxy: Run) -> None:
    for form in ("--version", "--version=true"):
        done = kproxy("run", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"kproxy, version {__version__}, as kube-proxy v1.36.2\n"
    raw = kproxy("run", "--version=raw", "--config", "/nosuch")
    assert json.loads(raw.stdout)["kubeProxy"] == "v1.36.2"
    assert "nosuch" in kproxy("run", "--version=false", "--config", "/nosuch").stderr


def test_flags_that_are_none_are_refused_with_the_reason(kproxy: Run) -> None:
    for arguments, message in (
        (("--nftables-sync-period=3s",), "--nftables-sync-period"),
        (("--logtostderr",), "--logtostderr"),
        (("--proxy-mode=ipvs",), "proxy mode 'ipvs': IPVS mode is deprecated; use nftables"),
        (("--masquerade-all", "false"), "unexpected extra argument (false)"),
        (("--cleanup=maybe",), "--cleanup: 'maybe' is neither true nor false"),
        (("--version=3",), "--version: '3' is neither true nor false, nor raw"),
        (("--proxy_modes",), "--proxy_modes"),
        (("--timeout=-1", "--once"), "--timeout"),
    ):
        done = kproxy("run", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr, arguments
        assert "Traceback" not in done.stderr


@pytest.mark.root
def test_once_against_a_dead_server_fails_in_time(kproxy: Run) -> None:
    with fresh_namespace() as namespace:
        done = kproxy(
            "run", "--master=http://127.0.0.1:9", "--once", "--timeout=3", "--netns", namespace, "--node=n",
            "--logging-format=json", "--ipvs-scheduler=rr",
        )  # fmt: skip
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert any("connection refused" in line.get("reason", "") for line in lines), lines
    assert any("--ipvs-scheduler: has no effect" in line.get("note", "") for line in lines)
