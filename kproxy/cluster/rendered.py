"""What kube-proxy would write on a node, as values for the engines, with where each rule comes from; and which of a
dump's chains are its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cluster.evidence.manifests import EVERYWHERE, Lacking, open_services
from kproxy.cluster.evidence.opened import open_rules, opened_side
from kproxy.cluster.evidence.unseen import NODE_ADDRESSES, NOTHING, Assumed, Unseen
from kproxy.cluster.rules import read_ipsets
from kproxy.dataplane import Host, Index, index_ruleset
from kproxy.dataplane.model.ipvs import CONNTRACK, Ipvs
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, Ruleset
from kproxy.netfilter.address import parse_address
from kproxy.render import (
    Features,
    Rendered,
    RenderedTarget,
    RenderOptions,
    Target,
    render_in_mode,
    render_state,
)
from kproxy.render.iptables.base import BASE_CHAINS
from kproxy.render.iptables.chains import CANARY, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.ipvs.rules import CHAINS as IPVS_CHAINS
from kproxy.services.tracker import ServiceState

if TYPE_CHECKING:
    from kproxy.dataplane.concrete.state import Note


def is_ours(table: str, chain: str) -> bool:
    """Whether a chain of iptables is kube-proxy's of iptables mode, by its name."""
    if table == "nat" and chain.startswith(SERVICE_PORT_CHAIN_PREFIXES):
        return True
    return chain == CANARY or chain in BASE_CHAINS.get(table, ())


def is_of_ipvs(table: str, chain: str) -> bool:
    """Whether a chain of iptables is kube-proxy's of IPVS mode, by its name."""
    return chain in IPVS_CHAINS.get(table, ())


def nftables_text(state: ServiceState, options: RenderOptions) -> str:
    """Nftables mode's table as a script for `nft -f`."""
    return render_state(state, options, MODE_NFTABLES).restore_text


def render_node(
    target: Target,
    family: Family,
    cluster: Manifests,
    config: KubeProxyConfiguration,
    features: Features,
    favoured: str = "",
) -> Rendered:
    """A node's rules, in the mode of its configuration. `favoured`: see `RenderOptions`."""
    objects = (cluster.services, cluster.endpoint_slices)
    return render_in_mode(target, family, *objects, config, features, cluster.service_cidrs, favoured)


def rules_of(rendered: Rendered) -> SideRules:
    """Rendered rules for the engines, on a fresh host."""
    if isinstance(rendered, RenderedTarget | RenderedIpvs):
        rules = SideRules.of(Ruleset(rendered.options.family, rendered.saved.tables))
        if isinstance(rendered, RenderedTarget):
            return rules
        family = rendered.options.family
        own = frozenset(parse_address(each, family) for each in rendered.made.addresses)
        sets = read_ipsets(rendered.ipset_text, "rendered sets")
        return replace(rules, ipvs=Ipvs(family, rendered.servers), own=own, sets=sets)
    from kproxy.render.nftables.save import nft_ruleset

    return SideRules((), nft_ruleset(rendered.restore_text))


def note_of(rendered: Rendered) -> Note:
    """Tells where a rule of `rules_of` comes from, by its table, chain and number."""
    origins = rendered.rule_origins()

    def note(table: str, chain: str, number: int) -> str | None:
        found = origins.get((table, chain), ())
        return str(found[number - 1]) if number <= len(found) else None

    return note


def index_of(rendered: Rendered, rules: SideRules, family: Family) -> Index:
    """All rules of a node for the packet model: `rules` are those of `rendered`, or begin with them."""
    native = rules.nftables if rules.nftables.tables else None
    return index_ruleset(rules.iptables, note_of(rendered), nftables=native, family=family, ipvs=rules.ipvs)


def host_in_mode(rules: SideRules, host: Host) -> Host:
    """The host as kube-proxy's mode makes it beside its rules: IPVS mode gives it addresses, sets and a sysctl."""
    if rules.ipvs is None:
        return host
    family = rules.ipvs.family
    return replace(
        host.serving((family, address) for address in rules.own),
        sets={**host.sets, **rules.sets},
        sysctls={**host.sysctls, CONNTRACK: 1},
    )


@dataclass(frozen=True)
class RenderedNode:
    """kube-proxy's rules on a node, in which what the objects do not show is open.

    Attributes:
        label: what unseen things call it.
        config: what its kube-proxy runs with.
        lacking: what the objects lack. assumed: what `--assume` says of that.
    """

    label: str
    cluster: Manifests
    config: KubeProxyConfiguration
    target: Target
    features: Features
    lacking: Lacking
    assumed: Assumed = NOTHING

    def with_addresses(self) -> RenderedNode:
        """The same with the node's own addresses among what is lacking, if they are: node ports answer there."""
        lacking, config = self.lacking.on_node(self.cluster, self.target, self.config, self.assumed)
        return replace(self, lacking=lacking, config=config)

    def unseen(self, family: Family) -> tuple[Unseen, ...]:
        """What was not seen of the objects that decide the rules of a family."""
        return self.assumed.left(each for each in self.lacking.unseen(self.label) if each.is_met_by(family))

    def rendered(self, family: Family, favoured: str = "") -> Rendered:
        """The rules of a family, with what they come from. `favoured`: see `RenderOptions`."""
        return render_node(self.target, family, self.cluster, self.config, self.features, favoured)

    def index(self, family: Family, rendered: Rendered, rules: SideRules, more: Sequence[Unseen] = ()) -> Index:
        """The rules of a family, `rules_of` what was rendered, for questions about one packet. `more` was not seen
        either."""
        opened = open_rules(rules.iptables, family, (*self.unseen(family), *more), rules.nftables)
        opened = open_services(opened, family, self.cluster, self.lacking)
        return index_of(rendered, replace(rules, iptables=opened), family)

    def rules(self, family: Family, same: Collection[tuple[str, str]] = ()) -> SideRules:
        """The rules of a family for a comparison over all packets. `same`: see `opened_side`."""
        node = self
        if self.lacking.node_addresses and any(what == NODE_ADDRESSES for _, what in same):
            config = msgspec.structs.replace(self.config, node_port_addresses=EVERYWHERE)
            node = replace(self, lacking=replace(self.lacking, node_addresses={}), config=config)
        found = opened_side(rules_of(node.rendered(family)), family, self.unseen(family), same)
        opened = open_services(found.iptables, family, self.cluster, node.lacking, on_any_host=True)
        return replace(found, iptables=opened)
