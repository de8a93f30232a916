"""Whether a packet that stays on this host would be masqueraded if it left.

kube-proxy marks packets first and masquerades the marked ones in POSTROUTING. A packet that is delivered to this host
never comes there, but that it is marked says what kube-proxy wanted.
"""

from __future__ import annotations

from kproxy.dataplane.concrete.chains import DONE, Cursor, End, Fork, Node, traverse
from kproxy.dataplane.concrete.index import Index
from kproxy.dataplane.concrete.state import SRC, State
from kproxy.dataplane.model.host import Host

_MOST: int = 1000


def would_masquerade(index: Index, host: Host, state: State) -> bool:
    """Whether the nat table's POSTROUTING would surely rewrite the source of this marked packet."""
    packet = state.packet
    if not packet.mark or not state.walks_nat or not index.has_chain("nat", "POSTROUTING"):
        return False
    leaving = state._replace(nat_done=state.nat_done & ~SRC).with_packet(out_interface=None, out_port="")
    cursor = Cursor("POSTROUTING", 1, (("POSTROUTING", 0),))
    pending = [Node(cursor, leaving)]
    for _ in range(_MOST):
        if not pending:
            return True
        node = pending.pop()
        if node.cursor.frames == DONE:
            if not node.state.masqueraded:
                return False
            continue
        found = traverse(index, host, node.cursor, node.state)
        if isinstance(found, Fork):
            for edge in found.edges:
                if isinstance(edge.to, End):
                    return False
                pending.append(edge.to)
        elif not found.state.masqueraded:
            return False
    return False
