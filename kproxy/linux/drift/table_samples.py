"""What drift means for packets in nftables mode: sample packets by the rules as found, and by these with kube-proxy's
table put right.

All rules of the namespace count on both sides, those of iptables included; only kube-proxy's own table is replaced.
What others have in that table stays in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Index, index_ruleset
from kproxy.linux.drift.samples import sample_effects
from kproxy.linux.host.addresses import interface_addresses
from kproxy.linux.host.rules import read_host_rules
from kproxy.linux.namespace import Namespace
from kproxy.linux.nftables.ownership import is_our_chain, is_our_set
from kproxy.linux.sync.nftables_host import PreparedTable
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table
from kproxy.render import RenderedTable
from kproxy.render.nftables.save import nft_ruleset


def table_packet_effects(
    family: PreparedTable, namespace: Namespace, kept: Collection[str], services: Iterable[str]
) -> list[str]:
    """`table_effects` for a namespace: its interfaces' addresses and the node's IP are the host's own.

    Raises:
        InputError: packets cannot be traced through the rules.
        LinuxError: they cannot be read.
    """
    local = [*interface_addresses(namespace, family.family), family.rendered.options.node_ip]
    found = read_host_rules(namespace, namespace.label, families=(family.family,))
    return table_effects(family.rendered, local, found, services, kept)


def table_effects(
    rendered: RenderedTable,
    local_addresses: Iterable[str],
    found: HostRules,
    services: Iterable[str],
    kept: Collection[str] = (),
) -> list[str]:
    """What sample packets meet, in sentences; see `samples.rule_effects`.

    Args:
        kept: chains of kube-proxy's that stay though they should not, since rules of others lead to them.
    """
    family = rendered.options.family

    def indexes() -> tuple[Index, Index]:
        real = found.nftables or NftRuleset()
        others = found.iptables(family)
        real_index, right_index = (
            index_ruleset(others, nftables=each, family=family) for each in (real, mended_table(real, rendered, kept))
        )
        return real_index, right_index

    return sample_effects(rendered, local_addresses, services, lambda _ports: indexes())


def mended_table(found: NftRuleset, rendered: RenderedTable, kept: Collection[str] = ()) -> NftRuleset:
    """The rules as they would be once kube-proxy's table is as it should be."""
    desired = nft_ruleset(rendered.restore_text).tables[0]
    others = tuple(each for each in found.tables if not _is_same(each, desired))
    old = next((each for each in found.tables if _is_same(each, desired)), None)
    return NftRuleset((*others, desired if old is None else _with_foreign(desired, old, kept)))


def _with_foreign(desired: Table, found: Table, kept: Collection[str]) -> Table:
    chains = tuple(each for each in found.chains if each.name in kept or not is_our_chain(each.name))
    sets = tuple(each for each in found.sets if not is_our_set(each.name))
    return dataclasses.replace(
        desired, chains=(*desired.chains, *chains), sets=(*desired.sets, *sets), objects=found.objects
    )


def _is_same(one: Table, other: Table) -> bool:
    return (one.family, one.name) == (other.family, other.name)
