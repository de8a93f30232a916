"""The overlay's daemon on a node: follows the Node objects and keeps the kernel at the plan.

Any change of a Node wakes it; changes that come together are one round. A round plans anew from all Nodes and changes
what differs, so it does not matter which event was missed or came twice. Every `resync` seconds there is a round in
any case, which mends what others changed. Packet filter rules cost processes to look at, so they are compared when the
pods' ranges have changed, and otherwise every `resync` seconds.

When it ends, links, routes and rules stay: pods go on while it is started anew. `remove` takes them away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from kproxy.api.types.core import Node
from kproxy.client import NODES, Informer, RestClient
from kproxy.errors import KproxyError
from kproxy.informer import ResourceEventHandlerFuncs
from kproxy.linux.namespace import Namespace
from kproxy.linux.pod.overlay_rules import CurrentRules, OverlayRules
from kproxy.linux.pod.vxlan import OverlayKernel
from kproxy.netfilter.hooks import Variant
from kproxy.overlay.nodes import OverlayNode, read_node
from kproxy.overlay.plan import ETHERNET_MTU, Backend, Change, OverlayPlan, difference, plan_overlay
from kproxy.overlay.rules import RuleSettings, plan_rules, pod_ranges

QUIET = 0.02
"""Seconds to wait for more changes before a round."""


class OverlaySettings(msgspec.Struct, frozen=True):
    """How a node takes part. `resync` and `sync_timeout` are seconds.

    `mtu` is that of the overlay itself, `underlay_mtu` that of the network between the nodes, in bytes; None for what
    the interface with the node's address has. `variant` is the iptables to use, None for that of kube-proxy or the
    kubelet.
    """

    node: str
    backend: Backend = Backend.VXLAN
    underlay_mtu: int | None = None
    mtu: int | None = None
    resync: float = 30.0
    sync_timeout: float = 30.0
    rules: RuleSettings = RuleSettings()
    variant: Variant | None = None


class Round(msgspec.Struct, frozen=True):
    """What one round did: the differences it found, and what kept it from being complete, in words.

    `mtu` is the plan's, in bytes; `notes` are what the user should know, without being a problem of the overlay's.
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    mtu: int = 0
    notes: tuple[str, ...] = ()


def remove(namespace: Namespace) -> Round:
    """Takes away whatever an overlay left in a namespace: devices, routes and rules. Sysctls stay as they are.

    Raises:
        LinuxError: what is there cannot be read.
    """
    rules = OverlayRules(namespace)
    gone, refused = rules.apply((), rules.read(choose=False))
    with OverlayKernel(namespace) as kernel:
        changes, problems = kernel.apply(())
    return Round((*gone, *changes), tuple(map(str, (*refused, *problems))))


class OverlayAgent:
    """Start it, `run` or `once` it, `stop` it. `report` gets every round that changed something or failed."""

    def __init__(
        self,
        client: RestClient,
        namespace: Namespace,
        settings: OverlaySettings,
        report: Callable[[Round], None] = lambda _round: None,
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._report = report
        self._informer: Informer[Node] = Informer(client, NODES)
        self._wake = threading.Event()
        self._stopped = False
        self._last_problems: tuple[str, ...] = ()
        self._last_notes: tuple[str, ...] = ()
        self._rule_notes: tuple[str, ...] = ()
        self._kept: tuple[str, ...] = ()
        self._underlay_mtus: dict[int, int] = {}
        self._guessed: tuple[str, ...] = ()
        self._rules = OverlayRules(namespace, settings.variant)
        self._own: OverlayNode | None = None
        self._rules_of: object = None
        self._rules_due = 0.0
        self._informer.add_event_handler(
            ResourceEventHandlerFuncs(
                add=lambda _node, _initial: self._wake.set(),
                update=self._updated,
                delete=lambda _node: self._wake.set(),
            )
        )

    def _updated(self, old: Node, new: Node) -> None:
        # A Node's status changes every few seconds, and what the overlay reads of it hardly ever.
        if read_node(old) != read_node(new):
            self._wake.set()

    def start(self) -> None:
        """Begins to follow the Nodes, and waits for the first list.

        Raises:
            KproxyError: the server did not give it in time.
        """
        self._informer.start()
        if not self._informer.wait_for_sync(self._settings.sync_timeout) and not self._stopped:
            failure = self._informer.last_failure
            reason = f": {failure}" if failure is not None else ""
            raise KproxyError(f"the Nodes were not listed within {self._settings.sync_timeout:g} s{reason}")

    def plan(self, kernel: OverlayKernel) -> OverlayPlan:
        """The plan of what is known now. Raises OverlayError."""
        settings = self._settings
        own, nodes = self._nodes()
        if settings.underlay_mtu is not None:
            self._underlay_mtus = dict.fromkeys((4, 6), settings.underlay_mtu)
        elif own is not None:
            # An address that is away for a moment says nothing of the network's MTU.
            self._underlay_mtus.update(kernel.underlay_mtus(own.addresses))
        self._guessed = () if own is None or settings.mtu is not None else tuple(_guessed(own, self._underlay_mtus))
        return plan_overlay(nodes, settings.node, settings.backend, self._underlay_mtus, settings.mtu)

    def _nodes(self) -> tuple[OverlayNode | None, list[OverlayNode]]:
        """The own Node, if it was ever there, and all of them.

        What the own Node loses stays as it was, as in `kproxy run`: its pods are still there, and other nodes come and
        go. It loses all when it is deleted, and podCIDRs and addresses when the kubelet registers it again.
        """
        nodes = {node.name: node for node in map(read_node, self._informer.indexer.list())}
        known, says = self._own, nodes.get(self._settings.node)
        own = says or known
        if says is not None and known is not None:
            own = msgspec.structs.replace(
                says, pod_cidrs=says.pod_cidrs or known.pod_cidrs, addresses=says.addresses or known.addresses
            )
        if own is not None:
            self._kept = tuple(_lost(says, own))
        self._own = own
        return own, [*nodes.values()] if own is None else [*({**nodes, own.name: own}).values()]

    def check(self) -> Round:
        """How the kernel differs from the plan; changes nothing."""
        with OverlayKernel(self._namespace) as kernel:
            plan = self.plan(kernel)
            changes = kernel.compare(plan.items)
        problems = list(plan.problems)
        notes: tuple[str, ...] = ()
        own, nodes = self._nodes()
        if own is not None and plan.items:
            seen = self._rules.read(choose=self._writes_iptables())
            changes += difference(plan_rules(own, nodes, self._settings.rules, seen.firewall), seen.chains)
            problems += self._lacking(seen)
            notes = seen.notes
        return Round(tuple(changes), tuple(problems), plan.mtu, (*self._guesses(), *notes))

    def wait_for_own(self, timeout: float | None = None) -> tuple[OverlayNode, int]:
        """Waits until this node has a plan: its Node object, podCIDRs and an address. The node, and its pods' MTU.

        The address must be on an interface, unless the MTU is given: pods keep the one that they begin with.

        `report` gets what is waited for whenever that changes. `timeout` is seconds, None for ever.

        Raises:
            KproxyError: it has none in time.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with OverlayKernel(self._namespace) as kernel:
            while True:
                self._wake.clear()
                plan = self.plan(kernel)
                if plan.mtu and not self._guessed:
                    own, _ = self._nodes()
                    assert own is not None
                    return own, plan.mtu
                problems = (*plan.problems, *self._guessed)
                if until is not None and time.monotonic() >= until:
                    raise KproxyError(f"{'; '.join(problems)}, after {timeout:g} s")
                if problems != self._last_problems:
                    self._report(Round((), problems))
                self._last_problems = problems
                # An address may come to an interface without any change of the Node.
                self._wake.wait(1.0)

    def once(self) -> Round:
        with OverlayKernel(self._namespace) as kernel:
            return self._round(kernel)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Rounds until `stop`; `ready` is called after the first that had no problem."""
        reported = False
        with OverlayKernel(self._namespace) as kernel:
            while not self._stopped:
                self._wake.clear()
                done = self._round(kernel)
                if not done.problems and not reported:
                    reported = True
                    ready()
                # A problem may go away by itself: a link that comes up, say.
                self._wake.wait(1.0 if done.problems else self._settings.resync)
                if not self._stopped and self._wake.is_set():
                    threading.Event().wait(QUIET)

    def stop(self) -> None:
        """Ends `run`, and the informer's threads."""
        self._stopped = True
        self._wake.set()
        self._informer.stop()

    def _round(self, kernel: OverlayKernel) -> Round:
        changes: list[Change] = []
        problems: list[str] = []
        try:
            plan = self.plan(kernel)
            problems += plan.problems
            # Until the own Node was seen nothing is known: what is there stays until it comes.
            if plan.items:
                changes, refused = kernel.apply(plan.items)
                problems += map(str, refused)
                self._rule_notes = self._keep_rules(changes, problems)
        except KproxyError as error:
            problems.append(str(error))
        notes = (*self._kept, *self._guesses(), *self._rule_notes)
        done = Round(tuple(changes), tuple(problems), notes=notes)
        if changes or done.problems != self._last_problems or notes != self._last_notes:
            self._report(done)
        self._last_problems, self._last_notes = done.problems, notes
        return done

    def _keep_rules(self, changes: list[Change], problems: list[str]) -> tuple[str, ...]:
        """Brings the rules to the plan if it is time; what the user should know. Raises LinuxError."""
        settings = self._settings
        own, nodes = self._nodes()
        if own is None:
            return self._rule_notes
        ranges = [pod_ranges(nodes, version, settings.rules.cluster_cidrs) for version in (4, 6)]
        if (own.pod_cidrs, ranges) == self._rules_of and time.monotonic() < self._rules_due:
            return self._rule_notes
        self._rules_of = None
        seen = self._rules.read(choose=self._writes_iptables())
        mended, refused = self._rules.apply(plan_rules(own, nodes, settings.rules, seen.firewall), seen)
        changes += mended
        lacking = [*map(str, refused), *self._lacking(seen)]
        problems += lacking
        if not lacking:
            self._rules_of = (own.pod_cidrs, ranges)
            self._rules_due = time.monotonic() + settings.resync
        return seen.notes

    def _guesses(self) -> Iterator[str]:
        return (f"{text}; {ETHERNET_MTU} bytes are assumed" for text in self._guessed)

    def _writes_iptables(self) -> bool:
        rules = self._settings.rules
        return rules.ip_masq or rules.forward

    def _lacking(self, seen: CurrentRules) -> list[str]:
        rules = self._settings.rules
        if rules.ip_masq and seen.firewall.main is None:
            return ["what pods send out of the pod network is not masqueraded: iptables is not installed"]
        return []


def _guessed(own: OverlayNode, underlay_mtus: Mapping[int, int]) -> Iterator[str]:
    """The families of which the network's MTU is not known."""
    for version in sorted(own.pod_cidrs):
        if version in own.addresses and version not in underlay_mtus:
            yield (
                f"no interface has node {own.name}'s address {own.addresses[version]}, so the MTU of the network "
                "between the nodes is not known: give --underlay-mtu or --mtu"
            )


def _lost(says: OverlayNode | None, own: OverlayNode) -> Iterator[str]:
    """What the overlay goes on with although the own Node, None if it is gone, no longer says it."""
    if says is None:
        yield f"Node {own.name} is gone: its podCIDRs and addresses stay as they were"
        return
    for name, now, kept in (("podCIDRs", says.pod_cidrs, own.pod_cidrs), ("addresses", says.addresses, own.addresses)):
        if kept and not now:
            yield f"Node {own.name} has lost its {name}: they stay as they were"
