"""`--format save` is what iptables-save prints once `--format restore` and the jump rules are loaded."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.api import KubeProxyConfiguration, load_config, load_manifests
from kproxy.render import RenderedTarget, Target, render_target
from kproxy.render.iptables.save import jump_text
from kproxy.services import IPFamily
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.namespaces import fresh_namespace, run, save, split_tables
from tests.support.recorded import CLUSTERS, MINIKUBE, render

pytestmark = pytest.mark.root

ROOT = paths.ROOT
GOLDEN = sorted(path.parent for path in (ROOT / "rules_golden").glob("*/cluster.yaml"))
GROUPS = 8

both_families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: family.value)
both_variants = pytest.mark.parametrize("variant", ["nft", "legacy"])


def command_of(family: IPFamily, variant: str) -> str:
    return f"{'ip6tables' if family.is_ipv6 else 'iptables'}-{variant}"


def load_and_compare(rendered: RenderedTarget, variant: str) -> None:
    command = command_of(rendered.options.family, variant)
    with fresh_namespace() as namespace:
        for text in (jump_text(), rendered.restore_text):
            run(f"{command}-restore", "--noflush", namespace=namespace, text=text)
        assert save(command, namespace) == split_tables(rendered.save_text)


@both_variants
@both_families
@pytest.mark.parametrize("group", spread(range(GROUPS), 1, 1))
def test_recorded_clusters(group: int, family: IPFamily, variant: str) -> None:
    cases = [*CLUSTERS, MINIKUBE][group::GROUPS]
    assert cases
    for case in cases:
        load_and_compare(render(case, family), variant)


@both_variants
@both_families
@pytest.mark.parametrize("scenario", spread(GOLDEN, 6, 6), ids=lambda path: path.name)
def test_golden_files(scenario: Path, family: IPFamily, variant: str) -> None:
    """Also that the committed files are what is compared: they are loaded, not rendered anew."""
    command = command_of(family, variant)
    config_path = scenario / "config.yaml"
    config = load_config(str(config_path)).config if config_path.exists() else KubeProxyConfiguration()
    cluster = load_manifests([scenario / "cluster.yaml"]).with_mirrored_slices()
    for node in cluster.nodes:
        target = Target(node.metadata.name, node)
        rendered = render_target(target, family, cluster.services, cluster.endpoint_slices, config)
        committed = (scenario / "expected" / f"{target.node_name}.v{family.version}.save").read_text()
        with fresh_namespace() as namespace:
            for text in (jump_text(), rendered.restore_text):
                run(f"{command}-restore", "--noflush", namespace=namespace, text=text)
            assert save(command, namespace) == split_tables(committed)


@both_families
def test_the_save_form_has_the_order_of_iptables_nft_save(family: IPFamily) -> None:
    rendered = render(MINIKUBE, family)
    with fresh_namespace() as namespace:
        for text in (rendered.restore_text, jump_text()):
            run(f"{command_of(family, 'nft')}-restore", "--noflush", namespace=namespace, text=text)
    assert list(split_tables(rendered.save_text)) == ["mangle", "filter", "nat"]


def test_a_plan_in_batches_loads_like_one_restore() -> None:
    rendered = render(CLUSTERS[1], IPFamily.IPV4)
    command = command_of(IPFamily.IPV4, "nft")
    with fresh_namespace() as namespace:
        run(f"{command}-restore", "--noflush", namespace=namespace, text=jump_text())
        for batch in rendered.plan.batches(20):
            run(f"{command}-restore", "--noflush", namespace=namespace, text=batch.text)
        assert save(command, namespace) == split_tables(rendered.save_text)


def walk_through(cases: list[Path], family: IPFamily, variant: str) -> None:
    """Recorded clusters one after the other through one namespace, with deletions, batch by batch."""
    command = command_of(family, variant)
    with fresh_namespace() as namespace:
        run(f"{command}-restore", "--noflush", namespace=namespace, text=jump_text())
        for case in cases:
            rendered = render(case, family)
            existing = [line[1:].split()[0] for line in save(command, namespace)["nat"].splitlines() if line[0] == ":"]
            plan = rendered.renderer.plan_full(rendered.state, existing)
            for batch in plan.batches(50):
                run(f"{command}-restore", "--noflush", namespace=namespace, text=batch.text)
            assert save(command, namespace)["nat"] == split_tables(rendered.save_text)["nat"]


def test_plans_lead_the_kernel_from_one_cluster_to_the_next() -> None:
    walk_through(CLUSTERS[:6], IPFamily.IPV4, "nft")
    walk_through(CLUSTERS[6:12], IPFamily.IPV6, "legacy")


@pytest.mark.soak
@both_variants
@both_families
def test_plans_lead_the_kernel_through_all_clusters(family: IPFamily, variant: str) -> None:
    walk_through(CLUSTERS, family, variant)


@pytest.fixture(autouse=True)
def _no_namespace_is_left() -> Iterator[None]:
    import os

    yield
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"kp-t{os.getpid()}-" not in left
