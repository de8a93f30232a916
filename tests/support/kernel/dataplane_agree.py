"""What the model says will be seen of a packet, and whether that is what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kproxy.dataplane import Host, Index, Outcome, TraceResult, parse_endpoint, trace
from kproxy.dataplane.concrete.reply import reply_to, trace_reply
from kproxy.dataplane.model.packet import TCP, UDP
from kproxy.linux.testbed.wire import MAGIC, REJECTS, REPLY, Observed, what_counts
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from tests.support.kernel.dataplane_wire import (
    LINKS,
    ON_LINK,
    Node,
    Probe,
    mac,
    next_hop,
)


@dataclass(frozen=True)
class Event:
    """What the model says is seen: where, what, and with which addresses; None: not said."""

    where: str
    kind: str
    src: str | None = None
    sport: int | None = None
    dst: str | None = None
    dport: int | None = None

    def fits(self, seen: Observed) -> bool:
        """Whether it is this that was seen."""
        if (self.where, self.kind) != (seen.where, seen.kind):
            return False
        mine, its = (self.src, self.sport, self.dst, self.dport), (seen.src, seen.sport, seen.dst, seen.dport)
        return self.kind != "packet" or all(a is None or a == b for a, b in zip(mine, its, strict=True))


_ANSWERED = {
    "unreachable": ("icmp 3/0", "icmp 3/1", "icmp 1/0", "icmp 1/3", "icmp 1/4"),
    "prohibit": ("icmp 3/13", "icmp 1/1"),
}
NOTHING = Event("", "nothing")


def link_of(node: Node, device: str | None, family: Family, dst: int | None) -> str | None:
    """The wire that a packet turns up on; None if the node finds no neighbour to send it to."""
    if device is None or dst is None:
        return None
    address = format_address(dst, family)
    if device == "cni0":
        return node.pods.get(address)
    if device == "eth0":
        near = address.startswith("192.0.2.") and int(address.rpartition(".")[2]) < 16
        near = near or address.startswith("2001:db8:1::")
        return "o0" if not near or address in ON_LINK else None
    return next((link for link, name in LINKS.items() if name == device), None)


@dataclass
class Tally:
    """What a run found. `open` counts packets whose outcome depends on something that the model was not told; these
    are compared with everything that is possible."""

    packets: int = 0
    replies: int = 0
    open: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{self.packets} packets and {self.replies} replies ({shown}); {len(self.disagreements)} disagreements"


@dataclass
class Bench:
    """A node with rules, and the model of both."""

    node: Node
    index: Index
    host: Host
    tally: Tally
    variant: str = ""

    def compare(self, probes: Sequence[Probe], *, batch: int = 200, replies: bool = True) -> None:
        """Send every probe, and a reply to each that came through; note where what was seen is not what the model says
        may be seen."""
        for start in range(0, len(probes), batch):
            part = probes[start : start + batch]
            seen = self.node.exchange(part)
            answers: list[tuple[Probe, TraceResult]] = []
            for probe in part:
                self.tally.packets += 1
                found = seen.get(probe.token, [])
                result = trace(self.index, self.host, probe.packet)
                outcome = self.judge(probe, result, found)
                if replies and outcome is not None:
                    answers += self._answer(probe, outcome, found)
            if answers:
                seen = self.node.exchange([probe for probe, _ in answers])
                for probe, result in answers:
                    self.tally.replies += 1
                    self.judge(probe, result, seen.get(probe.token, []))

    def _events(self, outcome: Outcome) -> list[Event]:
        """What may be seen of an outcome; several if the answer to a rejected packet is not certain."""
        packet = outcome.packet
        if outcome.possible:
            return [event for item in outcome.possible for event in self._events(item)]
        if outcome.verdict == "REJECT":
            if not outcome.reject:  # by a rule that is not known
                kinds = dict.fromkeys(REJECTS.values())
                return [NOTHING, *(Event(link, kind) for kind in kinds for link in ("local", *LINKS))]
            kind = REJECTS[outcome.reject]
            found = []
            for answer in trace_reply(self.index, self.host, outcome).outcomes:
                if answer.verdict == "INDETERMINATE":  # its TTL and length are not known
                    return [NOTHING, *(Event(link, kind) for link in ("local", *LINKS))]
                found += [NOTHING if where is None else Event(where, kind) for where in self._where(answer)]
            return found
        src = None if packet.src is None else format_address(packet.src, packet.family)
        dst = None if packet.dst is None else format_address(packet.dst, packet.family)
        found = [
            NOTHING if where is None else Event(where, "packet", src, packet.sport, dst, packet.dport)
            for where in self._where(outcome)
        ]
        # A route of this kind is answered: the model says what becomes of the packet, not what the host answers.
        codes = next((codes for kind, codes in _ANSWERED.items() if outcome.reason.endswith(f"kind {kind}")), ())
        return [*found, *(Event(link, code) for link in ("local", *LINKS) for code in codes)]

    def _where(self, outcome: Outcome) -> list[str | None]:
        """Where it may turn up: anywhere, if the interface or the address is not said."""
        packet = outcome.packet
        if outcome.verdict != "ACCEPT":
            return [None]
        if outcome.via == "local":
            return ["local"]
        if packet.out_interface is None or packet.dst is None:
            return [None, *LINKS]
        if any("daddr set" in step.text for step in outcome.steps):
            # Without a gateway the neighbour is the destination that a rule wrote, and may not be there.
            return [None, *(link for link, name in LINKS.items() if packet.out_interface in (name, "cni0"))]
        return [link_of(self.node, packet.out_interface, packet.family, packet.dst)]

    def judge(self, probe: Probe, result: TraceResult, seen: Sequence[Observed]) -> Outcome | None:
        """Note a disagreement; return the outcome that came about."""
        assert sum((item.probability for item in result.outcomes), Fraction(0)) == 1
        self.tally.open += not result.determined
        fate = what_counts(seen)
        kind = "nothing" if fate is None else f"{fate.kind.split()[0]} {'local' if fate.where == 'local' else 'wire'}"
        self.tally.kinds[kind] = self.tally.kinds.get(kind, 0) + 1
        packets = [item for item in seen if item.kind == "packet"]
        fitting = [
            outcome
            for outcome in result.outcomes
            if any(event == NOTHING if fate is None else event.fits(fate) for event in self._events(outcome))
        ]
        if fitting and len(packets) <= 1:
            return fitting[0] if len(fitting) == 1 else None
        self.tally.disagreements.append(self._report(probe, result, seen))
        return None

    def _report(self, probe: Probe, result: TraceResult, seen: Sequence[Observed]) -> str:
        lines = [f"{self.variant}: {probe.packet} on {probe.link}", f"  seen: {list(seen) or 'nothing'}"]
        for outcome in result.outcomes:
            events = list(dict.fromkeys(self._events(outcome)))
            shown = [each for each in events if each.kind == "packet" or len(events) < 20]
            lines.append(f"  model: {shown} {outcome.verdict} {outcome.reason} {outcome.reasons}")
            lines += [f"    {step.hook} {step.kind} {step.text} [{step.did}]" for step in outcome.steps]
            if outcome.verdict == "REJECT":
                for answer in trace_reply(self.index, self.host, outcome).outcomes:
                    lines.append(f"  the answer {answer.packet}: {answer.verdict} {answer.reason}")
                    lines += [f"    {step.hook} {step.kind} {step.text} [{step.did}]" for step in answer.steps]
        return "\n".join(lines)

    def _answer(self, probe: Probe, outcome: Outcome, seen: Sequence[Observed]) -> list[tuple[Probe, TraceResult]]:
        """The reply to a packet that came out on a wire, from whoever got it."""
        fate = what_counts(seen)
        if fate is None or fate.kind != "packet" or fate.where == "local" or probe.packet.protocol not in (TCP, UDP):
            return []
        if outcome.verdict != "ACCEPT" or outcome.connection is None:
            return []
        answer, connection = reply_to(self.host, outcome)
        length = (20 if answer.protocol == TCP else 8 + len(MAGIC) + 4) + (20 if answer.family is Family.IPV4 else 40)
        source = parse_endpoint(fate.dst)[1], parse_endpoint(fate.src)[1]
        packet = answer.replace(src=source[0], sport=fate.dport, dst=source[1], dport=fate.sport)
        packet = packet.replace(in_interface=LINKS[fate.where], in_port=None, ttl=64, tos=0, length=length)
        if fate.where in ("p1", "p2"):
            packet = packet.replace(bridged=next_hop(packet, fate.where) != mac("cni0", "node"))
        reply = connection.reply
        if reply is not None and reply.dport is None:
            connection = connection.replace(reply=reply._replace(dport=fate.sport))
        if not connection.fits(packet) and packet.protocol == UDP:
            return []  # a rule wrote addresses: it begins a connection, and its tuple may be taken
        token = probe.token | REPLY
        return [
            (Probe(packet, fate.where, token, probe.token + 1), trace(self.index, self.host, packet, connection)),
        ]
