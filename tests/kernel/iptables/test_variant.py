"""Which variant `auto` takes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.linux.errors import ToolFailedError
from kproxy.linux.iptables.variant import choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run

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


def test_what_the_other_variant_holds_is_reported(name: str) -> None:
    load(name, "legacy", "nat", "KUBE-SERVICES")
    with Namespace.named(name) as namespace:
        choice = choose_variant(namespace, [IPFamily.IPV4], Variant.NFT, demand_all=True)
    assert choice.others == {IPFamily.IPV4: (("nat", "KUBE-SERVICES"),)}
    assert "kproxy cleanup" in choice.notes[0]


def test_a_lock_that_is_held_does_not_hide_what_is_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    load(name, "legacy", "nat", "KUBE-SERVICES")
    with (tmp_path / "lock").open("w") as held, Namespace.named(name) as namespace:
        fcntl.flock(held, fcntl.LOCK_EX)
        choice = choose_variant(namespace, [IPFamily.IPV4], None, demand_all=True, lock_wait=0.1)
        assert (choice.variant, choice.reason) == (Variant.LEGACY, "kube-proxy's chains are there already")
        assert "(legacy) was looked at without waiting any longer: the xtables lock" in choice.notes[0]
        # nft needs no lock, so what decides nothing is not waited for.
        choice = choose_variant(namespace, [IPFamily.IPV4], Variant.NFT, demand_all=True, lock_wait=600)
        assert choice.others == {IPFamily.IPV4: (("nat", "KUBE-SERVICES"),)}


def test_tables_that_only_nft_understands_leave_it_undecided(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_save(tmp_path, "cat <<'END'\n# Table `nat' is incompatible, use 'nft' tool.\nEND", monkeypatch)
    with Namespace.named(name) as namespace, pytest.raises(ToolFailedError, match="cannot show table nat"):
        choose_variant(namespace, [IPFamily.IPV4], None, demand_all=True)


def test_a_variant_that_the_kernel_does_not_have_is_not_chosen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_save(tmp_path, "echo 'iptables: Could not fetch rule set generation id' >&2; exit 4", monkeypatch)
    with Namespace.named(name) as namespace:
        choice = choose_variant(namespace, [IPFamily.IPV4], None, demand_all=True)
    assert (choice.variant, choice.reason) == (Variant.LEGACY, "the only variant that can be used")
    assert "(nft) was not looked at" in choice.notes[0]
    assert "Could not fetch rule set generation id" in choice.notes[0]


def fake_save(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts an iptables-nft-save in front of PATH."""
    fake = directory / "iptables-nft-save"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
