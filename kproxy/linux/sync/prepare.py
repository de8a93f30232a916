"""What this host can do, and one node's rules rendered for that.

`prepare_host` is for everything that programs a host (`apply`, `drift`, `run`): which variant, which features.
`prepare_node` adds what each family's kernel tables should hold for one state of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.stale import programmed_addresses
from kproxy.linux.errors import FeatureMissingError
from kproxy.linux.generation import Ledger
from kproxy.linux.host.addresses import interface_addresses, is_this_node
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.binaries import Iptables
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.features import LineRewriter, line_rewriter
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.iptables.preflight import run_preflight
from kproxy.linux.iptables.variant import Choice, choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.desired import DesiredRules, desired_rules
from kproxy.linux.sync.progress import Progress
from kproxy.linux.sync.reconcile import family_report, reconcile_rules
from kproxy.linux.sync.report import FamilyReport
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features, RenderedTarget, RenderOptions, Target, render_options
from kproxy.render.iptables.base import CANARY_TABLES
from kproxy.services import IPFamily, NodePortAddresses, ServiceState
from kproxy.words import listed

FamilyT = TypeVar("FamilyT")


class NodeRequest(msgspec.Struct, frozen=True):
    """What is wanted of a node.

    Attributes:
        families: those asked for; both if empty, as far as the host has them.
        variant: None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        libiptc: whether legacy tables that were written are read back through libiptc too.
        service_cidrs: the ranges of ClusterIPs, for which nftables mode has rules.
        config_known: whether anything says how kube-proxy is configured; `config` has its defaults otherwise.
        counters_known: whether `features` says if rules count packets with nfacct; else a comparison takes what is
            there.
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
    service_cidrs: Sequence[ServiceCIDR] = ()
    config_known: bool = True
    counters_known: bool = True


class HostFamily(msgspec.Struct, frozen=True):
    """One family that this host can program.

    Attributes:
        rewrite: turns rendered lines into what this kernel can load; None if it can load all.
        canary_tables: the tables that get a canary chain.
        no_addrtype: the kernel cannot match local addresses.
        losses: for each optional feature that was asked for and is missing, what is lost.
        untried: why it is unknown what the host can load; "" if that was tried.
        ledger: counts the transactions of all executors of the namespace.
    """

    family: IPFamily
    namespace: Namespace
    iptables: Iptables
    features: Features
    rewrite: LineRewriter | None = None
    canary_tables: tuple[str, ...] = CANARY_TABLES
    no_addrtype: bool = False
    lock_wait: float = DEFAULT_WAIT
    losses: Mapping[str, str] = {}
    untried: str = ""
    ledger: Ledger | None = None

    def options(
        self, config: KubeProxyConfiguration, target: Target, _service_cidrs: Sequence[ServiceCIDR] = ()
    ) -> RenderOptions:
        """What to render with; ServiceCIDRs do not matter in iptables mode. Raises LinuxError."""
        return node_options(config, target, self.namespace, self.family, self.features, self.no_addrtype)

    def executor(self) -> IptablesExecutor:
        """What reads and writes the rules."""
        return IptablesExecutor(self.namespace, self.iptables, lock_wait=self.lock_wait, ledger=self.ledger)

    def notes(self, state: ServiceState | None = None) -> Iterator[str]:
        """What the user should know; with a state, also which of its Services are affected."""
        if self.untried:
            yield f"{self.iptables}: {self.untried}"
        for name, loss in self.losses.items():
            yield f"{self.iptables}: {loss}{_affected(name, state) if state is not None else ''}"


class Host(msgspec.Struct, frozen=True):
    """What can be programmed, and why it is that; `left_out` says why other families cannot."""

    choice: Choice
    families: tuple[HostFamily, ...]
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        return (*self.choice.notes, *self.left_out, *(note for family in self.families for note in family.notes()))


class PreparedFamily(msgspec.Struct, frozen=True):
    """One family, ready to be compared or written."""

    host: HostFamily
    executor: IptablesExecutor
    rendered: RenderedTarget
    desired: DesiredRules

    @property
    def family(self) -> IPFamily:
        return self.host.family

    @property
    def state(self) -> ServiceState:
        """The ServicePorts and endpoints that are wanted."""
        return self.rendered.state

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        """Brings the kernel to the desired rules, and says where rules sent traffic before; see `reconcile_rules`."""
        outcome = reconcile_rules(self.executor, self.desired, namespace, dry_run=dry_run, progress=progress)
        report = family_report(self.executor, str(self.host.iptables), self.desired, outcome, dry_run)
        return report, lambda: programmed_addresses(outcome.before)


class PreparedNode(msgspec.Struct, frozen=True):
    """The host, and the families of the node that can be programmed."""

    host: Host
    families: tuple[PreparedFamily, ...]

    @property
    def choice(self) -> Choice:
        return self.host.choice

    @property
    def variant(self) -> str:
        return self.choice.variant.value

    @property
    def reason(self) -> str:
        return self.choice.reason

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        own = (note for family in self.families for note in family.host.notes(family.rendered.state))
        return (*self.choice.notes, *self.host.left_out, *own)


def prepare_host(
    namespace: Namespace,
    families: tuple[IPFamily, ...],
    variant: Variant | None,
    features: Features,
    lock_wait: float,
    *,
    writes: bool = True,
) -> Host:
    """Finds out what the host can do, and makes the nfacct counters that its rules will use.

    Args:
        families: those that must work; both if empty, as far as the host has them.
        variant: None for auto.
        features: which optional features to use if the host has them.
        lock_wait: seconds to wait for the xtables lock.
        writes: whether the namespace may be written to: counters, and rules to try where no scratch namespace can be
            made.

    Raises:
        LinuxError: it cannot be programmed.
    """
    choice = choose_variant(
        namespace, families or tuple(IPFamily), variant, demand_all=bool(families), lock_wait=lock_wait
    )

    def prepare(family: IPFamily) -> HostFamily:
        return _prepare_family(namespace, family, choice.tools[family], features, lock_wait, writes)

    return Host(choice, *prepare_families(choice.tools, prepare, demand_all=bool(families)))


def prepare_families(
    families: Iterable[IPFamily], prepare: Callable[[IPFamily], FamilyT], *, demand_all: bool
) -> tuple[tuple[FamilyT, ...], tuple[str, ...]]:
    """The families that the host can do, and of the others why not.

    As kube-proxy does: a family that the host cannot do is left alone, unless it was asked for or is the last.

    Raises:
        LinuxError: see `prepare`.
    """
    found: list[FamilyT] = []
    left_out: list[str] = []
    refused: FeatureMissingError | None = None
    for family in families:
        try:
            found.append(prepare(family))
        except FeatureMissingError as error:
            if demand_all:
                raise
            refused = refused or error
            left_out.append(f"{family.value} is left alone: {error}")
    if refused is not None and not found:
        raise refused
    return tuple(found), tuple(left_out)


def _prepare_family(
    namespace: Namespace, family: IPFamily, iptables: Iptables, asked: Features, lock_wait: float, writes: bool
) -> HostFamily:
    fallback = namespace if writes else None
    preflight = run_preflight(iptables, fallback, with_nfacct=asked.nfacct, lock_wait=lock_wait)
    preflight.check()
    missing = preflight.missing
    features = Features(
        nfacct=asked.nfacct and "nfacct" not in missing,
        random_fully=asked.random_fully and "random-fully" not in missing,
    )
    if features.nfacct and writes:
        nfacct.ensure_counters(namespace)
    return HostFamily(
        family,
        namespace,
        iptables,
        features,
        line_rewriter(missing),
        tuple(table for table in CANARY_TABLES if f"table {table}" not in missing),
        "addrtype" in missing,
        lock_wait,
        {name: loss for name, loss in preflight.losses.items() if name != "random-fully" or asked.random_fully},
        preflight.untried,
    )


def prepare_node(request: NodeRequest, namespace: Namespace, *, writes: bool) -> PreparedNode:
    """Finds out what the host can do and renders for it. Raises as `prepare_host`."""
    host = prepare_host(
        namespace, request.families, request.variant, request.features, request.lock_wait, writes=writes
    )
    return PreparedNode(host, tuple(render_family(request, family) for family in host.families))


def render_family(request: NodeRequest, host: HostFamily) -> PreparedFamily:
    """What one family's tables should hold. Raises LinuxError."""
    state = ServiceState.of(host.family, request.target.node_name, request.services, request.endpoint_slices)
    rendered = RenderedTarget.of(state, host.options(request.config, request.target))
    desired = desired_rules(rendered, host.rewrite, host.canary_tables)
    return PreparedFamily(host, host.executor(), rendered, desired)


def node_options(
    config: KubeProxyConfiguration,
    target: Target,
    namespace: Namespace,
    family: IPFamily,
    features: Features,
    no_addrtype: bool = False,
    service_cidrs: Iterable[ServiceCIDR] = (),
) -> RenderOptions:
    """The render options of one family, with the namespace's interface addresses where they matter and are the node's.

    Args:
        no_addrtype: the host cannot match local addresses, so every address a packet has is taken for a node port's.

    Raises:
        LinuxError: the addresses cannot be read.
    """
    options = render_options(config, family, target.node_name, target.node, features, service_cidrs=service_cidrs)
    if no_addrtype and options.node_port_addresses.match_all:
        everything = NodePortAddresses(False, ("::/0" if family.is_ipv6 else "0.0.0.0/0",))
        options = msgspec.structs.replace(options, node_port_addresses=everything)
    if not options.node_port_addresses.match_all:
        addresses = interface_addresses(namespace, family)
        if is_this_node(addresses, options.node_ip):
            options = msgspec.structs.replace(options, interface_addresses=addresses)
    return options


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
    return f" ({listed(sorted(names), 10)})"
