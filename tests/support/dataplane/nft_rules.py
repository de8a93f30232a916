"""Random small rule sets of nftables, of the same few addresses, ports and mark bits as `compare_rules`."""

from __future__ import annotations

import itertools
from random import Random

from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.text import parse_nft

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.96.0.1", "127.0.0.1")
SETS = """
  set hosts {
    type ipv4_addr
    flags interval
    elements = { 10.0.0.0/24, 127.0.0.1 }
  }
  set services {
    type ipv4_addr . inet_proto . inet_service
    elements = { 10.96.0.1 . tcp . 80, 10.0.0.1 . udp . 81 }
  }
  set seen {
    type ipv4_addr
    flags dynamic,timeout
    timeout 1m
  }
  map ends {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.0.1 . tcp . 80 : goto xa, 10.0.0.2 . tcp . 81 : drop, 10.0.0.1 . udp . 80 : jump xb }
  }
"""
BASE = (
    ("filter", "prerouting", -301), ("filter", "prerouting", -149), ("nat", "prerouting", -101),
    ("nat", "prerouting", -90), ("filter", "prerouting", 1), ("filter", "input", -1), ("filter", "forward", 1),
    ("filter", "forward", 10), ("filter", "output", -299), ("filter", "output", -151), ("nat", "output", -101),
    ("filter", "output", 1), ("nat", "postrouting", 101), ("filter", "postrouting", 60),
)  # fmt: skip
"""Base chains, none at the priority of a table of iptables: which of two is called first would be unknown."""


class NftGenerator:
    """Random rule sets: a table of one family, with regular chains for filtering and for NAT."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def text(self, *, devices: bool = False) -> str:
        """The table as nft prints it; with `devices` also one with chains at ingress and egress."""
        random = self._random
        family = random.choice(("ip", "inet"))
        lines = [f"table {family} t {{", SETS]
        for name in ("xb", "xa"):
            lines += [f"  chain {name} {{", *self._rules("filter", "", 2, ()), "  }"]
        for number, (kind, hook, priority) in enumerate(BASE):
            if random.random() < 0.45:
                policy = "drop" if random.random() < 0.1 else "accept"
                lines += [f"  chain b{number} {{", f"    type {kind} hook {hook} priority {priority}; policy {policy};"]
                lines += [*self._rules(kind, hook, 3, ("xa", "xb")), "  }"]
        text = "\n".join([*lines, "}", ""])
        return text + (self._devices() if devices else "")

    def _devices(self) -> str:
        lines = ["table netdev d {", SETS]
        for name in ("xb", "xa"):
            lines += [f"  chain {name} {{", *self._rules("filter", "", 2, ()), "  }"]
        for number, (hook, device) in enumerate(itertools.product(("ingress", "egress"), ("eth0", "eth*", "lo"))):
            policy = "drop" if self._random.random() < 0.1 else "accept"
            lines += [f"  chain d{number} {{", f'    type filter hook {hook} device "{device}" priority {number};']
            lines += [f"    policy {policy};", *self._rules("filter", "", 2, ("xa", "xb")), "  }"]
        return "\n".join([*lines, "}", ""])

    def _rules(self, kind: str, hook: str, count: int, callees: tuple[str, ...]) -> list[str]:
        return [f"    {self._rule(kind, hook, callees)}" for _ in range(self._random.randrange(count + 1))]

    def _rule(self, kind: str, hook: str, callees: tuple[str, ...]) -> str:
        random = self._random
        parts = [self._match(hook) for _ in range(random.choice((0, 1, 1, 2)))]
        if random.random() < 0.25:
            parts.append(self._change())
        return " ".join([*parts, self._end(kind, hook, callees)]).strip()

    def _match(self, hook: str) -> str:
        random = self._random
        sign = random.choice(("", "", "!= "))
        return random.choice((
            f"ip saddr {sign}{random.choice(ADDRESSES[:2])}",
            f"ip daddr {sign}{random.choice([*ADDRESSES, '10.0.0.0/24'])}",
            f"tcp dport {sign}{random.choice(('80', '{ 80, 81 }', '80-90', '> 80' if not sign else '81'))}",
            f"meta l4proto {sign}{random.choice(('tcp', 'udp', '{ tcp, udp }'))}",
            "th dport 80",
            f"meta mark & 0x1 {random.choice(('==', '!='))} 0x1",
            f"meta mark & 0x3 {random.choice(('==', '!='))} 0x2",
            f"ct state {random.choice(('new', 'established,related', 'invalid', 'untracked'))}",
            f"ct status {random.choice(('dnat', 'snat'))}",
            f"fib {random.choice(('saddr', 'daddr'))} type {random.choice(('local', '!= local'))}",
            f"ip saddr {random.choice(('@hosts', '!= @hosts'))}",
            "ip saddr @seen",
            f"ip daddr . meta l4proto . th dport {random.choice(('@services', '!= @services'))}",
            "ip saddr . ip daddr { 10.0.0.1 . 10.0.0.2, 10.0.0.2 . 10.96.0.1 }",
            f"numgen random mod {random.choice((2, 3, 10))} < {random.choice((1, 2))}",
            "iifname \"eth0\"" if hook in ("prerouting", "input") else "oifname != \"eth1\"",
        ))  # fmt: skip

    def _change(self) -> str:
        return self._random.choice((
            "meta mark set meta mark | 0x1", "meta mark set 0x2", "meta mark set meta mark ^ 0x3",
            "meta mark set meta mark & 0xfffffffe", "counter", "update @seen { ip saddr }",
            "ct mark set meta mark", "meta mark set ct mark",
        ))  # fmt: skip

    def _end(self, kind: str, hook: str, callees: tuple[str, ...]) -> str:
        random = self._random
        choices = ["accept", "drop", "return", "", "", "continue", "counter"]
        if callees:
            choices += [f"jump {callees[0]}", f"goto {callees[1]}", "ip daddr . meta l4proto . th dport vmap @ends"]
            choices += ["numgen random mod 3 vmap { 0 : accept, 1 : drop }", "ip daddr vmap { 10.0.0.1 : drop }"]
            choices += ["tcp dport vmap { 80 : jump xb, 81-90 : return }"]
        if kind == "filter" and hook in ("input", "forward", "output"):
            choices += ["reject", "reject with icmp host-unreachable"]
        if hook == "prerouting" and not callees:
            choices += ["notrack"]
        if kind == "nat":
            choices = ["accept", "return", ""]
            if hook in ("prerouting", "output"):
                to = "dnat ip addr . port to numgen random mod 3 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 81 }"
                choices += ["meta l4proto tcp dnat ip to 10.0.0.1:80", f"meta l4proto tcp {to}"] * 3
                choices += ["dnat ip to ip daddr map { 10.96.0.1 : 10.0.0.2 }"]
            else:
                choices += ["masquerade", "masquerade fully-random", "snat ip to 10.0.0.9"]
        return random.choice(choices)


def native(text: str) -> NftRuleset:
    """The rules themselves."""
    return parse_nft(text)
