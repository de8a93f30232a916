"""Edits of kube-proxy's nftables table as somebody might make them, each with what `kproxy drift` must say of it.

An edit is input for `nft -f`, made of the table as it should be. Nothing in it touches what others have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import msgspec

from kproxy.linux.nftables.ownership import targets_of
from kproxy.linux.nftables.table import TableText
from kproxy.render.nftables.table import element_text
from kproxy.services import IPFamily

ODD = "meta l4proto udp th dport 7 accept"
STRAY = "service-STRAYSTR-stray/stray/tcp/"
STRAY_SET = "affinity-STRAYSTR-stray/stray/tcp/__192.0.2.1/80"
SERVICE_IPS, CLUSTER_IPS = "service-ips", "cluster-ips"


class Expected(msgspec.Struct, frozen=True):
    """A finding that must be there: its kind, and the chain or set it names. `wanted` None is anything."""

    kind: str
    place: str
    wanted: str | None = None


class Edit(msgspec.Struct, frozen=True):
    """One edit; together `said` name every chain and set that is touched."""

    name: str
    text: str
    said: tuple[Expected, ...]


class TableEditor:
    """Makes edits of a table, by chance."""

    def __init__(self, table: TableText, family: IPFamily, rng: random.Random) -> None:
        self._table = table
        self._family = family
        self._rng = rng
        self._service_chains = sorted(chain for chain in table.rules if chain.startswith("service-"))

    def edit(self, kind: str) -> Edit:
        """One of `TABLE_KINDS`."""
        return TABLE_KINDS[kind](self)

    def _lines(self, *lines: str) -> str:
        """Commands with the table's name after their first two words."""
        parts = (line.split(" ", 2) for line in lines)
        return "".join(f"{verb} {kind} {self._table.name} {rest}\n" for verb, kind, rest in parts)

    def _rewrite(self, chain: str, rules: Iterable[str]) -> str:
        return self._lines(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in rules))

    def _some_chain(self, least: int = 1) -> tuple[str, list[str]]:
        chain = self._rng.choice(sorted(name for name, rules in self._table.rules.items() if len(set(rules)) >= least))
        return chain, list(self._table.rules[chain])

    def _some_rule(self) -> tuple[str, list[str], int]:
        chain, rules = self._some_chain()
        return chain, rules, self._rng.randrange(len(rules))

    def _some_element(self, where: str) -> tuple[str, str]:
        """An element of a set or map: its key, and the words that make it."""
        key = self._rng.choice(sorted(key for name, key in self._table.elements if name == where))
        return key, element_text(key, self._table.elements[where, key])

    def delete_rule(self) -> Edit:
        chain, rules, number = self._some_rule()
        gone = rules.pop(number)
        return Edit("delete rule", self._rewrite(chain, rules), (Expected("rule-missing", chain, gone),))

    def add_rule(self) -> Edit:
        chain, rules, number = self._some_rule()
        rules.insert(number, ODD)
        return Edit("add rule", self._rewrite(chain, rules), (Expected("rule-extra", chain, ""),))

    def double_rule(self) -> Edit:
        chain, rules, number = self._some_rule()
        rules.insert(number, rules[number])
        return Edit("double rule", self._rewrite(chain, rules), (Expected("rule-extra", chain, ""),))

    def alter_rule(self) -> Edit:
        chain, rules, number = self._some_rule()
        before, rules[number] = rules[number], ODD
        return Edit("alter rule", self._rewrite(chain, rules), (Expected("rule-altered", chain, before),))

    def swap_rules(self) -> Edit:
        chain, rules = self._some_chain(2)
        first = next(number for number in range(len(rules) - 1) if rules[number] != rules[number + 1])
        rules[first], rules[first + 1] = rules[first + 1], rules[first]
        return Edit("swap rules", self._rewrite(chain, rules), (Expected("rules-reordered", chain),))

    def flush_chain(self) -> Edit:
        chain, rules = self._some_chain()
        said = tuple(Expected("rule-missing", chain, rule) for rule in rules)
        return Edit("flush chain", self._lines(f"flush chain {chain}"), said)

    def delete_service_chain(self) -> Edit:
        """With every element and rule that leads to it, as the kernel demands."""
        chain = self._rng.choice(self._service_chains)
        lines, said = [], [Expected("chain-missing", chain)]
        for (name, key), value in self._table.elements.items():
            if value.value == f"goto {chain}":
                lines.append(f"delete element {name} {{ {key} }}")
                said.append(Expected("element-missing", name, element_text(key, value)))
        text = self._lines(*lines)
        for other, rules in self._table.rules.items():
            kept = [rule for rule in rules if chain not in targets_of(rule)]
            if len(kept) < len(rules):
                text += self._rewrite(other, kept)
                said.append(Expected("rule-missing", other))
        return Edit("delete chain", text + self._lines(f"flush chain {chain}", f"delete chain {chain}"), tuple(said))

    def alter_base_chain(self) -> Edit:
        """A base chain that hooks in elsewhere is another chain."""
        based = sorted(name for name, definition in self._table.chains.items() if "type filter hook" in definition)
        chain = self._rng.choice(based)
        lines = self._lines(f"flush chain {chain}", f"delete chain {chain}",
                            f"add chain {chain} {{ type filter hook input priority 7 ; }}")  # fmt: skip
        rules = self._lines(*(f"add rule {chain} {rule}" for rule in self._table.rules[chain]))
        return Edit("alter base chain", lines + rules, (Expected("chain-altered", chain, self._table.chains[chain]),))

    def stray_chain(self) -> Edit:
        text = self._lines(f"add chain {STRAY}", f"add rule {STRAY} accept")
        return Edit("stray chain", text, (Expected("chain-extra", STRAY),))

    def stray_chain_in_use(self) -> Edit:
        text = self._lines(f"add chain {STRAY}", f"insert rule services jump {STRAY}")
        return Edit("stray chain in use", text, (Expected("chain-extra", STRAY), Expected("rule-extra", "services")))

    def stray_set(self) -> Edit:
        kind = "ipv6_addr" if self._family.is_ipv6 else "ipv4_addr"
        text = self._lines(f"add set {STRAY_SET} {{ type {kind} ; flags dynamic,timeout ; timeout 9s ; }}")
        return Edit("stray set", text, (Expected("set-extra", STRAY_SET),))

    def delete_element(self) -> Edit:
        where = self._rng.choice([SERVICE_IPS, CLUSTER_IPS])
        key, text = self._some_element(where)
        said = Expected("element-missing", where, text)
        return Edit("delete element", self._lines(f"delete element {where} {{ {key} }}"), (said,))

    def add_element(self) -> Edit:
        ip = "fd00:feed::9" if self._family.is_ipv6 else "10.250.250.9"
        said = Expected("element-extra", CLUSTER_IPS, "")
        return Edit("add element", self._lines(f"add element {CLUSTER_IPS} {{ {ip} }}"), (said,))

    def alter_element(self) -> Edit:
        key, text = self._some_element(SERVICE_IPS)
        now = self._table.elements[SERVICE_IPS, key].value
        other = self._rng.choice([chain for chain in self._service_chains if now != f"goto {chain}"])
        lines = [f"delete element {SERVICE_IPS} {{ {key} }}", f"add element {SERVICE_IPS} {{ {key} : goto {other} }}"]
        return Edit("alter element", self._lines(*lines), (Expected("element-altered", SERVICE_IPS, text),))

    def flush_map(self) -> Edit:
        said = [
            Expected("element-missing", name, element_text(key, value))
            for (name, key), value in self._table.elements.items()
            if name == SERVICE_IPS
        ]
        return Edit("flush map", self._lines(f"flush map {SERVICE_IPS}"), tuple(said))

    def put_table_to_sleep(self) -> Edit:
        text = f"add table {self._table.name} {{ flags dormant ; }}\n"
        return Edit("put table to sleep", text, (Expected("table-dormant", ""),))

    def delete_table(self) -> Edit:
        return Edit("delete table", f"delete table {self._table.name}\n", (Expected("table-missing", ""),))


TABLE_KINDS: dict[str, Callable[[TableEditor], Edit]] = {
    name: method for name, method in vars(TableEditor).items() if not name.startswith("_") and name != "edit"
}
