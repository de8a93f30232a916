"""The overlay's daemon on a node: follows the Node objects and keeps the kernel at the plan.

Any change of a Node wakes it; changes that come together are one round. A round plans anew from all Nodes and changes
what differs, so it does not matter which event was missed or came twice. Every `resync` seconds there is a round in
any case, which mends what others changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from kproxy.api.core import Node
from kproxy.client import NODES, Informer, RestClient
from kproxy.errors import KproxyError
from kproxy.informer import ResourceEventHandlerFuncs
from kproxy.linux.namespace import Namespace
from kproxy.linux.overlay import OverlayKernel
from kproxy.overlay.nodes import read_node
from kproxy.overlay.plan import Backend, Change, OverlayPlan, plan_overlay

QUIET = 0.02
"""Seconds to wait for more changes before a round."""


class OverlaySettings(msgspec.Struct, frozen=True):
    """How a node takes part. `resync` and `sync_timeout` are seconds.

    `mtu` is that of the overlay itself, `underlay_mtu` that of the network between the nodes, in bytes; None for what
    the interface with the node's address has.
    """

    node: str
    backend: Backend = Backend.VXLAN
    underlay_mtu: int | None = None
    mtu: int | None = None
    resync: float = 30.0
    sync_timeout: float = 30.0


class Round(msgspec.Struct, frozen=True):
    """What one round did: the differences it found, and what kept it from being complete, in words.

    `mtu` is the plan's, in bytes.
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    mtu: int = 0


class OverlayAgent:
    """Start it, `run` or `once` it, `stop` it. `report` is told of every round that changed something or failed."""

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
        self._underlay_mtus: dict[int, int] = {}
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
            told = f": {failure}" if failure is not None else ""
            raise KproxyError(f"the Nodes were not listed within {self._settings.sync_timeout:g} s{told}")

    def plan(self, kernel: OverlayKernel) -> OverlayPlan:
        """The plan of what is known now. Raises OverlayError."""
        settings = self._settings
        nodes = [read_node(node) for node in self._informer.indexer.list()]
        own = next((node for node in nodes if node.name == settings.node), None)
        if settings.underlay_mtu is not None:
            self._underlay_mtus = dict.fromkeys((4, 6), settings.underlay_mtu)
        elif own is not None:
            # An address that is away for a moment says nothing of the network's MTU.
            self._underlay_mtus.update(kernel.underlay_mtus(own.addresses))
        return plan_overlay(nodes, settings.node, settings.backend, self._underlay_mtus, settings.mtu)

    def check(self) -> Round:
        """How the kernel differs from the plan; changes nothing."""
        with OverlayKernel(self._namespace) as kernel:
            plan = self.plan(kernel)
            return Round(tuple(kernel.compare(plan.items)), plan.problems, plan.mtu)

    def once(self) -> Round:
        """One round."""
        with OverlayKernel(self._namespace) as kernel:
            return self._round(kernel)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Rounds until `stop`; `ready` is called after the first that had no problem."""
        told = False
        with OverlayKernel(self._namespace) as kernel:
            while not self._stopped:
                self._wake.clear()
                done = self._round(kernel)
                if not done.problems and not told:
                    told = True
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
            # Without the own Node nothing is known: what is there stays until it comes.
            if plan.items:
                changes, refused = kernel.apply(plan.items)
                problems += map(str, refused)
        except KproxyError as error:
            problems.append(str(error))
        done = Round(tuple(changes), tuple(problems))
        if changes or done.problems != self._last_problems:
            self._report(done)
        self._last_problems = done.problems
        return done
