"""What IPVS mode has on a node beside what kube-proxy makes: virtual servers, sets, addresses, rules, sysctls.

Only what was read is compared: a part that the node's files lack is among what was not seen. Where kube-proxy's
configuration was not, schedulers, node ports, rules and virtual servers of others are not judged.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.audit.report import Observation
from kproxy.cluster.rendered import is_of_ipvs
from kproxy.cluster.rules import read_ipsets
from kproxy.dataplane.model.ipvs import CONNTRACK
from kproxy.family import join_host_port
from kproxy.netfilter import Chain, Family, Ruleset
from kproxy.netfilter.address import format_address
from kproxy.netfilter.iptables.matches import CommentMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.ipvs.server import UNTOLD, RealServer, VirtualServer
from kproxy.render.ipvs.node import RenderedIpvs
from kproxy.render.ipvs.renderer import DEVICE
from kproxy.services.claims import ServiceAddress
from kproxy.services.names import family_of

_Key = tuple[str, str, int]
_SHOWN: Final = 3


def observe_ipvs(node: AuditedNode, family: Family) -> Iterator[Observation]:
    """How a node's IPVS state of one family differs from kube-proxy's. Raises InputError: a file cannot be read."""
    facts = node.facts[family]
    wanted = RenderedIpvs.of(facts.state, facts.iptables)
    yield from _servers(node, family, wanted)
    yield from _addresses(node, family, wanted)
    yield from _sets(node, family, wanted)
    yield from _rules(node, family, wanted)
    sysctls = node.host.sysctls or {}
    if sysctls.get(CONNTRACK) == 0 and wanted.servers:
        yield Observation("ipvs-conntrack", node.name, CONNTRACK, f"{CONNTRACK} = 0", mend=f"sysctl -w {CONNTRACK}=1")


def _key(server: VirtualServer) -> _Key:
    return server.protocol, server.address, server.port


def _servers(node: AuditedNode, family: Family, wanted: RenderedIpvs) -> Iterator[Observation]:
    listed = node.host.ipvs
    if listed is None:
        return
    there = {
        _key(server): (server, real) for server, real in listed.servers.items() if family_of(server.address) is family
    }
    expected = {
        _key(server): (server, real)
        for server, real in wanted.servers.items()
        if node.config_known or ServiceAddress(server.address, server.protocol, server.port) in node.doors
    }
    if expected and not there:
        yield Observation("rules-missing", node.name, "ipvs", f"IPVS has no virtual server of {family.value}")
        return
    for key, (server, real) in expected.items():
        service = _service(node, key)
        if key not in there:
            yield Observation("service-missing", node.name, server.name, f"no virtual server {server.name}", service)
            continue
        found, has = there[key]
        options = [(item.scheduler, item.persistence, item.flags) for item in (server, found)]
        if node.config_known and "" not in options[1] and UNTOLD not in options[1] and options[0] != options[1]:
            detail = f"`{found.line}` where kube-proxy makes `{server.line}`"
            yield Observation("ipvs-server", node.name, detail, detail, service)
        yield from _real_servers(node, server, service, real, has)
    for key in sorted(there.keys() - expected.keys()) if node.config_known else ():
        server = there[key][0]
        is_node_port = ServiceAddress("", server.protocol, server.port) in node.doors
        if is_node_port and node.host.interfaces is None:
            continue  # kube-proxy serves node ports at all addresses of the node, which are not known
        if not wanted.spares(server):
            detail = f"{server.name} is no Service's, and excludeCIDRs does not spare it"
            yield Observation("ipvs-foreign", node.name, detail, detail, mend=f"ipvsadm -D {server.name}")


def _service(node: AuditedNode, key: _Key) -> str:
    protocol, address, port = key
    doors = (ServiceAddress(address, protocol, port), ServiceAddress("", protocol, port))
    return next((str(node.doors[each]) for each in doors if each in node.doors), "")


def _real_servers(
    node: AuditedNode,
    server: VirtualServer,
    service: str,
    expected: Sequence[RealServer],
    there: Sequence[RealServer],
) -> Iterator[Observation]:
    wanted = {(each.address, each.port): each for each in expected}
    has = {(each.address, each.port): each for each in there}
    for place, each in wanted.items():
        text = join_host_port(*place)
        if place not in has or (each.weight > 0 and has[place].weight == 0):
            how = "has the weight 0" if place in has else "is missing"
            yield Observation("endpoint-missing", node.name, text, f"{server.name}: real server {text} {how}", service)
        elif has[place].weight not in (UNTOLD, each.weight):
            detail = f"{server.name}: {text} has the weight {has[place].weight}, not {each.weight}"
            yield Observation("share-uneven", node.name, detail, detail, service)
    for place in sorted(has.keys() - wanted.keys()):
        text = join_host_port(*place)
        if has[place].weight != 0:  # one of weight 0 waits for its connections to end
            detail = f"{server.name}: real server {text} is no endpoint"
            yield Observation("endpoint-stale", node.name, text, detail, service)


def _addresses(node: AuditedNode, family: Family, wanted: RenderedIpvs) -> Iterator[Observation]:
    if node.host.interfaces is None:
        return
    device = next((each for each in node.host.interfaces if each.name == DEVICE), None)
    own = () if device is None else device.addresses
    there = {format_address(each.value, family) for each in own if each.family is family}
    there = {each for each in there if not ipaddress.ip_address(each).is_link_local}
    for address in sorted(wanted.made.addresses.keys() - there):
        mend = f"ip address add {address}/{family.bits} dev {DEVICE}"
        yield Observation("ipvs-address", node.name, address, f"{DEVICE} has no {address}", mend=mend)
    for address in sorted(there - wanted.made.addresses.keys()):
        mend = f"ip address del {address}/{family.bits} dev {DEVICE}"
        yield Observation("ipvs-address", node.name, address, f"{DEVICE} has {address}, no Service's", mend=mend)


def _sets(node: AuditedNode, family: Family, wanted: RenderedIpvs) -> Iterator[Observation]:
    there = node.host.ipsets
    if there is None:
        return
    for name, expected in read_ipsets(wanted.ipset_text, "sets").items():
        if name not in there:
            yield Observation("ipvs-set", node.name, name, f"there is no set {name}")
            continue
        found, needed = set(there[name].entries), set(expected.entries)
        for entries, how in ((needed - found, "lacks"), (found - needed, "has, and should not have")):
            for entry in sorted(entries, key=lambda each: each.begins)[:_SHOWN]:
                first, *more = map(str, entry.begins[:2])
                text = first if expected.family is None else ", ".join((format_address(entry.begins[0], family), *more))
                detail = f"{name} {how} {text}"
                yield Observation("ipvs-set", node.name, detail, detail)


def _rules(node: AuditedNode, family: Family, wanted: RenderedIpvs) -> Iterator[Observation]:
    """Rules and jumps that kube-proxy's chains, or the built-in ones, lack; rules that its chains have more."""
    dumps = node.dumps(family)
    if not (dumps and node.config_known):
        return
    needed = _texts(wanted.saved)
    wrong: list[list[str]] = []
    for dump in dumps:
        has = _texts(dump.rules.ruleset)
        lost = [(key[0], each) for key, rules in needed.items() for each in rules if each not in has.get(key, ())]
        more = [
            (key[0], each)
            for key, rules in has.items()
            if is_of_ipvs(*key)
            for each in rules
            if each not in needed.get(key, ())
        ]
        wrong.append([f"{table} lacks {rule}" for table, rule in lost])
        wrong[-1] += [f"{table} {rule}, which is not kube-proxy's" for table, rule in more]
    for detail in min(wrong, key=len):
        yield Observation("ipvs-rule", node.name, detail, detail)


def _texts(ruleset: Ruleset) -> dict[tuple[str, str], tuple[str, ...]]:
    """The rules of each chain as iptables-save prints them, without comments."""
    return {(table.name, chain.name): _plain(chain) for table in ruleset.tables for chain in table.chains}


def _plain(chain: Chain) -> tuple[str, ...]:
    return tuple(_without_comments(rule).to_save(chain.name) for rule in chain.rules)


def _without_comments(rule: Rule) -> Rule:
    return dataclasses.replace(rule, matches=tuple(each for each in rule.matches if not isinstance(each, CommentMatch)))
