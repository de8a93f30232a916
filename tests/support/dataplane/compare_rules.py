"""Random small rule sets, changes to them that change nothing, and changes that may change something.

A rule set is kept as text: table -> chain -> rules. The constants are few (`ADDRESSES`, ports 80 and 81, two mark
bits), so that rules meet, and so that all packets that such rules can tell apart can be enumerated.
"""

from __future__ import annotations

import copy
from random import Random

from kproxy.netfilter import BUILTIN_CHAINS, Family, Ruleset, parse_save

ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.96.0.1", "127.0.0.1")
RECENT = "--name L1 --mask 255.255.255.255 --rsource"
Rules = dict[str, dict[str, list[str]]]


def ruleset(rules: Rules) -> Ruleset:
    """The rule set itself."""
    return parse_save(text(rules), family=Family.IPV4)


def text(rules: Rules) -> str:
    """The rules as iptables-save prints them."""
    lines = []
    for table, chains in rules.items():
        lines.append(f"*{table}")
        lines += [f":{chain} {'ACCEPT' if chain in BUILTIN_CHAINS[table] else '-'} [0:0]" for chain in chains]
        lines += [f"-A {chain} {rule}" for chain, listed in chains.items() for rule in listed]
        lines.append("COMMIT")
    return "\n".join(lines) + "\n"


class Generator:
    """Random rule sets. A `plain` one leaves out what depends on more than packet, host and connection state; one with
    `fields` asks for the header fields beside addresses and ports (`agreement.FIELDS` has their values), too."""

    def __init__(self, random: Random, *, plain: bool = False, fields: bool = False) -> None:
        self._random = random
        self._plain = plain
        self._fields = fields

    def rules(self) -> Rules:
        """A rule set. User-defined chains are called by those before them in the alphabet only: no loops."""
        random = self._random
        tables = (("nat", 0.9), ("filter", 0.8)) if self._plain else (
            ("raw", 0.3), ("mangle", 0.4), ("nat", 0.9), ("filter", 0.8)
        )  # fmt: skip
        result: Rules = {}
        for table, chance in tables:
            if random.random() > chance:
                continue
            # In nat, X chains are for the translation of destinations, Y chains for sources.
            own = ("XA", "XB", "YA", "YB") if table == "nat" else ("XA", "XB")
            result[table] = {}
            for chain in (*BUILTIN_CHAINS[table], *own):
                built_in = chain not in own
                count = random.choice((0, 1, 1, 2, 3) if built_in else (1, 2, 3))
                result[table][chain] = [self._rule(table, chain, own) for _ in range(count)]
        return result

    def _not(self, chance: float) -> str:
        return "! " if self._random.random() < chance else ""

    def _rule(self, table: str, chain: str, own: tuple[str, ...]) -> str:
        random = self._random
        parts = []
        if random.random() < 0.35:
            parts.append(f"{self._not(0.2)}-s {random.choice([*ADDRESSES[:2], '10.0.0.0/24'])}")
        if random.random() < 0.4:
            parts.append(f"{self._not(0.2)}-d {random.choice([*ADDRESSES, '10.0.0.0/24'])}")
        if random.random() < 0.15 and chain not in ("OUTPUT", "POSTROUTING"):
            parts.append(f"{self._not(0.3)}-i {random.choice(('eth0', 'eth+', 'lo'))}")
        if random.random() < 0.15 and chain not in ("PREROUTING", "INPUT"):
            parts.append(f"{self._not(0.3)}-o {random.choice(('eth0', 'eth+', 'lo'))}")
        protocol = random.choice(("tcp", "udp")) if random.random() < 0.5 else ""
        if protocol:
            parts.append(f"-p {protocol}")
            if random.random() < 0.6:
                parts.append(f"-m {protocol} {self._not(0.2)}--dport {random.choice(('80', '81', '80:81'))}")
            elif random.random() < 0.3:
                parts.append("-m multiport --dports 80,81")
            if self._fields and protocol == "tcp" and random.random() < 0.3:
                parts.append(f"-m ecn {self._not(0.3)}--ecn-tcp-{random.choice(('ece', 'cwr'))}")
        parts += [self._match() for _ in range(random.choice((0, 0, 1, 1, 2)))]
        return " ".join([*parts, self._target(table, chain, own, protocol)])

    def _match(self) -> str:
        random = self._random
        if self._fields and random.random() < 0.5:
            return random.choice(
                (
                    f"-m tos {self._not(0.3)}--tos {random.choice(('0x10/0xff', '0x00/0xff', '0x10/0x30'))}",
                    f"-m ecn {self._not(0.3)}--ecn-ip-ect {random.choice((0, 1, 3))}",
                    f"-m dscp {self._not(0.3)}--dscp {random.choice(('0x04', '0x0c'))}",
                    f"-m ttl {random.choice(('--ttl-eq 64', '! --ttl-eq 64', '--ttl-lt 64', '--ttl-gt 63'))}",
                    f"-m length {self._not(0.3)}--length {random.choice(('60', '0:59', '61:1500'))}",
                )
            )
        masks = ("0x1/0x1", "0x2/0x2", "0x1/0x3", "0x1")
        states = ("NEW", "RELATED,ESTABLISHED", "INVALID", "UNTRACKED", "DNAT", "NEW,DNAT", "SNAT")
        chances = ("0.5", "0.25", "0.33333333349", "1", "0")
        common = [
            f"-m mark {self._not(0.3)}--mark {random.choice(masks[:3] if self._plain else masks)}",
            f"-m statistic --mode random --probability {random.choice(chances)}",
            f"-m addrtype {self._not(0.3)}--dst-type LOCAL",
            f"-m conntrack {self._not(0.3)}--ctstate {random.choice(states)}",
        ]
        rare = [
            "-m addrtype --src-type LOCAL",
            f"-m recent --rcheck --seconds 10 {RECENT}",
            f"-m recent --set {RECENT}",
            f"-m recent --update {RECENT}",
            f"-m recent --rcheck {RECENT}",
            "-m conntrack --ctorigdst 10.96.0.1",
            "-m connmark --mark 0x1/0x1",
            "-m limit --limit 5/min",
        ]
        return random.choice(common if self._plain or random.random() < 0.6 else rare)

    def _target(self, table: str, chain: str, own: tuple[str, ...], protocol: str) -> str:
        random = self._random
        callable_chains = [name for name in own if name > chain] if chain in own else list(own)
        sources = chain in ("INPUT", "POSTROUTING") or chain[0] == "Y"
        if table == "nat":
            callable_chains = [name for name in callable_chains if (name[0] == "Y") == sources]
        targets = ["ACCEPT", "RETURN"] + callable_chains * 2
        bits = ("0x1/0x1", "0x2/0x2", "0x0/0x1", "0x3/0x0", *(() if self._plain else ("0x4/0x4",)))
        targets += [f"MARK --set-xmark {random.choice(bits)}"] * 2
        if not self._plain and random.random() < 0.1:
            copies = (
                "--set-xmark 0x1/0x1",
                "--save-mark --nfmask 0x3 --ctmask 0x3",
                "--restore-mark --nfmask 0x3 --ctmask 0x3",
            )
            targets += [f"CONNMARK {random.choice(copies)}"] * 3
        if table == "nat" and sources:
            targets += ["MASQUERADE", "SNAT --to-source 10.0.0.9", "MASQUERADE --random-fully"] * 3
        elif table == "nat":
            places = ["10.0.0.1", "10.0.0.2", "10.0.0.1-10.0.0.2"]
            if protocol:
                places += ["10.0.0.1:80", "10.0.0.2:81", "10.0.0.2:80", ":81", "10.96.0.1:80"]
            targets += [f"DNAT --to-destination {random.choice(places)}"] * 6
            if not self._plain and random.random() < 0.15:
                targets += ["REDIRECT"] * 3
        else:
            targets.append("DROP")
        if table == "filter":
            targets.append("REJECT --reject-with icmp-port-unreachable")
        if self._fields and table == "mangle" and protocol == "tcp":
            targets += ["ECN --ecn-tcp-remove"] * 2
        if table == "raw" and random.random() < 0.4:
            targets += ["CT --notrack"] * 3
        target = random.choice(targets)
        goto = target in own and random.random() < 0.2
        return f"{'-g' if goto else '-j'} {target}"


SWAPS = (
    ("10.0.0.1", "10.0.0.2"), ("10.96.0.1", "10.0.0.1"), ("0x1", "0x2"), ("80", "81"),
    ("0.5", "0.25"), ("! ", ""), ("ACCEPT", "RETURN"), ("NEW", "ESTABLISHED"), (" --random-fully", ""),
)  # fmt: skip


def mutate(random: Random, rules: Rules) -> Rules:
    """One rule deleted, two swapped, or one altered."""
    changed = copy.deepcopy(rules)
    places = [
        (table, chain, place)
        for table in changed
        for chain in changed[table]
        for place in range(len(changed[table][chain]))
    ]
    if not places:
        return changed
    table, chain, place = random.choice(places)
    listed = changed[table][chain]
    kind = random.random()
    if kind < 0.3:
        del listed[place]
    elif kind < 0.5 and len(listed) > 1:
        other = (place + 1) % len(listed)
        listed[place], listed[other] = listed[other], listed[place]
    else:
        for old, new in random.sample(SWAPS, len(SWAPS)):
            if old in listed[place]:
                listed[place] = listed[place].replace(old, new, 1)
                break
    return changed


def disguise(random: Random, rules: Rules) -> Rules:
    """The same rules looking different: chains renamed, comments, logs and unreachable chains added, port lists split,
    a rule moved into a chain of its own."""
    result: Rules = {}
    for table, chains in rules.items():
        names = {name: f"{random.choice('ABCxyz')}{number}-{name}" for number, name in enumerate(chains)
                 if name not in BUILTIN_CHAINS[table]}  # fmt: skip
        result[table] = {}
        extra: dict[str, list[str]] = {"UNREACHED": ["-d 10.0.0.1 -j ACCEPT"]}
        for chain, listed in chains.items():
            new: list[str] = []
            for rule in listed:
                head, flag, target = rule.rpartition("-j " if " -j " in f" {rule}" else "-g ")
                if target in names:
                    target = names[target]
                pieces = [f"{head}{flag}{target}"]
                asks = any(word in head for word in ("recent", "statistic", "limit"))
                if "--dports 80,81" in head and random.random() < 0.5 and not asks:
                    one = f"-m {'tcp' if '-p tcp' in head else 'udp'} --dport"
                    pieces = [pieces[0].replace("-m multiport --dports 80,81", f"{one} {port}") for port in (80, 81)]
                if random.random() < 0.3:
                    pieces = [f"-m comment --comment note{random.randrange(9)} {piece}" for piece in pieces]
                if random.random() < 0.2:
                    new.append("-d 10.0.0.2 -j LOG")
                if random.random() < 0.2 and flag == "-j " and target != "RETURN":
                    name = f"INLINED{len(extra)}"
                    extra[name] = [f"-j {target}"]
                    pieces = [piece.removesuffix(target) + name for piece in pieces]
                new += pieces
            result[table][names.get(chain, chain)] = new
        result[table] |= extra
    return result
