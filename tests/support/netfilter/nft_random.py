"""Random rules of nftables, as values in the form that the kernel's lister shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kproxy.netfilter.nftables.bitwise import combine
from kproxy.netfilter.nftables.datatype import DATATYPES, DataType, Form
from kproxy.netfilter.nftables.element import Element, Elements
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    AnonymousSet,
    Concat,
    Ct,
    Expression,
    Fib,
    Jhash,
    MapLookup,
    Meta,
    Numgen,
    Payload,
    Symhash,
    type_of,
    types_of,
)
from kproxy.netfilter.nftables.protocol import Layer
from kproxy.netfilter.nftables.references import expressions_of, walk
from kproxy.netfilter.nftables.ruleset import BaseChain, Chain, NftRuleset, Rule, Table, TableFamily
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Counter, Limit, Quota
from kproxy.netfilter.nftables.statement import (
    Log,
    Mangle,
    Match,
    Nat,
    Notrack,
    Operator,
    Reject,
    Statement,
    VerdictMap,
)
from kproxy.netfilter.nftables.value import ACCEPT, DROP, RETURN, Prefix, Range, Single, Verdict

PAYLOADS = {
    TableFamily.IP: ("ip saddr", "ip daddr", "ip ttl", "ip length", "ip id", "ip dscp"),
    TableFamily.IP6: ("ip6 saddr", "ip6 daddr", "ip6 hoplimit", "ip6 length", "ip6 flowlabel"),
}
TRANSPORT = (
    "tcp dport",
    "tcp sport",
    "udp dport",
    "sctp dport",
    "tcp window",
    "tcp flags",
    "th dport",
    "udplite sport",
)
META = ("mark", "iifname", "oifname", "skuid", "skgid", "pkttype", "cpu", "length", "cgroup")
CT = ("state", "status", "mark", "direction", "zone", "helper")


class RandomRules:
    """Makes rules for a table of a family; `chains` are those that it may jump to."""

    def __init__(self, rng: Random, family: TableFamily, chains: Sequence[str]) -> None:
        self.rng = rng
        self.family = family
        self.chains = chains

    def number(self, kind: DataType) -> int:
        if kind.names and kind.form is not Form.FLAGS and self.rng.random() < 0.7:
            return self.rng.choice([number for number in kind.names if number <= kind.mask])
        if kind.form is Form.FLAGS:
            return self.rng.choice(list(kind.names))
        return self.rng.randrange(1, kind.mask if kind.bits > 20 else kind.mask + 1) & kind.mask

    def constant(self, kind: DataType, *, interval: bool = False) -> Single:
        if kind.form is Form.STRING:
            return self.rng.choice(["eth0", "lo", "veth12ab", "cali1-x"])
        if interval and kind.form in (Form.IPV4, Form.IPV6):
            length = self.rng.randrange(1, kind.bits)
            return Prefix(self.number(kind) >> (kind.bits - length) << (kind.bits - length), length, kind.bits)
        if interval and kind.name == "inet_service":
            first = self.rng.randrange(1, 60000)
            return Range(first, first + self.rng.randrange(1, 5000))
        return self.number(kind)

    def key(self) -> Expression:
        """Something to compare with a constant or to look up."""
        choice = self.rng.randrange(6)
        if choice < 2:
            return Payload(*self.rng.choice(PAYLOADS[self.family]).split())
        if choice == 2:
            return Payload(*self.rng.choice(TRANSPORT).split())
        if choice == 3:
            return Meta(self.rng.choice(META))
        if choice == 4:
            return Ct(self.rng.choice(CT))
        return Fib((self.rng.choice(["saddr", "daddr"]),), "type")

    def concatenation(self) -> Concat:
        address = Payload(self.family.value, self.rng.choice(["saddr", "daddr"]))
        parts: list[Expression] = [address, Meta("l4proto"), Payload("th", "dport")]
        return Concat(tuple(parts[: self.rng.randrange(2, 4)]))

    def keys(self, key: Expression, most: int = 5) -> list[Single | tuple[Single, ...]]:
        """Different constants of a key's types, more than one, without neighbours that an interval set would join."""
        types = types_of(key)
        found: dict[object, Single | tuple[Single, ...]] = {}
        for _ in range(self.rng.randrange(3, 3 + most)):
            parts = tuple(self.constant(kind) for kind in types)
            found[parts] = parts if len(parts) > 1 else parts[0]
        return list(found.values())

    def match(self) -> Statement:
        choice = self.rng.randrange(6)
        if choice == 0:
            marks: list[Expression] = [Meta("mark"), Ct("mark")]
            base = self.rng.choice(marks)
            left = combine("&", base, self.rng.randrange(2, 0xFFFF) | 1, 32)
            operator = self.rng.choice([Operator.EQ, Operator.NE])
            return Match(left, operator, self.rng.randrange(0, 0xFFFF))
        key = self.concatenation() if choice == 1 else self.key()
        if choice < 3:
            values = self.keys(key)
            if len(values) > 1:
                elements = Elements(Element(value) for value in values)
                operator = self.rng.choice([Operator.EQ, Operator.NE])
                return Match(key, operator, AnonymousSet(elements, types_of(key)))
        if isinstance(key, Concat):
            return Match(key, Operator.EQ, tuple(self.constant(kind) for kind in types_of(key)))
        kind = type_of(key)
        value = self.constant(kind, interval=self.rng.random() < 0.4)
        if kind.form is Form.FLAGS:
            return Match(key, self.rng.choice([Operator.ANY, Operator.EQ, Operator.NE, Operator.NONE]), value)
        return Match(key, self.rng.choice([Operator.EQ, Operator.NE]), value)

    def verdict(self) -> Verdict:
        jump = Verdict(self.rng.choice(["jump", "goto"]), self.rng.choice(self.chains))
        return self.rng.choice([ACCEPT, DROP, RETURN, jump])

    def verdict_map(self) -> Statement:
        key: Expression
        if self.rng.random() < 0.5:
            modulus = self.rng.randrange(2, 6)
            choices: list[Expression] = [Numgen("random", modulus), Numgen("inc", modulus), Symhash(modulus)]
            key = self.rng.choice(choices)
            values: list[Single | tuple[Single, ...]] = list(range(modulus))
        else:
            key = self.concatenation() if self.rng.random() < 0.5 else self.key()
            values = self.keys(key)
        elements = Elements(Element(value, self.verdict()) for value in values)
        return VerdictMap(key, AnonymousMap(elements, types_of(key), (DATATYPES["verdict"],)))

    def mangle(self) -> Statement:
        marks: list[Meta | Ct] = [Meta("mark"), Ct("mark")]
        target, base = self.rng.choice(marks), self.rng.choice(marks)
        hashed = Jhash(Payload(self.family.value, "saddr"), 8, self.rng.randrange(1, 99), self.rng.randrange(3))
        values: list[Expression] = [
            self.rng.randrange(1 << 32),
            base,
            combine("&", base, self.rng.randrange(1, 1 << 31), 32),
            combine("|", combine("&", base, 0xFF00, 32), self.rng.randrange(1, 0xFF), 32),
            combine("^", base, self.rng.randrange(1, 1 << 32), 32),
            hashed,
        ]
        return Mangle(target, self.rng.choice(values))

    def limit(self) -> Statement:
        rng = self.rng
        unit = rng.choice(["second", "minute", "hour", "day"])
        choices: list[Statement] = [
            Limit(rng.randrange(1, 99), unit, rng.randrange(1, 99), rng.random() < 0.5),
            Limit(rng.randrange(1, 99) << 10, "second", rng.randrange(1, 99) << 10, rng.random() < 0.5, True),
            Quota(rng.randrange(1, 1 << 40), rng.random() < 0.5),
            ConnectionLimit(rng.randrange(1, 99), rng.random() < 0.5),
            Counter(),
            Log(rng.choice([None, "a b: "]), rng.choice([None, "info"])),
            Notrack(),
        ]
        return rng.choice(choices)

    def ending(self) -> Statement:
        kind = {TableFamily.IP: "icmp", TableFamily.IP6: "icmpv6"}[self.family]
        codes = [code for code in DATATYPES[f"{kind}_code"].names if (kind, code) != ("icmp", 4)]
        choices: list[Statement] = [self.verdict(), Reject(kind, self.rng.choice(codes)), self.verdict_map()]
        return self.rng.choice(choices)

    def nat(self) -> Rule:
        """A rule of a chain of type nat."""
        rng = self.rng
        family, kind = self.family.value, type_of(Payload(self.family.value, "saddr"))
        tcp = Match(Meta("l4proto"), Operator.EQ, rng.choice([6, 17]))
        number = rng.randrange(2, 5)
        backends = Elements(Element(place, (self.number(kind), rng.randrange(1, 65535))) for place in range(number))
        types, data = (DATATYPES["integer"].sized(32),), (kind, DATATYPES["inet_service"])
        balanced = MapLookup(Numgen("random", number), AnonymousMap(backends, types, data))
        flags = frozenset(rng.sample(["random", "fully-random", "persistent"], rng.randrange(3)))
        choices: list[Callable[[], Nat]] = [
            lambda: Nat("dnat", family, balanced, None, flags, concatenated=True),
            lambda: Nat("dnat", family, self.number(kind), rng.randrange(1, 65535), flags),
            lambda: Nat("snat", family, self.number(kind), Range(1024, rng.randrange(1025, 65535)), flags),
            lambda: Nat("masquerade", None, None, rng.choice([None, Range(1024, 2048)]), flags),
            lambda: Nat("redirect", None, None, rng.randrange(1, 65535), flags),
        ]
        return Rule((tcp, rng.choice(choices)()))

    def rule(self) -> Rule:
        """A rule of any chain."""
        rng = self.rng
        if rng.random() < 0.2:
            return self.nat()
        statements: list[Statement] = [self.match()]
        if rng.random() < 0.4:
            statements.append(self.mangle())
        if rng.random() < 0.4:
            statements.append(self.limit())
        if rng.random() < 0.8:
            statements.append(self.ending())
        if _mixes_transport(statements):
            return self.rule()
        return Rule(tuple(statements), rng.choice([None, None, "why not"]))


def _mixes_transport(statements: Sequence[Statement]) -> bool:
    """Whether a rule has two transport protocols, which nft refuses, or `th` beside one, which it lists as that one."""
    inside = [inner for item in statements for outer in expressions_of(item) for inner in walk(outer)]
    protocols = {item.protocol for item in _transport_payloads(inside)}
    return len(protocols) > 1


def _transport_payloads(expressions: Sequence[Expression]) -> list[Payload]:
    """The transport headers' fields among expressions."""
    return [item for item in expressions if isinstance(item, Payload) and item.layer is Layer.TRANSPORT]


def random_ruleset(seed: int, rules: int) -> NftRuleset:
    """Two tables with `rules` rules in all, each in a chain of its own."""
    rng = Random(seed)
    tables = []
    for family in (TableFamily.IP, TableFamily.IP6):
        leaves = [f"leaf-{number}" for number in range(3)]
        maker = RandomRules(rng, family, leaves)
        chains = [Chain(name) for name in leaves]
        chains += [Chain(f"c{number}", None, (maker.rule(),)) for number in range(rules // 2)]
        base = BaseChain(
            "filter", rng.choice(["input", "forward"]), rng.randrange(-200, 200), rng.choice(["accept", "drop"])
        )
        tables.append(Table(family, "made", (*chains, Chain("base", base))))
    return NftRuleset(tuple(tables))
