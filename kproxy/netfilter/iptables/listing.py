"""The view of `iptables -L -v -n --line-numbers`, column for column.

Observed with iptables 1.8.9 and 1.8.11; what each match and target prints behind the columns is its own `to_list`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kproxy.netfilter.address import Network, format_address, format_mask
from kproxy.netfilter.family import BUILTIN_CHAINS, Family
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.rule import Counters, Rule
from kproxy.netfilter.iptables.ruleset import Chain, Ruleset, Table
from kproxy.netfilter.iptables.targets import Jump

_PROTOCOLS: Final = {
    0: "all", 1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 50: "esp", 51: "ah", 58: "ipv6-icmp", 108: "ipcomp",
    132: "sctp", 135: "mobility-header", 136: "udplite",
}  # fmt: skip
"""The protocols that `iptables -L -n` names, both families alike; it shows the others' numbers."""

_COLUMNS: Final = "num   pkts bytes target     prot opt in     out     source               destination         "


def print_list(ruleset: Ruleset, table: str, chain: str | None = None, *, protocol_names: bool = False) -> str:
    """The listing of a table, or of one of its chains, as iptables-nft prints it; iptables-legacy differs only for
    `-i +`, which it shows and iptables-nft does not.

    Args:
        protocol_names: the usual protocols by name, `tcp` and `all`, as 1.8.11 shows them (and releases before 1.8.9);
            by default numbers, `6` and `0`, as Debian 12's 1.8.9 does.

    Rules show the counters they have, else 0. A table that the rule set does not have is listed with its built-in
    chains, empty, as iptables does. An opaque match or target shows its options in brackets, where iptables would
    print something of the extension's own.

    Raises:
        KeyError: there is no such chain, or Linux has no such table.
    """
    found = ruleset.table(table) or Table(table, tuple(Chain(name, "ACCEPT") for name in BUILTIN_CHAINS[table]))
    references = Counter(
        rule.target.chain for each in found.chains for rule in each.rules if isinstance(rule.target, Jump)
    )
    if chain is None:
        chains = found.chains
    else:
        one = found.chain(chain)
        if one is None:
            raise KeyError(chain)
        chains = (one,)
    family = ruleset.family or Family.IPV4
    names = _PROTOCOLS if protocol_names else {}
    return "\n".join(_list_chain(each, references[each.name], family, names) for each in chains)


def _list_chain(chain: Chain, references: int, family: Family, names: Mapping[int, str]) -> str:
    if chain.policy is None:
        title = f"Chain {chain.name} ({references} references)"
    else:
        packets, size = (_quantity(count, 0) for count in chain.counters)
        title = f"Chain {chain.name} (policy {chain.policy} {packets}packets, {size}bytes)"
    lines = [title, _COLUMNS]
    lines += [_list_rule(number, rule, family, names) for number, rule in enumerate(chain.rules, 1)]
    return "".join(f"{line}\n" for line in lines)


def _list_rule(number: int, rule: Rule, family: Family, names: Mapping[int, str]) -> str:
    packets, size = (_quantity(count, 5) for count in rule.counters or Counters())
    target = rule.target
    name = "" if target is None else target.listed_name
    protocol = rule.protocol or Negatable(0)
    shown = names.get(protocol.value, protocol.value)
    fragment = {None: "--", True: "-f", False: "!f"}[rule.fragment]
    line = (
        f"{number:<4} {packets}{size}{name:<9} {_sign(protocol.negated)}{shown:<4} {fragment}  "
        f"{_interface(rule.in_interface)} {_interface(rule.out_interface)} "
        f"{_network(rule.source, family)} {_network(rule.destination, family)} "
    )
    if isinstance(target, Jump) and target.goto:
        line += "[goto] "
    notes = [match.to_list() for match in rule.matches]
    if target is not None:
        notes.append(target.to_list())
    return line + "".join(f" {note}" for note in notes if note)


def _sign(negated: bool) -> str:
    return "!" if negated else " "


def _interface(name: Negatable[str] | None) -> str:
    if name is None:
        return "*     "
    text = f"!{name.value}" if name.negated else name.value
    return f"{text:<6}"


def _network(network: Negatable[Network] | None, family: Family) -> str:
    if network is None:
        return f" {'0.0.0.0/0' if family is Family.IPV4 else '::/0':<19}"
    value = network.value
    text = format_address(value.address, value.family)
    if value.mask != value.family.full_mask:
        text += f"/{format_mask(value.mask, value.family)}"
    return f"{_sign(network.negated)}{text:<19}"


def _quantity(count: int, width: int) -> str:
    """A counter in at most five digits, with K, M, G or T behind it where needed, and a blank."""
    if count <= 99999:
        return f"{count:>{width}} "
    for unit in "KMG":
        count = (count + 500) // 1000
        if count <= 9999:
            return f"{count:>{max(width - 1, 0)}}{unit} "
    return f"{(count + 500) // 1000:>{max(width - 1, 0)}}T "
