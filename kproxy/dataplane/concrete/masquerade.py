"""Whether a packet that stays on this host would be masqueraded if it left.

kube-proxy marks packets first and masquerades the marked ones in POSTROUTING. A packet that is delivered to this host
never comes there, but that it is marked says what kube-proxy wanted.
"""

from __future__ import annotations

from collections.abc import Callable

from kproxy.dataplane.concrete.graph import Cursor, End, Fork, Node
from kproxy.dataplane.concrete.state import SRC, State
from kproxy.dataplane.model.pipeline import Pipeline
from kproxy.dataplane.model.verdict import ACCEPT
from kproxy.netfilter.hooks import Hook

_MAX_NODES: int = 1000


def would_masquerade(pipeline: Pipeline, advance: Callable[[Node], Fork], state: State) -> bool:
    """Whether the nat chains of POSTROUTING would surely rewrite the source of this marked packet.

    `advance` goes from a node to what comes next.
    """
    packet = state.packet
    if not packet.mark or not state.walks_nat:
        return False
    stage = pipeline.nat_stage(Hook.POSTROUTING)
    leaving = state._replace(nat_done=state.nat_done & ~SRC).with_packet(out_interface=None, out_port="")
    pending = [Node(Cursor(Hook.POSTROUTING, stage), leaving)]
    for _ in range(_MAX_NODES):
        if not pending:
            return True
        for edge in advance(pending.pop()).edges:
            to = edge.to
            if isinstance(to, Node) and to.cursor.stage == stage:
                pending.append(to)
                continue
            if isinstance(to, Fork):
                return False
            if isinstance(to, End) and to.verdict is not ACCEPT:
                return False
            if not to.state.masqueraded:
                return False
    return False
