"""Edits of kube-proxy's rules as somebody might make them, each with what `kproxy drift` must say of it.

An edit is restore input, made of a dump of a namespace that is as it should be, and nothing in it touches rules of
others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

import msgspec

from kproxy.linux.iptables.ownership import is_owned, owned_chains
from kproxy.linux.sync.iptables.jumps import is_our_jump
from kproxy.netfilter.text import SaveText, target_of
from kproxy.services import IPFamily

Place = tuple[str, str]
CANARY = "KUBE-PROXY-CANARY"
STRAY = {
    "KUBE-SVC-STRAYSTRAYSTRAYS": ["-j RETURN"],
    "KUBE-SEP-STRAYSTRAYSTRAYS": [],
    "KUBE-XLB-STRAYSTRAYSTRAYS": ["-j KUBE-MARK-MASQ"],
    "KUBE-MARK-DROP": ["-j MARK --or-mark 0x8000"],
}
ODD = "-p udp -m udp --dport 7 -j RETURN"


class Expected(msgspec.Struct, frozen=True):
    """A finding that must be there; None where anything may stand."""

    kind: str
    place: Place
    wanted: str | None = None
    found: str | None = None


class Edit(msgspec.Struct, frozen=True):
    """One edit.

    Attributes:
        text: input of iptables-restore --noflush.
        said: findings that must be there; together they name every place that is touched.
        other: it is made in the other variant.
    """

    name: str
    text: str
    said: tuple[Expected, ...]
    other: bool = False


def _transaction(table: str, lines: Iterable[str], declared: Iterable[str] = ()) -> str:
    body = "".join(f"{line}\n" for line in (*(f":{chain} - [0:0]" for chain in declared), *lines))
    return f"*{table}\n{body}COMMIT\n"


class Editor:
    """Makes edits of what a dump holds, by chance."""

    def __init__(self, dump: SaveText, family: IPFamily, rng: random.Random) -> None:
        self._dump = dump
        self._family = family
        self._rng = rng
        self._full = [place for place in owned_chains(dump) if self._rules(place)]
        self._jumps = [
            ((table, name), rule)
            for table, chains in dump.tables.items()
            for name, chain in chains.items()
            if chain.is_builtin
            for rule in chain.rules
            if is_our_jump(table, rule)
        ]

    def edit(self, kind: str) -> Edit:
        """One of `KINDS`."""
        return KINDS[kind](self)

    def _rules(self, place: Place) -> list[str]:
        chain = self._dump.chain(*place)
        assert chain is not None
        return chain.rules

    def _some_rule(self) -> tuple[Place, int, str]:
        place = self._rng.choice(self._full)
        number = self._rng.randrange(len(self._rules(place)))
        return place, number + 1, self._rules(place)[number]

    def delete_rule(self) -> Edit:
        (table, chain), number, rule = self._some_rule()
        said = Expected("rule-missing", (table, chain), wanted=rule)
        return Edit("delete rule", _transaction(table, [f"-D {chain} {number}"]), (said,))

    def add_rule(self) -> Edit:
        (table, chain), number, _ = self._some_rule()
        rule = self._rng.choice([ODD, "-j ACCEPT", "-p tcp -j RETURN"])
        line = self._rng.choice([f"-I {chain} {number} {rule}", f"-A {chain} {rule}"])
        said = Expected("rule-extra", (table, chain), wanted="", found=rule)
        return Edit("add rule", _transaction(table, [line]), (said,))

    def double_rule(self) -> Edit:
        (table, chain), number, rule = self._some_rule()
        said = Expected("rule-extra", (table, chain), wanted="", found=rule)
        return Edit("double rule", _transaction(table, [f"-I {chain} {number} {rule}"]), (said,))

    def alter_rule(self) -> Edit:
        (table, chain), number, rule = self._some_rule()
        altered = _altered(rule)
        lines = [f"-D {chain} {number}", f"-I {chain} {number} {altered}"]
        said = Expected("rule-altered", (table, chain), wanted=rule, found=altered)
        return Edit("alter rule", _transaction(table, lines), (said,))

    def swap_rules(self) -> Edit:
        table, chain = self._rng.choice([place for place in self._full if len(set(self._rules(place))) > 1])
        rules = self._rules((table, chain))
        low, high = sorted(self._rng.sample(range(len(rules)), 2))
        lines = [
            *(f"-D {chain} {number + 1}" for number in (high, low)),
            f"-I {chain} {low + 1} {rules[high]}",
            f"-I {chain} {high + 1} {rules[low]}",
        ]
        return Edit("swap rules", _transaction(table, lines), (Expected("rules-reordered", (table, chain)),))

    def flush_chain(self) -> Edit:
        table, chain = self._rng.choice(self._full)
        said = [Expected("rule-missing", (table, chain), wanted=rule) for rule in self._rules((table, chain))]
        return Edit("flush chain", _transaction(table, [f"-F {chain}"]), tuple(said))

    def delete_chain(self) -> Edit:
        """With every rule that leads to it, as the kernel demands."""
        table, chain = self._rng.choice(self._full)
        lines, said = [f"-F {chain}"], [Expected("chain-missing", (table, chain))]
        for name, held in self._dump.tables[table].items():
            for number, rule in reversed(list(enumerate(held.rules, 1))):
                if target_of(rule) == chain and name != chain:
                    lines.append(f"-D {name} {number}")
                    kind = "jump-missing" if held.is_builtin else "rule-missing"
                    said.append(Expected(kind, (table, name), wanted=rule))
        return Edit("delete chain", _transaction(table, [*lines, f"-X {chain}"]), tuple(said))

    def delete_canary(self) -> Edit:
        table = self._rng.choice(["mangle", "nat", "filter"])
        said = [Expected("canary-missing", (table, CANARY))]
        if table == "mangle":  # nothing else of kube-proxy's is in it
            said.append(Expected("table-flushed", (table, "")))
        return Edit("delete canary", _transaction(table, [f"-X {CANARY}"]), tuple(said))

    def stray_chain(self) -> Edit:
        chain = self._rng.choice(list(STRAY))
        lines = [f"-A {chain} {rule}" for rule in STRAY[chain]]
        return Edit("stray chain", _transaction("nat", lines, [chain]), (Expected("chain-extra", ("nat", chain)),))

    def stray_chain_in_use(self) -> Edit:
        chain = self._rng.choice(list(STRAY))
        lines = [*(f"-A {chain} {rule}" for rule in STRAY[chain]), f"-I KUBE-SERVICES 1 -j {chain}"]
        said = (
            Expected("chain-extra", ("nat", chain)),
            Expected("rule-extra", ("nat", "KUBE-SERVICES"), found=f"-j {chain}"),
        )
        return Edit("stray chain in use", _transaction("nat", lines, [chain]), said)

    def delete_jump(self) -> Edit:
        (table, chain), rule = self._rng.choice(self._jumps)
        said = Expected("jump-missing", (table, chain), wanted=rule)
        return Edit("delete jump", _transaction(table, [f"-D {chain} {rule}"]), (said,))

    def double_jump(self) -> Edit:
        (table, chain), rule = self._rng.choice(self._jumps)
        line = self._rng.choice([f"-A {chain} {rule}", f"-I {chain} {rule}"])
        said = Expected("jump-duplicated", (table, chain), wanted=rule)
        return Edit("double jump", _transaction(table, [line]), (said,))

    def move_jump(self) -> Edit:
        """Behind rules of others, parted from the rest, or before the one that it follows."""
        places = [place for place, _ in self._jumps]
        (table, chain), rule = self._rng.choice([jump for jump in self._jumps if places.count(jump[0]) > 1])
        own = [each for place, each in self._jumps if place == (table, chain)]
        if rule == own[0]:
            lines = [f"-D {chain} {rule}", f"-A {chain} {rule}"]
        else:
            lines = [f"-D {chain} {rule}", f"-I {chain} 1 {rule}"]
        return Edit("move jump", _transaction(table, lines), (Expected("jump-misplaced", (table, chain)),))

    def alter_jump(self) -> Edit:
        (table, chain), rule = self._rng.choice(self._jumps)
        altered = f"-p tcp -j {target_of(rule)}"
        lines = [f"-D {chain} {rule}", f"-I {chain} {altered}"]
        said = (
            Expected("jump-missing", (table, chain), wanted=rule),
            Expected("jump-extra", (table, chain), found=altered),
        )
        return Edit("alter jump", _transaction(table, lines), said)

    def stray_jump(self) -> Edit:
        table, chain, target = self._rng.choice(
            [("filter", "OUTPUT", "KUBE-FORWARD"), ("nat", "PREROUTING", "KUBE-MARK-MASQ")]
        )
        said = Expected("jump-extra", (table, chain), found=f"-j {target}")
        return Edit("stray jump", _transaction(table, [f"-A {chain} -j {target}"]), (said,))

    def flush_table(self) -> Edit:
        """What of kube-proxy's `iptables -F` takes, and sometimes `iptables -X` after it."""
        table = self._rng.choice(["nat", "filter", "mangle"])
        own = [chain for each, chain in owned_chains(self._dump) if each == table]
        said = [Expected("table-flushed", (table, ""))]
        lines = [f"-F {chain}" for chain in own]
        for (each, chain), rule in self._jumps:
            if each == table:
                lines.append(f"-D {chain} {rule}")
                said.append(Expected("jump-missing", (table, chain), wanted=rule))
        if table == "mangle" or self._rng.random() < 0.5:
            lines += [f"-X {chain}" for chain in own]
            said += [Expected("canary-missing" if name == CANARY else "chain-missing", (table, name)) for name in own]
        else:
            said += [Expected("rule-missing", (table, name)) for name in own if self._rules((table, name))]
        return Edit("flush table", _transaction(table, lines), tuple(said))

    def other_variant(self) -> Edit:
        """A table's rules in the other variant too."""
        table = self._rng.choice(["nat", "filter"])
        own = [chain for each, chain in owned_chains(self._dump) if each == table]
        lines = [f"-A {chain} {rule}" for chain in own for rule in self._rules((table, chain))]
        lines += [f"-I {chain} {rule}" for (each, chain), rule in self._jumps if each == table]
        said = Expected("other-variant", (table, ""), found=" ".join(sorted(own)))
        return Edit("other variant", _transaction(table, lines, own), (said,), other=True)


KINDS: dict[str, Callable[[Editor], Edit]] = {
    name: method for name, method in vars(Editor).items() if not name.startswith("_") and name != "edit"
}


def _altered(rule: str) -> str:
    """A rule that says something else, as iptables-save prints it."""
    if " --to-destination " in rule:
        return re.sub(r":\d+$", ":9", rule)
    if " --probability " in rule:
        return re.sub(r"--probability \S+", "--probability 0.12500000000", rule)
    target = "ACCEPT" if rule.endswith("-j RETURN") else "RETURN"
    return re.sub(r"-j \S+( --(reject-with|xor-mark|set-xmark|or-mark|random-fully).*)?$", f"-j {target}", rule)


def is_edit_of_ours(table: str, line: str) -> bool:
    """Whether a line of restore input concerns only what is kube-proxy's."""
    if line.startswith(("*", "COMMIT")):
        return True
    words = re.sub(r"^\[\d+:\d+\] ", "", line).split()
    chain = words[0][1:] if words[0].startswith(":") else words[1]
    return is_owned(table, chain) or is_owned(table, target_of(line))
