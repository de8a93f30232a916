"""The data-plane model: what Linux does to a packet, given iptables rules and what is known of the host.

`trace` sends one packet through a rule set and returns every outcome with its exact probability. `Packet`, `Host` and
`Connection` say what is known; what is not known stays open, and an outcome that depends on it is INDETERMINATE rather
than guessed. docs/dataplane.md says what is modelled. Nothing here does I/O, and nothing is random: chance is a result.
"""

from __future__ import annotations

from kproxy.dataplane.concrete.graph import Step
from kproxy.dataplane.concrete.index import Index, index_ruleset
from kproxy.dataplane.concrete.reply import reply_to, trace_reply
from kproxy.dataplane.concrete.trace import Outcome, TraceResult, trace
from kproxy.dataplane.model.check import check_traceable
from kproxy.dataplane.model.conntrack import Connection, FlowTuple
from kproxy.dataplane.model.errors import DataplaneError, HostError
from kproxy.dataplane.model.host import Host, Interface, InterfaceAddress, Route, RoutingRule
from kproxy.dataplane.model.hostfile import parse_host
from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.packet import Packet, format_endpoint, make_packet, parse_endpoint
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT

__all__ = [
    "ACCEPT",
    "DROP",
    "INDETERMINATE",
    "REJECT",
    "Connection",
    "DataplaneError",
    "FlowTuple",
    "Host",
    "HostError",
    "Index",
    "Interface",
    "InterfaceAddress",
    "IpSet",
    "Outcome",
    "Packet",
    "Route",
    "RoutingRule",
    "Step",
    "TraceResult",
    "check_traceable",
    "format_endpoint",
    "index_ruleset",
    "make_packet",
    "parse_endpoint",
    "parse_host",
    "reply_to",
    "trace",
    "trace_reply",
]
