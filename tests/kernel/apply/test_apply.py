"""`apply` in fresh namespaces: for every golden and recorded cluster, both variants and families.

The normal suite takes every eighteenth case, the slow one three times as many, the soak all.
"""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from kproxy.api import KubeProxyConfiguration, Manifests, load_config, load_manifests
from kproxy.linux.drift.find import find_drift
from kproxy.linux.errors import ApplyFailedError, KernelState
from kproxy.linux.iptables.executor import COMMAND
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.apply import ApplyReport, apply_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.netfilter.hooks import Variant
from kproxy.render import RenderedTarget, Target, render_target, select_target
from kproxy.services import IPFamily
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.namespaces import fresh_namespace, run, save, split_tables
from tests.support.recorded import CLUSTERS, MINIKUBE

pytestmark = pytest.mark.root

ROOT = paths.ROOT
GOLDEN = sorted(path.parent for path in (ROOT / "rules_golden").glob("*/cluster.yaml"))
CASES = [*GOLDEN, *CLUSTERS, MINIKUBE]
GROUPS = 18

groups = pytest.mark.parametrize("group", spread(range(GROUPS), 1, 1))


def read(case: Path) -> tuple[Manifests, KubeProxyConfiguration]:
    config = case / "config.yaml"
    return (
        load_manifests([case / "cluster.yaml"]).with_mirrored_slices(),
        load_config(str(config)).config if config.exists() else KubeProxyConfiguration(),
    )


def request(case: Path, variant: Variant) -> NodeRequest:
    manifests, config = read(case)
    first = manifests.nodes[0]
    target = Target(first.metadata.name, first) if len(manifests.nodes) > 1 else select_target(manifests.nodes, config)
    return NodeRequest(target, config, manifests.services, manifests.endpoint_slices, variant=variant)


def apply(case: Path, namespace: str, variant: Variant) -> ApplyReport:
    with Namespace.named(namespace) as space:
        return apply_node(request(case, variant), space)


def assert_holds(case: Path, namespace: str, variant: Variant) -> None:
    """The namespace holds what `render --format save` prints, byte for byte, in both families."""
    asked = request(case, variant)
    for family in IPFamily:
        rendered = render_target(asked.target, family, asked.services, asked.endpoint_slices, asked.config)
        assert save(f"{COMMAND[family]}-{variant.value}", namespace) == split_tables(rendered.save_text), case.name


@groups
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
def test_apply_gives_what_render_prints(group: int, variant: Variant) -> None:
    """In a fresh namespace; again, which writes nothing; another cluster over it, and back."""
    cases = CASES[group::GROUPS]
    for case, other in zip(cases, [*cases[1:], cases[0]], strict=True):
        with fresh_namespace() as namespace:
            assert apply(case, namespace, variant).changed
            assert_holds(case, namespace, variant)
            again = apply(case, namespace, variant)
            assert not again.changed
            assert all(family.processes == 0 for family in again.families)
            apply(other, namespace, variant)
            assert_holds(other, namespace, variant)
            apply(case, namespace, variant)
            assert_holds(case, namespace, variant)


def test_what_kube_proxy_left_on_a_node_is_taken_over() -> None:
    """The dump of a node on which kube-proxy v1.36.2 ran: only the order of Services may differ."""
    for variant in Variant:
        with fresh_namespace() as namespace:
            dump = (MINIKUBE / f"iptables-{variant.value}-save.v4.txt").read_text()
            without_counting = "".join(
                line.replace("-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts ", "") + "\n"
                for line in dump.splitlines()
                if "localhost_nps_accepted_pkts" not in line
            )
            run(f"iptables-{variant.value}-restore", namespace=namespace, text=without_counting)
            report = apply(MINIKUBE, namespace, variant)
            assert_holds(MINIKUBE, namespace, variant)
            first = next(family for family in report.families if family.family == "IPv4")
            assert first.jumps == ()
            assert first.chains_deleted == 1  # the endpoint of another API server


@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: str(variant.value))
@pytest.mark.parametrize("kills", spread([2, 5, 60], 1, 1))
def test_a_killed_process_leaves_nothing_that_the_next_apply_does_not_mend(
    variant: Variant, kills: int, tmp_path: Path
) -> None:
    """SIGKILL at whatever step it is in, first applies and changes alike."""
    cluster_lines = runpy.run_path(str(ROOT / "bench" / "generate.py"))["cluster_lines"]
    paths = []
    for number, size in enumerate((600, 500)):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("".join(f"{line}\n" for line in cluster_lines(size, 5 - number)))
    code = (
        "import sys; from kproxy.linux.iptables.executor import Variant; from pathlib import Path;"
        "from tests.kernel.apply.test_apply import apply_file; print('go', flush=True);"
        "apply_file(Path(sys.argv[1]), sys.argv[2], Variant(sys.argv[3]))"
    )
    rng = random.Random(kills)
    with fresh_namespace() as namespace:
        for number in range(kills):
            command = [sys.executable, "-c", code, str(paths[number % 2]), namespace, variant.value]
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(rng.uniform(0.1, 0.7))
            child.kill()
            child.wait()
            child.stdout.close()
        for path in paths:
            report = apply_file(path, namespace, variant)
            rendered = _rendered(path)
            command_name = f"iptables-{variant.value}"
            assert save(command_name, namespace) == split_tables(rendered.save_text)
        assert report.changed


def _rendered(path: Path) -> RenderedTarget:
    manifests = load_manifests([path])
    target = Target(manifests.nodes[0].metadata.name, manifests.nodes[0])
    return render_target(target, IPFamily.IPV4, manifests.services, manifests.endpoint_slices)


def apply_file(path: Path, namespace: str, variant: Variant) -> ApplyReport:
    """Applies a manifest file, IPv4 only."""
    manifests = load_manifests([path])
    target = Target(manifests.nodes[0].metadata.name, manifests.nodes[0])
    asked = NodeRequest(
        target,
        KubeProxyConfiguration(),
        manifests.services,
        manifests.endpoint_slices,
        (IPFamily.IPV4,),
        variant,
    )
    with Namespace.named(namespace) as space:
        return apply_node(asked, space)


def test_an_interruption_after_the_rules_names_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise SystemExit(143)

    asked = request(MINIKUBE, Variant.NFT)
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        with monkeypatch.context() as patch:
            patch.setattr("kproxy.linux.sync.apply.prepare_node", interrupted)
            with pytest.raises(ApplyFailedError) as caught:
                apply_node(asked, namespace)
            assert caught.value.state is KernelState.UNCHANGED
        monkeypatch.setattr("kproxy.linux.sync.apply.clean_flows", interrupted)
        with pytest.raises(ApplyFailedError) as caught:
            apply_node(asked, namespace)
        assert caught.value.detail == "the rules of IPv4 are applied, those of IPv6 are unchanged"
        assert save("ip6tables-nft", name) == {}
        with pytest.raises(ApplyFailedError) as caught:
            apply_node(msgspec.structs.replace(asked, families=(IPFamily.IPV6,)), namespace)
        assert caught.value.state is KernelState.APPLIED
        assert_holds(MINIKUBE, name, Variant.NFT)


def test_an_interrupted_repair_names_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise SystemExit(143)

    asked = request(MINIKUBE, Variant.NFT)
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        apply_node(asked, namespace)
        for command in ("iptables-nft", "ip6tables-nft"):
            run("ip", "netns", "exec", name, command, "-t", "nat", "-F", "KUBE-SERVICES")
        flushed = save("iptables-nft", name), save("ip6tables-nft", name)
        with monkeypatch.context() as patch:
            patch.setattr("kproxy.linux.sync.iptables.backend.read_dump", interrupted)
            with pytest.raises(SystemExit):
                find_drift(asked, namespace)
            with pytest.raises(ApplyFailedError) as caught:
                find_drift(asked, namespace, repair=True)
            assert caught.value.state is KernelState.UNCHANGED
        assert (save("iptables-nft", name), save("ip6tables-nft", name)) == flushed
        with monkeypatch.context() as patch:
            patch.setattr("kproxy.linux.sync.apply.clean_flows", interrupted)
            with pytest.raises(ApplyFailedError) as caught:
                find_drift(asked, namespace, repair=True)
        assert caught.value.detail == "the rules of IPv4 are applied, those of IPv6 are unchanged"
        assert save("ip6tables-nft", name) == flushed[1]
        assert {finding.family for finding in find_drift(asked, namespace).findings} == {"IPv6"}
        assert find_drift(asked, namespace, repair=True).repaired
        assert_holds(MINIKUBE, name, Variant.NFT)
