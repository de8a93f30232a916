"""What drift means for packets: the data-plane model's verdict on sample packets, by the desired and by the real rules.

For each ServicePort that a finding concerns, new connections from a pod, from outside and from the node itself are sent
to each of its addresses, once through the rules as found and once through those rules with kube-proxy's put right: so
the rules of others count in both. What differs is listed; packets that are treated alike are counted. It is a sample:
it shows what some packets meet, and proves nothing of the others (`kproxy diff` does).

In a large cluster most chains cannot matter to the packets in question. So of ServicePorts' chains only those are
parsed that a concerned ServicePort owns, that a differing rule leads to, or that these lead to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from kproxy.dataplane import ACCEPT, DROP, DataplaneError, Host, Index, index_ruleset
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.expectation import TOLERANCE
from kproxy.dataplane.query.report import report
from kproxy.dataplane.query.spec import Question, read_question
from kproxy.errors import KproxyError
from kproxy.family import join_host_port
from kproxy.linux.host.addresses import interface_addresses
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.ownership import is_owned, is_service_chain
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.desired import DesiredRules
from kproxy.linux.sync.difference import Difference
from kproxy.linux.sync.iptables_host import PreparedFamily
from kproxy.netfilter import parse_save
from kproxy.netfilter.text import SaveText, target_of
from kproxy.render import RenderedTable, RenderedTarget, RenderOptions
from kproxy.render.iptables.chains import NAT
from kproxy.services import Endpoint, IPFamily, ServicePort

MAX_SERVICE_PORTS: Final = 20
"""ServicePorts to send packets to; the rest is counted. Findings that concern no Service in particular are explained by
the first few."""
_A_FEW: Final = 3

_OUTSIDE: Final = {IPFamily.IPV4: "198.51.100.77", IPFamily.IPV6: "2001:db8:ffff::77"}
_PORT: Final = 40000
_CIDR: Final = re.compile(r"-s (\S+)$")
_INTERFACE: Final = re.compile(r"-i (\S+)$")

Rendered = RenderedTarget | RenderedTable
Rules = Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]
"""By table and chain: the policy and the rules."""


class Sample(NamedTuple):
    """One packet: its sender and its destination, in words; and the question to the model."""

    sender: str
    to: str
    question: Question


def packet_effects(
    family: PreparedFamily,
    namespace: Namespace,
    found: SaveText,
    difference: Difference,
    services: Iterable[str],
) -> list[str]:
    """`rule_effects` for a namespace: its interfaces' addresses and the node's IP are the host's own.

    Raises:
        LinuxError: the interface addresses cannot be read.
    """
    local = [*interface_addresses(namespace, family.family), family.rendered.options.node_ip]
    return rule_effects(family.rendered, family.desired, local, found, difference, services)


def rule_effects(
    rendered: RenderedTarget,
    desired: DesiredRules,
    local_addresses: Iterable[str],
    found: SaveText,
    difference: Difference,
    services: Iterable[str],
) -> list[str]:
    """What sample packets meet, in sentences; a sentence about the model where it cannot tell.

    Args:
        services: the Services that findings concern, as `namespace/name[:port]`; "" for findings that concern none in
            particular.
    """
    return sample_effects(
        rendered, local_addresses, services, lambda ports: _indexes(desired, found, difference, ports)
    )


def sample_effects(
    rendered: Rendered,
    local_addresses: Iterable[str],
    services: Iterable[str],
    indexes: Callable[[Sequence[ServicePort]], tuple[Index, Index]],
) -> list[str]:
    """`rule_effects` by whatever rules: `indexes` gives those that were found and those that should be there, as far as
    they matter to packets of some ServicePorts."""
    asked, left = _concerned(rendered, set(services))
    if not asked:
        return []
    host = Host.simple(dict.fromkeys(local_addresses), route_localnet=rendered.options.localhost_node_ports)
    try:
        real, right = indexes(asked)
    except KproxyError as error:
        return [f"the model cannot read the rules as found: {error}"]
    sentences = [text for port in asked for text in _port_effects(port, rendered, host, right, real)]
    if left:
        sentences.append(f"{left} more ServicePorts are concerned and were not asked about")
    return sentences


def _concerned(rendered: Rendered, services: set[str]) -> tuple[list[ServicePort], int]:
    ports = rendered.state.service_ports
    names = sorted(name for name in ports if str(name) in services)
    if "" in services:
        names += [name for name in sorted(ports) if name not in names][: max(0, _A_FEW - len(names))]
    return [ports[name] for name in names[:MAX_SERVICE_PORTS]], max(0, len(names) - MAX_SERVICE_PORTS)


def _port_effects(port: ServicePort, rendered: Rendered, host: Host, desired: Index, real: Index) -> Iterator[str]:
    name = f"Service {port.name} ({port.name.protocol})"
    alike = 0
    differing: dict[tuple[str, str], list[str]] = {}
    for sample in samples(port, rendered):
        try:
            before, after = (_fates(index, host, sample.question) for index in (desired, real))
        except DataplaneError as error:
            yield f"{name}: the model cannot tell what becomes of a packet from {sample.sender} to {sample.to}: {error}"
            continue
        if _same(before, after):
            alike += 1
        else:
            differing.setdefault((_fates_text(before), _fates_text(after)), []).append(
                f"from {sample.sender} to {sample.to}"
            )
    for (was, now), connections in differing.items():
        yield f"{name}: new connections {', '.join(connections)}: should go {was}; they go {now}"
    if alike and not differing:
        yield f"{name}: new connections are treated as they should be ({alike} sample packets)"


def samples(port: ServicePort, rendered: Rendered) -> Iterator[Sample]:
    """Packets that begin connections to every address of a ServicePort."""
    options = rendered.options
    senders = list(_senders(port, rendered))
    addresses = [
        (ip, port.port, "") for ip in dict.fromkeys((port.cluster_ip, *port.external_ips, *port.load_balancer_vips))
    ]
    if port.node_port and not ipaddress.ip_address(options.node_ip).is_loopback:
        addresses.append((options.node_ip, port.node_port, " (node port)"))
    for ip, number, remark in addresses:
        for sender, fields in senders:
            if sender == "an allowed source" and ip not in port.load_balancer_vips:
                continue
            to = join_host_port(ip, number)
            question = read_question({"dst": to, "proto": port.protocol, **fields})
            yield Sample(sender, f"{to}/{port.protocol}{remark}", question)


def _senders(port: ServicePort, rendered: Rendered) -> Iterator[tuple[str, dict[str, object]]]:
    options = rendered.options
    pod = _pod(options, rendered.state.endpoints.get(port.name, ()))
    if pod:
        yield "pods", pod
    yield "outside", {"src": join_host_port(_OUTSIDE[options.family], _PORT)}
    if not ipaddress.ip_address(options.node_ip).is_loopback:
        yield "this node", {"src": join_host_port(options.node_ip, _PORT), "origin": "local"}
    for cidr in port.load_balancer_source_ranges[:1]:
        yield "an allowed source", {"src": join_host_port(_within(cidr, ()), _PORT)}


def _pod(options: RenderOptions, endpoints: Iterable[Endpoint]) -> dict[str, object]:
    """A pod that is no endpoint of the Service itself; empty if nothing tells where pods are."""
    condition = options.local_traffic.if_local if options.local_traffic.is_implemented else ""
    cidr, interface = _CIDR.search(condition), _INTERFACE.search(condition)
    if cidr is not None:
        taken = {endpoint.ip for endpoint in endpoints}
        return {"src": join_host_port(_within(cidr[1], taken), _PORT)}
    if interface is not None:
        return {"src": join_host_port(_OUTSIDE[options.family], _PORT), "in": interface[1].replace("+", "0")}
    return {}


def _within(cidr: str, taken: Iterable[str]) -> str:
    """An address of a network that is not taken, from its end, where pods are seldom."""
    network = ipaddress.ip_network(cidr, strict=False)
    occupied = set(taken)
    for number in range(2, min(network.num_addresses, 1000)):
        if str(network[-number]) not in occupied:
            return str(network[-number])
    return str(network[0])


class _Fate(NamedTuple):
    """What becomes of a packet: `what` is a verdict or why there is none."""

    what: str
    to: str = ""
    masqueraded: bool = False

    def __str__(self) -> str:
        return {DROP: "nowhere: dropped", "REJECT": "nowhere: refused"}.get(
            self.what, f"to {self.to}{', masqueraded' if self.masqueraded else ''}" if self.to else self.what
        )


def _fates(index: Index, host: Host, question: Question) -> dict[_Fate, Fraction]:
    fates: dict[_Fate, Fraction] = {}
    for reported in report(index, Surroundings.known(host), question).outcomes:
        outcome = reported.outcome
        if not outcome.determined:
            fate = _Fate(f"where the model cannot tell ({'; '.join(outcome.reasons)})")
        elif outcome.verdict != ACCEPT:
            fate = _Fate(outcome.verdict)
        elif outcome.dnat:
            fate = _Fate(ACCEPT, outcome.dst, outcome.masquerade)
        else:
            fate = _Fate("to no endpoint")
        fates[fate] = fates.get(fate, Fraction(0)) + outcome.probability
    return fates


def _same(one: Mapping[_Fate, Fraction], other: Mapping[_Fate, Fraction]) -> bool:
    return one.keys() == other.keys() and all(abs(one[fate] - other[fate]) <= TOLERANCE for fate in one)


def _fates_text(fates: Mapping[_Fate, Fraction]) -> str:
    if len(fates) == 1:
        return str(next(iter(fates)))
    # The kernel's chances are multiples of 2^-31: 1/3 is what is meant by 715827882/2147483648.
    ordered = sorted(fates.items(), key=lambda item: (-round(float(item[1]), 6), item[0]))
    return ", ".join(f"{chance.limit_denominator(1000)} {fate}" for fate, chance in ordered)


def _indexes(
    kept: DesiredRules, found: SaveText, difference: Difference, ports: Iterable[ServicePort]
) -> tuple[Index, Index]:
    """The rules as found, and as they are once the difference is mended."""
    real: Rules = {
        table: {name: (chain.policy, chain.rules) for name, chain in chains.items()}
        for table, chains in found.tables.items()
        if table not in difference.dormant
    }
    desired = mended(kept, found, difference)
    roots = {target for ref in difference.writes for target in _differing_targets(ref, real, desired)}
    names = {port.name for port in ports}
    roots |= {chain for chain, owner in kept.owners.items() if owner in names}
    needed = _reachable(roots, (real.get(NAT, {}), desired.get(NAT, {})))
    indexes = []
    for rules, what in ((real, "the rules as found"), (desired, "the wanted rules")):
        indexes.append(index_ruleset(parse_save(_save_text(rules, needed), what, family=kept.family)))
    return indexes[0], indexes[1]


def mended(desired: DesiredRules, found: SaveText, difference: Difference) -> Rules:
    """The rules as they would be once the difference is mended."""
    tables: dict[str, dict[str, tuple[str, Sequence[str]]]] = {
        table: {
            name: (chain.policy, chain.rules)
            for name, chain in chains.items()
            if not is_owned(table, name) or (table, name) in desired.chains or (table, name) in difference.kept
        }
        for table, chains in found.tables.items()
    }
    for ref in difference.writes:
        tables.setdefault(ref[0], {})[ref[1]] = ("-", desired.rules(ref))
    for edit in difference.edits:
        chains = tables.setdefault(edit.table, {})
        policy, old = chains.get(edit.chain, ("ACCEPT", ()))
        rules = list(old)
        for rule in edit.deletions:
            rules.remove(rule)
        for number, _, rule in edit.insertions:
            rules.insert(number - 1, rule)
        chains[edit.chain] = (policy, rules)
    return tables


def _differing_targets(ref: ChainRef, real: Rules, desired: Rules) -> set[str]:
    one, other = (set(rules.get(ref[0], {}).get(ref[1], ("", ()))[1]) for rules in (real, desired))
    return {target_of(rule) for rule in one ^ other} | {ref[1]}


def _reachable(roots: Iterable[str], tables: Sequence[Mapping[str, tuple[str, Sequence[str]]]]) -> set[str]:
    needed: set[str] = set()
    queue = [chain for chain in roots if is_service_chain(chain)]
    while queue:
        chain = queue.pop()
        if chain in needed:
            continue
        needed.add(chain)
        for table in tables:
            targets = [target_of(rule) for rule in table.get(chain, ("", ()))[1]]
            queue += [target for target in targets if is_service_chain(target)]
    return needed


def _save_text(rules: Rules, needed: set[str]) -> str:
    """iptables-save text; of ServicePorts' chains that are not needed, only the declarations."""
    parts = []
    for table, chains in rules.items():
        parts.append(f"*{table}\n")
        parts += [f":{name} {policy} [0:0]\n" for name, (policy, _) in chains.items()]
        for name, (_, lines) in chains.items():
            if table != NAT or not is_service_chain(name) or name in needed:
                parts += [f"-A {name} {line}\n" if line else f"-A {name}\n" for line in lines]
        parts.append("COMMIT\n")
    return "".join(parts)
