"""iptables and nftables as data: matches, targets, rules, chains, tables, read from text and written to text.

Reading a dump, changing it as iptables-restore would, and writing it:

    >>> from kproxy.netfilter import Family, canonical_ruleset, parse_rule, print_save
    >>> restore = '''*filter
    ... :KUBE-FORWARD - [0:0]
    ... -A KUBE-FORWARD -m comment --comment "marked" -m mark --mark 0x00004000/0x00004000 -j ACCEPT
    ... COMMIT
    ... '''
    >>> print(print_save(canonical_ruleset(restore, Family.IPV4)), end="")
    *filter
    :INPUT ACCEPT [0:0]
    :FORWARD ACCEPT [0:0]
    :OUTPUT ACCEPT [0:0]
    :KUBE-FORWARD - [0:0]
    -A KUBE-FORWARD -m comment --comment marked -m mark --mark 0x4000/0x4000 -j ACCEPT
    COMMIT
    >>> rule = parse_rule("-A X -d 10.96.0.10 -p tcp --dport 53 -j DROP")
    >>> rule.spec()
    '-d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j DROP'
    >>> rule.matches[0].dport.value.contains(53)
    True

`parse_save` and `print_save` are for dumps, `parse_restore` and `apply_restore` for restore input; `canonical_ruleset`
turns the one into the other. nftables is `parse_nft` and `print_nft`, for listings and scripts:

    >>> from kproxy.netfilter import parse_nft, print_nft
    >>> script = "add table ip t; add chain ip t c; add rule ip t c ip saddr { 10.0.0.0/8 } tcp dport 22 accept"
    >>> print(print_nft(parse_nft(script)).expandtabs(2), end="")
    table ip t {
      chain c {
        ip saddr 10.0.0.0/8 tcp dport 22 accept
      }
    }

Rules are equal when the kernel treats them as the same rule. docs/netfilter.md and
docs/nft-text.md say what is guaranteed and what is not. Nothing here does I/O.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kproxy.netfilter.address import Address, AddressRange, Network
from kproxy.netfilter.family import BUILTIN_CHAINS, Family
from kproxy.netfilter.iptables.check import Problem, check_ruleset, line_of_rule
from kproxy.netfilter.iptables.codec import Masked, Range
from kproxy.netfilter.iptables.errors import RestoreError, RuleSyntaxError
from kproxy.netfilter.iptables.matches import Match, OpaqueMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.restore import apply_restore, canonical_ruleset, parse_restore
from kproxy.netfilter.iptables.rule import Counters, Rule
from kproxy.netfilter.iptables.ruleset import Chain, Ruleset, Table
from kproxy.netfilter.iptables.save import canonicalize_rule, detect_family, parse_rule, parse_save, print_save
from kproxy.netfilter.iptables.targets import ACCEPT, DROP, QUEUE, RETURN, Jump, OpaqueTarget, Target, Verdict

if TYPE_CHECKING:
    from kproxy.netfilter.nftables.check import check_nft
    from kproxy.netfilter.nftables.errors import NftApplyError, NftSyntaxError
    from kproxy.netfilter.nftables.ruleset import NftRuleset, TableFamily
    from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
    from kproxy.netfilter.nftables.text import parse_nft, print_nft, print_table

_NFTABLES = {
    "check": ("check_nft",),
    "errors": ("NftApplyError", "NftSyntaxError"),
    "text": ("print_nft", "print_table", "parse_nft"),
    "style": ("BOOKWORM", "TRIXIE", "Style"),
    "ruleset": ("NftRuleset", "TableFamily"),
}
"""What is imported when it is first used, by modules of `kproxy.netfilter.nftables`."""

__all__ = [
    "ACCEPT",
    "BOOKWORM",
    "BUILTIN_CHAINS",
    "DROP",
    "QUEUE",
    "RETURN",
    "TRIXIE",
    "Address",
    "AddressRange",
    "Chain",
    "Counters",
    "Family",
    "Jump",
    "Masked",
    "Match",
    "Negatable",
    "Network",
    "NftApplyError",
    "NftRuleset",
    "NftSyntaxError",
    "OpaqueMatch",
    "OpaqueTarget",
    "Problem",
    "Range",
    "RestoreError",
    "Rule",
    "RuleSyntaxError",
    "Ruleset",
    "Style",
    "Table",
    "TableFamily",
    "Target",
    "Verdict",
    "apply_restore",
    "canonical_ruleset",
    "canonicalize_rule",
    "check_nft",
    "check_ruleset",
    "detect_family",
    "line_of_rule",
    "parse_nft",
    "parse_restore",
    "parse_rule",
    "parse_save",
    "print_nft",
    "print_save",
    "print_table",
]


def __getattr__(name: str) -> object:
    module = next((module for module, names in _NFTABLES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.nftables.{module}"), name))
