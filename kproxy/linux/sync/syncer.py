"""The syncer: keeps one family's rules in the kernel up with a changing cluster, writing only what changed.

`apply` reads the kernel, which takes as long as it has rules; the syncer knows what it wrote last, so a changed
EndpointSlice costs rendering one ServicePort and one short restore. Its user calls `resync` now and then, and
after every failure the next `sync` is one.

Connection tracking entries are cleaned after the rules are right: at the first sync too, since the process that wrote
the rules may have been killed before it cleaned up. What could not be cleaned is kept and tried again with the next
sync; it does not make the sync fail, since new connections follow the rules. With the check that follows, what was
cleaned is looked through once more: a packet of this host's own that was preempted between two hooks, on a kernel that
preempts, gets its entry by the old rules after any wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kproxy.cluster.stale_flows import Addresses, previous_addresses
from kproxy.linux.conntrack.programmed import programmed_addresses
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import Executor
from kproxy.linux.iptables.features import LineRewriter
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.desired import desired_rules, rewrite_text
from kproxy.linux.sync.difference import asleep
from kproxy.linux.sync.family_syncer import FamilySyncer, SyncReport
from kproxy.linux.sync.readback import expected_blocks, find_left
from kproxy.linux.sync.reconcile import reconcile_rules
from kproxy.linux.sync.report import Stopwatch
from kproxy.linux.sync.restore_batches import Change, plan_runs, run_text
from kproxy.render import RenderedTarget, Renderer, RenderOptions
from kproxy.render.iptables.base import CANARY_TABLES
from kproxy.services import Changes, ServiceState


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
            rewrite: turns rendered lines into what this kernel can do; see `kproxy.linux.iptables.features`.
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
            difference=difference,
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
