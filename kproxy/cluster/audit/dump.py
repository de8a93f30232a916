"""A dump of iptables, split into chains without being read.

The rules of 2000 Services are megabytes, nearly the same on every node. Which chains are as they should be is told by
comparing text; only those that matter are read as rules.
"""

from __future__ import annotations

from collections.abc import Callable

from kproxy.netfilter import Family, parse_save, print_save
from kproxy.netfilter.text import SaveTextError, split_save, target_of
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES

ChainKey = tuple[str, str]
"""Table and chain."""


class Dump:
    """One dump.

    Attributes:
        text: as it was given; lines that are named are lines of it.
        chains: the rules of each chain that has some, as `netfilter.text` has them.
        policies: of built-in chains, `ACCEPT` or `DROP`.
    """

    def __init__(self, label: str, text: str, family: Family | None = None) -> None:
        """Raises InputError: it is no dump; it names the line."""
        self.label = label
        self.text = text
        self._head = "".join(line for line in text[:500].splitlines(keepends=True) if line.startswith("#"))
        plain = text.replace("\r\n", "\n")
        try:
            found = split_save(plain)
            whole = f"{plain}\n".count("\nCOMMIT\n") == len(found.tables)
        except SaveTextError:
            whole = False
        if not whole:  # reading it says what is wrong with it, or orders it
            found = split_save(print_save(parse_save(text, label, family=family), counters=False))
        self._declared = {table: dict.fromkeys(chains) for table, chains in found.tables.items()}
        held = {(table, name): chain for table, chains in found.tables.items() for name, chain in chains.items()}
        self.chains = {key: chain.rules for key, chain in held.items() if chain.rules}
        self.policies = {key: chain.policy for key, chain in held.items() if chain.is_builtin}

    def declare(self, key: ChainKey, rules: list[str]) -> None:
        """Adds a chain, or takes other rules for it."""
        self._declared.setdefault(key[0], {})[key[1]] = None
        self.chains.pop(key, None)
        if rules:
            self.chains[key] = rules

    def lines(self, key: ChainKey) -> list[str]:
        """The rules of a chain as iptables-save prints them."""
        return [f"-A {key[1]} {rule}" for rule in self.chains.get(key, ())]

    def without_services(self) -> str:
        """The dump without chains of ServicePorts, and those that lead there."""
        return self._text_of(
            lambda key: not is_service_chain(key),
            lambda key: (
                not is_service_chain(key)
                and not any(is_service_chain((key[0], target_of(rule))) for rule in self.chains[key])
            ),
        )

    def reduced(self, chosen: Callable[[ChainKey], bool]) -> str:
        """The dump with all chains, and the rules of some."""
        return self._text_of(lambda _key: True, chosen)

    def _text_of(self, declared: Callable[[ChainKey], bool], chosen: Callable[[ChainKey], bool]) -> str:
        parts = [self._head]
        for table, names in self._declared.items():
            parts.append(f"*{table}\n")
            parts += [
                f":{name} {self.policies.get((table, name), '-')} [0:0]\n" for name in names if declared((table, name))
            ]
            keys = (key for key in self.chains if key[0] == table and chosen(key))
            parts += [f"{line}\n" for key in keys for line in self.lines(key)]
            parts.append("COMMIT\n")
        return "".join(parts)

    @property
    def has_effect(self) -> bool:
        """Whether it does anything to packets."""
        return bool(self.chains) or any(policy != "ACCEPT" for policy in self.policies.values())

    @property
    def is_legacy(self) -> bool:
        """Whether it is iptables-legacy's."""
        return "(legacy)" in self._head or (
            "legacy" in self.label.rpartition("/")[2] and "(nf_tables)" not in self._head
        )

    def declares(self, key: ChainKey) -> bool:
        """Whether a chain is there."""
        return key[1] in self._declared.get(key[0], ())

    def reachable(self, table: str, start: set[str]) -> set[str]:
        """The chains that are come to from some, themselves included."""
        found: set[str] = set()
        left = list(start)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += filter(None, map(target_of, self.chains.get((table, name), ())))
        return found

    def number_of(self, key: ChainKey, rule: str) -> int:
        """The number of a rule with this text in its chain, from 1; 0 if there is none."""
        lines = self.lines(key)
        return lines.index(rule) + 1 if rule in lines else 0

    def line_of(self, rule: str) -> int:
        """The line of a rule with this text, from 1; 0 if there is none."""
        at = f"\n{self.text}".find(f"\n{rule}\n")
        return 0 if at < 0 else self.text.count("\n", 0, at) + 1


def is_service_chain(key: ChainKey) -> bool:
    """Whether it is one of a ServicePort's, or of an endpoint's."""
    return key[0] == "nat" and key[1].startswith(SERVICE_PORT_CHAIN_PREFIXES)


def line_of_nft(text: str, table: str, chain: str, rule: int) -> int:
    """The line of what `nft list ruleset` prints in which a chain's rule of this number stands, from 1, or the chain
    itself for number 0; 0 if it is not there, as in a text that has several rules on a line."""
    current = inside = ""
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split() if line.lstrip().startswith(("table ", "chain ", "#")) else line.split()
        if words[:1] == ["table"] and words[-1] == "{":
            current, inside = " ".join(words[1:-1]), ""
        elif words[:1] == ["chain"] and words[-1] == "{":
            inside, count = words[1], 0
            if (current, inside, rule) == (table, chain, 0):
                return number
        elif words == ["}"]:
            inside = ""
        elif (
            words
            and (current, inside) == (table, chain)
            and words[0] not in ("type", "comment", "policy", "flags", "#")
        ):
            count += 1
            if count == rule:
                return number
    return 0
