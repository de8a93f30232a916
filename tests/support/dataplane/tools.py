"""Short ways to ask the model."""

from __future__ import annotations

from fractions import Fraction

from kproxy.dataplane import Connection, Host, Outcome, Packet, TraceResult, make_packet, parse_host, trace
from kproxy.dataplane.concrete.matches.registry import evaluate
from kproxy.dataplane.concrete.state import TRACKED, RuleRef, Split, State, View
from kproxy.netfilter import Family, Ruleset, canonical_ruleset, parse_rule
from kproxy.netfilter.hooks import Hook

NODE = parse_host(
    {
        "interfaces": [
            {"name": "lo", "addresses": ["127.0.0.1/8", "::1/128"]},
            {"name": "eth0", "addresses": ["192.0.2.10/24", "2001:db8::10/64"]},
            {"name": "cni0", "addresses": ["10.244.0.1/24", "fd00:244::1/64"]},
            {"name": "veth1", "bridge": "cni0", "hairpin": True},
            {"name": "veth2", "bridge": "cni0", "hairpin": False},
        ],
        "routes": [{"to": "default", "via": "192.0.2.1"}, {"to": "default", "via": "2001:db8::1"}],
        "sysctls": {
            "ip_forward": 1, "ip6_forward": 1, "rp_filter": 0, "accept_local": 0, "route_localnet": 0,
            "bridge-nf-call-iptables": 1, "bridge-nf-call-ip6tables": 1,
        },
    }
)  # fmt: skip
"""A node of which everything is known."""

SIMPLE = Host.simple(["192.0.2.10"])
NEW_PACKET = make_packet("198.51.100.7:4000", "10.96.0.1:80", in_interface="eth0")


def rules(text: str, family: Family = Family.IPV4) -> Ruleset:
    """A rule set from lines such as `nat: -A PREROUTING ...` and `nat: :CHAIN - [0:0]`."""
    tables: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        table, _, rest = line.strip().partition(": ")
        tables.setdefault(table, []).append(rest)
    whole = "".join(f"*{table}\n" + "\n".join(lines) + "\nCOMMIT\n" for table, lines in tables.items())
    return canonical_ruleset(whole, family)


def only(result: TraceResult) -> Outcome:
    """The outcome of a trace that has just one."""
    (outcome,) = result.outcomes
    assert outcome.probability == 1
    return outcome


def fate(text: str, packet: Packet = NEW_PACKET, host: Host = NODE, connection: Connection | None = None) -> Outcome:
    """What certainly becomes of a packet."""
    return only(trace(rules(text, packet.family), host, packet, connection))


def chances(result: TraceResult) -> dict[str, Fraction]:
    """The probability of each verdict, or of each destination of accepted packets."""
    found: dict[str, Fraction] = {}
    for outcome in result.outcomes:
        key = outcome.dst if outcome.verdict == "ACCEPT" else outcome.verdict
        found[key] = found.get(key, Fraction(0)) + outcome.probability
    return found


def ask(
    match: str,
    packet: Packet = NEW_PACKET,
    host: Host = NODE,
    connection: Connection | None = None,
    *,
    hook: Hook = Hook.FORWARD,
    tracking: str = TRACKED,
    limit: bool | None = None,
) -> bool | Fraction | None:
    """Whether the first match of a rule applies: True or False, its chance, or None if nobody can say."""
    rule = parse_rule(f"-A X {match} -j DROP", family=packet.family)
    state = State(packet, (connection or Connection()).known_as(packet), tracking)
    answer = evaluate(
        rule.matches[0], rule.matches[0].condition(), View(host, hook, RuleRef("filter", "X", 1), state, limit)
    )
    if not isinstance(answer, Split):
        return answer
    if answer.yes is None or answer.no is None:
        return answer.yes is not None
    return answer.chance
