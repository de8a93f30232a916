"""The origins and connection states that functions are built for, and which packets there are of each.

Theory: docs/symbolic.md, "Backwards".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kproxy.dataplane.model.host import MULTICAST_NETWORKS
from kproxy.dataplane.model.packet import ACK, ICMP, ICMP_ERRORS, ICMPV6, SYN, TCP
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import LOCAL, Variables
from kproxy.netfilter.family import Family

LO: Final = 1
"""The number of the loopback interface among the interfaces."""


@dataclass(frozen=True)
class ConntrackCase:
    """A connection state to evaluate for: the name, what `-m conntrack` sees, whether there is a conntrack entry, and
    whether the packet is the first of its connection."""

    name: str
    ctstate: str
    tracked: bool
    fresh: bool

    @property
    def known(self) -> bool:
        """Whether conntrack knows the connection from an earlier packet."""
        return self.tracked and not self.fresh


CONNTRACK_CASES: Final = (
    ConntrackCase("NEW", "NEW", True, True),
    ConntrackCase("ESTABLISHED", "ESTABLISHED", True, False),
    ConntrackCase("RELATED (a connection)", "RELATED", True, True),
    ConntrackCase("RELATED (an ICMP error)", "RELATED", True, False),
    ConntrackCase("INVALID", "INVALID", False, False),
    ConntrackCase("UNTRACKED", "UNTRACKED", False, False),
)
ORIGINS: Final = ("arriving", "local")
_FIN, _RST, _URG = 0x01, 0x04, 0x20
_FIRST: Final = frozenset({SYN, SYN | _URG, ACK, ACK | _URG})
_LATER: Final = frozenset({SYN | ACK, _RST, _RST | ACK, _FIN | ACK, _FIN | ACK | _URG})
"""Which TCP flags, without PSH, ECE and CWR, conntrack takes in a connection's first packet (ACK by `tcp_loose`), and
which in others: `tcp_valid_flags` and `tcp_conntracks` in net/netfilter/nf_conntrack_proto_tcp.c. With others a packet
is INVALID."""


def feasible_start(variables: Variables, origin: str, state: ConntrackCase) -> Node:
    """Which packets of an origin and state there are: conditions that the rules cannot change."""
    diagrams = variables.diagrams
    result = TRUE
    if state.ctstate == "RELATED":
        number = ICMP if variables.family is Family.IPV4 else ICMPV6
        kinds = diagrams.among(variables.icmp_type, [(kind, kind) for kind in sorted(ICMP_ERRORS[number])])
        error = diagrams.equals(variables.protocol, number, kinds)
        result = diagrams.negate(error) if state.fresh else error
    if state.tracked:
        result = diagrams.both(result, _tracked_tcp(variables, state))
    outside = diagrams.among(variables.out_interface, ((LO + 1, diagrams.sizes[variables.out_interface] - 1),))
    if origin == "arriving":
        # Nothing is forwarded by way of the loopback interface: it would come back and be forwarded for ever.
        arrives = diagrams.among(variables.in_interface, ((LO + 1, diagrams.sizes[variables.in_interface] - 1),))
        return diagrams.both(diagrams.both(result, arrives), outside)
    leaves = diagrams.ite(
        diagrams.equals(variables.dst_kind, LOCAL), diagrams.equals(variables.out_interface, LO), outside
    )
    again = diagrams.among(variables.translated_out, ((LO + 1, diagrams.sizes[variables.translated_out] - 1),))
    return diagrams.both(diagrams.both(result, leaves), again)


def _tracked_tcp(variables: Variables, state: ConntrackCase) -> Node:
    """The packets that conntrack does not call INVALID for their TCP flags."""
    diagrams = variables.diagrams
    taken = _FIRST if state.fresh else _FIRST | _LATER
    flags = (each for each in range(256) if each & (_FIN | SYN | _RST | ACK | _URG) in taken)
    placed = diagrams.among(variables.tcp_flags, [(each, each) for each in flags])
    return diagrams.ite(diagrams.equals(variables.protocol, TCP), placed, TRUE)


def refused_by_all(variables: Variables) -> Node:
    """Which arriving packets of IPv4 every host refuses for their addresses (`concrete.delivery`)."""
    diagrams = variables.diagrams
    if variables.family is Family.IPV6:
        return FALSE
    zero, ones = (0, 0), (0xFFFFFFFF, 0xFFFFFFFF)
    strange = diagrams.either(
        variables.address_under(variables.src, MULTICAST_NETWORKS[Family.IPV4]), variables.between(variables.src, *ones)
    )
    to_all = variables.between(variables.dst, *ones)
    nowhere = diagrams.both(variables.between(variables.src, *zero), diagrams.negate(to_all))
    return diagrams.either(diagrams.either(strange, nowhere), variables.between(variables.dst, *zero))
