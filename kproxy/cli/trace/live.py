"""The rules and the host of a live namespace: the one place where `kproxy trace` meets `kproxy.linux`."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.cli.output import working
from kproxy.cluster.evidence.unseen import NOTHING, Assumed, Unseen
from kproxy.cluster.rules import HostRules, read_ipsets
from kproxy.dataplane import Host, IpSet
from kproxy.errors import InputError
from kproxy.linux.host.facts import read_host
from kproxy.linux.host.rules import output_of, read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import find_program
from kproxy.netfilter.hooks import Variant


def read_live_rules(
    netns: str, variant: str | None, *, assumed: Assumed = NOTHING, more: Sequence[Unseen] = ()
) -> HostRules:
    """All rules inside the namespace: what iptables-save and ip6tables-save print, of both variants, and nft.

    With `variant` only the rules of that variant of iptables. `assumed` and `more` as for `HostRules`.

    Raises:
        InputError: there are none.
        LinuxError: they cannot be read.
    """
    where = f"namespace {netns}"
    only = None if variant is None else Variant(variant)
    with Namespace.named(netns) as namespace, working(f"reading {where}"):
        rules = read_host_rules(namespace, where, only, nft=only is None, assumed=assumed, more=more)
    if not rules.rulesets and (rules.nftables is None or not rules.nftables.has_effect):
        raise InputError(f"{where}: no rules")
    return rules


def read_live_sets(netns: str) -> dict[str, IpSet]:
    """The ipsets of the namespace; none if ipset is not installed."""
    ipset = find_program("ipset")
    if ipset is None:
        return {}
    with Namespace.named(netns) as namespace:
        return read_ipsets(output_of(namespace, [ipset, "save"]), f"ipset save in namespace {netns}")


def read_host_facts(netns: str) -> Host:
    """Interfaces, addresses, routes, policy rules and sysctls of the namespace.

    Raises:
        LinuxError: they cannot be read.
    """
    with Namespace.named(netns) as namespace:
        return read_host(namespace)
