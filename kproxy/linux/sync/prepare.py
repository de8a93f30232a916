"""One node's rules on this machine: from a cluster and a namespace to what each family's kernel tables should hold.

What `apply` and `drift` share: which variant, what the host can do, which addresses it has, the rules rendered for
that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.linux.errors import FeatureMissingError
from kproxy.linux.host.addresses import interface_addresses, is_this_node
from kproxy.linux.iptables.binaries import Iptables, Variant
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.features import BY_NAME, line_rewriter
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.iptables.preflight import Preflight, run_preflight
from kproxy.linux.iptables.variant import Choice, choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.desired import Wanted, wanted_rules
from kproxy.render import Features, RenderedTarget, Renderer, RenderOptions, Target, render_options
from kproxy.render.iptables.base import CANARY_TABLES
from kproxy.services import IPFamily, NodePortAddresses, ServiceState


class NodeRequest(msgspec.Struct, frozen=True):
    """What is wanted of a node.

    Attributes:
        families: those asked for; both if empty, as far as the host has them.
        variant: None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        libiptc: whether legacy tables that were written are read back through libiptc too.
    """

    target: Target
    config: KubeProxyConfiguration
    services: Sequence[Service]
    endpoint_slices: Sequence[EndpointSlice]
    families: tuple[IPFamily, ...] = ()
    variant: Variant | None = None
    features: Features = Features()
    lock_wait: float = DEFAULT_WAIT
    libiptc: bool = False


class PreparedFamily(msgspec.Struct, frozen=True):
    """One family, ready to be compared or written; `notes` is what the user should know."""

    family: IPFamily
    iptables: Iptables
    executor: IptablesExecutor
    rendered: RenderedTarget
    wanted: Wanted
    features: Features
    notes: tuple[str, ...]


class PreparedNode(msgspec.Struct, frozen=True):
    """The families of a node that can be programmed; `left_out` says why others are not."""

    choice: Choice
    families: tuple[PreparedFamily, ...]
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.choice.notes, *self.left_out, *(note for family in self.families for note in family.notes))


def prepare_node(request: NodeRequest, namespace: Namespace, *, writes: bool) -> PreparedNode:
    """Finds out what the host can do, and renders the node's rules for it.

    Args:
        writes: whether the namespace may be written to, for a moment, to find out where there is no other way.

    Raises:
        LinuxError: the host cannot be programmed; nothing was changed.
    """
    families = request.families or tuple(IPFamily)
    choice = choose_variant(
        namespace, families, request.variant, demand_all=bool(request.families), lock_wait=request.lock_wait
    )
    prepared: list[PreparedFamily] = []
    left_out: list[FeatureMissingError] = []
    notes = []
    for family, iptables in choice.tools.items():
        try:
            prepared.append(prepare_family(request, namespace, family, iptables, writes))
        except FeatureMissingError as error:
            # As kube-proxy does: a family that the host cannot do is left alone, unless it was asked for.
            if request.families:
                raise
            left_out.append(error)
            notes.append(f"{family.value} is left alone: {error}")
    if left_out and not prepared:
        raise left_out[0]
    return PreparedNode(choice, tuple(prepared), tuple(notes))


def prepare_family(
    request: NodeRequest, namespace: Namespace, family: IPFamily, iptables: Iptables, writes: bool
) -> PreparedFamily:
    """Prepares one family with given binaries. Raises as `prepare_node`."""
    place = namespace if writes else None
    preflight = run_preflight(iptables, place, with_nfacct=request.features.nfacct, lock_wait=request.lock_wait)
    preflight.check()
    missing = preflight.missing
    features = Features(
        nfacct=request.features.nfacct and "nfacct" not in missing,
        random_fully=request.features.random_fully and "random-fully" not in missing,
    )
    options = node_options(request.config, request.target, namespace, family, features, "addrtype" in missing)
    state = ServiceState.of(family, request.target.node_name, request.services, request.endpoint_slices)
    renderer = Renderer(options)
    rendered = RenderedTarget(state, renderer, renderer.plan_full(state))
    canaries = [table for table in CANARY_TABLES if f"table {table}" not in missing]
    wanted = wanted_rules(rendered, line_rewriter(missing), canaries)
    return PreparedFamily(
        family,
        iptables,
        IptablesExecutor(namespace, iptables, lock_wait=request.lock_wait),
        rendered,
        wanted,
        features,
        tuple(_losses(preflight, request.features, state, iptables)),
    )


def node_options(
    config: KubeProxyConfiguration,
    target: Target,
    namespace: Namespace,
    family: IPFamily,
    features: Features,
    no_addrtype: bool = False,
) -> RenderOptions:
    """The render options of one family, with the namespace's interface addresses where they matter and are the node's.

    Args:
        no_addrtype: the host cannot match local addresses, so every address a packet has is taken for a node port's.

    Raises:
        LinuxError: the addresses cannot be read.
    """
    options = render_options(config, family, target.node_name, target.node, features)
    if no_addrtype and options.node_port_addresses.match_all:
        everything = NodePortAddresses(False, ("::/0" if family.is_ipv6 else "0.0.0.0/0",))
        options = msgspec.structs.replace(options, node_port_addresses=everything)
    if not options.node_port_addresses.match_all:
        addresses = interface_addresses(namespace, family)
        if is_this_node(addresses, options.node_ip):
            options = msgspec.structs.replace(options, interface_addresses=addresses)
    return options


def _losses(preflight: Preflight, asked: Features, state: ServiceState, iptables: Iptables) -> Iterable[str]:
    if preflight.untried:
        yield f"{iptables}: {preflight.untried}"
    for name, loss in zip(_optional(preflight.missing), preflight.losses, strict=True):
        if name == "random-fully" and not asked.random_fully:
            continue
        yield f"{iptables}: {loss}{_affected(name, state)}"


def _optional(missing: Collection[str]) -> list[str]:
    return [name for name in missing if not BY_NAME[name].required]


def _affected(feature: str, state: ServiceState) -> str:
    """Which Services lose something by it."""
    if feature == "recent":
        names = [name for name, port in state.service_ports.items() if port.session_affinity_seconds]
    elif feature == "sctp":
        names = [name for name in state.service_ports if name.protocol == "SCTP"]
    elif feature == "statistic":
        names = [name for name in state.service_ports if len(state.endpoints.get(name, ())) > 1]
    else:
        return ""
    if not names:
        return " (no Service here needs it)"
    shown = ", ".join(str(name) for name in sorted(names)[:10])
    return f" ({shown}{f' and {len(names) - 10} more' if len(names) > 10 else ''})"
