"""`--format save` is what nft lists once `--format restore` is loaded, in nftables mode."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kproxy.api import KubeProxyConfiguration, load_config, load_manifests, parse_manifests
from kproxy.render import RenderedTable, Target, render_table
from kproxy.services import IPFamily
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.recorded import CLUSTERS, SUFFIX, render_nftables

pytestmark = pytest.mark.root

GOLDEN = sorted(path.parent for path in (paths.ROOT / "rules_golden").glob("*/cluster.yaml"))
EVERY = 10

both_families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: family.value)


def installed_release() -> str:
    """Debian 12's listing or Debian 13's."""
    version = subprocess.run(["nft", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    return "1.0.6" if tuple(map(int, version.removeprefix("v").split("."))) < (1, 1) else "1.1.3"


def load(text: str, table: str) -> str:
    """Loads a script into a fresh namespace, and lists the table."""
    with fresh_namespace() as namespace:
        run("nft", "-f", "-", namespace=namespace, text=text)
        return run("nft", "list", "table", *table.split(), namespace=namespace)


def compare(rendered: RenderedTable, release: str) -> None:
    assert load(rendered.restore_text, rendered.table) == rendered.save_text(release)


@both_families
@pytest.mark.parametrize("number", spread(range(EVERY), 1, 2))
def test_recorded_clusters(number: int, family: IPFamily) -> None:
    release = installed_release()
    for case in CLUSTERS[number::EVERY]:
        rendered = render_nftables(case, family)
        compare(rendered, release)
        recorded = (case / f"kube-proxy.{SUFFIX[family]}.nft").read_text()
        # Chains and sets are recorded by name, as they are rendered, and nft lists them as they were added.
        assert load(recorded, rendered.table) == rendered.save_text(release), case.name


@both_families
@pytest.mark.parametrize("number", spread(range(EVERY), 1, 2))
def test_golden_files(number: int, family: IPFamily) -> None:
    """What is committed is nft 1.0.6's listing; it can be loaded, and is listed as it stands by that release."""
    release = installed_release()
    for scenario in GOLDEN[number::EVERY]:
        for rendered in rendered_of(scenario, family):
            compare(rendered, release)
            path = scenario / "expected" / f"{rendered.options.node_name}.{SUFFIX[family]}.nft"
            listed = load(path.read_text(), rendered.table)
            assert listed == rendered.save_text(release), path


def rendered_of(scenario: Path, family: IPFamily) -> list[RenderedTable]:
    config_path = scenario / "config.yaml"
    config = KubeProxyConfiguration(mode="nftables")
    if config_path.exists():
        config = load_config(str(config_path), "nftables").config
    cluster = load_manifests([scenario / "cluster.yaml"]).with_mirrored_slices()
    return [
        render_table(
            Target(node.metadata.name, node),
            family,
            cluster.services,
            cluster.endpoint_slices,
            config,
            service_cidrs=cluster.service_cidrs,
        )
        for node in cluster.nodes
    ]


@both_families
def test_the_longest_names_and_ranges_that_join_to_one(family: IPFamily) -> None:
    """nft refuses comments of over 128 characters, and keeps a set of several ranges a set if they join to one."""
    ip, net = ("10.96.0.1", "10.0.0.0") if family is IPFamily.IPV4 else ("fd00::1", "fd00::")
    ports = [{"name": "p" * 63, "port": 80}]
    names = {"namespace": "n" * 63, "name": "s" * 63}
    spec = {"type": "LoadBalancer", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": [family.value], "ports": ports}
    ranges = {"loadBalancerSourceRanges": [f"{net}/8", f"{net}/9"]}
    status = {"loadBalancer": {"ingress": [{"ip": f"{ip}11"}]}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": names, "spec": spec | ranges, "status": status}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}}
    cluster = parse_manifests(json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, node]}), "cluster")
    rendered = render_table(
        Target("node-0", cluster.nodes[0]), family, cluster.services, (), KubeProxyConfiguration(mode="nftables")
    )
    assert f'comment "{"n" * 63}/{"s" * 63}:"' in rendered.restore_text.replace("p" * 63, "")
    assert f"saddr != {{ {net}/8 }} drop" in rendered.save_text(installed_release())
    compare(rendered, installed_release())
