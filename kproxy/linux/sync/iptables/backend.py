"""The backend of iptables mode: a family of this host in the variant of iptables that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.networking import ServiceCIDR
from kproxy.cluster.stale_flows import Addresses, previous_addresses
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.errors import LinuxError
from kproxy.linux.iptables import nfacct
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import Executor, Iptables, IptablesExecutor
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.linux.iptables.libiptc import MAX_RULES, compare_read_back, read_back
from kproxy.linux.iptables.preflight import LineRewriter, line_rewriter, run_preflight
from kproxy.linux.iptables.variant import choose_variant
from kproxy.linux.namespace import Namespace
from kproxy.linux.nfnetlink import Ledger
from kproxy.linux.sync.backend import Backend, Host, NodeRequest, Prepared, node_options, prepare_families
from kproxy.linux.sync.family_syncer import FamilySyncer, SyncReport
from kproxy.linux.sync.finding import Compared
from kproxy.linux.sync.iptables.describe import compare_rules
from kproxy.linux.sync.iptables.desired import (
    DesiredRules,
    asleep,
    desired_rules,
    expected_blocks,
    find_left,
    rewrite_text,
)
from kproxy.linux.sync.iptables.reconcile import (
    Change,
    describe,
    family_report,
    plan_runs,
    read_dump,
    reconcile_rules,
    run_text,
)
from kproxy.linux.sync.report import FamilyReport, Progress, Stopwatch
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import SaveText
from kproxy.render import Features, RenderedTarget, Renderer, RenderOptions, Target
from kproxy.render.iptables.base import CANARY_TABLES
from kproxy.render.iptables.chains import FILTER, FORWARD, NAT, NODEPORTS
from kproxy.services import Changes, IPFamily, ServiceState
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


class Syncer(FamilySyncer):
    """Writes the rules of one family.

    Invariants: while `needs_resync` is false, the kernel holds what `renderer` planned last, unless others
    changed it since. `_sizes` counts the rules of every chain as last written.
    """

    def __init__(
        self,
        executor: Executor,
        state: ServiceState,
        renderer: Renderer,
        namespace: Namespace | None = None,
        *,
        rewrite: LineRewriter | None = None,
        canary_tables: Iterable[str] = CANARY_TABLES,
    ) -> None:
        """With a namespace, connection tracking entries that a change made stale are deleted too.

        Args:
            rewrite: turns rendered lines into what this kernel can do; see `kproxy.linux.iptables.preflight`.
            canary_tables: the tables that get a canary chain.
        """
        super().__init__(state, namespace)
        self._executor = executor
        self._namespace = namespace
        self._renderer = renderer
        self._rewrite = rewrite
        self._canary_tables = tuple(canary_tables)
        self._sizes: dict[ChainRef, int] = {}

    @property
    def rendered_options(self) -> RenderOptions:
        return self._renderer.options

    @property
    def fingerprint(self) -> Callable[[], object | None]:
        return self._executor.fingerprint

    def rendered(self) -> RenderedTarget:
        return RenderedTarget.of(*self.snapshot())

    def rule_totals(self) -> dict[str, int]:
        """How many rules kube-proxy's chains hold, by table."""
        totals: dict[str, int] = {}
        for (table, _), count in list(self._sizes.items()):
            totals[table] = totals.get(table, 0) + count
        return totals

    def _write_all(self, watch: Stopwatch, _notes: list[str]) -> tuple[SyncReport, Callable[[], Addresses]]:
        with watch.step("render"):
            if self._options is not None:
                self._renderer, self._options = Renderer(self._options), None
            plan = self._renderer.plan_full(self._state)
            desired = desired_rules(
                RenderedTarget(self._state, self._renderer, plan), self._rewrite, self._canary_tables
            )
        outcome = reconcile_rules(self._executor, desired, self._namespace, verify=False)
        watch.times += outcome.steps
        self._sizes = {ref: text.count("\n") for ref, text in desired.chains.items()}
        difference = outcome.difference
        report = SyncReport(
            chains_written=len(difference.writes),
            chains_deleted=len(difference.deletions),
            rules_written=_rules_by_table(difference.writes),
            found=describe(difference),
        )
        return report, lambda: programmed_addresses(outcome.before)

    def _read(self) -> str:
        return self._executor.save(counters=False)

    def _comparison(self, give_way: Callable[[], None]) -> Callable[[str | None], bool]:
        plan = self._renderer.last_plan()
        desired = desired_rules(RenderedTarget(self._state, self._renderer, plan), self._rewrite, self._canary_tables)
        saver = f"iptables-{self._executor.variant.value}-save"
        blocks = expected_blocks(desired, each=give_way)
        return lambda text: (
            not (find_left(desired, text or "", saver, blocks) or asleep(desired, self._executor.dormant()))
        )

    def _write_changes(self, changes: Changes, watch: Stopwatch, _notes: list[str]) -> SyncReport:
        with watch.step("render"):
            change = self._plan(changes)
        with watch.step("write"):
            self._flows.remember(previous_addresses(changes))
            for run in plan_runs(change, self._executor.variant):
                self._executor.restore(run_text(run))
        for ref in change.deletions:
            self._sizes.pop(ref, None)
        self._sizes.update((ref, text.count("\n")) for ref, text in change.writes.items())
        return SyncReport(
            chains_written=len(change.writes),
            chains_deleted=len(change.deletions),
            rules_written=_rules_by_table(change.writes),
        )

    def _plan(self, changes: Changes) -> Change:
        if self._options is not None:
            plan = self._renderer.replan(self._state, self._options)
            self._options = None
        else:
            plan = self._renderer.plan_partial(self._state, changes.touched)
        change = plan.change
        if self._rewrite is None:
            return change
        writes = {ref: rewrite_text(text, self._rewrite) for ref, text in change.writes.items()}
        previous = {ref: rewrite_text(text, self._rewrite) for ref, text in change.previous.items()}
        return msgspec.structs.replace(change, writes=writes, previous=previous)


def _rules_by_table(writes: Mapping[ChainRef, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (table, _), text in writes.items():
        counts[table] = counts.get(table, 0) + text.count("\n")
    return counts
