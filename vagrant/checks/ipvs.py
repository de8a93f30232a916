"""`python -m vagrant.checks.ipvs`: IPVS mode in this machine's own kernel.

Golden clusters are rendered, and each family is loaded into a namespace: sets, rules, virtual servers. What the kernel
has then must be what was rendered. Then packets of a matrix are sent, as many as are asked for: from pods, from a real
server to itself, from other nodes, from outside and from the node, to each virtual server; to other ports of their
addresses, to the node and to pods. What is seen of each must be what the packet model says. Last come the packets of
what `kproxy migrate --from ipvs` finds: none may meet what the report does not say.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from itertools import chain, product
from pathlib import Path
from typing import Final

import msgspec

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cli.migrate.verify import Verifier
from kproxy.cluster.hosts import node_addresses
from kproxy.cluster.inputs import read_cluster
from kproxy.cluster.migrate.analysis import analyse
from kproxy.cluster.migrate.switch import Switch
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import host_in_mode, index_of, rules_of
from kproxy.dataplane import Connection, Host, Index, Interface, InterfaceAddress, Packet, Route, make_packet, trace
from kproxy.dataplane.model.host import local_addresses_of
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.errors import KproxyError
from kproxy.family import join_host_port
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run
from kproxy.linux.sync.apply import apply_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.linux.sync.cleanup import cleanup
from kproxy.linux.testbed.confirm import Judge, KernelVerdict
from kproxy.linux.testbed.host import ScratchHost, UnsendableError, rule_texts
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import Network, parse_address
from kproxy.netfilter.ipvs.read import read_servers
from kproxy.render import Features, RenderedIpvs, Target, render_in_mode
from vagrant.checks.scenario import Scenario, read_scenario

GOLDEN: Final = Path(__file__).parents[2] / "rules_golden"
CHOSEN: Final = (
    "dual-stack", "session-affinity-nodeport", "loadbalancer-source-ranges-node-allowed", "both-policies-local",
    "no-endpoints", "external-ips-local", "host-network-endpoints", "udp-and-sctp", "masquerade-all",
    "nodeport-addresses-cidr", "terminating-fallback", "detect-local-bridge", "ipv6-only", "minikube",
)  # fmt: skip
MIGRATED: Final = ("both-policies-local",)
OUTSIDE: Final = {
    Family.IPV4: ("203.0.113.9", "198.51.100.7", "192.168.77.5"),
    Family.IPV6: ("2001:db8:9::9", "fd77::5"),
}
CLIENTS: Final = {"pod": "cni0", "self": "cni0", "remote": "eth0", "outside": "eth0", "node": "", "asked": ""}
"""Who asks, and by which interface its packets come: a pod, a real server, one elsewhere, somebody outside, the node by
its own address and by that of the virtual server."""
PODS: Final = {Family.IPV4: "10.244.0.0/24", Family.IPV6: "fd00:10:244::/64"}
"""The node's pods, where its Node object does not tell."""


@dataclass(frozen=True)
class Loaded:
    """One family of a node in IPVS mode, and what there is to send packets to."""

    rendered: RenderedIpvs
    rules: SideRules
    family: Family
    host: Host
    pods: str
    own: tuple[str, ...]

    @property
    def index(self) -> Index:
        return index_of(self.rendered, self.rules, self.family)


def loaded(scenario: Scenario, family: Family) -> Loaded | None:
    """A scenario's node; None if it has no virtual servers in the family."""
    cluster, config = _read(scenario)
    target = Target(scenario.node_name, scenario.node)
    rendered = render_in_mode(target, family, cluster.services, cluster.endpoint_slices, config)
    assert isinstance(rendered, RenderedIpvs)
    if not rendered.servers:
        return None
    is_ours = [text for text in scenario.node.pod_cidrs if (":" in text) is family.is_ipv6]
    pods = (is_ours or [PODS[family]])[0]
    own = tuple(each for each in node_addresses(scenario.node) if (":" in each) is family.is_ipv6)
    rules = rules_of(rendered)
    return Loaded(rendered, rules, family, _host(rules, family, pods, own), pods, own)


def _read(scenario: Scenario) -> tuple[Manifests, KubeProxyConfiguration]:
    cluster = read_cluster([str(scenario.cluster_file)], lambda _note: None)
    return cluster, msgspec.structs.replace(scenario.config, mode=MODE_IPVS)


def _host(rules: SideRules, family: Family, pods: str, own: Sequence[str]) -> Host:
    """The node: pods behind cni0, everybody else behind eth0."""
    inside = Network.parse(pods, family)
    length = inside.prefix_length or 0
    links = {
        "eth0": tuple(InterfaceAddress(family, parse_address(each, family), family.bits) for each in own),
        "cni0": (InterfaceAddress(family, inside.address + 1, length),),
    }
    interfaces = {name: Interface(name, addresses) for name, addresses in links.items()}
    sysctls = {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1}
    sysctls |= {f"net.ipv4.conf.all.{name}": value for name, value in (("rp_filter", 0), ("accept_local", 1))}
    host = Host(
        local_addresses_of(interfaces.values()), interfaces,
        (Route(inside, "cni0"), Route(Network(family, 0, 0), "eth0")), (), sysctls,
    )  # fmt: skip
    return host_in_mode(rules, host)


def differences(each: Loaded, namespace: Namespace) -> Iterator[str]:
    """What the kernel has and was not rendered, and the other way round, as lines."""
    rendered, program = each.rendered, "ip6tables-nft-save" if each.family.is_ipv6 else "iptables-nft-save"
    pairs = (
        (_servers(rendered.ipvsadm_text), _servers(_said(namespace, "ipvsadm", "-Sn"))),
        (_members(rendered.ipset_text), _members(_said(namespace, "ipset", "save"))),
        (_rules(rendered.save_text, each.family), _rules(_said(namespace, program), each.family)),
    )
    for expected, actual in pairs:
        yield from (f"- {item}" for item in sorted(expected - actual))
        yield from (f"+ {item}" for item in sorted(actual - expected))


def _said(namespace: Namespace, *command: str) -> str:
    done = run(namespace, command, timeout=60.0)
    if done.code:
        raise UnsendableError(f"{' '.join(command)}: {done.reason}")
    return done.stdout


def _servers(text: str) -> set[str]:
    found = read_servers(text, "ipvsadm").servers
    return {each.line for each in found} | {one.line(each) for each, real in found.items() for one in real}


def _rules(text: str, family: Family) -> set[str]:
    """The rules with their places in their chains."""
    found = parse_save(text, family=family).rules()
    return {f"{table.name} {number} {rule.to_save(chain.name)}" for table, chain, number, rule in found}


def _members(text: str) -> set[str]:
    """Sets and members; options that the kernel adds to a set are left aside."""
    words = (line.split() for line in text.splitlines())
    return {" ".join(each[:3]) if each[0] == "create" else " ".join(each).replace(":0-65535", "") for each in words}


def applied(scenario: Scenario, each: Loaded) -> Iterator[str]:
    """What is wrong with what `kproxy apply` leaves, with a second apply, and with what cleanup leaves."""
    cluster, config = _read(scenario)
    target = Target(scenario.node_name, scenario.node)
    asked = NodeRequest(target, config, cluster.services, cluster.endpoint_slices, families=(each.family,))
    with Namespace.scratch() as namespace:
        apply_node(asked, namespace)
        yield from (f"applied: {line}" for line in differences(each, namespace))
        if apply_node(asked, namespace).changed:
            yield "applied twice: the second time something is to be done"
        cleanup(namespace)
        left = f"{_said(namespace, 'ipvsadm', '-Sn')}{_said(namespace, 'ipset', 'save')}"
        yield from (f"left by cleanup: {line}" for line in left.splitlines())


def packets(each: Loaded, rng: random.Random, count: int) -> Iterator[Packet]:
    """A random choice of a matrix, or all of it: each kind of client asks each virtual server; a pod and a client
    outside ask the rest, too. Each has a source port of its own: IPVS remembers connections."""
    matrix = [
        (server, real, client, what)
        for server, real in each.rendered.servers.items()
        for client, what in [*product(CLIENTS, ("server",)), *product(("pod", "outside"), ("port", "node", "pod"))]
    ]
    others = [real.address for real in chain.from_iterable(each.rendered.servers.values())]
    inside = ip_network(each.pods)
    for number, (server, real, client, what) in enumerate(rng.sample(matrix, min(count, len(matrix)))):
        near = [one.address for one in real if _is_in(one.address, inside)]
        pod = str(inside[rng.randrange(100, 200)])
        source = {
            "pod": pod, "self": rng.choice(near or [pod]),
            "remote": rng.choice([one for one in others if not _is_in(one, inside)] or OUTSIDE[each.family]),
            "outside": rng.choice(OUTSIDE[each.family]), "node": rng.choice(each.own or (server.address,)),
            "asked": server.address,
        }[client]  # fmt: skip
        to = {
            "server": (server.address, server.port), "port": (server.address, rng.choice((1, 22, 10256, 31999))),
            "node": (rng.choice(each.own or (server.address,)), server.port),
            "pod": (rng.choice(others or [server.address]), server.port),
        }[what]  # fmt: skip
        sent = make_packet(join_host_port(source, 20000 + number), join_host_port(*to), server.protocol)
        arrives = CLIENTS[client]
        yield replace(sent, in_interface=arrives, in_port="", origin="arriving" if arrives else "local")


def _is_in(address: str, network: object) -> bool:
    return ip_network(address).subnet_of(network)  # type: ignore[arg-type]


def check(scenario: Scenario, family: Family, rng: random.Random, count: int) -> tuple[int, list[str]]:
    """How many packets were sent, and what was wrong, as lines.

    Raises:
        KproxyError: it could not be loaded.
    """
    each = loaded(scenario, family)
    if each is None:
        return 0, []
    sent, index = 0, each.index
    with ScratchHost(family, rule_texts(each.rendered)) as bed:
        wrong = [*applied(scenario, each), *differences(each, bed.namespace)]
        judge = Judge(family, bed)
        for packet in packets(each, rng, count):
            said = trace(index, each.host, packet)
            try:
                seen = bed.send(replace(each.host, sets={}), packet, Connection())[0]
            except UnsendableError:
                continue
            sent += 1
            if not judge.may_be(said, seen):
                model = "; ".join(f"{one.verdict} {one.src} to {one.dst}" for one in said.outcomes)
                wrong.append(f"{packet}: seen: {judge.words(seen)}; the model: {model}")
    return sent, wrong


def migrated(scenario: Scenario, family: Family, mode: str) -> tuple[Counter[str], list[str]]:
    """What the kernel says of the findings of a switch from IPVS mode, and what it refutes, as lines.

    Raises:
        KproxyError: rules could not be loaded.
    """
    cluster, config = _read(scenario)
    facts = NodeFacts.of(cluster, config, Target(scenario.node_name, scenario.node), family, Features())
    switch = Switch(MODE_IPVS, mode)
    with Verifier(switch) as verifier:
        shown = [found for found in analyse(facts, switch).found if found.witness is not None]
        answers = [(found.id, verifier.confirm(facts, found)) for found in shown]
    refuted = [f"{name}: {each}" for name, each in answers if each.verdict == KernelVerdict.REFUTED.value]
    return Counter(each.verdict for _, each in answers), refuted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m vagrant.checks.ipvs", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="folders of rules_golden/")
    parser.add_argument(
        "--packets", type=int, default=6, help="how many of the matrix of each scenario and family; 10000 is all"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rng, total, failed = random.Random(options.seed), 0, 0
    for name in options.scenarios or CHOSEN:
        for family in Family:
            began = time.monotonic()
            try:
                sent, wrong = check(read_scenario(GOLDEN / name), family, rng, options.packets)
            except KproxyError as error:
                sent, wrong = 0, [str(error)]
            total, failed = total + sent, failed + bool(wrong)
            took, said = time.monotonic() - began, "DIFFERS" if wrong else "ok"
            print(f"{took:6.1f} s  {name}, ipvs, {family.value}: {sent} packets: {said}", flush=True)  # noqa: T201
            for line in wrong:
                print(f"          {line}", flush=True)  # noqa: T201
    scenarios = () if failed else options.scenarios or MIGRATED
    for name, family, mode in product(scenarios, Family, (MODE_NFTABLES, MODE_IPTABLES)):
        began = time.monotonic()
        try:
            counted, wrong = migrated(read_scenario(GOLDEN / name), family, mode)
        except KproxyError as error:
            counted, wrong = Counter(), [str(error)]
        failed += bool(wrong)
        said = ", ".join(f"{number} {verdict}" for verdict, number in counted.items())
        took = time.monotonic() - began
        print(f"{took:6.1f} s  {name}, ipvs to {mode}, {family.value}: {said}", flush=True)  # noqa: T201
        for line in wrong:
            print(f"          {line}", flush=True)  # noqa: T201
    print(f"ipvs: {total} packets sent; {failed} scenarios differ", flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
