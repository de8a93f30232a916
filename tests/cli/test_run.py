"""`kproxy run`: options and what is wrong with them; tests/netns/test_run_kernel.py runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.agent.options import FLAGS
from kproxy.api import load_config
from tests.cli.conftest import Run

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
