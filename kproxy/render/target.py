"""From a cluster and a node to that node's rules: what `render`, `golden`, `explain` and others share.

A `Target` says for which node and family rules are wanted; `render_in_mode` reads the cluster as kube-proxy on that
node would, and renders it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPVS, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.core import Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.errors import InputError
from kproxy.render.iptables.base import jump_origins
from kproxy.render.iptables.plan import Plan
from kproxy.render.iptables.renderer import Renderer
from kproxy.render.iptables.serviceport import ChainRef
from kproxy.render.options import Features, ModeError, RenderOptions, render_options
from kproxy.render.origin import Origin, RenderedRule
from kproxy.services.names import IPFamily
from kproxy.services.node import primary_family
from kproxy.services.tracker import ServiceState

if TYPE_CHECKING:  # who only wants rules of iptables mode does not wait for the others
    from kproxy.netfilter import Ruleset
    from kproxy.render.ipvs.node import RenderedIpvs
    from kproxy.render.nftables.table import RenderedTable

Rendered: TypeAlias = "RenderedTarget | RenderedTable | RenderedIpvs"
"""What kube-proxy makes of a node, in one mode."""


class NodeError(InputError):
    """The node to render for is not said, or is not there."""


class Target(msgspec.Struct, frozen=True):
    """The node whose rules are wanted.

    Attributes:
        node_name: as kube-proxy calls it.
        node: its Node object, None when the cluster's manifests hold no Node at all.
    """

    node_name: str
    node: Node | None

    def primary_family(self, config: KubeProxyConfiguration) -> IPFamily:
        """The family rules are rendered for when none is asked for."""
        return primary_family(self.node, config.bind_address)


def select_target(nodes: Sequence[Node], config: KubeProxyConfiguration, node_name: str | None = None) -> Target:
    """Decides which node is meant: the one asked for, else the configuration's hostnameOverride, else the only Node.

    Raises:
        NodeError: none of these says which, or the cluster has Nodes but not this one.
    """
    by_name = {node.metadata.name: node for node in nodes}
    known = ", ".join(sorted(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
    # kube-proxy trims and lower-cases its host name before it looks for its Node.
    name = node_name or config.hostname_override.strip().lower()
    if name:
        if by_name and name not in by_name:
            source = "" if node_name else " (the configuration's hostnameOverride)"
            raise NodeError(f"node {name!r}{source} is not among the Nodes of the cluster: {known}")
        return Target(name, by_name.get(name))
    if len(by_name) == 1:
        return Target(*by_name.popitem())
    if by_name:
        raise NodeError(f"the cluster has {len(by_name)} Nodes: say which with --node ({known})")
    raise NodeError("the cluster has no Node: say with --node for which node the rules are wanted")


class RenderedTarget(msgspec.Struct, frozen=True):
    """The rules of one family on one node.

    Attributes:
        state: the ServicePorts and endpoints they came from.
        renderer: holds the chains; `plan` is its full plan.
    """

    state: ServiceState
    renderer: Renderer
    plan: Plan

    @classmethod
    def of(cls, state: ServiceState, options: RenderOptions) -> RenderedTarget:
        """Rendered from scratch."""
        renderer = Renderer(options)
        return cls(state, renderer, renderer.plan_full(state))

    @property
    def options(self) -> RenderOptions:
        return self.renderer.options

    @property
    def restore_text(self) -> str:
        """One full text for `iptables-restore --noflush`."""
        return self.plan.restore_text

    @property
    def save_text(self) -> str:
        """What iptables-save prints in a fresh namespace once the rules are in; see `kproxy.render.iptables.save`."""
        # Imported here: restore text alone does not need the parser.
        from kproxy.netfilter import print_save

        return print_save(self.saved)

    @property
    def saved(self) -> Ruleset:
        """The same as values."""
        from kproxy.render.iptables.save import saved_ruleset

        return saved_ruleset(self.plan.restore_text, self.options.family)

    def rule_origins(self) -> dict[ChainRef, list[Origin]]:
        """The provenance of every rule of the save form: by table and chain, in order."""
        return jump_origins() | self.renderer.origins(self.state)

    def rules(self) -> Iterator[RenderedRule]:
        """Every rule of the save form with its provenance, jump rules included, in the order of the save form."""
        from kproxy.render.iptables.save import rendered_rules

        yield from rendered_rules(self.saved, self.rule_origins())


def render_target(
    target: Target,
    family: IPFamily,
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    config: KubeProxyConfiguration | None = None,
    features: Features | None = None,
    favoured: str = "",
) -> RenderedTarget:
    """Renders the iptables rules of one family on one node from scratch. `favoured`: see `RenderOptions`.

    Raises:
        ModeError: the configuration asks for nftables or IPVS mode.
    """
    config = config or KubeProxyConfiguration()
    if config.mode in (MODE_NFTABLES, MODE_IPVS):
        raise ModeError(f"mode {config.mode}: these are iptables mode's rules; render_in_mode renders any")
    return RenderedTarget.of(*_inputs(target, family, services, endpoint_slices, config, features, (), favoured))


def render_table(
    target: Target,
    family: IPFamily,
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    config: KubeProxyConfiguration,
    features: Features | None = None,
    service_cidrs: Iterable[ServiceCIDR] = (),
    favoured: str = "",
) -> RenderedTable:
    """Renders the nftables table of one family on one node from scratch. `favoured`: see `RenderOptions`."""
    from kproxy.render.nftables.table import RenderedTable

    found = _inputs(target, family, services, endpoint_slices, config, features, service_cidrs, favoured)
    return RenderedTable.of(*found)


def render_in_mode(
    target: Target,
    family: IPFamily,
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    config: KubeProxyConfiguration,
    features: Features | None = None,
    service_cidrs: Iterable[ServiceCIDR] = (),
    favoured: str = "",
) -> Rendered:
    """Renders one family on one node from scratch, in its configuration's mode. `favoured`: see `RenderOptions`."""
    found = _inputs(target, family, services, endpoint_slices, config, features, service_cidrs, favoured)
    return render_state(*found, config.mode)


def render_state(state: ServiceState, options: RenderOptions, mode: str) -> Rendered:
    """kube-proxy's rules in a mode, from scratch."""
    if mode == MODE_NFTABLES:
        from kproxy.render.nftables.table import RenderedTable

        return RenderedTable.of(state, options)
    if mode == MODE_IPVS:
        from kproxy.render.ipvs.node import RenderedIpvs

        return RenderedIpvs.of(state, options)
    return RenderedTarget.of(state, options)


def _inputs(
    target: Target,
    family: IPFamily,
    services: Iterable[Service],
    endpoint_slices: Iterable[EndpointSlice],
    config: KubeProxyConfiguration,
    features: Features | None,
    service_cidrs: Iterable[ServiceCIDR],
    favoured: str,
) -> tuple[ServiceState, RenderOptions]:
    options = render_options(config, family, target.node_name, target.node, features, service_cidrs=service_cidrs)
    state = ServiceState.of(family, target.node_name, services, endpoint_slices)
    return state, msgspec.structs.replace(options, favoured=favoured)
