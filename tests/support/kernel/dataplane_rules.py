"""Random rule sets and random packets for them, from a seed: every match and target that the model decides and that
needs nothing from outside, in all tables, with jumps, gotos, returns and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kproxy.dataplane import make_packet
from kproxy.dataplane.model.packet import CWR, ECE, SYN
from kproxy.linux.testbed.wire import MAGIC
from kproxy.netfilter import Family
from tests.support.kernel.dataplane_wire import LINKS, Probe, mac, next_hop

PODS = {
    Family.IPV4: {"p1": "10.244.0.11", "p2": "10.244.0.12", "c1": "10.245.0.5"},
    Family.IPV6: {"p1": "fd00:244::11", "p2": "fd00:244::12", "c1": "fd00:245::5"},
}
NODE = {
    Family.IPV4: ("192.0.2.10", "10.244.0.1", "10.245.0.1"),
    Family.IPV6: ("2001:db8:1::10", "fd00:244::1", "fd00:245::1"),
}
OUTSIDE = {
    Family.IPV4: ("192.0.2.1", "192.0.2.2", "198.51.100.7", "10.244.1.9"),
    Family.IPV6: ("2001:db8:1::1", "2001:db8:1::2", "2001:db8:5::7", "fd00:244:0:1::9"),
}
SERVICES = {
    Family.IPV4: ("10.96.0.1", "10.96.0.10", "203.0.114.5", "192.0.2.10"),
    Family.IPV6: ("fd00:96::1", "fd00:96::a", "2001:db8:7::5", "2001:db8:1::10"),
}
NETWORKS = {
    Family.IPV4: ("10.96.0.0/12", "10.244.0.0/24", "10.244.0.0/16", "192.0.2.0/28", "198.51.100.0/25", "10.0.0.0/8"),
    Family.IPV6: ("fd00:96::/112", "fd00:244::/64", "fd00:244::/32", "2001:db8:1::/64", "fd00::/8", "2001:db8:5::/48"),
}
PORTS = (53, 80, 443, 8080, 30080)
PROTOCOLS = ("tcp", "udp", "sctp", "icmp")
MARKS = ("0x1/0x1", "0x4000/0x4000", "0x2/0x6", "0x10", "0/0x4000", "0xff00/0xf000")
SET_MARKS = ("0x1/0x1", "0x4000/0x4000", "0x2/0x6", "0x10/0xffffffff", "0/0x4000", "0xf000/0xff00", "0x3/0")
SETS = ("ip", "net", "ipport", "port")


def set_name(kind: str, family: Family) -> str:
    """The name of one of the ipsets."""
    return f"kp{family.version}-{kind}"


def set_contents(family: Family) -> dict[str, tuple[str, list[str]]]:
    """The ipsets: type and entries by name."""
    pods, services = PODS[family], SERVICES[family]
    narrow = pods["p1"]
    return {
        set_name("ip", family): ("hash:ip", [pods["p1"], services[0], OUTSIDE[family][2]]),
        set_name("net", family): ("hash:net", [NETWORKS[family][1], f"{narrow} nomatch", NETWORKS[family][4]]),
        set_name("ipport", family): ("hash:ip,port", [f"{services[0]},tcp:80", f"{services[1]},udp:53-60"]),
        set_name("port", family): ("bitmap:port", ["80", "8000-9000"]),
    }


def set_commands(family: Family) -> str:
    """Input for `ipset restore`."""
    lines = []
    for name, (kind, entries) in set_contents(family).items():
        options = "range 0-65535" if kind.startswith("bitmap") else f"family {'inet6' if family.is_ipv6 else 'inet'}"
        lines.append(f"create {name} {kind} {options}")
        lines += [f"add {name} {entry}" for entry in entries]
    return "\n".join(lines) + "\n"


@dataclass
class Generator:
    """Random rules for one family."""

    random: Random
    family: Family
    marks: bool = False
    """Whether it copies marks in all ways, under masks and shifted."""

    def _one(self, items: Sequence[str]) -> str:
        return self.random.choice(items)

    def _copy(self) -> str:
        """A mark copied, whole, in part, or shifted; or the connection's mark changed."""
        masks = ("0xffffffff", "0xff", "0xff00", "0x4001")
        direction = self._one(("--save-mark", "--restore-mark"))
        shift = self._one(("", "", f" --{self._one(('left', 'right'))}-shift-mark {self.random.choice((1, 4, 8))}"))
        if self.random.random() < 0.3:
            return f"-j CONNMARK --set-xmark {self._one(SET_MARKS)}{shift}"
        return f"-j CONNMARK {direction} --nfmask {self._one(masks)} --ctmask {self._one(masks)}{shift}"

    def _not(self, chance: float = 0.2) -> str:
        return "! " if self.random.random() < chance else ""

    def _address(self) -> str:
        pool = [*PODS[self.family].values(), *NODE[self.family], *OUTSIDE[self.family], *SERVICES[self.family],
                *NETWORKS[self.family], *NETWORKS[self.family]]  # fmt: skip
        return self._one(pool)

    def _ports(self) -> str:
        first = self.random.choice(PORTS)
        return (
            str(first) if self.random.random() < 0.6 else f"{max(first - 50, 0)}:{first + self.random.randrange(400)}"
        )

    def _protocol(self) -> tuple[str, list[str]]:
        """A protocol and matches that need it."""
        name = self.random.choices(PROTOCOLS, (5, 4, 2, 1))[0]
        random = self.random
        if name == "icmp":
            four = self.family is Family.IPV4
            kind = self._one(("8", "0", "8/0", "3/1", "any") if four else ("128", "129", "128/0", "1/4"))
            word = "icmp" if four else "ipv6-icmp"
            option = f"-m {'icmp --icmp-type' if four else 'icmp6 --icmpv6-type'} {kind}"
            return f"-p {word}", [option.replace("-type", "-type", 1)] if random.random() < 0.5 else []
        extra = []
        if random.random() < 0.6:
            side = self._one(("--dport", "--dport", "--sport"))
            extra.append(f"-m {name} {self._not()}{side} {self._ports()}")
        elif random.random() < 0.5:
            listed = ",".join(str(port) for port in random.sample(PORTS, 3))
            extra.append(f"-m multiport {self._not()}{self._one(('--dports', '--ports', '--sports'))} {listed}")
        elif name == "tcp" and random.random() < 0.3:
            extra.append(f"-m ecn {self._not()}--ecn-tcp-{self._one(('ece', 'cwr'))}")
        elif name == "tcp" and random.random() < 0.6:
            flags = ("FIN,SYN,RST,ACK SYN", "SYN,ACK SYN,ACK", "ALL SYN,PSH")
            extra.append(f"-m tcp {self._not()}--tcp-flags {self._one(flags)}")
        return f"-p {name}", extra

    def _plain(self, table: str, hook: str) -> str:
        """A match that needs no protocol."""
        random = self.random
        family = self.family
        types = "LOCAL", "UNICAST", "LOCAL" if family is Family.IPV6 else "BROADCAST,LOCAL"
        states = "NEW", "ESTABLISHED,RELATED", "INVALID", "NEW,DNAT", "DNAT", "SNAT", "UNTRACKED", "NEW,UNTRACKED"
        kind = random.randrange(16)
        if kind <= 1:
            return f"-m mark {self._not()}--mark {self._one(MARKS)}"
        if kind == 2:
            return f"-m connmark {self._not()}--mark {self._one(MARKS)}"
        if kind == 3:
            return f"-m conntrack {self._not()}--ctstate {self._one(states)}"
        if kind == 4:
            return f"-m addrtype {self._not()}--{self._one(('src', 'dst'))}-type {self._one(types)}"
        if kind == 5:
            return f"-m statistic --mode random {self._not()}--probability {random.choice((0.5, 0.25, 0.3333333333))}"
        if kind <= 7:
            name = self._one(SETS)
            sides = {"ipport": ("dst,dst", "src,dst"), "port": ("dst", "src")}.get(name, ("src", "dst"))
            return f"-m set {self._not()}--match-set {set_name(name, family)} {self._one(sides)}"
        if kind == 8:
            first, last = ("10.96.0.0", "10.96.0.12") if family is Family.IPV4 else ("fd00:96::", "fd00:96::f")
            return f"-m iprange {self._not()}--{self._one(('src', 'dst'))}-range {first}-{last}"
        if kind == 9:
            word = "ttl --ttl" if family is Family.IPV4 else "hl --hl"
            return f"-m {word}-{self._one(('eq', 'lt', 'gt'))} {random.choice((63, 64))}"
        if kind == 10 and hook in ("OUTPUT", "POSTROUTING"):
            return f"-m owner {self._not()}--uid-owner {random.choice((0, 1000))}"
        if kind == 11:
            side = self._one(("--ctorigdst", "--ctreplsrc", "--ctorigsrc", "--ctrepldst"))
            return f"-m conntrack {self._not()}{side} {self._address()}"
        if kind == 12 and hook not in ("OUTPUT", ""):
            return f"-m physdev {self._not()}--physdev-in {self._one(('vp1', 'vp+'))}"
        if kind == 13:
            return f"-m length {self._not()}--length {self._one(('28:40', '0:52', '60:80', '41'))}"
        if kind == 14:
            return f"-m ecn {self._not()}--ecn-ip-ect {random.choice((0, 1, 2, 3))}"
        if kind == 15:
            return f"-m tos {self._not()}--tos {self._one(('0x10/0xff', '0x00/0xff'))}"
        return f'-m comment --comment "kind {kind} in {table}"'

    def matches(self, table: str, hook: str, *, narrow: bool = False) -> tuple[str, str]:
        """Matches, and the protocol that they pin down, if any."""
        random = self.random
        parts, protocol = [], ""
        if random.random() < (0.9 if narrow else 0.4):
            parts.append(f"{self._not(0.1)}-{self._one('sd')} {self._address()}")
        if hook in ("PREROUTING", "INPUT", "FORWARD") and random.random() < 0.2:
            parts.append(f"{self._not()}-i {self._one(('eth0', 'cni0', 'cali+', 'lo', 'e+'))}")
        if hook in ("POSTROUTING", "OUTPUT", "FORWARD") and random.random() < 0.2:
            parts.append(f"{self._not()}-o {self._one(('eth0', 'cni0', 'cali+', 'lo', 'c+'))}")
        extra: list[str] = []
        if random.random() < 0.5:
            word, extra = self._protocol()
            protocol = word.split()[1]
            parts.append(word)
        count = random.choices((0, 1, 2), (5, 4, 1))[0] + (1 if narrow else 0)
        plain = {text.split()[1]: text for text in (self._plain(table, hook) for _ in range(count))}
        return " ".join([*parts, *extra, *plain.values()]), protocol

    def _target(self, table: str, hook: str, protocol: str, chains: Sequence[str]) -> str:
        random = self.random
        if chains and random.random() < 0.35:
            return f"{self._one(('-j', '-j', '-j', '-g'))} {self._one(chains)}"
        common = [f"-j MARK --set-xmark {self._one(SET_MARKS)}", "-j RETURN", "-j ACCEPT",
                  f"-j CONNMARK --set-xmark {self._one(SET_MARKS)}", "-j CONNMARK --save-mark",
                  "-j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff", ""]  # fmt: skip
        if self.marks and table != "nat":
            common[3:6] = [self._copy() for _ in range(6)]
        if table == "raw":
            return self._one(["-j CT --notrack", "-j NOTRACK" if self.family is Family.IPV4 else "-j CT --notrack",
                              *common[:3]])  # fmt: skip
        if table == "mangle":
            hops = "TTL --ttl" if self.family is Family.IPV4 else "HL --hl"
            return self._one([*common, *common, f"-j {hops}-inc 1", "-j TOS --set-tos 0x10/0xff", "-j DROP"])
        if table == "nat":
            return self._one(
                [*([] if hook == "" else [self._nat(hook, protocol)] * 6), common[0], common[1], common[6]]
            )
        harsh = [self._reject(protocol)] * 4 if table == "filter" else ["-j DROP"]
        return self._one([*common, *common, "-j DROP", *harsh, "-j NFLOG --nflog-group 5"])

    def _reject(self, protocol: str) -> str:
        kinds = ["icmp-port-unreachable", "icmp-admin-prohibited", "icmp-host-unreachable"]
        if self.family is Family.IPV6:
            kinds = ["icmp6-port-unreachable", "icmp6-adm-prohibited", "icmp6-no-route"]
        if protocol == "tcp":
            kinds += ["tcp-reset"] * 3
        return f"-j REJECT --reject-with {self._one(kinds)}"

    def _nat(self, hook: str, protocol: str) -> str:
        ported = protocol in ("tcp", "udp", "sctp")
        pods = [*PODS[self.family].values(), OUTSIDE[self.family][3], NODE[self.family][0]]

        def place(host: str, port: str) -> str:
            return f"[{host}]:{port}" if self.family is Family.IPV6 else f"{host}:{port}"

        port = self._one(("8080", "8080", "8000-8003", "80"))
        if hook in ("PREROUTING", "OUTPUT"):
            host = self._one(pods)
            if self.random.random() < 0.3:
                base = PODS[self.family]
                host = f"{base['p1']}-{base['p2']}"
            if self.random.random() < 0.25:
                return "-j REDIRECT" + (f" --to-ports {port}" if ported and self.random.random() < 0.5 else "")
            if self.random.random() < 0.15:
                return f"-j NETMAP --to {'198.51.100.0/28' if self.family is Family.IPV4 else '2001:db8:5::/124'}"
            return f"-j DNAT --to-destination {place(host, port) if ported and self.random.random() < 0.7 else host}"
        host = self._one((NODE[self.family][0], NODE[self.family][1], OUTSIDE[self.family][2]))
        if hook == "POSTROUTING" and self.random.random() < 0.5:
            return "-j MASQUERADE" + self._one(("", " --random-fully", " --to-ports 2000-2010" if ported else ""))
        spread = place(host, "3000-3010") if ported and self.random.random() < 0.5 else host
        return f"-j SNAT --to-source {spread}"

    def table(self, name: str, hooks: Sequence[str]) -> str:
        """One table as restore input."""
        random = self.random
        lines = [f"*{name}"]
        for hook in hooks:
            harsh = name in ("filter", "mangle") and random.random() < 0.08
            lines.append(f":{hook} {'DROP' if harsh else 'ACCEPT'} [0:0]")
        chains = [f"KP-{name}-{number}" for number in range(random.randrange(1, 4))]
        lines += [f":{chain} - [0:0]" for chain in chains]
        for hook in hooks:
            lines += [self._rule(hook, name, hook, chains) for _ in range(random.randrange(0, 5))]
        for place, chain in enumerate(chains):
            further = chains[place + 1 :]
            lines += [self._rule(chain, name, "", further) for _ in range(random.randrange(1, 5))]
        return "\n".join([*lines, "COMMIT", ""])

    def _rule(self, chain: str, table: str, hook: str, chains: Sequence[str]) -> str:
        target = ""
        narrow = self.random.random() < 0.3
        text, protocol = self.matches(table, hook, narrow=narrow)
        target = self._target(table, hook, protocol, chains)
        if target.startswith(("-j DROP", "-j REJECT")) and "-s " not in text and "-d " not in text:
            text = f"-{self._one('sd')} {self._address()} {text}"
        return " ".join(f"-A {chain} {text} {target}".split())

    def ruleset(self) -> str:
        """A whole rule set as restore input."""
        tables = {
            "raw": ("PREROUTING", "OUTPUT"),
            "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
            "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
            "filter": ("INPUT", "FORWARD", "OUTPUT"),
            "security": ("INPUT", "FORWARD", "OUTPUT"),
        }
        chosen = [name for name in tables if name == "nat" or self.random.random() < 0.75]
        return "".join(self.table(name, tables[name]) for name in chosen)


class Packets:
    """Random packets, each of a connection of its own."""

    def __init__(
        self, random: Random, family: Family, targets: Sequence[tuple[str, int, str]] = (), forged: float = 0
    ) -> None:
        self._forged = forged
        self._random = random
        self._family = family
        self._targets = tuple(targets)
        self._number = random.randrange(1 << 20) << 8

    def one(self) -> Probe:
        """A packet from a pod, the node or the outside, to a service, a pod, the node or the outside."""
        random, family = self._random, self._family
        pods, node, outside = PODS[family], NODE[family], OUTSIDE[family]
        if self._targets and random.random() < 0.85:
            dst, port, protocol = random.choice(self._targets)
        else:
            dst = random.choice([*pods.values(), *node, *outside, *SERVICES[family], *SERVICES[family]])
            port, protocol = random.choice(PORTS), random.choices(PROTOCOLS, (5, 4, 2, 2))[0]
        link = random.choice([*pods, "o0", "o0", "node"])
        src = random.choice(outside) if link == "o0" else node[0] if link == "node" else pods[link]
        if link == "node" and random.random() < 0.3:
            src = random.choice(node)
        if link != "node" and random.random() < self._forged:
            loopback = "127.0.0.1" if family is Family.IPV4 else "::1"
            everyone = [*pods.values(), *node, *outside, loopback, SERVICES[family][0]]
            src = random.choice(everyone)
            dst = random.choice([dst, dst, loopback])
        return self.packet(link, src, dst, port, protocol)

    def packet(self, link: str, src: str, dst: str, port: int, protocol: str) -> Probe:
        """A packet of a new connection."""
        self._number += 1
        sport = 20000 + self._number % 40000
        six = self._family is Family.IPV6

        def place(host: str, number: int) -> str:
            if protocol == "icmp":
                return host
            return f"[{host}]:{number}" if six else f"{host}:{number}"

        local = (
            {"origin": "local", "uid": 0, "gid": 0, "socket": True} if link == "node" else {"in_interface": LINKS[link]}
        )
        length = {"tcp": 20, "udp": 8 + len(MAGIC) + 4, "sctp": 32, "icmp": 8 + len(MAGIC) + 4}[protocol] + (
            40 if six else 20
        )
        flags = SYN | self._random.choice((0, 0, ECE, ECE | CWR)) if protocol == "tcp" else None
        tos = self._random.choice((0, 0, 0, 1, 2, 3))  # with the bits of ECN
        packet = make_packet(
            place(src, sport), place(dst, port), protocol, ttl=64, tos=tos, length=length, tcp_flags=flags, **local
        )
        if link in ("p1", "p2"):
            packet = packet.replace(bridged=next_hop(packet, link) != mac("cni0", "node"))
        return Probe(packet, link, self._number & 0xFFFFFFFF)
