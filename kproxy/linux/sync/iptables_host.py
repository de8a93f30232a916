"""The backend of iptables mode: a family of this host in the variant of iptables that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import LinuxError
from kproxy.linux.generation import Ledger
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.binaries import Iptables
from kproxy.linux.iptables.executor import IptablesExecutor
from kproxy.linux.iptables.features import LineRewriter, line_rewriter
from kproxy.linux.iptables.libiptc import MAX_RULES, compare_read_back, read_back
from kproxy.linux.iptables.lock import DEFAULT_WAIT
from kproxy.linux.iptables.preflight import run_preflight
from kproxy.linux.iptables.variant import choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import Backend, Host, NodeRequest, Prepared, node_options, prepare_families
from kproxy.linux.sync.describe import compare_rules
from kproxy.linux.sync.desired import DesiredRules, desired_rules
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.reconcile import family_report, read_dump, reconcile_rules
from kproxy.linux.sync.report import FamilyReport, Progress
from kproxy.linux.sync.syncer import Syncer
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText
from kproxy.render import Features, RenderedTarget, Renderer, RenderOptions, Target
from kproxy.render.iptables.base import CANARY_TABLES
from kproxy.render.iptables.chains import FILTER, FORWARD, NAT, NODEPORTS
from kproxy.services import IPFamily, ServiceState
from kproxy.words import listed


class HostFamily(Backend, frozen=True):
    """One family that this host can program.

    Attributes:
        rewrite: turns rendered lines into what this kernel can load; None if it can load all.
        canary_tables: the tables that get a canary chain.
        no_addrtype: the kernel cannot match local addresses.
        losses: for each optional feature that was asked for and is missing, what is lost.
        untried: why it is unknown what the host can load; "" if that was tried.
        ledger: counts the transactions of all executors of the namespace.
    """

    iptables: Iptables
    features: Features
    rewrite: LineRewriter | None = None
    canary_tables: tuple[str, ...] = CANARY_TABLES
    no_addrtype: bool = False
    lock_wait: float = DEFAULT_WAIT
    losses: Mapping[str, str] = {}
    untried: str = ""
    ledger: Ledger | None = None

    @property
    def tool(self) -> str:
        return str(self.iptables)

    @property
    def variant(self) -> Variant:
        return self.iptables.variant

    @property
    def counts_packets(self) -> bool:
        return self.features.nfacct

    def options(
        self, config: KubeProxyConfiguration, target: Target, _service_cidrs: Sequence[ServiceCIDR] = ()
    ) -> RenderOptions:
        """See Backend; ServiceCIDRs do not matter in iptables mode."""
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

    def render(self, request: NodeRequest) -> PreparedFamily:
        if not request.counters_known:
            # Rules that count packets, which changes none, are as right as those that do not: kube-proxy and
            # `kproxy run` write them where the kernel can count.
            found = read_dump(self.executor(), counters=False)
            features = msgspec.structs.replace(self.features, nfacct=_counts(found))
            return msgspec.structs.replace(self, features=features)._rendered(request, found)
        return self._rendered(request)

    def _rendered(self, request: NodeRequest, found: SaveText | None = None) -> PreparedFamily:
        state = ServiceState.of(self.family, request.target.node_name, request.services, request.endpoint_slices)
        rendered = RenderedTarget.of(state, self.options(request.config, request.target))
        desired = desired_rules(rendered, self.rewrite, self.canary_tables)
        return PreparedFamily(self.family, state, rendered.options, self, self.executor(), desired, found)

    def syncer(self, state: ServiceState, options: RenderOptions) -> Syncer:
        return Syncer(
            self.executor(),
            state,
            Renderer(options),
            self.namespace,
            rewrite=self.rewrite,
            canary_tables=self.canary_tables,
        )


def _counts(dump: SaveText) -> bool:
    """Whether kube-proxy's rules name its nfacct counters."""
    chains = (dump.chain(FILTER, FORWARD), dump.chain(NAT, NODEPORTS))
    names = nfacct.NFACCT_NAMES
    return any(name in rule for chain in chains if chain is not None for rule in chain.rules for name in names)


class PreparedFamily(Prepared, frozen=True):
    """One family, ready to be compared or written. `found`: what the kernel holds, if it was read already."""

    host: HostFamily
    executor: IptablesExecutor
    desired: DesiredRules
    found: SaveText | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.host.notes(self.state))

    def reconcile(
        self, namespace: Namespace, *, dry_run: bool = False, progress: Progress | None = None
    ) -> tuple[FamilyReport, Callable[[], Addresses]]:
        outcome = reconcile_rules(self.executor, self.desired, namespace, dry_run=dry_run, progress=progress)
        report = family_report(self.executor, str(self.host.iptables), self.desired, outcome, dry_run)
        return report, lambda: programmed_addresses(outcome.before)

    def compare(self, _namespace: Namespace) -> Compared:
        return compare_rules(
            self.desired, self.found or read_dump(self.executor, counters=False), self.executor.variant
        )

    def read_again(self) -> list[str]:
        """Reads legacy tables through libiptc as well; the notes say where that differs from iptables-save.

        The rules are verified by then: this is a second witness, whose disagreement is a note and undoes nothing.
        """
        rules = sum(text.count("\n") for text in self.desired.chains.values())
        if self.executor.variant is not Variant.LEGACY or rules > MAX_RULES:
            return []
        name = f"{self.family.value} legacy"
        try:
            saved = read_dump(self.executor, counters=False)
            differences = compare_read_back(saved, read_back(self.host.namespace, self.family), self.family)
        except LinuxError as error:
            return [f"{name}: no second reading through libiptc: {error}"]
        return [f"{name}: libiptc and iptables-save disagree: {difference}" for difference in differences[:10]]


def prepare_iptables(
    namespace: Namespace,
    families: tuple[IPFamily, ...],
    variant: Variant | None,
    features: Features,
    lock_wait: float,
    *,
    writes: bool,
) -> Host:
    """Finds out what the host can do, and makes the nfacct counters that its rules will use. See `prepare_host`."""
    choice = choose_variant(
        namespace, families or tuple(IPFamily), variant, demand_all=bool(families), lock_wait=lock_wait
    )

    def prepare(family: IPFamily) -> HostFamily:
        return _prepare_family(namespace, family, choice.tools[family], features, lock_wait, writes)

    found, left_out = prepare_families(choice.tools, prepare, demand_all=bool(families))
    return Host(choice.variant.value, choice.reason, found, left_out, choice)


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
