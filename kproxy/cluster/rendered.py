"""What kube-proxy would write on a node, as values for the engines, with where each rule comes from; and which of a
dump's chains are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, Ruleset
from kproxy.render import Features, RenderedTarget, RenderOptions, Target, render_table, render_target
from kproxy.render.iptables.base import BASE_CHAINS
from kproxy.render.iptables.chains import CANARY, SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.iptables.save import saved_ruleset
from kproxy.services.tracker import ServiceState

if TYPE_CHECKING:  # iptables mode does not wait for the other one
    from kproxy.dataplane.concrete.state import Note
    from kproxy.render import RenderedTable


def is_ours(table: str, chain: str) -> bool:
    """Whether a chain of iptables is kube-proxy's, by its name."""
    if table == "nat" and chain.startswith(SERVICE_PORT_CHAIN_PREFIXES):
        return True
    return chain == CANARY or chain in BASE_CHAINS.get(table, ())


def render_state(state: ServiceState, options: RenderOptions, mode: str) -> RenderedTarget | RenderedTable:
    """kube-proxy's rules in a mode, from scratch."""
    if mode != MODE_NFTABLES:
        return RenderedTarget.of(state, options)
    from kproxy.render import RenderedTable

    return RenderedTable.of(state, options)


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
) -> RenderedTarget | RenderedTable:
    """A node's rules, in the mode of its configuration. `favoured`: see `RenderOptions`."""
    services, slices = cluster.services, cluster.endpoint_slices
    if config.mode == MODE_NFTABLES:
        return render_table(target, family, services, slices, config, features, cluster.service_cidrs, favoured)
    return render_target(target, family, services, slices, config, features, favoured)


def rules_of(rendered: RenderedTarget | RenderedTable) -> SideRules:
    """Rendered rules for the engines, on a fresh host."""
    if isinstance(rendered, RenderedTarget):
        family = rendered.options.family
        return SideRules.of(Ruleset(family, saved_ruleset(rendered.restore_text, family).tables))
    from kproxy.render.nftables.save import nft_ruleset

    return SideRules((), nft_ruleset(rendered.restore_text))


def note_of(rendered: RenderedTarget | RenderedTable) -> Note:
    """Tells where a rule of `rules_of` comes from, by its table, chain and number."""
    origins = rendered.rule_origins()

    def note(table: str, chain: str, number: int) -> str | None:
        found = origins.get((table, chain), ())
        return str(found[number - 1]) if number <= len(found) else None

    return note
