"""The applier: keeps one family's rules in the kernel up with a changing cluster, writing only what changed.

`apply` reads the kernel, which takes as long as it has rules; the applier knows what it wrote last, so a changed
EndpointSlice costs rendering one ServicePort and one short restore. Whoever uses it calls `resync` now and then, and
after every failure the next `sync` is one.
"""

from __future__ import annotations

from kproxy.linux.canonical import Place
from kproxy.linux.engine import Outcome, apply_rules
from kproxy.linux.errors import LinuxError
from kproxy.linux.executor import Executor
from kproxy.linux.namespace import Namespace
from kproxy.linux.stale import Addresses, clean_flows, previous_addresses, programmed_addresses, wanted_addresses
from kproxy.linux.steps import Change, plan_runs, run_text
from kproxy.linux.wanted import wanted_rules
from kproxy.render import Plan, RenderedTarget, Renderer
from kproxy.render.chains import NAT
from kproxy.services import Changes, ServiceState


class Applier:
    """Writes the rules of one family.

    Invariant: while `needs_resync` is false, the kernel holds what `renderer` planned last, unless somebody else
    changed it since.
    """

    def __init__(
        self, executor: Executor, state: ServiceState, renderer: Renderer, namespace: Namespace | None = None
    ) -> None:
        """With a namespace, connection tracking entries that a change made stale are deleted too."""
        self._executor = executor
        self._namespace = namespace
        self._state = state
        self._renderer = renderer
        self.needs_resync = True

    def resync(self) -> Outcome:
        """Renders everything, compares it with the kernel, and writes the difference.

        Raises:
            LinuxError: see `apply_rules`.
        """
        self.needs_resync = True
        self._state.apply()
        rendered = RenderedTarget(self._state, self._renderer, self._renderer.plan_full(self._state))
        outcome = apply_rules(self._executor, wanted_rules(rendered))
        self.needs_resync = False
        self._clean(programmed_addresses(outcome.before))
        return outcome

    def sync(self) -> Changes:
        """Takes what the state was told since, and writes what that changed.

        Raises:
            LinuxError: it could not be written; the next `sync` is a `resync`.
        """
        if self.needs_resync:
            self.resync()
            return Changes()
        changes = self._state.apply()
        plan = self._renderer.plan_partial(self._state, changes.touched)
        try:
            self._write(plan)
        except LinuxError:
            self.needs_resync = True
            raise
        self._clean(previous_addresses(changes))
        return changes

    def _clean(self, before: Addresses) -> None:
        if self._namespace is not None and before.services:
            clean_flows(self._namespace, self._executor.family, wanted_addresses(self._state), before)

    def _write(self, plan: Plan) -> None:
        for run in plan_runs(change_of_plan(plan), self._executor.variant):
            self._executor.restore(run_text(run))


def change_of_plan(plan: Plan) -> Change:
    """A renderer's plan as something to write."""
    writes: dict[Place, str] = {}
    groups: dict[str, object] = {}
    for name, chains in plan.service_ports.items():
        for chain, text in chains.items():
            writes[(NAT, chain)] = text
            groups[chain] = name
    writes.update(plan.base)
    return Change(writes, [(NAT, chain) for chain in plan.deletions], (), groups)
