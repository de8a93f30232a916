"""The recorded reference data, and how two restore texts are compared with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kproxy.api import KubeProxyConfiguration, Manifests, load_config, load_manifests
from kproxy.render import (
    Features,
    RenderedIpvs,
    RenderedTable,
    RenderedTarget,
    render_in_mode,
    render_table,
    render_target,
    select_target,
)
from kproxy.services import IPFamily
from tests.support import paths

REFERENCE = paths.TESTS / "reference"
CLUSTERS = sorted(path for path in (REFERENCE / "clusters").iterdir() if path.is_dir())
IPVS_CLUSTERS = [case for case in CLUSTERS if (case / "config.ipvs.yaml").exists()]
MINIKUBE = REFERENCE / "minikube"
SUFFIX = {IPFamily.IPV4: "v4", IPFamily.IPV6: "v6"}

# kube-proxy walks a Go map, so the order of services in these chains is random.
UNORDERED = {"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}
LAST = "must be the last rule"


@cache
def load(case: Path) -> tuple[Manifests, KubeProxyConfiguration]:
    """A recorded cluster and its configuration."""
    return load_manifests([case / "cluster.yaml"]), load_config(str(case / "config.yaml")).config


def render(case: Path, family: IPFamily, features: Features | None = None) -> RenderedTarget:
    """Renders a recorded cluster for its own node."""
    manifests, config = load(case)
    target = select_target(manifests.nodes, config)
    return render_target(target, family, manifests.services, manifests.endpoint_slices, config, features)


@cache
def load_nftables(case: Path) -> tuple[Manifests, KubeProxyConfiguration]:
    """The same for nftables mode, with its ServiceCIDRs."""
    manifests = load_manifests([case / "cluster.yaml", case / "service-cidr.yaml"])
    return manifests, load_config(str(case / "config.nftables.yaml")).config


def render_nftables(case: Path, family: IPFamily, features: Features | None = None) -> RenderedTable:
    """Renders a recorded cluster in nftables mode for its own node."""
    manifests, config = load_nftables(case)
    target = select_target(manifests.nodes, config)
    return render_table(
        target,
        family,
        manifests.services,
        manifests.endpoint_slices,
        config,
        features,
        manifests.service_cidrs,
    )


@cache
def load_ipvs(case: Path) -> tuple[Manifests, KubeProxyConfiguration]:
    """The same for IPVS mode."""
    return load_manifests([case / "cluster.yaml"]), load_config(str(case / "config.ipvs.yaml")).config


def render_ipvs(case: Path, family: IPFamily) -> RenderedIpvs:
    """Renders a recorded cluster in IPVS mode for its own node."""
    manifests, config = load_ipvs(case)
    target = select_target(manifests.nodes, config)
    rendered = render_in_mode(target, family, manifests.services, manifests.endpoint_slices, config)
    assert isinstance(rendered, RenderedIpvs)
    return rendered


def comparable_nftables(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """`nft -f` input, one object a line, as its objects but rules, sorted, and the rules of each chain in order."""
    objects: list[str] = []
    rules: dict[str, list[str]] = {}
    for line in text.splitlines():
        verb, kind, *words = line.split(" ")
        assert verb == "add", line
        assert kind in ("table", "chain", "set", "map", "rule", "element"), line
        if kind == "rule":
            rules.setdefault(words[2], []).append(line)
        else:
            objects.append(line)
    assert len(objects) == len(set(objects)), "an object is added twice"
    return sorted(objects), rules


def comparable(restore: str) -> dict[str, dict[str, list[str]]]:
    """Restore text as table -> chain -> rules, with what has no order in the recording sorted."""
    tables: dict[str, dict[str, list[str]]] = {}
    chains: dict[str, list[str]] = {}
    for line in restore.splitlines():
        if line.startswith("*"):
            chains = tables.setdefault(line[1:], {})
        elif line.startswith(":"):
            chains.setdefault(line[1:].split()[0], [])
        elif line.startswith("-A "):
            chains[line.split()[1]].append(line)
        else:
            assert line == "COMMIT", line
    for chains in tables.values():
        for name in UNORDERED & chains.keys():
            rules = chains[name]
            last = [rule for rule in rules if LAST in rule]
            assert rules[len(rules) - len(last) :] == last, f"{name}: a rule follows the one that must be last"
            chains[name] = sorted(rule for rule in rules if LAST not in rule) + last
    return tables
