"""Runs of the kernel against the model: rule sets loaded into the node, packets sent, verdicts compared."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from random import Random

from kproxy.cluster.facts.ip import parse_routes, parse_rules, with_family
from kproxy.dataplane import Host, IpSet, index_ruleset
from kproxy.dataplane.model.pipeline import IptablesRules
from kproxy.netfilter import (
    BUILTIN_CHAINS,
    Family,
    Jump,
    Ruleset,
    apply_restore,
    canonical_ruleset,
    parse_restore,
    parse_save,
)
from kproxy.netfilter.iptables.targets import DnatTarget
from kproxy.netfilter.nftables.text import parse_nft
from tests.support import paths
from tests.support.kernel.dataplane_agree import Bench, Tally
from tests.support.kernel.dataplane_nft_rules import NftGenerator
from tests.support.kernel.dataplane_rules import (
    NETWORKS,
    PODS,
    SERVICES,
    Generator,
    Packets,
    set_commands,
    set_contents,
)
from tests.support.kernel.dataplane_wire import Node, fresh_node, node_host

VARIANTS = ("nft", "legacy")
REFERENCE = paths.TESTS / "reference"
KUBE_EXTRA = ("192.168.0.2/32", "2001:db8::2/128", "192.168.49.2/32")
"""The addresses of the recorded node; eth0 gets them, too."""


def command(family: Family, variant: str, kind: str = "") -> str:
    """The name of a tool: `ip6tables-nft-restore`."""
    return f"{'ip6tables' if family is Family.IPV6 else 'iptables'}-{variant}{kind}"


@contextmanager
def node_with_sets(tag: str, extra: Sequence[str] = (), **sysctls: int) -> Iterator[tuple[Node, Host]]:
    """A node with the ipsets of `dataplane_rules`, and the model of it."""
    sets = {}
    with fresh_node(tag, extra) as node:
        for family in Family:
            node.run("ipset", "restore", text=set_commands(family))
            for name, (kind, entries) in set_contents(family).items():
                sets[name] = IpSet.parse(kind, entries, None if kind.startswith("bitmap") else family)
        yield node, dataclasses.replace(node_host(extra, **sysctls), sets=sets)


@contextmanager
def loaded(node: Node, text: str, family: Family, variant: str) -> Iterator[None]:
    """The rules in the kernel, and gone again."""
    try:
        node.run(command(family, variant, "-restore"), text=text)
        yield
    finally:
        empty = "".join(
            f"*{table}\n" + "".join(f":{chain} ACCEPT [0:0]\n" for chain in chains) + "COMMIT\n"
            for table, chains in BUILTIN_CHAINS.items()
        )
        node.run(command(family, variant, "-restore"), text=empty)
        node.forget()


def bench(node: Node, host: Host, ruleset: Ruleset, variant: str, tally: Tally, label: str = "") -> Bench:
    """The node and its model, ready to compare."""
    return Bench(node, index_ruleset(ruleset, variant=variant), host, tally, f"{label}{variant}")


def run_random(
    node: Node, host: Host, seeds: Sequence[int], per_set: int, tally: Tally, variants: Sequence[str] = VARIANTS
) -> None:
    """Random rule sets, one per seed, in both families and variants by turns."""
    for seed in seeds:
        family = (Family.IPV4, Family.IPV6)[seed % 2]
        variant = variants[seed // 2 % len(variants)]
        random = Random(seed)
        text = Generator(random, family).ruleset()
        ruleset = canonical_ruleset(text, family)
        packets = Packets(random, family)
        with loaded(node, text, family, variant):
            at = bench(node, host, ruleset, variant, tally, f"seed {seed} ")
            at.compare([packets.one() for _ in range(per_set)])


TABLES = (7, 8, 9)
"""The routing tables that `policy` leads to: the third is empty."""


def policy(random: Random, family: Family) -> tuple[list[str], list[str]]:
    """Random rules of the routing policy, and routes for their tables, as `ip -batch` takes them."""
    everywhere, gateway = ("::/0", "fd00:245::5") if family is Family.IPV6 else ("0.0.0.0/0", "10.245.0.5")
    networks, by_way = NETWORKS[family], f"via {gateway} dev cali1 onlink"
    routes = [
        f"route add {everywhere} {by_way} table 7", f"route add {networks[0]} {by_way} table 8",
        f"route add {random.choice(('unreachable', 'blackhole', 'prohibit', 'throw'))} {networks[4]} table 8",
    ]  # fmt: skip
    places = sorted(random.sample(range(10, 30_000), 6))
    rules = []
    for number, place in enumerate(places):
        asked = {
            "from": random.choice((*networks, *PODS[family].values())),
            "to": random.choice((*networks, *SERVICES[family])),
            "fwmark": random.choice(("0x1/0x1", "0x4000/0x4000", "0x10/0xff", "0/0x2")),
            "iif": random.choice(("lo", "eth0", "cali1", "cni0")), "oif": random.choice(("eth0", "cali1")),
            "tos": "0x10", "ipproto": random.choice(("tcp", "udp", "17", "132")),
            "sport": random.choice(("1000-40000", "53")), "dport": random.choice(("80", "53", "443-9000")),
            "uidrange": "0-999",
        }  # fmt: skip
        chosen = random.sample(sorted(asked), random.choice((0, 1, 1, 2)))
        if {"sport", "dport"} & {*chosen}:
            chosen = [*{*chosen, "ipproto"}]
            asked["ipproto"] = random.choice(("tcp", "udp"))
        does = random.choice([
            *[f"table {table}" for table in TABLES] * 2, "table main", "unreachable", "prohibit", "blackhole",
            f"table main suppress_prefixlength {random.choice((0, 8, 24))}", "nop",
            *[f"goto {places[-1]}"] * (number < 5),
        ])  # fmt: skip
        if not chosen and not does.startswith(("table", "goto", "nop")):
            chosen = ["fwmark"]
        negated = "not " if chosen and random.random() < 0.2 else ""
        words = " ".join(f"{name} {asked[name]}" for name in chosen) or "from all"
        rules.append(f"rule add {negated}{words} pref {place} {does}")
    return rules, routes


@contextmanager
def routed(node: Node, host: Host, rules: Sequence[str], routes: Sequence[str], family: Family) -> Iterator[Host]:
    """The policy in the kernel, and the host with what `ip` then prints of it; and gone again."""
    tool = ["ip", f"-{family.version}"]
    try:
        node.run(*tool, "-batch", "-", text="\n".join([*routes, *rules, ""]))
        told = [json.loads(node.run("ip", "-j", f"-{family.version}", *words)) for words in (
            ("rule", "show"), *(("route", "show", "table", str(table)) for table in TABLES[:2]))]  # fmt: skip
        added = [
            dataclasses.replace(route, table=str(table))
            for table, entries in zip(TABLES, told[1:], strict=False)
            for route in parse_routes(with_family(entries, family))
        ]
        found = (*(host.routes or ()), *added)
        yield dataclasses.replace(host, routes=found, rules=parse_rules(with_family(told[0], family)))
    finally:
        node.run(*tool, "rule", "flush")  # all but the local table's, pref 0
        lines = ["rule add from all pref 32766 table main"]
        lines += ["rule add from all pref 32767 table default"] * (family is Family.IPV4)
        lines += [f"route flush table {table}" for table in TABLES[:2]]
        node.run(*tool, "-batch", "-", text="\n".join([*lines, ""]))


def run_policy(node: Node, host: Host, seeds: Sequence[int], per_set: int, tally: Tally) -> None:
    """Random routing policies beside random rules of iptables that copy marks."""
    for seed in seeds:
        family = (Family.IPV4, Family.IPV6)[seed % 2]
        variant = VARIANTS[seed // 2 % 2]
        random = Random(seed)
        text = Generator(random, family, marks=True).ruleset()
        packets = Packets(random, family)
        rules, routes = policy(random, family)
        with loaded(node, text, family, variant), routed(node, host, rules, routes, family) as there:
            label = f"policy seed {seed} {rules} "
            at = bench(node, there, canonical_ruleset(text, family), variant, tally, label)
            # What a raw socket of the node sends is routed without the addresses and ports that it writes itself.
            sent = (probe for probe in iter(packets.one, None) if probe.link != "node")
            at.compare([*itertools.islice(sent, per_set)])


@contextmanager
def nft_loaded(node: Node, text: str) -> Iterator[None]:
    """A script for nft in the kernel, and everything gone again."""
    try:
        node.run("nft", "-f", "-", text=text)
        yield
    finally:
        node.run("nft", "flush", "ruleset")
        node.forget()


def run_nft(node: Node, host: Host, seeds: Sequence[int], per_set: int, tally: Tally, *, writes: bool = False) -> None:
    """Random rule sets of native nftables alone, one per seed, in both families by turns; with `writes` also such that
    write headers."""
    for seed in seeds:
        family = (Family.IPV4, Family.IPV6)[seed % 2]
        random = Random(seed)
        text = NftGenerator(random, family, writes=writes).ruleset()
        packets = Packets(random, family)
        with nft_loaded(node, text):
            index = index_ruleset((), nftables=parse_nft(text), family=family)
            at = Bench(node, index, host, tally, f"nft seed {seed}")
            at.compare([packets.one() for _ in range(per_set)])


def run_mixed(node: Node, host: Host, seeds: Sequence[int], per_set: int, tally: Tally) -> None:
    """Random rule sets of iptables-legacy, iptables-nft and native nftables, all in one namespace.

    Native chains are at priorities of their own, so that it does not matter which was registered first; the chains of
    the two variants of iptables are at the same priorities, and then the model follows both orders.
    """
    for seed in seeds:
        family = (Family.IPV4, Family.IPV6)[seed % 2]
        random = Random(seed)
        native = NftGenerator(random, family, tables=1).ruleset()
        texts = {variant: Generator(random, family).ruleset() for variant in VARIANTS if random.random() < 0.8}
        packets = Packets(random, family)
        with ExitStack() as stack:
            stack.enter_context(nft_loaded(node, native))
            for variant, text in texts.items():
                stack.enter_context(loaded(node, text, family, variant))
            rules = [IptablesRules.of(canonical_ruleset(text, family), name) for name, text in texts.items()]
            index = index_ruleset(rules, nftables=parse_nft(native), family=family)
            at = Bench(node, index, host, tally, f"mixed seed {seed}")
            at.compare([packets.one() for _ in range(per_set)])


def jump_rules(family: Family) -> str:
    """Restore input for the jump rules of a node on which kube-proxy really ran."""
    name = "iptables-nft-save.v4.txt" if family is Family.IPV4 else "ip6tables-nft-save.v6.txt"
    dump = parse_save((REFERENCE / "minikube" / name).read_text(), family=family)
    lines = []
    for table in dump.tables:
        rules = [(chain.name, rule) for chain in table.chains if chain.policy is not None for rule in chain.rules]
        targets = dict.fromkeys(rule.target.chain for _, rule in rules if isinstance(rule.target, Jump))
        lines += [f"*{table.name}", *(f":{target} - [0:0]" for target in targets)]
        lines += [*(rule.to_restore(chain) for chain, rule in rules), "COMMIT"]
    return "\n".join(lines) + "\n"


def kube_ruleset(restore: str, family: Family) -> tuple[str, Ruleset]:
    """kube-proxy's restore input with the jump rules, as one text, and as the rule set that it makes."""
    ruleset = canonical_ruleset(jump_rules(family), family)
    ruleset = apply_restore(ruleset, parse_restore(restore, family=family)).in_save_order()
    lines: list[str] = []
    for table in ruleset.tables:
        lines.append(f"*{table.name}")
        lines += [chain.to_save() for chain in table.chains]
        lines += [rule.to_restore(chain.name) for chain in table.chains for rule in chain.rules]
        lines.append("COMMIT")
    return "\n".join(lines) + "\n", ruleset


_DPORT = re.compile(r"-p (tcp|udp|sctp) .*--dport ([0-9]+)")


def kube_targets(ruleset: Ruleset, node_ips: Sequence[str]) -> list[tuple[str, int, str]]:
    """Addresses, ports and protocols that kube-proxy's rules know: of services, node ports and endpoints."""
    found: dict[tuple[str, int, str], None] = {}
    for _, chain, _, rule in ruleset.rules():
        spec = rule.spec()
        port = _DPORT.search(spec)
        if port is None:
            continue
        if chain.name in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES") and rule.destination is not None:
            found[str(rule.destination.value).partition("/")[0], int(port[2]), port[1]] = None
        elif chain.name == "KUBE-NODEPORTS":
            for address in node_ips:
                found[address, int(port[2]), port[1]] = None
    return list(found)


def endpoint_addresses(ruleset: Ruleset) -> list[str]:
    """The addresses that DNAT rules lead to."""
    targets = (rule.target for _, _, _, rule in ruleset.rules())
    found = {
        str(item.to_destination).rpartition(":")[0].strip("[]") for item in targets if isinstance(item, DnatTarget)
    }
    return sorted(found)


def run_kube(
    node: Node, host: Host, restore: str, family: Family, variant: str, count: int, tally: Tally, label: str
) -> None:
    """kube-proxy's rules, and packets to what they know."""
    text, ruleset = kube_ruleset(restore, family)
    node_ips = ["192.168.0.2", "10.244.0.1", "127.0.0.1"] if family is Family.IPV4 else ["2001:db8::2", "fd00:244::1"]
    pods = [item for item in endpoint_addresses(ruleset) if item.startswith(("10.244.0.", "fd00:244::"))]
    if pods:
        node.settle(pods)
    if "-m recent" in text:
        host = dataclasses.replace(host, recent=None)
    random = Random(label)
    packets = Packets(random, family, kube_targets(ruleset, node_ips))
    with loaded(node, text, family, variant):
        bench(node, host, ruleset, variant, tally, f"{label} ").compare([packets.one() for _ in range(count)])


def table_targets(text: str, node_ips: Sequence[str]) -> list[tuple[str, int, str]]:
    """Addresses, ports and protocols that kube-proxy's table of nftables knows, by the keys of its maps."""
    found: dict[tuple[str, int, str], None] = {}
    for table in parse_nft(text).tables:
        for item in table.sets:
            for element in item.elements if item.is_verdict_map else ():
                assert isinstance(element.key, tuple)
                *address, protocol, port = element.key
                name = {6: "tcp", 17: "udp", 132: "sctp"}[int(str(protocol))]
                for ip in [str(ip_address(int(str(address[0]))))] if address else node_ips:
                    found[ip, int(str(port)), name] = None
    return list(found)


def run_kube_table(node: Node, host: Host, text: str, family: Family, count: int, tally: Tally, label: str) -> None:
    """kube-proxy's rules in nftables mode, and packets to what they know."""
    node_ips = ["192.168.0.2", "10.244.0.1", "127.0.0.1"] if family is Family.IPV4 else ["2001:db8::2", "fd00:244::1"]
    pods = sorted({found for found in _MAPPED.findall(text) if found.startswith(("10.244.0.", "fd00:244::"))})
    if pods:
        node.settle(pods)
    random = Random(label)
    packets = Packets(random, family, table_targets(text, node_ips))
    with nft_loaded(node, text):
        index = index_ruleset((), nftables=parse_nft(text), family=family)
        Bench(node, index, host, tally, label).compare([packets.one() for _ in range(count)])


_MAPPED = re.compile(r"(?:[0-9]+ : |dnat to \[?)([0-9a-f.:]*[0-9a-f])(?: \. |]?:[0-9]+$)", re.MULTILINE)


def read_counters(node: Node, family: Family, variant: str) -> dict[tuple[str, str, int], int]:
    """The packet counters of all rules that are not zero."""
    text = node.run(command(family, variant, "-save"), "-c")
    found = {}
    for table, chain, number, rule in parse_save(text, family=family).rules():
        if rule.counters is not None and rule.counters.packets:
            found[table.name, chain.name, number] = rule.counters.packets
    return found


def zero_counters(node: Node, family: Family, variant: str, tables: Sequence[str]) -> None:
    """Set all counters to zero."""
    for table in tables:
        subprocess.run(
            ["ip", "netns", "exec", node.name, command(family, variant), "-w", "-t", table, "-Z"],
            check=True,
            timeout=60,
        )
