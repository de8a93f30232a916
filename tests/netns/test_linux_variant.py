"""Which variant `auto` takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.linux.binaries import Variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.variant import choose_variant
from kproxy.services import IPFamily
from tests.netns.namespaces import fresh_namespace, run

pytestmark = pytest.mark.root


@pytest.fixture
def name() -> Iterator[str]:
    with fresh_namespace() as made:
        yield made


def load(name: str, variant: str, table: str, *chains: str) -> None:
    text = f"*{table}\n{''.join(f':{chain} - [0:0]{chr(10)}' for chain in chains)}COMMIT\n"
    run(f"iptables-{variant}-restore", "--noflush", namespace=name, text=text)


def chosen(name: str) -> tuple[Variant, str]:
    with Namespace.named(name) as namespace:
        choice = choose_variant(namespace, list(IPFamily), None, demand_all=True)
    return choice.variant, choice.reason


def test_nothing_there(name: str) -> None:
    assert chosen(name) == (Variant.NFT, "neither variant holds anything of Kubernetes'")


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_where_kube_proxys_chains_are(name: str, variant: str) -> None:
    load(name, variant, "nat", "KUBE-SERVICES", "KUBE-NODEPORTS")
    load(name, "nft" if variant == "legacy" else "legacy", "nat", "DOCKER", "KUBE-SERVICES")
    assert chosen(name) == (Variant(variant), "kube-proxy's chains are there already")


def test_the_kubelets_hint_comes_first(name: str) -> None:
    load(name, "nft", "nat", "KUBE-SERVICES", "KUBE-NODEPORTS")
    load(name, "legacy", "mangle", "KUBE-IPTABLES-HINT")
    assert chosen(name) == (Variant.LEGACY, "the kubelet keeps its rules there")


def test_both_alike(name: str) -> None:
    for variant in ("nft", "legacy"):
        load(name, variant, "nat", "KUBE-SERVICES")
    assert chosen(name) == (Variant.NFT, "both variants hold kube-proxy's chains")


def test_what_the_other_variant_holds_is_told(name: str) -> None:
    load(name, "legacy", "nat", "KUBE-SERVICES")
    with Namespace.named(name) as namespace:
        choice = choose_variant(namespace, [IPFamily.IPV4], Variant.NFT, demand_all=True)
    assert choice.others == {IPFamily.IPV4: 1}
    assert "kproxy cleanup" in choice.notes[0]
