"""Random nftables rule sets, from a seed: the expressions and statements that the model decides and that need nothing
from outside, in base chains at all hooks and at odd priorities, with sets, maps, jumps, gotos, returns and policies.

Rules change the set @seen but none asks it: what earlier packets left there would decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kproxy.netfilter import Family
from tests.support.kernel.dataplane_rules import NETWORKS, NODE, OUTSIDE, PODS, PORTS, SERVICES

_PORTED = ("tcp", "udp", "sctp")
_MARKS = ("0x1", "0x4000", "0x6", "0xff00")


@dataclass
class NftGenerator:
    """A random script for `nft -f`, in one family."""

    random: Random
    family: Family
    tables: int = 2
    writes: bool = False
    """Whether rules write header fields, and copy marks in all ways."""
    wide: bool = False
    """Whether rules have what only the text is judged by, too: limits, hashes, what a packet does not tell."""
    _inet: bool = False

    def ruleset(self) -> str:
        """A whole script."""
        return "".join(self._table(number) for number in range(self.tables))

    @property
    def _ip(self) -> str:
        return "ip6" if self.family is Family.IPV6 else "ip"

    def _one(self, items: Sequence[str]) -> str:
        return self.random.choice(items)

    def _address(self) -> str:
        family = self.family
        return self._one([*PODS[family].values(), *NODE[family], *OUTSIDE[family], *SERVICES[family]])

    def _addresses(self) -> str:
        """A constant for addresses: one, a network, a range, or a set of them."""
        kind = self.random.randrange(7)
        if kind <= 1:
            return self._address()
        if kind <= 3:
            return self._one(NETWORKS[self.family])
        if kind == 4:
            low, high = ("10.96.0.0", "10.96.0.12") if self.family is Family.IPV4 else ("fd00:96::", "fd00:96::f")
            return f"{low}-{high}"
        if kind == 5:
            return self._one(("@hosts", "@nets"))
        return f"{{ {self._address()}, {self._one(SERVICES[self.family])}, {self._one(NETWORKS[self.family][3:4])} }}"

    def _ports(self) -> str:
        first = self.random.choice(PORTS)
        return self._one(
            (str(first), str(first), f"{max(first - 50, 0)}-{first + 300}", "{ 53, 80, 8000-9000 }", "@ports")
        )

    def _not(self, chance: float = 0.2) -> str:
        return "!= " if self.random.random() < chance else ""

    def _protocol(self) -> tuple[str, str]:
        """A protocol, and a match that pins it down."""
        name = self.random.choices((*_PORTED, "icmp"), (5, 4, 2, 1))[0]
        if name == "icmp":
            kind = "icmp" if self.family is Family.IPV4 else "icmpv6"
            return name, f"{kind} type {self._not()}{self._one(('echo-request', 'echo-reply'))}"
        pick = self.random.randrange(4)
        if pick == 0:
            return name, f"meta l4proto {name}"
        if pick == 1 and name == "tcp":
            flags = ("tcp flags syn", "tcp flags & (fin | syn | rst | ack) == syn", "tcp flags ! ack",
                     "tcp flags & (syn | ack) == syn | ack", "tcp flags ecn",
                     "tcp flags & (ecn | cwr) == ecn")  # fmt: skip
            return name, self._one(flags)
        return name, f"{name} {self._one(('dport', 'dport', 'sport'))} {self._not()}{self._ports()}"

    def _plain(self, hook: str, protocol: str) -> str:
        """A match that needs no protocol."""
        ip, n = self._ip, self._not()
        mark = self._one(_MARKS)
        limit = "ttl" if self.family is Family.IPV4 else "hoplimit"
        four = self.family is Family.IPV4
        pool = [
            f"{ip} saddr {n}{self._addresses()}", f"{ip} daddr {n}{self._addresses()}",
            f"{ip} daddr {n}{self._addresses()}", f"meta mark & {mark} {self._one(('==', '!='))} {mark}",
            f"meta mark {n}{mark}", f"ct mark & {mark} != 0x0", f"ct state {self._one(('new', 'established,related'))}",
            f"ct state {n}{{ new, untracked }}", "ct state invalid", "ct state untracked", "ct status dnat",
            "ct status & (snat | dnat) == 0", "ct status ! dnat", f"ct direction {self._one(('original', 'reply'))}",
            f"ct original {ip} daddr {n}{self._address()}", f"ct reply {ip} saddr {n}{self._address()}",
            f"fib daddr type {n}local", f"fib saddr type {n}local", f"fib daddr type {n}{{ local, unicast }}",
            f"th dport {n}{self._ports()}",
            f"{ip} daddr . meta l4proto . th dport {n}@services", f"{ip} saddr . {ip} daddr {n}@pairs",
            f"{ip} daddr . th dport {n}{{ {SERVICES[self.family][0]} . 80, {NETWORKS[self.family][1]} . 50-9000 }}",
            f"{ip} {limit} {self._one(('<', '>=', '=='))} 64", f"{ip} dscp {n}{self._one(('cs0', 'cs1'))}",
            f"{ip} ecn {n}{self._one(('not-ect', 'ect0', '{ ect1, ce }'))}",
            f"meta length {self._one(('< 50', '>= 60', '28-40', '!= 41'))}",
            "meta pkttype host",
            f"@nh,{'128,8' if four else '192,8'} {n}{'0xa' if four else '0xfd'}",
            f"@th,16,16 {n}{self._one(('80', '53'))}",
        ]  # fmt: skip
        if self.wide:
            pool += self._unjudged_matches()
        if self._inet:
            pool += [f"meta nfproto {n}{'ipv4' if four else 'ipv6'}"]
        if not protocol:
            pool += [
                f"meta l4proto {n}{{ tcp, udp }}",
                f"meta l4proto tcp ct original proto-dst {n}{self._one(('80', '53', '8080'))}",
            ]
        if four:
            pool += [] if protocol else [f"ip protocol {n}{{ tcp, icmp }}"]
            pool += ["ip version 4", "ip frag-off & 0x1fff == 0"]
        if hook in ("prerouting", "input", "forward"):
            names = ('"eth0"', '"cni0"', '"cali*"', '"lo"', '{ "eth0", "cali1" }')
            pool += [f"iifname {n}{self._one(names)}"] * 4
            pool += [f"fib daddr . iif type {n}local"]
        if hook in ("prerouting", "input", "forward") and four:
            pool.append(f"fib saddr . iif oif {self._one(('missing', 'exists'))}")
        if hook in ("postrouting", "output", "forward"):
            outputs = ('"eth0"', '"cni0"', '"cali*"', '"lo"')
            pool += [f"oifname {n}{self._one(outputs)}"] * 4
        if hook in ("postrouting", "output"):
            pool += [f"meta skuid {n}{self._one(('0', '1000'))}", 'oifname "e*"']
        return self._one(pool)

    def _jump(self, chains: Sequence[str]) -> str:
        return f"{self._one(('jump', 'jump', 'goto'))} {self._one(chains)}"

    def _common(self, chains: Sequence[str], protocol: str) -> list[str]:
        mark, ip = self._one(_MARKS), self._ip
        found = [
            f"meta mark set {mark}", f"meta mark set meta mark | {mark}", "meta mark set meta mark & 0xffff0fff",
            f"meta mark set meta mark ^ {mark}", f"ct mark set {mark}", "ct mark set meta mark",
            "meta mark set ct mark", "counter", "counter return", "accept", "continue", 'log group 5',
            f"update @seen {{ {ip} saddr }}", f"add @seen {{ {ip} daddr timeout 60s }}",
            f"{ip} dscp set cs1", f"meta mark set {ip} daddr map @marks",
            "meta l4proto vmap { tcp : accept, udp : continue }",
        ]  # fmt: skip
        if self.writes:
            found += [*self._writes(protocol), *self._copies()]
        if self.wide:
            found += self._unjudged_statements()
        if chains:
            first, last = chains[0], chains[-1]
            found += [self._jump(chains)] * 6
            one, two = SERVICES[self.family][:2]
            found += [
                f"{ip} daddr vmap {{ {one} : jump {first}, {two} : goto {last} }}",
                f"meta l4proto . th dport vmap {{ tcp . 80 : jump {last}, udp . 53 : goto {first} }}",
                f"numgen random mod 3 vmap {{ 0 : jump {first}, 1 : goto {last} }}",
                f"ct state vmap {{ new : jump {first}, invalid : continue }}",
            ]
        return found

    def _writes(self, protocol: str) -> list[str]:
        """Header fields that are written, of headers that the rule has not ruled out."""
        ip, limit = self._ip, "ttl" if self.family is Family.IPV4 else "hoplimit"
        found = [
            f"{ip} {limit} set {self._one(('64', '63', '10'))}", f"{ip} ecn set {self._one(('ce', 'ect0', 'not-ect'))}",
            f"{ip} dscp set {self._one(('cs0', 'cs2'))}", f"{ip} daddr set {self._address()}",
            f"{ip} saddr set {self._address()}", f"meta priority set {self._one(('1:2', 'none'))}",
        ]  # fmt: skip
        header = protocol or self._one(("udp", "tcp"))
        if header in _PORTED:
            found.append(f"{header} dport set {self._one(('53', '80', '8080'))}")
        if header == "tcp":
            found.append("tcp option maxseg size set 1400")
        if protocol == "icmp":
            found.append(f"{'icmp' if self.family is Family.IPV4 else 'icmpv6'} code set {self._one(('0', '1'))}")
        return found

    def _unjudged_matches(self) -> list[str]:
        n, number = self._not(), self.random.randrange(1, 5000)
        kinds = ("unicast", "broadcast", "multicast", "other")
        return [
            f"meta skgid {n}{number}", f"meta cpu {n}{number % 64}", f"meta cgroup {n}{number}",
            f"meta pkttype {n}{self._one(kinds)}", f"ct zone {n}{number}", f'ct helper {n}"ftp"',
            f"ip6 flowlabel {n}{number}" if self.family is Family.IPV6 else f"ip id {n}{number}",
        ]  # fmt: skip

    def _unjudged_statements(self) -> list[str]:
        number, over, unit = (
            self.random.randrange(1, 99),
            self._one(("", "over ")),
            self._one(("second", "minute", "day")),
        )
        return [
            f"limit rate {over}{number}/{unit} burst {number + 1} packets", f"ct count {over}{number}",
            f"limit rate {over}{number} kbytes/second burst {number} kbytes", f"quota {over}{number} bytes",
            f'log prefix "a b: " level {self._one(("info", "err"))}', f"meta mark set symhash mod {number + 1}",
            f"meta mark set jhash {self._ip} saddr . {self._ip} daddr mod {number + 1} seed {hex(number)}",
        ]  # fmt: skip

    def _copies(self) -> list[str]:
        """Marks that are copied, whole, in part, or shifted."""
        mark, shift = self._one(_MARKS), self._one(("1", "4", "8"))
        return [
            "ct mark set meta mark", f"ct mark set meta mark & {mark}", f"ct mark set meta mark << {shift}",
            f"meta mark set ct mark & {mark}", f"meta mark set ct mark >> {shift}", f"ct mark set ct mark | {mark}",
            f"ct mark set ct mark ^ {mark}", f"meta mark set ct mark | {mark}",
        ]  # fmt: skip

    def _reject(self, protocol: str) -> str:
        kinds = ["reject", "reject"]
        if self._inet:
            kinds += ["reject with icmpx admin-prohibited", "reject with icmpx host-unreachable"]
        kinds.append(
            "reject with icmp port-unreachable" if self.family is Family.IPV4 else "reject with icmpv6 no-route"
        )
        return self._one([*kinds, *(["reject with tcp reset"] * 3 if protocol == "tcp" else [])])

    def _nat(self, hook: str, protocol: str) -> str:
        random, ip = self.random, self._ip
        ported = protocol in _PORTED
        pods = [*PODS[self.family].values(), OUTSIDE[self.family][3], NODE[self.family][0]]

        def at(host: str, port: str) -> str:
            return f"[{host}]:{port}" if self.family is Family.IPV6 else f"{host}:{port}"

        port = self._one(("8080", "8080", "8000-8003", "80"))
        if hook in ("prerouting", "output"):
            host, other = random.sample(pods, 2)
            pick = random.randrange(6)
            if pick == 0:
                return "redirect" + (f" to :{port}" if ported and random.random() < 0.5 else "")
            if pick == 1 and ported:
                return (
                    f"dnat {ip} addr . port to numgen random mod 3 map "
                    f"{{ 0 : {host} . 8080, 1 : {other} . 80, 2 : {host} . 80 }}"
                )
            if pick == 2:
                one, two = SERVICES[self.family][:2]
                return f"dnat {ip} to {ip} daddr map {{ {one} : {host}, {two} : {other} }}"
            if pick == 3:
                return f"dnat {ip} to numgen random mod 2 map {{ 0 : {host}, 1 : {other} }}"
            return f"dnat {ip} to {at(host, port) if ported and random.random() < 0.7 else host}"
        host = self._one((NODE[self.family][0], NODE[self.family][1], OUTSIDE[self.family][2]))
        if hook == "postrouting" and random.random() < 0.5:
            return "masquerade" + self._one(("", " fully-random", " to :2000-2010" if ported else ""))
        return f"snat {ip} to {at(host, '3000-3010') if ported and random.random() < 0.5 else host}"

    def _rule(self, kind: str, hook: str, chains: Sequence[str], *, base: bool = False) -> str:
        random = self.random
        parts: list[str] = []
        protocol = ""
        if random.random() < 0.4:
            protocol, text = self._protocol()
            parts.append(text)
        for _ in range(random.choices((0, 1, 2, 3), (5, 5, 2, 1))[0]):
            parts.append(self._plain(hook if base else "", protocol))
            protocol = protocol or ("other" if "proto" in parts[-1] else "")
        common = self._common(chains, protocol)
        if kind in ("dstnat", "srcnat"):
            pool = [self._nat(hook, protocol)] * 14 + common
        elif kind == "raw":
            pool = [*common, *["notrack"] * 4]
        else:
            refused = [self._reject(protocol)] * 3 if kind in ("filter", "route") and hook != "postrouting" else []
            pool = [*common, "drop", "drop", *refused]
        target = self._one(pool)
        if target.startswith(("drop", "reject")):
            where = self._address() if random.random() < 0.5 else self._one(NETWORKS[self.family])
            parts.append(f"{self._ip} {self._one(('saddr', 'daddr'))} {where}")
        random.shuffle(parts)
        if target.startswith(("dnat", "snat", "redirect", "masquerade")) and ":" in target and protocol in _PORTED:
            parts.insert(0, f"meta l4proto {protocol}")
        if target.endswith("reset"):
            parts.insert(0, "meta l4proto tcp")
        return " ".join([*parts, target])

    def _sets(self) -> list[str]:
        family, ip = self.family, "ipv6_addr" if self.family is Family.IPV6 else "ipv4_addr"
        pods, services, nets = PODS[family], SERVICES[family], NETWORKS[family]
        apart = nets[4 if family is Family.IPV4 else 5]
        return [
            f"set hosts {{ type {ip}; elements = {{ {pods['p1']}, {services[0]}, {OUTSIDE[family][2]} }}; }}",
            f"set nets {{ type {ip}; flags interval; elements = {{ {nets[1]}, {apart} }}; }}",
            "set ports { type inet_service; flags interval; elements = { 80, 8000-9000 }; }",
            f"set pairs {{ type {ip} . {ip};",
            f"elements = {{ {pods['p1']} . {services[0]}, {pods['c1']} . {services[1]} }}; }}",
            f"set services {{ type {ip} . inet_proto . inet_service; flags interval;",
            f"elements = {{ {services[0]} . tcp . 80, {nets[0]} . udp . 50-60, {services[2]} . tcp . 0-65535 }}; }}",
            f"set seen {{ type {ip}; flags dynamic,timeout; timeout 1h; size 4096; }}",
            f"map marks {{ type {ip} : mark; elements = {{ {services[0]} : 0x1, {services[1]} : 0x4000 }}; }}",
        ]  # fmt: skip

    def _table(self, number: int) -> str:
        random = self.random
        family = self._one(("inet", self._ip))
        self._inet = family == "inet"
        lines = [f"table {family} kp{number} {{", *self._sets()]
        groups = {
            group: [f"{group}-{index}" for index in range(random.randrange(1, 3))]
            for group in ("plain", "filter", "dstnat", "srcnat")
        }
        bodies = []
        for group, names in groups.items():
            for place, name in enumerate(names):
                further = [*names[place + 1 :], *(groups["plain"] if group != "plain" else ())]
                hook = {"dstnat": "output", "srcnat": "input"}.get(group, "")
                count = random.randrange(1, 4)
                bodies.append((f"chain {name} {{", [self._rule(group, hook, further) for _ in range(count)]))
        bases = [
            ("raw", "filter", ("prerouting", "output"), -300), ("mangle", "filter", ("prerouting", "forward"), -150),
            ("route", "route", ("output",), -150), ("dstnat", "nat", ("prerouting", "output"), -100),
            ("srcnat", "nat", ("input", "postrouting"), 100), ("filter", "filter", ("input", "forward", "output"), 0),
            ("late", "filter", ("prerouting", "postrouting", "input"), random.choice((-99, 10, 101, 150))),
        ]  # fmt: skip
        for kind, chain_type, hooks, priority in bases:
            for hook in hooks:
                if random.random() < (0.9 if chain_type == "nat" else 0.6):
                    at = priority + random.choice((0, 0, 0, -5, 5))
                    policy = "drop" if kind == "filter" and random.random() < 0.05 else "accept"
                    head = f"type {chain_type} hook {hook} priority {at}; policy {policy};"
                    chains = [*groups["plain"], *groups.get(kind, ())]
                    rules = [self._rule(kind, hook, chains, base=True) for _ in range(random.randrange(1, 5))]
                    bodies.append((f"chain at-{kind}-{hook} {{ {head}", rules))
        for head, rules in bodies:
            lines += [head, *rules, "}"]
        return "\n".join([*lines, "}", ""])
