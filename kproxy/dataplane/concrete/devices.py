"""What hangs on single devices: ingress and egress chains, and the chains of bridges.

A packet meets the ingress chains of the device it comes in by before everything else, and the egress chains of the
device it leaves by after everything else. A packet that comes by a port of a bridge meets those of the port and then,
if it is for the bridge itself, those of the bridge; over a bridge it leaves by a port that only the bridge knows. On
its way over a bridge it meets the chains of the family bridge, too, which are not evaluated: whether they let it pass
is an open question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kproxy.dataplane.concrete.answer import answer, interface_fits
from kproxy.dataplane.concrete.assumptions import Assumptions
from kproxy.dataplane.concrete.graph import Edge, End, Fork, sure
from kproxy.dataplane.concrete.state import BRIDGED, Answer, Split, State, View, open_question
from kproxy.dataplane.model.pipeline import BaseChain, pattern_of
from kproxy.dataplane.model.verdict import DROP
from kproxy.netfilter.condition import Among
from kproxy.netfilter.hooks import Hook


def meets(chain: BaseChain, view: View) -> Answer:
    """Whether the packet comes in, or leaves, by a device that the ingress or egress chain hangs on."""
    if not chain.devices:
        return open_question(view, ("devices", chain), f"on which devices {chain} hangs is not known")
    answers = [_by_device(name, view) for name in chain.devices]
    if True in answers:
        return True
    pending = [found for found in answers if isinstance(found, Split)]
    if len(pending) > 1:
        return open_question(view, ("devices", chain), pending[0].why)
    return pending[0] if pending else False


def _by_device(name: str, view: View) -> Answer:
    packet, host = view.state.packet, view.host
    pattern = pattern_of(name)
    if view.hook is Hook.INGRESS:
        device, port, field, why = packet.in_interface, packet.in_port, "in_port", "the input bridge port is not known"
    else:
        device, port, field, why = packet.out_interface, None, "out_port", "the output bridge port is not known"
        if (BRIDGED, True) in view.state.answers and device is not None and interface_fits(pattern, device):
            return False  # the bridge itself sends nothing
    if device is not None and port is None and not interface_fits(pattern, device) and host.bridge_of(name) == device:
        return open_question(view, (field, name), why)
    name = "in_interface" if view.hook is Hook.INGRESS else "out_interface"
    return answer(Among(name, frozenset({pattern})), view)


def stopped_on_bridge(
    chains: Iterable[BaseChain], hooks: Collection[Hook], assumed: Assumptions
) -> tuple[bool | None, str]:
    """Whether a chain of the family bridge at one of the hooks stops a packet, and what that depends on.

    `--assume 'bridge TABLE CHAIN=yes'` says that one lets packets pass, `bridge` alone means all of them.
    """
    pending = []
    for chain in chains:
        if chain.hook in hooks:
            name = f"{chain.table} {chain.chain}"
            passes = assumed.decide((name, chain.table, "bridge"))
            if passes is False:
                return True, ""
            if passes is None:
                pending.append(name)
    if not pending:
        return False, ""
    why = f"whether {' and '.join(pending)} let the packet pass is not known"
    assumed.explain(why, "bridge" if len(pending) > 1 else pending[0])
    return None, why


def perhaps(fork: Fork, stopped: bool | None, why: str, hook: Hook, state: State) -> Fork:
    """The fork, with a drop at the hook in its place, or beside it if that is not known."""
    if stopped is False:
        return fork
    drop = End(DROP, hook, state)
    if stopped:
        return sure(drop, fork.steps)
    edges = (edge._replace(chance=None) for edge in fork.edges)
    return Fork(fork.steps, (*edges, Edge(None, drop)), "; ".join(filter(None, (fork.why, why))))
