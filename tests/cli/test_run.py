"""`kproxy run`: options and what is wrong with them; tests/netns/test_run_kernel.py runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy import __version__
from kproxy.agent.flags import FLAGS
from kproxy.api import KubeProxyConfiguration, load_config
from tests.cli.conftest import Run
from tests.netns.namespaces import fresh_namespace

CLUSTER = Path(__file__).parents[2] / "rules_golden" / "minikube" / "cluster.yaml"


def test_help_names_every_flag_and_has_examples(kproxy: Run) -> None:
    done = kproxy("run", "--help")
    assert done.returncode == 0
    for flag in FLAGS:
        assert f"-{flag.name} " in done.stdout, flag.name
    assert "kproxy run -f manifests/" in done.stdout


@pytest.mark.root
def test_without_a_namespace_nobody_can_be_asked(kproxy: Run) -> None:
    for arguments in (("-f", CLUSTER), ("--cleanup",), ("-f", CLUSTER, "--once")):
        done = kproxy("run", *arguments)
        assert done.returncode == 2
        assert "--netns NAME" in done.stderr
        assert "--yes" in done.stderr


@pytest.mark.root
def test_bad_input_is_told_before_anything_starts(kproxy: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("kind: [")
    for arguments, message in (
        (("--iptables-sync-period", "soon"), "--iptables-sync-period: Invalid value"),
        (("--proxy-mode", "nftables"), "proxy mode 'nftables'"),
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


def test_a_file_overrides_flags(kproxy: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    file.write_text(f"{head}clusterCIDR: 10.2.0.0/16\n")
    out = tmp_path / "out.yaml"
    done = kproxy("run", "--config", file, "--cluster-cidr", "10.1.0.0/16", "--write-config-to", out)
    assert "--cluster-cidr: ignored" in done.stderr
    assert load_config(str(out)).config.cluster_cidr == "10.2.0.0/16"


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
        (("--nftables-sync-period=3s",), "kube-proxy has no flags for nftables mode"),
        (("--logtostderr",), "has not had it since v1.26"),
        (("--source_vip", "1.2.3.4"), "on Windows only"),
        (("--proxy-mode=ipvs",), "proxy mode 'ipvs': kproxy writes iptables rules only"),
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
            "run", "--master=http://127.0.0.1:9", "--once", "--timeout=1", "--netns", namespace, "--node=n",
            "--logging-format=json", "--ipvs-scheduler=rr",
        )  # fmt: skip
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert "connection refused" in lines[-1]["reason"]
    assert any("--ipvs-scheduler: has no effect" in line.get("note", "") for line in lines)
